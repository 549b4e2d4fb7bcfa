#include "http/handlers_binding.h"

#include "http/codec.h"
#include "http/handler.h"

/* ---- create ---------------------------------------------------------------------------------- */

struct create_call {
    struct handler_call call;
    struct binding_spec spec;
    struct binding binding;
};

static void create_start(struct handler_call *call)
{
    struct create_call *t = container_of(call, struct create_call, call);

    if (call->lifecycle != NULL)
        lifecycle_create_binding(call->lifecycle, &call->op, &t->spec, &t->binding);
    else
        broker_create_binding(call->broker, &call->op, &t->spec, &t->binding);
}

static void create_write(struct json_writer *w, const void *ctx)
{
    codec_write_binding(w, ctx);
}

static void create_reply(struct handler_call *call)
{
    struct create_call *t = container_of(call, struct create_call, call);

    handler_reply_object(call->x, 201, create_write, &t->binding);
}

static void handle_create(struct exchange *x)
{
    struct create_call *t = HANDLER_CALL(x, create_call);
    struct json_reader r;

    if (!handler_read(x, &r) || !handler_need_backend(x))
        return;
    codec_read_binding_spec(&r, &t->spec);
    if (!handler_accept(x, &r))
        return;
    t->call.start = create_start;
    t->call.reply = create_reply;
    handler_run(&t->call);
}

/* ---- destroy --------------------------------------------------------------------------------- */

struct destroy_call {
    struct handler_call call;
    struct destroy_spec spec;
};

static void destroy_start(struct handler_call *call)
{
    struct destroy_call *t = container_of(call, struct destroy_call, call);

    if (call->lifecycle != NULL)
        lifecycle_destroy_binding(call->lifecycle, &call->op, &t->spec);
    else
        broker_destroy_binding(call->broker, &call->op, &t->spec);
}

static void reply_no_content(struct handler_call *call)
{
    exchange_reply_empty(call->x, 204);
}

static void handle_destroy(struct exchange *x)
{
    struct destroy_call *t = HANDLER_CALL(x, destroy_call);
    struct json_reader r;

    if (!handler_read(x, &r) || !handler_need_backend(x))
        return;
    codec_read_destroy_spec(&r, &t->spec);
    if (!handler_accept(x, &r))
        return;
    t->call.start = destroy_start;
    t->call.reply = reply_no_content;
    handler_run(&t->call);
}

/* ---- routes ---------------------------------------------------------------------------------- */

enum { BODY_MAX = 1024 * 1024 };

static const char create_request[] =
    "{\"type\":\"object\",\"additionalProperties\":false,"
    "\"required\":[\"tenant_id\",\"agent_id\",\"binding_id\",\"workspace_id\"],\"properties\":{"
    "\"tenant_id\":{\"type\":\"string\",\"minLength\":1},"
    "\"agent_id\":{\"type\":\"string\",\"minLength\":1},"
    "\"binding_id\":{\"type\":\"string\",\"minLength\":1},"
    "\"workspace_id\":{\"type\":\"string\",\"minLength\":1},"
    "\"existing_workspace_ref\":{\"type\":[\"string\",\"null\"]},"
    "\"home_snapshot_ref\":{\"type\":[\"string\",\"null\"],\"minLength\":1}}}";
static const char create_response[] =
    "{\"type\":\"object\",\"required\":[\"binding_ref\",\"workspace_ref\"],\"properties\":{"
    "\"binding_ref\":{\"type\":\"string\"},\"workspace_ref\":{\"type\":\"string\"}}}";
static const char destroy_request[] =
    "{\"type\":\"object\",\"additionalProperties\":false,"
    "\"required\":[\"binding_ref\",\"destroy_workspace\"],\"properties\":{"
    "\"binding_ref\":{\"type\":\"string\",\"minLength\":1},"
    "\"destroy_workspace\":{\"type\":\"boolean\"},"
    "\"workspace_ref\":{\"type\":[\"string\",\"null\"]}}}";

const struct route binding_routes[] = {
    {"POST", "/execution-bindings", AUTH_API, ERRORS_DETAIL, 0, BODY_MAX, handle_create,
     "Create an execution binding", create_request, create_response},
    {"POST", "/execution-bindings/destroy", AUTH_API, ERRORS_DETAIL, 0, BODY_MAX, handle_destroy,
     "Destroy an execution binding", destroy_request, NULL},
    {0},
};
