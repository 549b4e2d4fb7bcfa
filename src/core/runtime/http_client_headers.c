/* Headers of both directions, whichever transport: what a request may carry, and how the head of
 * an answer is kept and given on. */
#include "core/runtime/http_client_transfer.h"

#include <string.h>
#include <strings.h>
#include <time.h>

/* RFC 9110 §5.6.2: the characters of a token, a bit for each of ASCII. */
static const uint64_t token_bits[2] = {UINT64_C(0x3ff6cfa00000000), UINT64_C(0x57ffffffc7fffffe)};

static bool is_token_char(unsigned char c)
{
    return c < 128 && (token_bits[c >> 6] >> (c & 63) & 1) != 0;
}

static bool is_value_char(unsigned char c)
{
    return (c >= 0x20 && c != 0x7f) || c == '\t';
}

static size_t token_len(const char *text)
{
    const char *p = text;

    while (is_token_char((unsigned char)*p))
        p++;
    return *p == '\0' ? (size_t)(p - text) : 0;
}

/* Eight bytes at a time: whether one may be a control character (below 0x20, or 0x7f). */
static bool may_have_control(uint64_t bytes)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    uint64_t no_del = bytes ^ (ones * 0x7f);

    return ((((bytes - ones * 0x20) & ~bytes) | ((no_del - ones) & ~no_del)) & tops) != 0;
}

static bool is_value(const char *text, size_t len)
{
    uint64_t bytes;
    size_t i = 0;

    for (; i + sizeof(bytes) <= len; i += sizeof(bytes)) {
        memcpy(&bytes, text + i, sizeof(bytes));
        if (may_have_control(bytes))
            break;
    }
    for (; i < len; i++) {
        if (!is_value_char((unsigned char)text[i]))
            return false;
    }
    return true;
}

bool http_is_token(const char *text)
{
    return token_len(text) > 0;
}

bool http_is_value(const char *text)
{
    return is_value(text, strlen(text));
}

bool http_header_read(const struct http_request *request, size_t i, struct http_header_text *ret,
                      struct error *err)
{
    const struct http_header *h = &request->headers[i];

    if (h->name != NULL && h->value != NULL) {
        *ret = (struct http_header_text){h->name, h->value, token_len(h->name), strlen(h->value)};
        if (ret->name_len > 0 && is_value(h->value, ret->value_len))
            return true;
    }
    error_set(err, ERR_BAD_REQUEST, "a header for %s has a name or value that no header may have",
              request->peer);
    return false;
}

bool http_is_own_header(const char *name)
{
    static const char *const own[] = {"content-length",
                                      "transfer-encoding",
                                      "connection",
                                      "keep-alive",
                                      "upgrade",
                                      "expect",
                                      "te",
                                      "trailer",
                                      "proxy-connection"};

    if (strchr("ctkuepCTKUEP", name[0]) == NULL) /* most are none, and end here */
        return false;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        if (strcasecmp(name, own[i]) == 0)
            return true;
    }
    return false;
}

/* ---- the answer ----------------------------------------------------------------------------- */

void transfer_head_restart(struct transfer *t)
{
    buf_clear(&t->head);
    t->n_headers = 0;
    t->status = 0;
    t->head_complete = false;
}

bool transfer_add_header(struct transfer *t, const char *name, size_t name_len, const char *value,
                         size_t value_len)
{
    char *to;

    while (value_len > 0 && (value[0] == ' ' || value[0] == '\t'))
        value++, value_len--;
    while (value_len > 0 && (value[value_len - 1] == ' ' || value[value_len - 1] == '\t'))
        value_len--;
    if (name_len + value_len + 2 > HEAD_MAX - t->head.len) {
        transfer_refuse(t, ERR_UPSTREAM_PROTOCOL, "the head of the answer is too large");
        return false;
    }
    buf_reserve(&t->head, name_len + value_len + 2);
    to = t->head.data + t->head.len;
    for (size_t i = 0; i < name_len; i++)
        *to++ = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + 32 : name[i]);
    *to++ = '\0';
    if (value_len > 0)
        memcpy(to, value, value_len);
    to[value_len] = '\0';
    t->head.len += name_len + value_len + 2;
    t->head.data[t->head.len] = '\0';
    t->n_headers++;
    return true;
}

void transfer_head_over(struct transfer *t)
{
    t->head_complete = true;
    if (t->owner->head != NULL)
        t->owner->head(t->owner_ctx);
}

/* RFC 9110 §10.2.3: seconds, or a date (of which only the preferred form is known here). */
static int64_t retry_after_ms(const char *value, int64_t wall_ms)
{
    int64_t after_ms = 0;
    struct tm date = {0};
    const char *end;

    if (value[0] >= '0' && value[0] <= '9') {
        for (end = value; *end >= '0' && *end <= '9'; end++) {
            after_ms = after_ms * 10 + (*end - '0') * 1000;
            if (after_ms > RETRY_AFTER_CAP_MS)
                after_ms = RETRY_AFTER_CAP_MS;
        }
    } else {
        end = strptime(value, "%a, %d %b %Y %H:%M:%S GMT", &date);
        if (end != NULL)
            after_ms = (int64_t)timegm(&date) * 1000 - wall_ms;
    }
    if (end == NULL || *end != '\0' || after_ms < 0)
        return 0;
    return after_ms < RETRY_AFTER_CAP_MS ? after_ms : RETRY_AFTER_CAP_MS;
}

void transfer_response(struct transfer *t, struct arena *arena, struct http_response *ret)
{
    char *at = arena_memdup(arena, buf_text(&t->head), t->head.len);
    struct http_header *headers = arena_alloc(arena, (t->n_headers + 1) * sizeof(*headers));

    *ret = (struct http_response){
        .status = t->status, .headers = headers, .n_headers = t->n_headers, .body = ""};
    for (size_t i = 0; i < t->n_headers; i++) {
        size_t name_len = strlen(at);
        headers[i].name = at;
        at += name_len + 1;
        headers[i].value = at;
        at += strlen(at) + 1;
        if (ret->retry_after_ms == 0 && name_len == 11 &&
            strcmp(headers[i].name, "retry-after") == 0)
            ret->retry_after_ms = retry_after_ms(headers[i].value, loop_wall_ms(t->client->loop));
    }
}
