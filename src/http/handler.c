#include "http/handler.h"

#include "core/runtime/json.h"

enum call_state { CALL_START, CALL_CALLING };
static const char *const call_states[] = {"start", "calling"};

static enum op_poll call_step(struct op *op)
{
    struct handler_call *call = container_of(op, struct handler_call, op);

    switch ((enum call_state)op->state) {
    case CALL_START:
        AWAIT(op, CALL_CALLING, call->start(call));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type call_type = {"http_call", call_states, 2, call_step, NULL};

void *handler_call_new(struct exchange *x, size_t size)
{
    struct handler_call *call = op_root_new(x->loop, &call_type, size, x->arena);

    call->x = x;
    call->broker = exchange_app(x)->broker;
    call->lifecycle = exchange_app(x)->lifecycle;
    return call;
}

static void on_done(struct exchange *x, struct op *root)
{
    struct handler_call *call = container_of(root, struct handler_call, op);

    if (!op_failed(root)) {
        call->reply(call);
        return;
    }
    if (call->map_error != NULL)
        call->map_error(op_error_edit(root));
    exchange_reply_error(x, op_error(root));
}

void handler_run(struct handler_call *call)
{
    exchange_run(call->x, &call->op, on_done);
}

bool handler_read(struct exchange *x, struct json_reader *ret)
{
    struct json_object *root;

    if (!exchange_json(x, &root))
        return false;
    json_reader_init(ret, x->arena, root);
    return true;
}

bool handler_accept(struct exchange *x, struct json_reader *r)
{
    if (json_reader_finish(r, false, NULL))
        return true;
    exchange_reply_problems(x, r);
    return false;
}

bool handler_need_backend(struct exchange *x)
{
    struct error err;

    if (broker_backend(exchange_app(x)->broker) != NULL)
        return true;
    error_set(&err, ERR_BACKEND_UNAVAILABLE, "runtime backend is not configured");
    exchange_reply_error(x, &err);
    return false;
}

void handler_reply_object(struct exchange *x, int status,
                          void (*write)(struct json_writer *w, const void *ctx), const void *ctx)
{
    struct buf out = {0};
    struct json_writer w = {.out = &out};

    json_object_begin(&w);
    write(&w, ctx);
    json_object_finish(&w);
    exchange_reply_json(x, status, &out);
    buf_fini(&out);
}
