#include "http/gate.h"

#include "core/runtime/metrics.h"
#include "http/exchange_impl.h"
#include "http/server_impl.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    DISCARD_MAX = 65536, /* body bytes thrown away to keep a connection */
    LINGER_MS = 3000,    /* time for a refused client to read its answer */
    INPUT_SLACK = 65536, /* pipelined or paused input held beyond the largest head */
};

/* ---- deadlines -------------------------------------------------------------------------------- */

/* One timer per connection, armed early and looked at when it fires: no work per request. */
void gate_set_deadline(struct gate *g, enum gate_deadline which, int64_t after_ms)
{
    int64_t due_ms = loop_now_ms(g->loop) + after_ms;

    g->deadline = which;
    g->deadline_ms = due_ms;
    if (which == DEADLINE_NONE)
        return;
    if (!timer_armed(&g->timer) || g->timer.due_us > due_ms * 1000)
        timer_set_ms(g->loop, &g->timer, after_ms);
}

static void refuse_late(struct gate *g, const char *what)
{
    struct error err;

    error_set(&err, ERR_REQUEST_TIMEOUT, "%s", what);
    gate_refuse(g, &err);
}

static void on_timer(void *ctx)
{
    struct gate *g = ctx;
    int64_t left_ms = g->deadline_ms - loop_now_ms(g->loop);

    if (g->deadline == DEADLINE_NONE)
        return;
    if (left_ms > 0) {
        timer_set_ms(g->loop, &g->timer, left_ms);
        return;
    }
    switch (g->deadline) {
    case DEADLINE_HEAD:
        if (g->search.scanned > 0) {
            refuse_late(g, "the request head did not arrive in time");
            return;
        }
        gate_drop(g);
        return;
    case DEADLINE_BODY:
        if (g->x != NULL && exchange_body_late(g->x))
            return;
        gate_drop(g);
        return;
    case DEADLINE_REQUEST:
        g->deadline = DEADLINE_NONE;
        if (g->x == NULL || !exchange_request_late(g->x))
            gate_drop(g);
        return;
    case DEADLINE_IDLE:
    case DEADLINE_LINGER:
    case DEADLINE_NONE:
        gate_drop(g);
        return;
    }
}

/* ---- output ----------------------------------------------------------------------------------- */

struct evbuffer *gate_output(struct gate *g)
{
    return bufferevent_get_output(g->bev);
}

static size_t output_length(const struct gate *g)
{
    return evbuffer_get_length(bufferevent_get_output(g->bev));
}

/* Write at once what the socket takes. The bufferevent is asked only for the rest, which saves two
 * epoll_ctl and a turn per reply; its write side is disabled (and its output frozen) otherwise. */
static bool output_flush(struct gate *g)
{
    struct evbuffer *out = bufferevent_get_output(g->bev);
    int written;

    if (evbuffer_get_length(out) == 0 || (bufferevent_get_enabled(g->bev) & EV_WRITE) != 0)
        return true;
    evbuffer_unfreeze(out, 1);
    written = evbuffer_write(out, bufferevent_getfd(g->bev));
    evbuffer_freeze(out, 1);
    if (written < 0 && errno != EAGAIN && errno != EINTR)
        return false;
    if (evbuffer_get_length(out) > 0)
        bufferevent_enable(g->bev, EV_WRITE);
    return true;
}

void gate_wake(struct gate *g)
{
    if (!g->pumping && g->state != GATE_CLOSED)
        loop_post(g->loop, &g->pump);
}

/* ---- closing ---------------------------------------------------------------------------------- */

static void gate_release(void *ptr)
{
    struct gate *g = ptr;

    if (g->hold != NULL)
        evbuffer_free(g->hold);
    free(g);
}

void gate_closed(struct gate *g)
{
    struct exchange_impl *x = g->x;

    if (g->state == GATE_CLOSED)
        return;
    g->state = GATE_CLOSED;
    g->x = NULL;
    g->request = NULL;
    timer_cancel(g->loop, &g->timer);
    task_cancel(&g->pump);
    list_remove(&g->link);
    if (x != NULL)
        exchange_client_gone(x);
    server_gate_closed(g->server);
    loop_defer_free(g->loop, gate_release, g);
}

void gate_drop(struct gate *g)
{
    struct linger reset = {.l_onoff = 1};

    if (g->state == GATE_CLOSED)
        return;
    if (g->broken) /* an unfinished answer must not look like a finished one */
        setsockopt(bufferevent_getfd(g->bev), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    server_close_connection(g->htp); /* comes back as gate_closed */
}

static void linger_begin(struct gate *g)
{
    g->state = GATE_LINGER;
    gate_set_deadline(g, DEADLINE_LINGER, LINGER_MS);
}

/* Ignore what comes; once the answer is out, say so and wait for the client to close. A close with
 * unread input would reset the connection and take the answer away from the client. */
static bool linger_step(struct gate *g)
{
    struct evbuffer *input = bufferevent_get_input(g->bev);

    evbuffer_drain(input, evbuffer_get_length(input));
    if (output_length(g) > 0)
        return false;
    if (g->x != NULL && g->reply_done) {
        struct exchange_impl *x = g->x;
        g->x = NULL;
        exchange_written(x);
    }
    if (g->eof) {
        gate_drop(g);
        return false;
    }
    if (!g->half_closed) {
        g->half_closed = true;
        shutdown(bufferevent_getfd(g->bev), SHUT_WR);
    }
    return false;
}

void gate_refuse(struct gate *g, const struct error *err)
{
    metric_add(METRIC_HTTP_REJECTED, LABELS(err_wire(err->code)), 1);
    server_write_refusal(g, err);
    linger_begin(g);
    gate_wake(g);
}

/* ---- a request's head ------------------------------------------------------------------------- */

/* Where the next bytes are: what was held back comes before what was read later. */
static struct evbuffer *gate_source(struct gate *g)
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

static bool head_step(struct gate *g)
{
    struct evbuffer *source = gate_source(g);
    size_t limit = server_max_header_bytes(g->server);
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
        gate_set_deadline(g, DEADLINE_HEAD, server_options(g->server)->header_timeout_ms);
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
    linger_begin(g);
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

static bool body_step(struct gate *g)
{
    struct evbuffer *source = gate_source(g);
    struct evbuffer_iovec v;
    size_t len;

    if (g->paused)
        return false;
    if (g->body_left == 0)
        return body_over(g);
    if (g->reply_done && !g->keep) { /* refused early: the rest is not worth reading */
        linger_begin(g);
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

void gate_discard_body(struct gate *g)
{
    g->discard = true;
    g->paused = false;
}

void gate_pause_body(struct gate *g, bool pause)
{
    g->paused = pause && g->state == GATE_BODY;
    if (!pause)
        gate_wake(g);
}

void gate_send_continue(struct gate *g)
{
    if (!g->expects || evbuffer_get_length(gate_source(g)) > 0)
        return;
    g->expects = false;
    evbuffer_add(gate_output(g), "HTTP/1.1 100 Continue\r\n\r\n", 25);
    gate_wake(g);
}

/* ---- its reply -------------------------------------------------------------------------------- */

/* Whether the rest of the body is short and sure to come. */
static bool body_settled(const struct gate *g)
{
    if (g->state != GATE_BODY || g->body_left == 0)
        return true;
    return !g->expects && g->body_left > 0 && g->body_left <= DISCARD_MAX;
}

bool gate_fix_keep(struct gate *g, bool may_keep)
{
    bool consumed = g->x->stream != NULL; /* by a handler that answers while it reads */

    g->keep = may_keep && g->client_keeps && !g->eof && (consumed || body_settled(g));
    return g->keep;
}

void gate_reply_done(struct gate *g, bool broken)
{
    g->reply_done = true;
    g->broken = g->broken || broken;
    g->keep = g->keep && body_settled(g);
    if (g->state == GATE_BODY)
        gate_set_deadline(g, DEADLINE_BODY, server_options(g->server)->body_timeout_ms);
    gate_discard_body(g);
    gate_wake(g);
}

/* The reply is out: on to the next request, or close. */
static bool reply_step(struct gate *g)
{
    struct exchange_impl *x = g->x;

    if (!g->reply_done || output_length(g) > 0)
        return false;
    g->x = NULL;
    exchange_written(x);
    if (!g->keep && evbuffer_get_length(gate_source(g)) > 0) {
        linger_begin(g); /* the request stays with libevhtp until the connection goes */
        return true;
    }
    g->state = GATE_HEAD;
    server_finish_request(g);
    if (g->state == GATE_CLOSED)
        return false;
    if (g->eof) {
        gate_drop(g);
        return false;
    }
    gate_set_deadline(g, DEADLINE_IDLE, server_options(g->server)->idle_timeout_ms);
    return true;
}

/* ---- pump ------------------------------------------------------------------------------------- */

static bool gate_step(struct gate *g)
{
    if (g->state == GATE_CLOSED)
        return false;
    if (!output_flush(g) || (g->broken && g->reply_done)) {
        gate_drop(g);
        return false;
    }
    if (g->x != NULL && !g->reply_done && output_length(g) == 0 && exchange_output_empty(g->x))
        return true;
    switch (g->state) {
    case GATE_HEAD:
        return head_step(g);
    case GATE_BODY:
        return body_step(g);
    case GATE_WAIT:
        return reply_step(g);
    case GATE_LINGER:
        return linger_step(g);
    case GATE_CLOSED:
        return false;
    }
    return false;
}

/* Stop reading while input waits unread: TCP slows the client down. Not by the bufferevent's own
 * high watermark: with that, libevent calls back without end for input that is left in place. */
static void input_bound(struct gate *g)
{
    size_t waiting = evbuffer_get_length(bufferevent_get_input(g->bev));
    size_t limit = server_max_header_bytes(g->server) + INPUT_SLACK;

    if (waiting > limit && !g->read_off) {
        g->read_off = true;
        bufferevent_disable(g->bev, EV_READ);
    } else if (waiting <= limit / 2 && g->read_off) {
        g->read_off = false;
        bufferevent_enable(g->bev, EV_READ);
    }
}

static void gate_run(struct gate *g)
{
    if (g->pumping || g->state == GATE_CLOSED)
        return;
    g->pumping = true;
    while (gate_step(g))
        ;
    g->pumping = false;
    if (g->state != GATE_CLOSED)
        input_bound(g);
}

static void on_pump(void *ctx)
{
    gate_run(ctx);
}

static void on_read(struct bufferevent *bev, void *ctx)
{
    struct gate *g = ctx;

    (void)bev;
    loop_touch(g->loop);
    gate_run(g);
}

static void on_write(struct bufferevent *bev, void *ctx)
{
    struct gate *g = ctx;

    loop_touch(g->loop);
    bufferevent_disable(bev, EV_WRITE);
    gate_run(g);
}

/* The client closed its sending side, or the connection broke. Only an answer that is complete
 * already is still written out; a request in progress is cancelled. */
static void on_event(struct bufferevent *bev, short what, void *ctx)
{
    struct gate *g = ctx;

    (void)bev;
    loop_touch(g->loop);
    if ((what & BEV_EVENT_EOF) != 0 && g->reply_done && output_length(g) > 0) {
        g->eof = true;
        g->keep = false;
        return;
    }
    if ((what & BEV_EVENT_EOF) != 0 && g->state == GATE_LINGER && output_length(g) > 0) {
        g->eof = true;
        return;
    }
    gate_drop(g);
}

void gate_open(struct gate *g, struct http_server *server, struct loop *loop,
               struct bufferevent *bev, struct evhtp_connection *htp)
{
    const struct http_server_options *options = server_options(server);
    struct timeval stall = {.tv_sec = options->write_timeout_ms / 1000,
                            .tv_usec = options->write_timeout_ms % 1000 * 1000};
    bufferevent_event_cb htp_event;

    g->server = server;
    g->loop = loop;
    g->bev = bev;
    g->htp = htp;
    timer_init(&g->timer, on_timer, g);
    task_init(&g->pump, on_pump, g);
    bufferevent_getcb(bev, &g->htp_read, &g->htp_write, &htp_event, &g->htp_ctx);
    bufferevent_setcb(bev, on_read, on_write, on_event, g);
    bufferevent_disable(bev, EV_WRITE);
    bufferevent_set_timeouts(bev, NULL, &stall);
    gate_set_deadline(g, DEADLINE_HEAD, options->header_timeout_ms);
}

bool gate_is_idle(const struct gate *g)
{
    return g->state == GATE_HEAD && g->search.scanned == 0 &&
           evbuffer_get_length(bufferevent_get_input(g->bev)) == 0;
}
