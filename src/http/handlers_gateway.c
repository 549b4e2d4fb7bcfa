#include "http/handlers_gateway.h"

#include "core/domain/uuid7.h"
#include "core/runtime/config.h"
#include "core/runtime/quote.h"
#include "http/auth.h"
#include "http/binding_calls.h"
#include "http/gateway_leases.h"
#include "http/proxy.h"
#include "http/sandbox_id.h"

#include <string.h>

enum { BODY_MAX = 64 * 1024 };

/* Is the facade on, and does the caller hold its key? Replies otherwise. */
static bool gateway_admits(struct exchange *x)
{
    const char *key = exchange_app(x)->config->gateway_api_key;
    const char *given = exchange_header(x, "x-inner-api-key");
    struct error err;

    if (key == NULL) {
        error_set(&err, ERR_NOT_FOUND,
                  "the gateway facade is off: BINDERY_GATEWAY_API_KEY is not set");
        exchange_reply_error(x, &err);
        return false;
    }
    if (given == NULL || !auth_equal(given, key)) {
        error_set(&err, ERR_UNAUTHORIZED, "X-Inner-Api-Key is missing or wrong");
        exchange_reply_error(x, &err);
        return false;
    }
    return true;
}

/* What callers of the gateway protocol know a lost binding by. */
static void map_error(struct error *err)
{
    if (err->code == ERR_BINDING_LOST || err->code == ERR_INVALID_REF)
        err->code = ERR_SANDBOX_NOT_FOUND;
}

/* ---- POST /v1/sandboxes ----------------------------------------------------------------------- */

static void create_write(struct json_writer *w, const void *ctx)
{
    json_member_string(w, "sandboxId", ctx);
}

static void create_reply(struct handler_call *call)
{
    struct binding_create_call *t = container_of(call, struct binding_create_call, call);

    handler_reply_object(call->x, 201, create_write, sandbox_id_of(call->x->arena, &t->binding));
}

static void handle_create(struct exchange *x)
{
    struct binding_create_call *t;
    struct json_reader r;

    if (!gateway_admits(x))
        return;
    t = HANDLER_CALL(x, binding_create_call);
    if (!handler_read(x, &r) || !handler_need_backend(x))
        return;
    t->spec.tenant_id = json_read_string(&r, "tenantId", 1);
    t->spec.home_snapshot_ref = json_read_string_opt(&r, "homeSnapshotRef", 1);
    if (!handler_accept(x, &r))
        return;
    t->spec.agent_id = "gateway"; /* the protocol has no other ids than the tenant's */
    t->spec.binding_id = uuid7_new(x->arena, loop_wall_ms(x->loop));
    t->spec.workspace_id = t->spec.binding_id;
    t->call.reply = create_reply;
    binding_create_run(t);
}

/* ---- DELETE /v1/sandboxes/{id} ------------------------------------------------------------------ */

static void handle_delete(struct exchange *x)
{
    struct binding_destroy_call *t;
    struct binding binding;
    struct error err;

    if (!gateway_admits(x))
        return;
    t = HANDLER_CALL(x, binding_destroy_call);
    if (!handler_need_backend(x))
        return;
    if (!sandbox_id_split(x->arena, exchange_param(x, "id"), &binding)) {
        error_set(&err, ERR_SANDBOX_NOT_FOUND, "no sandbox can have this id");
        exchange_reply_error(x, &err);
        return;
    }
    t->spec = (struct destroy_spec){binding.binding_ref, binding.workspace_ref, true};
    t->call.map_error = map_error;
    binding_destroy_run(t);
}

/* ---- home snapshots ------------------------------------------------------------------------------ */

static void snapshot_write(struct json_writer *w, const void *ctx)
{
    json_member_string(w, "snapshotRef", ctx);
}

static void snapshot_reply(struct handler_call *call)
{
    struct snapshot_create_call *t = container_of(call, struct snapshot_create_call, call);

    handler_reply_object(call->x, 201, snapshot_write, t->ref);
}

static void handle_snapshot(struct exchange *x)
{
    struct snapshot_create_call *t;
    struct binding binding;
    struct json_reader r;
    struct error err;

    if (!gateway_admits(x))
        return;
    t = HANDLER_CALL(x, snapshot_create_call);
    if (!handler_read(x, &r) || !handler_need_backend(x))
        return;
    t->spec.tenant_id = json_read_string(&r, "tenantId", 1);
    t->spec.agent_id = json_read_string(&r, "agentId", 1);
    t->spec.home_snapshot_id = json_read_string(&r, "homeSnapshotId", 1);
    if (!handler_accept(x, &r))
        return;
    if (!sandbox_id_split(x->arena, exchange_param(x, "id"), &binding)) {
        error_set(&err, ERR_SANDBOX_NOT_FOUND, "no sandbox can have this id");
        exchange_reply_error(x, &err);
        return;
    }
    t->binding_ref = binding.binding_ref;
    t->call.reply = snapshot_reply;
    t->call.map_error = map_error;
    snapshot_create_run(t);
}

static void handle_snapshot_delete(struct exchange *x)
{
    struct snapshot_delete_call *t;
    struct error err;
    char *ref;

    if (!gateway_admits(x))
        return;
    t = HANDLER_CALL(x, snapshot_delete_call);
    if (!handler_need_backend(x))
        return;
    if (!quote_url_decode(x->arena, x->rest, strlen(x->rest), &ref)) {
        error_set(&err, ERR_INVALID_REF, "not a home snapshot reference");
        exchange_reply_error(x, &err);
        return;
    }
    t->ref = ref;
    snapshot_delete_run(t);
}

/* ---- ANY /proxy/… --------------------------------------------------------------------------------- */

/* Acquire a lease for a sandbox that no kept one serves. */
struct enter_call {
    struct op op;
    struct exchange *x;
    const char *sandbox_id;
    struct binding binding;
    struct lease_grant grant;
    proxy_entered then;
    void *ctx;
};

enum enter_state { ENTER_START, ENTER_ACQUIRING };
static const char *const enter_states[] = {"start", "acquiring"};

static enum op_poll enter_step(struct op *op)
{
    struct enter_call *t = container_of(op, struct enter_call, op);

    switch ((enum enter_state)op->state) {
    case ENTER_START:
        AWAIT(op, ENTER_ACQUIRING,
              broker_acquire(exchange_app(t->x)->broker, op, t->binding.binding_ref, 0, &t->grant));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type enter_type = {"gateway_enter", enter_states, 2, enter_step, NULL};

static void on_entered(struct exchange *x, struct op *root)
{
    struct enter_call *t = container_of(root, struct enter_call, op);
    struct app *app = exchange_app(x);
    struct lease *lease = NULL;
    struct error err = *op_error(root);

    if (!op_failed(root))
        lease = lease_find(broker_leases(app->broker), t->grant.id);
    if (lease == NULL) {
        if (!error_is(&err))
            error_set(&err, ERR_SANDBOX_NOT_FOUND, "the sandbox has just been destroyed");
        map_error(&err);
        exchange_reply_error(x, &err);
        return;
    }
    t->then(x, gateway_leases_keep(app->gateway_leases, t->sandbox_id, lease), t->ctx);
}

static void enter(struct exchange *x, const struct proxy_door *door, proxy_entered then, void *ctx)
{
    const char *id = exchange_header(x, "x-sandbox-id");
    struct lease *lease;
    struct enter_call *t;
    struct error err;

    (void)door;
    if (id == NULL || id[0] == '\0') {
        error_set(&err, ERR_BAD_REQUEST, "X-Sandbox-Id is required");
        exchange_reply_error(x, &err);
        return;
    }
    lease = gateway_leases_find(exchange_app(x)->gateway_leases, id);
    if (lease != NULL) {
        then(x, lease, ctx);
        return;
    }
    t = OP_ROOT(x->loop, &enter_type, enter_call, x->arena);
    t->x = x;
    t->sandbox_id = arena_strdup(x->arena, id);
    t->then = then;
    t->ctx = ctx;
    if (!sandbox_id_split(x->arena, id, &t->binding)) {
        error_set(&err, ERR_SANDBOX_NOT_FOUND, "no sandbox can have this id");
        exchange_reply_error(x, &err);
        return;
    }
    exchange_run(x, &t->op, on_entered);
}

static void handle_proxy(struct exchange *x)
{
    static const struct proxy_door door = {enter, map_error};

    if (gateway_admits(x) && handler_need_backend(x))
        proxy_begin(x, x->rest, &door);
}

/* ---- routes ---------------------------------------------------------------------------------------- */

static const char create_request[] =
    "{\"type\":\"object\",\"required\":[\"tenantId\"],\"properties\":{"
    "\"tenantId\":{\"type\":\"string\",\"minLength\":1},"
    "\"homeSnapshotRef\":{\"type\":[\"string\",\"null\"]}}}";
static const char create_response[] = "{\"type\":\"object\",\"required\":[\"sandboxId\"],"
                                      "\"properties\":{\"sandboxId\":{\"type\":\"string\"}}}";

#define PROXY_FLAGS (ROUTE_STREAM | ROUTE_ANY_METHOD | ROUTE_LONG)

const struct route gateway_routes[] = {
    {"POST", "/v1/sandboxes", AUTH_OWN, ERRORS_GATEWAY, 0, BODY_MAX, handle_create,
     "Gateway facade: create a sandbox", create_request, create_response},
    {"DELETE", "/v1/sandboxes/{id}", AUTH_OWN, ERRORS_GATEWAY, 0, 0, handle_delete,
     "Gateway facade: delete a sandbox", NULL, NULL},
    {"POST", "/v1/sandboxes/{id}/home-snapshots", AUTH_OWN, ERRORS_GATEWAY, 0, BODY_MAX,
     handle_snapshot, "Gateway facade: snapshot a sandbox's Home", NULL, NULL},
    {"DELETE", "/v1/home-snapshots/*", AUTH_OWN, ERRORS_GATEWAY, 0, 0, handle_snapshot_delete,
     "Gateway facade: delete a home snapshot", NULL, NULL},
    {"*", "/proxy/*", AUTH_OWN, ERRORS_SHELLCTL, PROXY_FLAGS, 0, handle_proxy,
     "Gateway facade: the shellctl of the sandbox named by X-Sandbox-Id", NULL, NULL},
    {0},
};
