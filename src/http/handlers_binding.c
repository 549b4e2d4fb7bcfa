#include "http/handlers_binding.h"

#include "http/binding_calls.h"
#include "http/codec.h"

/* ---- create ---------------------------------------------------------------------------------- */

static void create_write(struct json_writer *w, const void *ctx)
{
    codec_write_binding(w, ctx);
}

static void create_reply(struct handler_call *call)
{
    struct binding_create_call *t = container_of(call, struct binding_create_call, call);

    handler_reply_object(call->x, 201, create_write, &t->binding);
}

static void handle_create(struct exchange *x)
{
    struct binding_create_call *t = HANDLER_CALL(x, binding_create_call);
    struct json_reader r;

    if (!handler_read(x, &r) || !handler_need_backend(x))
        return;
    codec_read_binding_spec(&r, &t->spec);
    if (!handler_accept(x, &r))
        return;
    t->call.reply = create_reply;
    binding_create_run(t);
}

/* ---- destroy --------------------------------------------------------------------------------- */

static void handle_destroy(struct exchange *x)
{
    struct binding_destroy_call *t = HANDLER_CALL(x, binding_destroy_call);
    struct json_reader r;

    if (!handler_read(x, &r) || !handler_need_backend(x))
        return;
    codec_read_destroy_spec(&r, &t->spec);
    if (!handler_accept(x, &r))
        return;
    binding_destroy_run(t);
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
