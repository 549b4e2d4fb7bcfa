#include "http/handlers_gc.h"

#include "core/domain/gc_control.h"
#include "http/codec_ledger.h"
#include "http/handler.h"
#include "http/handler_ledger.h"

/* ---- status and sweep ------------------------------------------------------------------------------- */

static void gc_write(struct json_writer *w, const void *ctx)
{
    const struct gc_control *gc = ctx;

    gc->describe(gc->ctx, w);
}

static void handle_status(struct exchange *x)
{
    handler_reply_object(x, 200, gc_write, exchange_app(x)->gc);
}

static void handle_sweep(struct exchange *x)
{
    const struct gc_control *gc = exchange_app(x)->gc;

    gc->sweep(gc->ctx);
    handler_reply_object(x, 202, gc_write, gc);
}

/* ---- orphans ------------------------------------------------------------------------------------------ */

struct destroy_call {
    struct handler_call call;
    const char *id;
    bool done;
};

static void destroy_start(struct handler_call *call)
{
    struct destroy_call *t = container_of(call, struct destroy_call, call);
    struct ledger *ledger = lifecycle_ledger(call->lifecycle);

    ledger->ops->settle_orphan(ledger, &call->op, t->id, false, &t->done);
}

static void destroy_write(struct json_writer *w, const void *ctx)
{
    json_member_string(w, "orphan_id", ctx);
    json_member_string(w, "status", "retired");
}

static void destroy_reply(struct handler_call *call)
{
    struct destroy_call *t = container_of(call, struct destroy_call, call);
    const struct gc_control *gc = exchange_app(call->x)->gc;
    struct error err;

    if (!t->done) {
        error_set(&err, ERR_NOT_FOUND, "there is no orphan %s that waits for a decision", t->id);
        exchange_reply_error(call->x, &err);
        return;
    }
    gc->sweep(gc->ctx);
    handler_reply_object(call->x, 202, destroy_write, t->id);
}

static void handle_destroy(struct exchange *x)
{
    struct destroy_call *t = HANDLER_CALL(x, destroy_call);

    t->id = exchange_param(x, "id");
    t->call.start = destroy_start;
    t->call.reply = destroy_reply;
    handler_run(&t->call);
}

struct adopt_call {
    struct handler_call call;
    struct orphan_adoption adoption;
    struct owner_binding made;
};

static void adopt_start(struct handler_call *call)
{
    struct adopt_call *t = container_of(call, struct adopt_call, call);

    lifecycle_adopt_orphan(call->lifecycle, &call->op, &t->adoption, &t->made);
}

static void binding_write(struct json_writer *w, const void *ctx)
{
    codec_write_ledger_binding(w, ctx);
}

static void adopt_reply(struct handler_call *call)
{
    struct adopt_call *t = container_of(call, struct adopt_call, call);

    handler_reply_object(call->x, 201, binding_write, t->made.row);
}

static const char *const owner_types[] = {"conversation", "build_draft", "workflow_run", NULL};

static void handle_adopt(struct exchange *x)
{
    struct adopt_call *t = HANDLER_CALL(x, adopt_call);
    struct owner_request *r = &t->adoption.request;
    struct json_reader reader;

    if (!handler_read(x, &reader) || !handler_need_backend(x))
        return;
    codec_read_owner_request(&reader, r);
    r->owner.type = json_read_choice(&reader, "owner_type", true, owner_types);
    r->owner.id = json_read_string(&reader, "owner_id", 1);
    if (!handler_accept(x, &reader) || !ledger_check_id(x, "owner_id", r->owner.id) ||
        !ledger_check_id(x, "tenant_id", r->owner.tenant_id))
        return;
    t->adoption.orphan_id = exchange_param(x, "id");
    t->call.start = adopt_start;
    t->call.reply = adopt_reply;
    handler_run(&t->call);
}

/* ---- routes ---------------------------------------------------------------------------------------------- */

enum { BODY_MAX = 64 * 1024 };

static const char object_schema[] = "{\"type\":\"object\"}";

const struct route gc_routes[] = {
    {"GET", "/v1/gc", AUTH_API, ERRORS_V1, 0, 0, handle_status,
     "How the collector and the reconciler are doing", NULL, object_schema},
    {"POST", "/v1/gc/sweep", AUTH_API, ERRORS_V1, 0, 0, handle_sweep, "Collect now", NULL,
     object_schema},
    {"POST", "/v1/orphans/{id}/destroy", AUTH_API, ERRORS_V1, 0, 0, handle_destroy,
     "Have an orphan destroyed", NULL, object_schema},
    {"POST", "/v1/orphans/{id}/adopt", AUTH_API, ERRORS_V1, 0, BODY_MAX, handle_adopt,
     "Make an orphan the binding of an owner", object_schema, ledger_binding_schema},
    {0},
};
