#include "http/handlers_owner.h"

#include "core/runtime/quote.h"
#include "http/codec_ledger.h"
#include "http/handler.h"
#include "http/handler_ledger.h"

#include <string.h>

/* ---- load or create ------------------------------------------------------------------------------ */

struct owner_call {
    struct handler_call call;
    struct owner_request request;
    struct owner_binding found;
};

static void load_start(struct handler_call *call)
{
    struct owner_call *t = container_of(call, struct owner_call, call);

    lifecycle_load_or_create(call->lifecycle, &call->op, &t->request, &t->found);
}

static void row_write(struct json_writer *w, const void *ctx)
{
    codec_write_ledger_binding(w, ctx);
}

static void load_reply(struct handler_call *call)
{
    struct owner_call *t = container_of(call, struct owner_call, call);

    handler_reply_object(call->x, t->found.created ? 201 : 200, row_write, t->found.row);
}

/* The owner in the path; false after an error reply. */
static bool path_owner(struct exchange *x, struct owner_key *ret)
{
    struct error err;

    ret->type = exchange_param(x, "owner_type");
    ret->id = exchange_param(x, "owner_id");
    if (owner_type_known(ret->type))
        return ledger_check_id(x, "owner_id", ret->id);
    error_set(&err, ERR_BAD_REQUEST,
              "owner_type must be conversation, build_draft or workflow_run");
    exchange_reply_error(x, &err);
    return false;
}

static bool check_request(struct exchange *x, const struct owner_request *r)
{
    return ledger_check_id(x, "tenant_id", r->owner.tenant_id) &&
           ledger_check_id(x, "app_id", r->app_id) &&
           ledger_check_id(x, "agent_id", r->generation.agent_id) &&
           ledger_check_id(x, "owner_scope_key", r->owner.scope_key) &&
           ledger_check_id(x, "agent_config_version_id", r->generation.config_version_id) &&
           ledger_check_id(x, "home_snapshot_id", r->generation.base_home_snapshot_id);
}

static void handle_load(struct exchange *x)
{
    struct owner_call *t = HANDLER_CALL(x, owner_call);
    struct json_reader r;

    if (!path_owner(x, &t->request.owner) || !handler_read(x, &r) || !handler_need_backend(x))
        return;
    codec_read_owner_request(&r, &t->request);
    if (!handler_accept(x, &r) || !check_request(x, &t->request))
        return;
    t->call.start = load_start;
    t->call.reply = load_reply;
    handler_run(&t->call);
}

/* ---- read ------------------------------------------------------------------------------------------ */

struct find_call {
    struct handler_call call;
    struct owner_key owner;
    struct ledger_binding *row;
};

static void find_start(struct handler_call *call)
{
    struct find_call *t = container_of(call, struct find_call, call);
    struct ledger *ledger = lifecycle_ledger(call->lifecycle);

    ledger->ops->find_owner(ledger, &call->op, &t->owner, &t->row);
}

static void find_reply(struct handler_call *call)
{
    struct find_call *t = container_of(call, struct find_call, call);
    struct error err;

    if (t->row != NULL) {
        handler_reply_object(call->x, 200, row_write, t->row);
        return;
    }
    error_set(&err, ERR_NOT_FOUND, "this owner has no binding");
    exchange_reply_error(call->x, &err);
}

static void handle_find(struct exchange *x)
{
    struct find_call *t = HANDLER_CALL(x, find_call);
    const char *scope = exchange_query(x, "owner_scope_key");

    if (!path_owner(x, &t->owner) || !ledger_need_query(x, "tenant_id", &t->owner.tenant_id))
        return;
    t->owner.scope_key = scope != NULL ? scope : "root";
    t->call.start = find_start;
    t->call.reply = find_reply;
    handler_run(&t->call);
}

/* ---- end ---------------------------------------------------------------------------------------------- */

static void handle_end(struct exchange *x)
{
    struct ledger_retire what = {.cause = {"api", "its owner ended"}};
    struct owner_key owner;

    if (!path_owner(x, &owner) || !ledger_need_query(x, "tenant_id", &what.tenant_id) ||
        !ledger_need_query(x, "app_id", &what.app_id))
        return;
    what.owner_type = owner.type;
    what.owner_id = owner.id;
    ledger_retire_run(x, &what);
}

/* ---- routes --------------------------------------------------------------------------------------------- */

enum { BODY_MAX = 64 * 1024 };

static const char load_request[] =
    "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"tenant_id\",\"app_id\","
    "\"agent_id\",\"agent_config_version_id\"],\"properties\":{"
    "\"tenant_id\":{\"type\":\"string\",\"minLength\":1},"
    "\"app_id\":{\"type\":\"string\",\"minLength\":1},"
    "\"agent_id\":{\"type\":\"string\",\"minLength\":1},"
    "\"agent_config_version_id\":{\"type\":\"string\",\"minLength\":1},"
    "\"agent_config_version_kind\":{\"enum\":[\"snapshot\",\"draft\",\"build_draft\"]},"
    "\"home_snapshot_id\":{\"type\":[\"string\",\"null\"],\"minLength\":1},"
    "\"owner_scope_key\":{\"type\":[\"string\",\"null\"],\"minLength\":1},"
    "\"replace_lost\":{\"type\":\"boolean\"}}}";

const struct route owner_routes[] = {
    {"PUT", "/v1/owners/{owner_type}/{owner_id}/binding", AUTH_API, ERRORS_V1, 0, BODY_MAX,
     handle_load, "Load the owner's binding, or create it once", load_request,
     ledger_binding_schema},
    {"GET", "/v1/owners/{owner_type}/{owner_id}/binding", AUTH_API, ERRORS_V1, 0, 0, handle_find,
     "The owner's binding", NULL, ledger_binding_schema},
    {"DELETE", "/v1/owners/{owner_type}/{owner_id}", AUTH_API, ERRORS_V1, 0, 0, handle_end,
     "Retire everything of an owner", NULL, ledger_retired_schema},
    {0},
};
