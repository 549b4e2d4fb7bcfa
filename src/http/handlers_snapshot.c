#include "http/handlers_snapshot.h"

#include "http/binding_calls.h"
#include "http/codec.h"

/* ---- from a binding -------------------------------------------------------------------------- */

static void snapshot_write(struct json_writer *w, const void *ctx)
{
    json_member_string(w, "snapshot_ref", ctx);
}

static void snapshot_reply(struct handler_call *call)
{
    struct snapshot_create_call *t = container_of(call, struct snapshot_create_call, call);

    handler_reply_object(call->x, 201, snapshot_write, t->ref);
}

static void handle_from_binding(struct exchange *x)
{
    struct snapshot_create_call *t = HANDLER_CALL(x, snapshot_create_call);
    struct json_reader r;

    if (!handler_read(x, &r) || !handler_need_backend(x))
        return;
    codec_read_snapshot_spec(&r, &t->spec, &t->binding_ref);
    if (!handler_accept(x, &r))
        return;
    t->call.reply = snapshot_reply;
    snapshot_create_run(t);
}

/* ---- delete ---------------------------------------------------------------------------------- */

static void handle_delete(struct exchange *x)
{
    struct snapshot_delete_call *t = HANDLER_CALL(x, snapshot_delete_call);
    struct json_reader r;

    if (!handler_read(x, &r) || !handler_need_backend(x))
        return;
    t->ref = json_read_string(&r, "snapshot_ref", 1);
    if (!handler_accept(x, &r))
        return;
    snapshot_delete_run(t);
}

/* ---- routes ---------------------------------------------------------------------------------- */

enum { BODY_MAX = 1024 * 1024 };

static const char from_binding_request[] =
    "{\"type\":\"object\",\"additionalProperties\":false,"
    "\"required\":[\"tenant_id\",\"agent_id\",\"home_snapshot_id\",\"backend_binding_ref\"],"
    "\"properties\":{\"tenant_id\":{\"type\":\"string\",\"minLength\":1},"
    "\"agent_id\":{\"type\":\"string\",\"minLength\":1},"
    "\"home_snapshot_id\":{\"type\":\"string\",\"minLength\":1},"
    "\"backend_binding_ref\":{\"type\":\"string\",\"minLength\":1}}}";
static const char snapshot_object[] =
    "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"snapshot_ref\"],"
    "\"properties\":{\"snapshot_ref\":{\"type\":\"string\",\"minLength\":1}}}";

const struct route snapshot_routes[] = {
    {"POST", "/home-snapshots/from-binding", AUTH_API, ERRORS_DETAIL, 0, BODY_MAX,
     handle_from_binding, "Copy a binding's Home into an immutable snapshot", from_binding_request,
     snapshot_object},
    {"POST", "/home-snapshots/delete", AUTH_API, ERRORS_DETAIL, 0, BODY_MAX, handle_delete,
     "Delete a home snapshot", snapshot_object, NULL},
    {0},
};
