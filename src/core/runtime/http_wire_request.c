/* From struct http_request to a target and the bytes of a head. */
#include "core/runtime/http_wire.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

struct target {
    const char *host; /* within the URL; without brackets */
    size_t host_len;
    const char *authority; /* as written, for the Host header */
    size_t authority_len;
    const char *path;
    size_t path_len;
    uint16_t port;
};

static bool is_host_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           (c >= 'A' && c <= 'Z') || c == '_';
}

static bool read_port(const char *at, const char *end, uint16_t *ret)
{
    uint32_t port = 0;

    for (const char *p = at; p < end; p++) {
        if (*p < '0' || *p > '9')
            return false;
        port = port * 10 + (uint32_t)(*p - '0');
        if (port > 65535)
            return false;
    }
    *ret = (uint16_t)(at == end ? 80 : port); /* "host:" is allowed (RFC 3986 §3.2.3) */
    return *ret != 0;
}

/* RFC 3986 §3, what we use of it. User names, escapes and zones in the authority are left to
 * libcurl, and so is all that is malformed: it says what is wrong. */
static bool target_read(const char *url, struct target *ret)
{
    const char *at, *end;

    if (strncasecmp(url, "http://", 7) != 0)
        return false;
    ret->authority = at = url + 7;
    if (*at == '[') {
        ret->host = ++at;
        while ((*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'f') ||
               (*at >= 'A' && *at <= 'F') || *at == ':' || *at == '.')
            at++;
        ret->host_len = (size_t)(at - ret->host);
        if (*at++ != ']')
            return false;
    } else {
        ret->host = at;
        while (is_host_char(*at))
            at++;
        ret->host_len = (size_t)(at - ret->host);
    }
    ret->authority_len = (size_t)(at - ret->authority);
    ret->port = 80;
    if (*at == ':') {
        end = at + 1 + strspn(at + 1, "0123456789");
        if (!read_port(at + 1, end, &ret->port))
            return false;
        at = end;
        if (ret->port != 80)
            ret->authority_len = (size_t)(at - ret->authority);
    }
    ret->path = at;
    ret->path_len = (size_t)(strchrnul(at, '#') - at);
    return ret->host_len > 0 && ret->host_len <= WIRE_HOST_MAX &&
           (*at == '\0' || *at == '/' || *at == '?' || *at == '#');
}

bool wire_carries(const struct http_client *client, const struct http_request *request)
{
    struct target target;

    if (client->curl_only && request->dialer == NULL)
        return false;
    if (client->proxy != NULL && request->dialer == NULL && request->unix_socket == NULL)
        return false;
    return target_read(request->url, &target) && memchr(target.path, ' ', target.path_len) == NULL;
}

/* ---- the origin ------------------------------------------------------------------------------ */

static bool find_origin(struct wire_transfer *t, struct error *err)
{
    char key[WIRE_HOST_MAX + 128];
    size_t len;
    const char *name;

    if (t->dialer == NULL && t->unix_socket == NULL) {
        key[0] = 't';
        key[1] = (char)(t->port >> 8);
        key[2] = (char)(t->port & 0xff);
        memcpy(key + 3, t->host, t->host_len);
        len = t->host_len + 3;
    } else {
        name = t->dialer != NULL ? t->dialer->key : t->unix_socket;
        len = strlen(name) + 1;
        if (len > sizeof(key)) {
            error_set(err, ERR_BAD_REQUEST, "the name of a socket or tunnel for %s is too long",
                      t->base.peer);
            return false;
        }
        key[0] = t->dialer != NULL ? 'd' : 'u';
        memcpy(key + 1, name, len - 1);
    }
    t->origin = wire_origin_hold(t->base.client->wire, key, len);
    return true;
}

/* ---- the head -------------------------------------------------------------------------------- */

/* The head is written through a cursor into room that was reserved for all of it. */
static char *put(char *to, const char *bytes, size_t len)
{
    memcpy(to, bytes, len);
    return to + len;
}

#define PUT(to, text) put((to), "" text, sizeof(text) - 1)

static char *put_length(char *to, uint64_t length)
{
    char digits[24], *at = digits + sizeof(digits);

    do
        *--at = (char)('0' + length % 10);
    while ((length /= 10) > 0);
    to = PUT(to, "Content-Length: ");
    to = put(to, at, (size_t)(digits + sizeof(digits) - at));
    return PUT(to, "\r\n");
}

/* The start line and what we say ourselves. */
static void write_start(struct buf *out, const char *method, const struct target *target)
{
    size_t method_len = strlen(method);
    char *to;

    buf_reserve(out, method_len + target->path_len + target->authority_len + 128);
    to = put(out->data, method, method_len);
    *to++ = ' ';
    if (target->path_len == 0 || *target->path != '/')
        *to++ = '/';
    to = put(to, target->path, target->path_len);
    to = PUT(to, " HTTP/1.1\r\nHost: ");
    to = put(to, target->authority, target->authority_len);
    to = PUT(to, "\r\nUser-Agent: " HTTP_USER_AGENT "\r\n");
    out->len = (size_t)(to - out->data);
}

static bool write_header(struct buf *out, const struct http_request *request, size_t i,
                         struct error *err)
{
    struct http_header_text h;
    char *to;

    if (!http_header_read(request, i, &h, err))
        return false;
    if (http_is_own_header(h.name) || (h.name_len == 4 && strcasecmp(h.name, "host") == 0))
        return true;
    buf_reserve(out, h.name_len + h.value_len + 4);
    to = put(out->data + out->len, h.name, h.name_len);
    *to++ = ':';
    if (h.value_len > 0)
        *to++ = ' ';
    to = put(to, h.value, h.value_len);
    to = PUT(to, "\r\n");
    out->len = (size_t)(to - out->data);
    return true;
}

static void write_framing(struct wire_transfer *t)
{
    char *to;

    buf_reserve(&t->out, 64);
    to = t->out.data + t->out.len;
    if (t->base.form == FORM_MEMORY)
        to = put_length(to, t->base.body_len);
    else if (t->base.form == FORM_UPLOAD && t->base.upload_len >= 0)
        to = put_length(to, (uint64_t)t->base.upload_len);
    else if (t->base.form == FORM_UPLOAD)
        to = PUT(to, "Transfer-Encoding: chunked\r\n");
    to = PUT(to, "\r\n");
    t->out.len = (size_t)(to - t->out.data);
}

bool wire_prepare(struct transfer *base, const struct http_request *request, struct error *err)
{
    struct wire_transfer *t = container_of(base, struct wire_transfer, base);
    struct target target;

    PRE(target_read(request->url, &target)); /* wire_carries has said so */
    t->dialer = request->dialer;
    t->unix_socket = request->unix_socket;
    t->host = target.host;
    t->host_len = target.host_len;
    t->port = target.port;
    t->fresh = request->fresh;
    t->uploaded = 0;
    t->sent = t->repeated = t->upload_over = false;
    write_start(&t->out, request->method, &target);
    for (size_t i = 0; i < request->n_headers; i++) {
        if (!write_header(&t->out, request, i, err))
            return false;
    }
    write_framing(t);
    return find_origin(t, err);
}
