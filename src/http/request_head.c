#include "http/request_head.h"

#include <string.h>
#include <strings.h>

/* ---- finding its end -------------------------------------------------------------------------- */

long request_head_search(struct head_search *search, const char *bytes, size_t len)
{
    while (search->scanned < len) {
        const char *lf = memchr(bytes + search->scanned, '\n', len - search->scanned);
        if (lf == NULL) {
            search->scanned = len;
            return 0;
        }
        size_t end = (size_t)(lf - bytes);
        if (end == search->line || bytes[end - 1] != '\r')
            return -1;
        bool empty = end == search->line + 1;
        search->scanned = search->line = end + 1;
        if (empty && search->begun)
            return (long)(end + 1);
        search->begun = search->begun || !empty;
    }
    return 0;
}

/* ---- characters ------------------------------------------------------------------------------- */

/* RFC 9110 section 5.6.2. Switches, here and below: they run for every byte of a head. */
static bool is_token_char(unsigned char c)
{
    if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'))
        return true;
    switch (c) {
    case '!':
    case '#':
    case '$':
    case '%':
    case '&':
    case '\'':
    case '*':
    case '+':
    case '-':
    case '.':
    case '^':
    case '_':
    case '`':
    case '|':
    case '~':
        return true;
    default:
        return false;
    }
}

/* What a target may hold: RFC 3986 characters; in a query also those that clients send raw. */
static bool is_target_char(unsigned char c, bool in_query)
{
    if (c <= ' ' || c >= 0x7F)
        return false;
    switch (c) {
    case '#':
        return false;
    case '"':
    case '<':
    case '>':
    case '\\':
    case '^':
    case '`':
    case '{':
    case '|':
    case '}':
        return in_query;
    default:
        return true;
    }
}

static bool slice_is(struct slice s, const char *text)
{
    return s.len == strlen(text) && strncasecmp(s.at, text, s.len) == 0;
}

static struct slice slice_trim(struct slice s)
{
    while (s.len > 0 && (s.at[0] == ' ' || s.at[0] == '\t')) {
        s.at++;
        s.len--;
    }
    while (s.len > 0 && (s.at[s.len - 1] == ' ' || s.at[s.len - 1] == '\t'))
        s.len--;
    return s;
}

static bool refuse(struct error *err, const char *what)
{
    error_set(err, ERR_BAD_REQUEST, "%s", what);
    return false;
}

/* ---- request line ----------------------------------------------------------------------------- */

static bool check_method(struct slice method, struct error *err)
{
    if (method.len == 0 || method.len > 16)
        return refuse(err, "the request line does not begin with a method");
    for (size_t i = 0; i < method.len; i++) {
        if (method.at[i] < 'A' || method.at[i] > 'Z')
            return refuse(err, "the request method is not made of capital letters");
    }
    if (slice_is(method, "CONNECT"))
        return refuse(err, "this server is no proxy: CONNECT is refused");
    return true;
}

/* Take scheme and authority off an absolute target (RFC 9112 section 3.2.2). */
static bool strip_authority(struct slice *target, struct request_head *head, struct error *err)
{
    const char *slash;

    if (target->len > 7 && strncasecmp(target->at, "http://", 7) == 0) {
        target->at += 7;
        target->len -= 7;
        slash = memchr(target->at, '/', target->len);
        if (slash == NULL || slash == target->at)
            return refuse(err, "the absolute request target has no host or no path");
        target->len -= (size_t)(slash - target->at);
        target->at = slash;
        head->canonical = false;
    }
    if (target->len == 0 || target->at[0] != '/')
        return refuse(err, "the request target is neither a path nor an http URL");
    return true;
}

static bool check_target(struct slice target, struct request_head *head, struct error *err)
{
    const char *mark;

    if (target.len > HEAD_TARGET_MAX) {
        error_set(err, ERR_HEADERS_TOO_LARGE, "the request target is longer than %d bytes",
                  HEAD_TARGET_MAX);
        return false;
    }
    if (!strip_authority(&target, head, err))
        return false;
    mark = memchr(target.at, '?', target.len);
    head->path = (struct slice){target.at, mark != NULL ? (size_t)(mark - target.at) : target.len};
    if (mark != NULL) {
        head->query = (struct slice){mark + 1, target.len - head->path.len - 1};
        head->canonical = false;
    }
    for (size_t i = 0; i < target.len; i++) {
        if (!is_target_char((unsigned char)target.at[i], i >= head->path.len))
            return refuse(err, "the request target has a character that must be percent-encoded");
    }
    return true;
}

static bool check_request_line(struct slice line, struct request_head *head, struct error *err)
{
    const char *first = memchr(line.at, ' ', line.len);
    const char *second;
    struct slice version;

    if (first == NULL)
        return refuse(err, "the request line has no target");
    head->method = (struct slice){line.at, (size_t)(first - line.at)};
    first++;
    second = memchr(first, ' ', line.len - (size_t)(first - line.at));
    if (second == NULL)
        return refuse(err, "the request line has no HTTP version");
    version = (struct slice){second + 1, line.len - (size_t)(second + 1 - line.at)};
    if (version.len != 8 || memcmp(version.at, "HTTP/1.", 7) != 0 ||
        (version.at[7] != '0' && version.at[7] != '1'))
        return refuse(err, "the HTTP version is neither HTTP/1.1 nor HTTP/1.0");
    head->http_1_0 = version.at[7] == '0';
    head->keep_alive = !head->http_1_0;
    return check_method(head->method, err) &&
           check_target((struct slice){first, (size_t)(second - first)}, head, err);
}

/* ---- fields ----------------------------------------------------------------------------------- */

/* Counts and findings while the fields go by. */
struct fields_seen {
    int total, hosts, lengths, encodings;
    bool close, keep_alive;
};

static bool take_content_length(struct slice value, struct request_head *head, struct error *err)
{
    int64_t length = 0;

    if (value.len == 0 || value.len > 15)
        return refuse(err, "Content-Length is not a sensible number");
    for (size_t i = 0; i < value.len; i++) {
        if (value.at[i] < '0' || value.at[i] > '9')
            return refuse(err, "Content-Length is not made of digits");
        length = length * 10 + (value.at[i] - '0');
    }
    head->content_length = length;
    return true;
}

static void take_connection(struct slice value, struct fields_seen *seen)
{
    while (value.len > 0) {
        const char *comma = memchr(value.at, ',', value.len);
        size_t len = comma != NULL ? (size_t)(comma - value.at) : value.len;
        struct slice option = slice_trim((struct slice){value.at, len});
        seen->close = seen->close || slice_is(option, "close");
        seen->keep_alive = seen->keep_alive || slice_is(option, "keep-alive");
        len = comma != NULL ? len + 1 : len;
        value.at += len;
        value.len -= len;
    }
}

static bool take_host(struct slice value, struct request_head *head, struct error *err)
{
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.at[i];
        if (c <= ' ' || c >= 0x7F || strchr("/?#@\\,\"<>", c) != NULL)
            return refuse(err, "the Host header is not a host and port");
    }
    head->host = value;
    return true;
}

static bool take_encoding(struct slice value, struct request_head *head, struct error *err)
{
    if (!slice_is(value, "chunked"))
        return refuse(err, "the only Transfer-Encoding understood is chunked");
    if (head->http_1_0)
        return refuse(err, "HTTP/1.0 has no Transfer-Encoding");
    head->chunked = true;
    return true;
}

/* Fields that say where the message ends or what the connection does: libevhtp never sees them. */
static bool take_framing(struct slice line, struct slice name, struct slice value,
                         struct request_head *head, struct fields_seen *seen, struct error *err)
{
    if (slice_is(name, "content-length")) {
        if (++seen->lengths > 1)
            return refuse(err, "there is more than one Content-Length");
        if (!take_content_length(value, head, err))
            return false;
    } else if (slice_is(name, "transfer-encoding")) {
        if (++seen->encodings > 1)
            return refuse(err, "there is more than one Transfer-Encoding");
        if (!take_encoding(value, head, err))
            return false;
    } else if (slice_is(name, "expect")) {
        if (head->expect_continue)
            return refuse(err, "there is more than one Expect");
        if (!slice_is(value, "100-continue")) {
            error_set(err, ERR_EXPECTATION_FAILED,
                      "the only expectation understood is 100-continue");
            return false;
        }
        head->expect_continue = true;
    } else {
        return true;
    }
    head->left_out[head->n_left_out++] = line;
    head->canonical = false;
    return true;
}

static bool take_field(struct slice line, struct slice name, struct slice value,
                       struct request_head *head, struct fields_seen *seen, struct error *err)
{
    switch (name.len) {
    case 4:
        if (!slice_is(name, "host"))
            return true;
        if (++seen->hosts > 1)
            return refuse(err, "there is more than one Host header");
        return take_host(value, head, err);
    case 10:
        if (slice_is(name, "connection"))
            take_connection(value, seen);
        return true;
    case 11:
        if (slice_is(name, "traceparent"))
            head->traceparent = value;
        return true;
    case 12:
        if (slice_is(name, "x-request-id"))
            head->request_id = value;
        return true;
    case 13:
        if (slice_is(name, "authorization") && head->authorization.at != NULL)
            return refuse(err, "there is more than one Authorization header");
        if (slice_is(name, "authorization"))
            head->authorization = value;
        return true;
    case 6:
    case 14:
    case 17:
        return take_framing(line, name, value, head, seen, err);
    default:
        return true;
    }
}

static bool check_field_line(struct slice line, struct request_head *head, struct fields_seen *seen,
                             struct error *err)
{
    struct slice name = {line.at, 0}, value;

    if (++seen->total > HEAD_FIELDS_MAX) {
        error_set(err, ERR_HEADERS_TOO_LARGE, "there are more than %d header fields",
                  HEAD_FIELDS_MAX);
        return false;
    }
    while (name.len < line.len && is_token_char((unsigned char)line.at[name.len]))
        name.len++;
    if (name.len == 0 || name.len == line.len || line.at[name.len] != ':')
        return refuse(err, "a header line is not a name directly followed by a colon");
    value = (struct slice){line.at + name.len + 1, line.len - name.len - 1};
    if (value.len > HEAD_TARGET_MAX || name.len > HEAD_TARGET_MAX) {
        error_set(err, ERR_HEADERS_TOO_LARGE, "a header field is longer than %d bytes",
                  HEAD_TARGET_MAX);
        return false;
    }
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.at[i];
        if ((c < ' ' && c != '\t') || c == 0x7F)
            return refuse(err, "a header value has a control character");
    }
    return take_field((struct slice){line.at, line.len + 2}, name, slice_trim(value), head, seen,
                      err);
}

static bool check_fields(struct request_head *head, struct error *err)
{
    const char *at = head->fields.at, *end = at + head->fields.len;
    struct fields_seen seen = {0};

    while (at < end) {
        const char *lf = memchr(at, '\n', (size_t)(end - at));
        if (!check_field_line((struct slice){at, (size_t)(lf - at) - 1}, head, &seen, err))
            return false;
        at = lf + 1;
    }
    if (seen.hosts == 0 && !head->http_1_0)
        return refuse(err, "the Host header is missing");
    if (seen.lengths > 0 && seen.encodings > 0)
        return refuse(err, "there are both Content-Length and Transfer-Encoding");
    if (seen.close)
        head->keep_alive = false;
    else if (head->http_1_0)
        head->keep_alive = seen.keep_alive;
    if (head->chunked)
        head->content_length = -1;
    if (head->http_1_0 || head->content_length == 0)
        head->expect_continue = false; /* RFC 9110 section 10.1.1: ignored */
    return true;
}

bool request_head_check(const char *bytes, size_t len, struct request_head *ret, struct error *err)
{
    const char *at = bytes, *end = bytes + len, *line_end;

    *ret = (struct request_head){.length = len, .canonical = true};
    PRE(len >= 4 && memcmp(end - 4, "\r\n\r\n", 4) == 0);
    while (end - at > 4 && at[0] == '\r' && at[1] == '\n')
        at += 2;
    ret->start = (size_t)(at - bytes);
    if (ret->start > 0)
        ret->canonical = false;
    line_end = memchr(at, '\n', (size_t)(end - at));
    if (!check_request_line((struct slice){at, (size_t)(line_end - at) - 1}, ret, err))
        return false;
    ret->fields = (struct slice){line_end + 1, (size_t)(end - 2 - (line_end + 1))};
    return check_fields(ret, err);
}
