#include "core/runtime/http_reply.h"

#include <string.h>
#include <strings.h>

enum { INTERIM_COST = 64 }; /* of an interim answer without a header */

static struct http_reply *of(const http_parser *parser)
{
    return parser->data;
}

static int refuse(struct http_reply *r, const char *why)
{
    if (r->why == NULL)
        r->why = why;
    return -1;
}

/* ---- headers --------------------------------------------------------------------------------- */

/* A part of a name or value that came in more than one: `*at` then points into `joined`. */
static void extend(struct buf *joined, const char **at, size_t *len, const char *more,
                   size_t more_len)
{
    if (*at != joined->data || *len != joined->len) {
        buf_clear(joined);
        buf_add(joined, *at, *len);
    }
    buf_add(joined, more, more_len);
    *at = joined->data;
    *len = joined->len;
}

static bool is_name(const char *name, size_t len)
{
    return len > 0 && memchr(name, ' ', len) == NULL && memchr(name, '\t', len) == NULL;
}

static bool is_coding_chunked(const char *value, size_t len)
{
    while (len > 0 && (value[len - 1] == ' ' || value[len - 1] == '\t'))
        len--;
    return len == 7 && strncasecmp(value, "chunked", 7) == 0;
}

/* The header read so far is whole. */
static int header_over(struct http_reply *r)
{
    struct transfer *t = r->transfer;

    if (r->part == REPLY_NOTHING)
        return 0;
    if (!is_name(r->name_at, r->name_len))
        return refuse(r, "a header with a blank in its name");
    if (r->part == REPLY_NAME) { /* an empty value */
        r->value_at = "";
        r->value_len = 0;
    }
    r->part = REPLY_NOTHING;
    if (t->head_complete) /* a trailer */
        return 0;
    if (r->name_len == 17 && strncasecmp(r->name_at, "transfer-encoding", 17) == 0) {
        r->bad_coding =
            r->bad_coding || r->chunked || !is_coding_chunked(r->value_at, r->value_len);
        r->chunked = true;
    }
    return transfer_add_header(t, r->name_at, r->name_len, r->value_at, r->value_len) ? 0 : -1;
}

static int on_field(http_parser *parser, const char *at, size_t len)
{
    struct http_reply *r = of(parser);

    if (r->part == REPLY_NAME) {
        if (r->name_len + len > HEAD_MAX)
            return refuse(r, "the head of the answer is too large");
        extend(&r->name, &r->name_at, &r->name_len, at, len);
        return 0;
    }
    if (header_over(r) != 0)
        return -1;
    r->part = REPLY_NAME;
    r->name_at = at;
    r->name_len = len;
    return 0;
}

static int on_value(http_parser *parser, const char *at, size_t len)
{
    struct http_reply *r = of(parser);
    bool cut = at + len == r->piece_end;

    if (r->part == REPLY_VALUE) {
        if (!r->value_cut)
            return refuse(r, "a folded header");
        if (r->value_len + len > HEAD_MAX)
            return refuse(r, "the head of the answer is too large");
        extend(&r->value, &r->value_at, &r->value_len, at, len);
    } else {
        r->part = REPLY_VALUE;
        r->value_at = at;
        r->value_len = len;
    }
    r->value_cut = cut;
    return 0;
}

/* The bytes go away: what was read of a header by now is kept. */
static void keep_parts(struct http_reply *r)
{
    if (r->part != REPLY_NOTHING && r->name_at != r->name.data)
        extend(&r->name, &r->name_at, &r->name_len, "", 0);
    if (r->part == REPLY_VALUE && r->value_at != r->value.data)
        extend(&r->value, &r->value_at, &r->value_len, "", 0);
}

static int on_headers_complete(http_parser *parser)
{
    struct http_reply *r = of(parser);
    struct transfer *t = r->transfer;

    if (header_over(r) != 0)
        return -1;
    if (parser->http_major != 1)
        return refuse(r, "an answer that is not HTTP/1");
    if (parser->status_code == 101)
        return refuse(r, "it switched the protocol without being asked");
    if (parser->status_code < 100)
        return refuse(r, "a status that is none");
    if (r->bad_coding || (r->chunked && parser->http_minor == 0))
        return refuse(r, "a Transfer-Encoding that is not known here");
    if (parser->status_code < 200)
        return 1;
    t->status = (int)parser->status_code;
    transfer_head_over(t);
    return t->head_request || t->status == 204 || t->status == 304 ? 1 : 0;
}

/* ---- body and end ---------------------------------------------------------------------------- */

static int on_body(http_parser *parser, const char *at, size_t len)
{
    struct transfer *t = of(parser)->transfer;

    return t->owner->body(t->owner_ctx, at, len) ? 0 : -1;
}

static int on_message_complete(http_parser *parser)
{
    struct http_reply *r = of(parser);

    if (r->transfer->head_complete) {
        if (header_over(r) != 0) /* the last trailer */
            return -1;
        r->over = true;
        r->keep_alive = http_should_keep_alive(parser) != 0;
    }
    http_parser_pause(parser, 1);
    return 0;
}

static const http_parser_settings settings = {
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

/* ---- for the user ---------------------------------------------------------------------------- */

static void message_begin(struct http_reply *r)
{
    http_parser_init(&r->parser, HTTP_RESPONSE);
    r->parser.data = r;
    r->part = REPLY_NOTHING;
    r->chunked = r->bad_coding = false;
}

void http_reply_begin(struct http_reply *r, struct transfer *t)
{
    r->transfer = t;
    r->why = NULL;
    r->started = r->over = r->keep_alive = false;
    r->interim_bytes = 0;
    message_begin(r);
    transfer_head_restart(t);
}

void http_reply_fini(struct http_reply *r)
{
    buf_fini(&r->name);
    buf_fini(&r->value);
}

/* An interim answer is over: the next one begins. Its headers are forgotten, their bytes count. */
static bool interim_over(struct http_reply *r)
{
    r->interim_bytes += r->transfer->head.len + INTERIM_COST;
    transfer_head_restart(r->transfer);
    if (r->interim_bytes > HEAD_MAX)
        return false;
    message_begin(r);
    return true;
}

enum reply_result http_reply_feed(struct http_reply *r, const char *bytes, size_t len)
{
    const char *end = bytes + len;
    enum http_errno errnum;

    r->started = true;
    r->piece_end = end;
    while (bytes < end) {
        bytes += http_parser_execute(&r->parser, &settings, bytes, (size_t)(end - bytes));
        errnum = HTTP_PARSER_ERRNO(&r->parser);
        if (errnum == HPE_OK) {
            keep_parts(r);
            return REPLY_MORE;
        }
        if (errnum != HPE_PAUSED) {
            refuse(r, http_errno_description(errnum));
            return REPLY_BAD;
        }
        if (r->over) {
            r->keep_alive = r->keep_alive && bytes == end;
            return REPLY_OVER;
        }
        if (!interim_over(r)) {
            refuse(r, "the head of the answer is too large");
            return REPLY_BAD;
        }
    }
    return REPLY_MORE;
}

enum reply_result http_reply_eof(struct http_reply *r)
{
    if (!r->transfer->head_complete)
        return REPLY_MORE;
    http_parser_execute(&r->parser, &settings, "", 0);
    r->keep_alive = false;
    return r->over ? REPLY_OVER : REPLY_MORE;
}
