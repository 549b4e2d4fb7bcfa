#include "http/binding_calls.h"

static void reply_no_content(struct handler_call *call)
{
    exchange_reply_empty(call->x, 204);
}

static void create_start(struct handler_call *call)
{
    struct binding_create_call *t = container_of(call, struct binding_create_call, call);

    if (call->lifecycle != NULL)
        lifecycle_create_binding(call->lifecycle, &call->op, &t->spec, &t->binding);
    else
        broker_create_binding(call->broker, &call->op, &t->spec, &t->binding);
}

void binding_create_run(struct binding_create_call *t)
{
    t->call.start = create_start;
    handler_run(&t->call);
}

static void destroy_start(struct handler_call *call)
{
    struct binding_destroy_call *t = container_of(call, struct binding_destroy_call, call);

    if (call->lifecycle != NULL)
        lifecycle_destroy_binding(call->lifecycle, &call->op, &t->spec);
    else
        broker_destroy_binding(call->broker, &call->op, &t->spec);
}

void binding_destroy_run(struct binding_destroy_call *t)
{
    t->call.start = destroy_start;
    t->call.reply = reply_no_content;
    handler_run(&t->call);
}

static void copy_start(struct handler_call *call)
{
    struct snapshot_create_call *t = container_of(call, struct snapshot_create_call, call);

    if (call->lifecycle != NULL)
        lifecycle_create_snapshot(call->lifecycle, &call->op, &t->spec, t->binding_ref, &t->ref);
    else
        broker_snapshot_create(call->broker, &call->op, &t->spec, t->binding_ref, &t->ref);
}

void snapshot_create_run(struct snapshot_create_call *t)
{
    t->call.start = copy_start;
    handler_run(&t->call);
}

static void delete_start(struct handler_call *call)
{
    struct snapshot_delete_call *t = container_of(call, struct snapshot_delete_call, call);

    if (call->lifecycle != NULL)
        lifecycle_delete_snapshot(call->lifecycle, &call->op, t->ref);
    else
        broker_snapshot_delete(call->broker, &call->op, t->ref);
}

void snapshot_delete_run(struct snapshot_delete_call *t)
{
    t->call.start = delete_start;
    t->call.reply = reply_no_content;
    handler_run(&t->call);
}
