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
    EXTENSION_MS = 50, /* of a deadline, to read what had come before it */
    WRITE_MAX = 256 << 10,
    DISCARD_MAX = 65536,   /* body bytes thrown away to keep a connection */
    LINGER_MS = 3000,      /* time for a refused client to read its answer, */
    LINGER_MAX = 64 << 20, /* and what it may go on sending meanwhile */
    INPUT_SLACK = 65536,   /* pipelined or paused input held beyond the largest head */
};

/* ---- deadlines -------------------------------------------------------------------------------- */

/* One timer per connection, armed early and looked at when it fires: no work per request. */
void gate_set_deadline(struct gate *g, enum gate_deadline which, int64_t after_ms)
{
    int64_t due_ms = loop_now_ms(g->loop) + after_ms;

    g->deadline = which;
    g->deadline_ms = due_ms;
    g->extended = false;
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

/* What lies in the socket came in time: when we were too busy to read it, once, we do that first. It
 * also keeps a request from being lost that meets the end of its connection's idle time. */
static bool input_unread(struct gate *g)
{
    char byte;

    if (g->extended || recv(bufferevent_getfd(g->bev), &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
        return false;
    g->extended = true;
    timer_set_ms(g->loop, &g->timer, EXTENSION_MS);
    return true;
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
    if (g->deadline != DEADLINE_REQUEST && g->deadline != DEADLINE_LINGER && input_unread(g))
        return;
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

void gate_linger(struct gate *g)
{
    g->state = GATE_LINGER;
    gate_set_deadline(g, DEADLINE_LINGER, LINGER_MS);
}

/* Ignore what comes; once the answer is out, say so and wait for the client to close. A close with
 * unread input would reset the connection and take the answer away from the client. */
static bool linger_step(struct gate *g)
{
    struct evbuffer *input = bufferevent_get_input(g->bev);

    g->ignored += evbuffer_get_length(input);
    evbuffer_drain(input, evbuffer_get_length(input));
    if (g->ignored > LINGER_MAX) {
        gate_drop(g);
        return false;
    }
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
    gate_linger(g);
    gate_wake(g);
}

/* ---- the body, as the exchange wants it ------------------------------------------------------- */

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
    /* A handler may answer while it still reads; one that waits for 100 Continue gets no body. */
    bool consumed = g->x->reply == REPLY_STREAMING && !g->expects;

    g->keep = may_keep && g->client_keeps && !g->eof && (consumed || body_settled(g));
    return g->keep;
}

void gate_reply_done(struct gate *g, bool broken)
{
    g->reply_done = true;
    g->broken = g->broken || broken;
    g->keep = g->keep && body_settled(g);
    if (g->state == GATE_BODY)
        gate_set_deadline(g, DEADLINE_BODY, g->server->options.body_timeout_ms);
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
        gate_linger(g); /* the request stays with libevhtp until the connection goes */
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
    gate_set_deadline(g, DEADLINE_IDLE, g->server->options.idle_timeout_ms);
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
        return gate_head_step(g);
    case GATE_BODY:
        return gate_body_step(g);
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
    size_t limit = g->server->options.max_header_bytes + INPUT_SLACK;

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
    const struct http_server_options *options = &server->options;
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
    bufferevent_set_max_single_write(bev, WRITE_MAX); /* 16 KiB a turn otherwise */
    bufferevent_set_timeouts(bev, NULL, &stall);
    gate_set_deadline(g, DEADLINE_HEAD, options->header_timeout_ms);
}

bool gate_is_idle(const struct gate *g)
{
    return g->state == GATE_HEAD && g->search.scanned == 0 &&
           evbuffer_get_length(bufferevent_get_input(g->bev)) == 0;
}
