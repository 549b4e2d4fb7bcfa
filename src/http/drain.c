#include "http/drain.h"

#include "http/exchange_impl.h"
#include "http/gate.h"
#include "http/server_impl.h"

#include <sys/socket.h>

static void drain_over(struct drain *d)
{
    if (d->phase == DRAIN_OVER)
        return;
    d->phase = DRAIN_OVER;
    timer_cancel(d->server->loop, &d->timer);
    if (d->on_drained != NULL)
        d->on_drained(d->on_drained_ctx, http_server_in_flight(d->server));
}

/* Close connections that wait for a request. One whose request is already in the socket is left:
 * that request is read next and gets its 503 rather than a reset. */
static bool close_idle(struct http_server *server)
{
    bool all = true;
    char byte;

    LIST_FOREACH_SAFE (it, next, &server->gates) {
        struct gate *gate = container_of(it, struct gate, link);
        if (gate->state == GATE_LINGER)
            continue;
        if (gate_is_idle(gate) &&
            recv(bufferevent_getfd(gate->bev), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
            all = false;
        else
            gate_drop(gate);
    }
    return all;
}

static void on_task(void *ctx)
{
    struct drain *d = ctx;

    if (list_empty(&d->server->exchanges) && close_idle(d->server))
        drain_over(d);
}

static void on_timer(void *ctx)
{
    struct drain *d = ctx;
    struct loop *loop = d->server->loop;

    switch (d->phase) {
    case DRAIN_GRACE:
        d->phase = DRAIN_REFUSING;
        server_stop_listening(d->server);
        timer_set_ms(loop, &d->timer, d->timeout_ms);
        loop_post(loop, &d->task);
        return;
    case DRAIN_REFUSING:
        d->phase = DRAIN_ABORTING;
        timer_set_ms(loop, &d->timer, d->settle_ms);
        LIST_FOREACH_SAFE (it, next, &d->server->exchanges)
            exchange_abort(container_of(it, struct exchange_impl, link));
        loop_post(loop, &d->task);
        return;
    case DRAIN_ABORTING:
        drain_over(d);
        return;
    case DRAIN_NOT:
    case DRAIN_OVER:
        return;
    }
}

void drain_init(struct drain *d, struct http_server *server)
{
    d->server = server;
    timer_init(&d->timer, on_timer, d);
    task_init(&d->task, on_task, d);
}

void drain_begin(struct drain *d, int64_t grace_ms)
{
    d->phase = DRAIN_GRACE;
    if (grace_ms > 0)
        timer_set_ms(d->server->loop, &d->timer, grace_ms);
    else
        on_timer(d);
}

void drain_hurry(struct drain *d)
{
    while (d->phase == DRAIN_GRACE || d->phase == DRAIN_REFUSING)
        on_timer(d);
}

void drain_requests_over(struct drain *d)
{
    if (drain_refuses(d) && d->phase != DRAIN_OVER)
        loop_post(d->server->loop, &d->task);
}

void drain_stop(struct drain *d)
{
    d->phase = DRAIN_OVER;
    timer_cancel(d->server->loop, &d->timer);
    task_cancel(&d->task);
}

bool drain_begun(const struct drain *d)
{
    return d->phase != DRAIN_NOT;
}

bool drain_refuses(const struct drain *d)
{
    return d->phase >= DRAIN_REFUSING;
}
