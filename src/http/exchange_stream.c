/* Bodies that stream: the request's to the handler, the reply's to the client. */
#include "core/runtime/quote.h"
#include "http/exchange_impl.h"
#include "http/gate.h"
#include "http/reply.h"
#include "http/server_impl.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { QUEUED_MAX = 65536 }; /* what exchange_reply_data's callers keep below */

void exchange_stream(struct exchange *x, const struct exchange_stream_events *events, void *ctx)
{
    struct exchange_impl *impl = exchange_impl(x);

    PRE((x->route->flags & ROUTE_STREAM) != 0 && impl->stream == NULL);
    impl->stream = events;
    impl->stream_ctx = ctx;
}

/* While the handler does not take the body, the client cannot be late with it. */
void exchange_body_pause(struct exchange *x)
{
    struct exchange_impl *impl = exchange_impl(x);

    if (impl->gate == NULL || impl->body_over)
        return;
    gate_pause_body(impl->gate, true);
    exchange_watch_request(impl);
}

/* Whoever waits for 100 Continue has been heard now: the handler wants the body. */
void exchange_body_resume(struct exchange *x)
{
    struct exchange_impl *impl = exchange_impl(x);

    if (impl->gate == NULL || impl->body_over)
        return;
    gate_pause_body(impl->gate, false);
    exchange_watch_body(impl);
}

static bool is_field_name(const char *name)
{
    return name[0] != '\0' && name[strspn(name, "!#$%&'*+-.^_`|~0123456789"
                                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                "abcdefghijklmnopqrstuvwxyz")] == '\0';
}

/* Headers of a streamed reply; those about framing and the connection are the edge's own, and what
 * a peer sent that no header can hold is left out. */
static const char *take_headers(struct exchange_impl *x, const struct http_header *headers,
                                size_t n_headers)
{
    static const char *const own[] = {
        "content-length", "transfer-encoding", "connection", "keep-alive", "date", "x-request-id"};
    const char *content_type = NULL;

    for (size_t i = 0; i < n_headers; i++) {
        bool skip = !quote_is_header_safe(headers[i].value) || !is_field_name(headers[i].name);
        for (size_t k = 0; k < sizeof(own) / sizeof(own[0]); k++)
            skip = skip || strcasecmp(headers[i].name, own[k]) == 0;
        if (skip)
            continue;
        if (strcasecmp(headers[i].name, "content-type") == 0)
            content_type = headers[i].value;
        else
            exchange_add_header(&x->x, headers[i].name, headers[i].value);
    }
    return content_type;
}

void exchange_reply_begin(struct exchange *x, int status, const struct http_header *headers,
                          size_t n_headers, int64_t length)
{
    struct exchange_impl *impl = exchange_impl(x);
    const char *content_type;
    bool known = length >= 0;

    PRE(!x->replied);
    x->replied = true;
    impl->status = status >= 200 && status < 600 ? status : 502; /* a peer's may be anything */
    impl->reply = REPLY_STREAMING;
    if (impl->gate == NULL)
        return;
    content_type = take_headers(impl, headers, n_headers);
    impl->reply_bodyless = impl->head_only || reply_is_bodyless(impl->status);
    impl->reply_chunked = !known && !impl->http_1_0 && !reply_is_bodyless(impl->status);
    impl->reply_left = known ? length : -1;
    exchange_write_head(impl, content_type, reply_is_bodyless(impl->status) ? -1 : length,
                        impl->reply_chunked, known || !impl->http_1_0 || impl->reply_bodyless);
    gate_wake(impl->gate);
}

static void add_chunk(struct evbuffer *out, const void *bytes, size_t len)
{
    char size[20];
    int n = snprintf(size, sizeof(size), "%zx\r\n", len);

    evbuffer_add(out, size, (size_t)n);
    evbuffer_add(out, bytes, len);
    evbuffer_add(out, "\r\n", 2);
}

size_t exchange_reply_data(struct exchange *x, const void *bytes, size_t len)
{
    struct exchange_impl *impl = exchange_impl(x);
    struct evbuffer *out;
    size_t queued;

    PRE(impl->reply == REPLY_STREAMING);
    if (impl->gate == NULL)
        return 0;
    out = gate_output(impl->gate);
    if (impl->reply_left >= 0) { /* more than was promised would be read as another reply */
        len = (int64_t)len < impl->reply_left ? len : (size_t)impl->reply_left;
        impl->reply_left -= (int64_t)len;
    }
    if (len > 0 && !impl->reply_bodyless) {
        if (impl->reply_chunked)
            add_chunk(out, bytes, len);
        else
            evbuffer_add(out, bytes, len);
        impl->bytes_sent += len;
    }
    queued = evbuffer_get_length(out);
    impl->blocked = queued > QUEUED_MAX;
    gate_wake(impl->gate);
    return queued;
}

void exchange_reply_end(struct exchange *x, bool complete)
{
    struct exchange_impl *impl = exchange_impl(x);

    PRE(impl->reply == REPLY_STREAMING);
    impl->reply = REPLY_DONE;
    if (impl->gate == NULL)
        return;
    if (impl->reply_left > 0 && !impl->reply_bodyless)
        complete = false;
    if (complete && impl->reply_chunked && !impl->reply_bodyless)
        evbuffer_add(gate_output(impl->gate), "0\r\n\r\n", 5);
    gate_reply_done(impl->gate, !complete);
}

bool exchange_output_empty(struct exchange_impl *x)
{
    if (!x->blocked || x->reply != REPLY_STREAMING)
        return false;
    x->blocked = false;
    if (x->stream == NULL || x->stream->on_writable == NULL)
        return false;
    x->stream->on_writable(&x->x, x->stream_ctx);
    return true;
}
