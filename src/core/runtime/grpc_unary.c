#include "core/runtime/grpc.h"

#include <string.h>

enum { REPEATS_MAX = 2 };

/* One unary call in progress; memory of the op's arena, alive as long as the op waits. */
struct unary {
    struct op *op;
    struct grpc_channel *channel;
    struct grpc_call *call;
    const char *method;
    const void *request;
    size_t len;
    int64_t until_ms;
    int repeats;
    bool answered;
    struct error bad; /* more than one message */
    struct grpc_reply *ret;
};

static void unary_begin(struct unary *u);

static void on_message(void *ctx, const uint8_t *message, size_t len)
{
    struct unary *u = ctx;

    if (u->answered) {
        error_set(&u->bad, ERR_UPSTREAM_PROTOCOL, "%s: more than one message in a unary answer",
                  u->method);
        return;
    }
    u->answered = true;
    u->ret->message = (const uint8_t *)arena_memdup(u->op->arena, message, len);
    u->ret->len = len;
}

static bool may_repeat(const struct unary *u, const struct error *err)
{
    return strcmp(err->upstream_code, "REFUSED_STREAM") == 0 && u->repeats < REPEATS_MAX &&
           loop_now_ms(u->op->loop) < u->until_ms;
}

static void on_end(void *ctx, const struct error *err)
{
    struct unary *u = ctx;

    u->call = NULL;
    if (err != NULL && may_repeat(u, err)) {
        u->repeats++;
        grpc_channel_renew(u->channel);
        unary_begin(u);
        return;
    }
    if (err == NULL && error_is(&u->bad))
        err = &u->bad;
    if (err == NULL && !u->answered) {
        error_set(&u->bad, ERR_UPSTREAM_PROTOCOL, "%s: status OK without a message", u->method);
        u->bad.admitted = ADMITTED_UNKNOWN;
        err = &u->bad;
    }
    op_wake(u->op, err);
}

static void unary_cancel(void *ctx)
{
    struct unary *u = ctx;

    grpc_call_cancel(u->call);
}

static void unary_begin(struct unary *u)
{
    static const struct grpc_call_events events = {on_message, NULL, on_end};
    int64_t left_ms = u->until_ms - loop_now_ms(u->op->loop);

    u->call = grpc_call_open(u->channel, u->method, left_ms > 0 ? left_ms : 1, &events, u);
    grpc_call_send(u->call, u->request, u->len);
    grpc_call_send_end(u->call);
}

void grpc_unary(struct grpc_channel *channel, struct op *op, const char *method,
                const void *request, size_t len, int64_t timeout_ms, struct grpc_reply *ret)
{
    struct unary *u = ARENA_NEW(op->arena, struct unary);

    PRE(timeout_ms > 0);
    *u = (struct unary){
        .op = op,
        .channel = channel,
        .method = method,
        .request = request,
        .len = len,
        .until_ms = loop_now_ms(op->loop) + op_remaining_ms(op, timeout_ms),
        .ret = ret,
    };
    if (u->until_ms > loop_now_ms(op->loop) + timeout_ms)
        u->until_ms = loop_now_ms(op->loop) + timeout_ms;
    *ret = (struct grpc_reply){0};
    op_wait_begin(op, unary_cancel, u);
    unary_begin(u);
}
