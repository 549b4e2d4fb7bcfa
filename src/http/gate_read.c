/* Reading one request: its head, checked and handed to libevhtp, then its body. */
#include "http/gate.h"

#include "core/runtime/metrics.h"
#include "http/exchange_impl.h"
#include "http/server_impl.h"

#include <event2/buffer.h>

/* ---- a request's head ------------------------------------------------------------------------- */

/* Where the next bytes are: what was held back comes before what was read later. */
struct evbuffer *gate_source(struct gate *g)
{
    return g->hold != NULL && evbuffer_get_length(g->hold) > 0 ? g->hold
                                                               : bufferevent_get_input(g->bev);
}

/* The held bytes are the beginning of a head: put the rest behind them. */
static bool hold_extend(struct gate *g, struct evbuffer *source)
{
    struct evbuffer *input = bufferevent_get_input(g->bev);

    return source == g->hold && evbuffer_get_length(input) > 0 &&
           evbuffer_add_buffer(g->hold, input) == 0;
}

/* Give libevhtp a head without query and framing fields. Its input is empty here. */
static void feed_canonical(struct gate *g, struct evbuffer *source, const struct request_head *head)
{
    struct evbuffer *canonical = server_scratch(g->server);
    const char *from = head->fields.at, *end = from + head->fields.len;

    evbuffer_add(canonical, head->method.at, head->method.len);
    evbuffer_add(canonical, " ", 1);
    evbuffer_add(canonical, head->path.at, head->path.len);
    evbuffer_add(canonical, head->http_1_0 ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n", 11);
    for (int i = 0; i < head->n_left_out; i++) {
        evbuffer_add(canonical, from, (size_t)(head->left_out[i].at - from));
        from = head->left_out[i].at + head->left_out[i].len;
    }
    evbuffer_add(canonical, from, (size_t)(end - from));
    evbuffer_add(canonical, "\r\n", 2);
    evbuffer_drain(source, head->length);
    evbuffer_prepend_buffer(bufferevent_get_input(g->bev), canonical);
}

static void feed(struct gate *g, struct evbuffer *source, const struct request_head *head)
{
    struct evbuffer *input = bufferevent_get_input(g->bev);

    if (source == input && head->canonical && evbuffer_get_length(input) == head->length) {
        g->htp_read(g->bev, g->htp_ctx);
        return;
    }
    if (source == input) {
        if (g->hold == NULL)
            g->hold = evbuffer_new();
        PRE(g->hold != NULL);
        evbuffer_add_buffer(g->hold, input);
        source = g->hold;
    }
    feed_canonical(g, source, head);
    g->htp_read(g->bev, g->htp_ctx);
}

static void request_begin(struct gate *g, struct evbuffer *source, const char *bytes, size_t length)
{
    struct request_head head;
    struct error err;

    if (!request_head_check(bytes, length, &head, &err)) {
        gate_refuse(g, &err);
        return;
    }
    g->search = (struct head_search){0};
    g->chunks = (struct chunked){0};
    g->body_left = head.content_length;
    g->client_keeps = head.keep_alive;
    g->expects = head.expect_continue;
    g->discard = g->paused = g->reply_done = g->broken = false;
    g->x = exchange_new(g, &head); /* copies what it needs: feeding invalidates the slices */
    g->requests++;
    server_feeding(g->server, g);
    feed(g, source, &head);
    server_feeding(g->server, NULL);
    if (g->state == GATE_CLOSED)
        return;
    if (g->request == NULL) { /* the two parsers disagree: a fault of ours */
        struct exchange_impl *x = g->x;
        g->x = NULL;
        exchange_client_gone(x);
        error_set(&err, ERR_BAD_REQUEST, "the request head could not be read");
        gate_refuse(g, &err);
        return;
    }
    g->state = GATE_BODY;
    exchange_dispatch(g->x);
}

bool gate_head_step(struct gate *g)
{
    struct evbuffer *source = gate_source(g);
    size_t limit = g->server->options.max_header_bytes;
    size_t have = evbuffer_get_length(source);
    size_t look = have < limit ? have : limit;
    const char *bytes;
    struct error err;
    long length;

    if (have == g->search.scanned && (have < limit || have == 0))
        return hold_extend(g, source);
    bytes = (const char *)evbuffer_pullup(source, (ev_ssize_t)look);
    length = request_head_search(&g->search, bytes, look);
    if (length > 0) {
        request_begin(g, source, bytes, (size_t)length);
        return true;
    }
    if (length < 0) {
        error_set(&err, ERR_BAD_REQUEST, "a line of the request head does not end in CRLF");
        gate_refuse(g, &err);
        return true;
    }
    if (have >= limit) {
        error_set(&err, ERR_HEADERS_TOO_LARGE, "the request head is larger than %zu bytes", limit);
        gate_refuse(g, &err);
        return true;
    }
    if (g->deadline != DEADLINE_HEAD)
        gate_set_deadline(g, DEADLINE_HEAD, g->server->options.header_timeout_ms);
    return hold_extend(g, source);
}

/* ---- its body --------------------------------------------------------------------------------- */

static bool body_over(struct gate *g)
{
    g->state = GATE_WAIT;
    g->expects = false;
    if (!g->discard)
        exchange_body_over(g->x);
    return true;
}

static void body_bad(struct gate *g)
{
    struct error err;

    error_set(&err, ERR_BAD_REQUEST, "the chunked body is malformed");
    metric_add(METRIC_HTTP_REJECTED, LABELS(err_wire(err.code)), 1);
    g->client_keeps = g->keep = false;
    if (!g->discard)
        exchange_body_failed(g->x, &err); /* replies, or cuts a reply that has begun */
    gate_discard_body(g);
    gate_linger(g);
}

static bool body_chunked_step(struct gate *g, struct evbuffer *source, struct evbuffer_iovec v)
{
    const char *data = NULL;
    size_t used = 0, len = 0;
    enum chunked_result result =
        chunked_next(&g->chunks, v.iov_base, v.iov_len, &used, &data, &len);

    if (result == CHUNKED_BAD) {
        body_bad(g);
        return true;
    }
    if (result == CHUNKED_DATA && !g->discard)
        exchange_body_bytes(g->x, data, len);
    evbuffer_drain(source, used);
    return result == CHUNKED_END ? body_over(g) : true;
}

bool gate_body_step(struct gate *g)
{
    struct evbuffer *source = gate_source(g);
    struct evbuffer_iovec v;
    size_t len;

    if (g->paused)
        return false;
    if (g->body_left == 0)
        return body_over(g);
    if (g->reply_done && !g->keep) { /* refused early: the rest is not worth reading */
        gate_linger(g);
        return true;
    }
    if (evbuffer_peek(source, -1, NULL, &v, 1) < 1 || v.iov_len == 0)
        return false;
    g->expects = false;
    if (g->body_left < 0)
        return body_chunked_step(g, source, v);
    len = (int64_t)v.iov_len < g->body_left ? v.iov_len : (size_t)g->body_left;
    g->body_left -= (int64_t)len;
    if (!g->discard)
        exchange_body_bytes(g->x, v.iov_base, len);
    evbuffer_drain(source, len);
    return true;
}
