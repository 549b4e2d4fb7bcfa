#include "http/handlers_ledger.h"

#include "http/codec_ledger.h"
#include "http/handler.h"
#include "http/handler_ledger.h"

#include <stdlib.h>
#include <string.h>

typedef void (*row_writer)(struct json_writer *w, const void *row);

static void write_binding(struct json_writer *w, const void *row)
{
    codec_write_ledger_binding(w, row);
}

static void write_workspace(struct json_writer *w, const void *row)
{
    codec_write_ledger_workspace(w, row);
}

static void write_snapshot(struct json_writer *w, const void *row)
{
    codec_write_ledger_snapshot(w, row);
}

static void write_orphan(struct json_writer *w, const void *row)
{
    codec_write_ledger_orphan(w, row);
}

static void write_event(struct json_writer *w, const void *row)
{
    codec_write_ledger_event(w, row);
}

static const struct resource {
    const char *plural, *noun;
    row_writer write;
} resources[LEDGER_KINDS] = {
    [LEDGER_BINDINGS] = {"bindings", "binding", write_binding},
    [LEDGER_WORKSPACES] = {"workspaces", "workspace", write_workspace},
    [LEDGER_SNAPSHOTS] = {"home_snapshots", "home snapshot", write_snapshot},
    [LEDGER_ORPHANS] = {"orphans", "orphan", write_orphan},
    [LEDGER_EVENTS] = {"events", "event", write_event},
};

/* ---- one row ---------------------------------------------------------------------------------------- */

struct get_call {
    struct handler_call call;
    enum ledger_kind kind;
    const char *id;
    void *row;
};

static void get_start(struct handler_call *call)
{
    struct get_call *t = container_of(call, struct get_call, call);
    struct ledger *ledger = lifecycle_ledger(call->lifecycle);

    ledger->ops->get(ledger, &call->op, t->kind, t->id, &t->row);
}

static void reply_absent(struct exchange *x, enum ledger_kind kind, const char *id)
{
    struct error err;

    error_set(&err, ERR_NOT_FOUND, "there is no %s %s", resources[kind].noun, id);
    exchange_reply_error(x, &err);
}

static void get_reply(struct handler_call *call)
{
    struct get_call *t = container_of(call, struct get_call, call);

    if (t->row != NULL)
        handler_reply_object(call->x, 200, resources[t->kind].write, t->row);
    else
        reply_absent(call->x, t->kind, t->id);
}

static void get_run(struct exchange *x, enum ledger_kind kind)
{
    struct get_call *t = HANDLER_CALL(x, get_call);

    t->kind = kind;
    t->id = exchange_param(x, "id");
    t->call.start = get_start;
    t->call.reply = get_reply;
    handler_run(&t->call);
}

static void handle_get_binding(struct exchange *x)
{
    get_run(x, LEDGER_BINDINGS);
}

static void handle_get_workspace(struct exchange *x)
{
    get_run(x, LEDGER_WORKSPACES);
}

static void handle_get_snapshot(struct exchange *x)
{
    get_run(x, LEDGER_SNAPSHOTS);
}

/* ---- pages ---------------------------------------------------------------------------------------------- */

struct list_call {
    struct handler_call call;
    enum ledger_kind kind;
    struct ledger_filter filter;
    struct ledger_page page;
};

static void list_start(struct handler_call *call)
{
    struct list_call *t = container_of(call, struct list_call, call);
    struct ledger *ledger = lifecycle_ledger(call->lifecycle);

    ledger->ops->list(ledger, &call->op, t->kind, &t->filter, &t->page);
}

static void page_write(struct json_writer *w, const void *ctx)
{
    const struct list_call *t = ctx;

    json_key(w, resources[t->kind].plural);
    json_array_begin(w);
    for (size_t i = 0; i < t->page.n; i++) {
        json_object_begin(w);
        resources[t->kind].write(w, t->page.rows[i]);
        json_object_finish(w);
    }
    json_array_finish(w);
    json_member_string(w, "next", t->page.next);
}

static void list_reply(struct handler_call *call)
{
    handler_reply_object(call->x, 200, page_write, container_of(call, struct list_call, call));
}

static bool read_limit(struct exchange *x, int *ret)
{
    const char *text = exchange_query(x, "limit");
    struct error err;
    char *end;
    long value;

    if (text == NULL)
        return true;
    value = strtol(text, &end, 10);
    if (end != text && *end == '\0' && value >= 1 && value <= 1000) {
        *ret = (int)value;
        return true;
    }
    error_set(&err, ERR_BAD_REQUEST, "limit must be a number from 1 to 1000");
    exchange_reply_error(x, &err);
    return false;
}

static bool read_status(struct exchange *x, enum ledger_kind kind, const char **ret)
{
    enum row_state state;
    struct error err;

    *ret = exchange_query(x, "status");
    state = row_state_of(*ret);
    if (*ret == NULL || state == ROW_RETIRED ||
        (kind == LEDGER_ORPHANS ? strcmp(*ret, "reported") == 0
                                : state == ROW_ACTIVE || state == ROW_CREATING))
        return true;
    error_set(&err, ERR_BAD_REQUEST, "status must be %s",
              kind == LEDGER_ORPHANS ? "reported or retired" : "creating, active or retired");
    exchange_reply_error(x, &err);
    return false;
}

static void list_run(struct exchange *x, enum ledger_kind kind)
{
    struct list_call *t = HANDLER_CALL(x, list_call);
    struct ledger_filter *f = &t->filter;

    t->kind = kind;
    if (!read_limit(x, &f->limit) || !read_status(x, kind, &f->status))
        return;
    f->cursor = exchange_query(x, "after");
    f->tenant_id = exchange_query(x, "tenant_id");
    if (kind != LEDGER_WORKSPACES)
        f->agent_id = exchange_query(x, "agent_id");
    if (kind == LEDGER_BINDINGS || kind == LEDGER_WORKSPACES) {
        f->app_id = exchange_query(x, "app_id");
        f->owner_type = exchange_query(x, "owner_type");
        f->owner_id = exchange_query(x, "owner_id");
    }
    if (kind == LEDGER_BINDINGS)
        f->workspace_id = exchange_query(x, "workspace_id");
    t->call.start = list_start;
    t->call.reply = list_reply;
    handler_run(&t->call);
}

static void handle_list_bindings(struct exchange *x)
{
    list_run(x, LEDGER_BINDINGS);
}

static void handle_list_workspaces(struct exchange *x)
{
    list_run(x, LEDGER_WORKSPACES);
}

static void handle_list_snapshots(struct exchange *x)
{
    list_run(x, LEDGER_SNAPSHOTS);
}

static void handle_list_orphans(struct exchange *x)
{
    list_run(x, LEDGER_ORPHANS);
}

static void handle_timeline(struct exchange *x)
{
    struct list_call *t = HANDLER_CALL(x, list_call);

    t->kind = LEDGER_EVENTS;
    if (!read_limit(x, &t->filter.limit))
        return;
    t->filter.cursor = exchange_query(x, "after");
    t->filter.binding_id = exchange_param(x, "id");
    t->call.start = list_start;
    t->call.reply = list_reply;
    handler_run(&t->call);
}

/* ---- retire ------------------------------------------------------------------------------------------------ */

static void handle_retire_binding(struct exchange *x)
{
    ledger_retire_run(x, &(struct ledger_retire){.binding_id = exchange_param(x, "id"),
                                                 .cause = {"api", "retired by its id"}});
}

static void handle_retire_workspace(struct exchange *x)
{
    ledger_retire_run(x, &(struct ledger_retire){.workspace_id = exchange_param(x, "id"),
                                                 .cause = {"api", "its workspace was retired"}});
}

static void handle_retire_snapshot(struct exchange *x)
{
    ledger_retire_run(x, &(struct ledger_retire){.snapshot_id = exchange_param(x, "id"),
                                                 .cause = {"api", "retired by its id"}});
}

static void handle_retire_app(struct exchange *x)
{
    struct ledger_retire what = {.app_id = exchange_param(x, "id"),
                                 .cause = {"api", "its app ended"}};

    if (ledger_need_query(x, "tenant_id", &what.tenant_id))
        ledger_retire_run(x, &what);
}

static void handle_retire_agent(struct exchange *x)
{
    struct ledger_retire what = {.agent_id = exchange_param(x, "id"),
                                 .cause = {"api", "its agent ended"}};

    if (ledger_need_query(x, "tenant_id", &what.tenant_id))
        ledger_retire_run(x, &what);
}

/* ---- session ------------------------------------------------------------------------------------------------- */

struct session_call {
    struct handler_call call;
    const char *id;
    struct ledger_session session;
    bool done;
};

static void session_start(struct handler_call *call)
{
    struct session_call *t = container_of(call, struct session_call, call);
    struct ledger *ledger = lifecycle_ledger(call->lifecycle);

    ledger->ops->store_session(ledger, &call->op, t->id, &t->session, &t->done);
}

static void session_reply(struct handler_call *call)
{
    struct session_call *t = container_of(call, struct session_call, call);
    struct error err;

    if (t->done) {
        exchange_reply_empty(call->x, 204);
        return;
    }
    error_set(&err, ERR_NOT_FOUND, "there is no active binding %s", t->id);
    exchange_reply_error(call->x, &err);
}

static void handle_session(struct exchange *x)
{
    struct session_call *t = HANDLER_CALL(x, session_call);
    struct json_reader r;

    if (!handler_read(x, &r))
        return;
    codec_read_session(&r, x->arena, &t->session);
    if (!handler_accept(x, &r))
        return;
    t->id = exchange_param(x, "id");
    t->call.start = session_start;
    t->call.reply = session_reply;
    handler_run(&t->call);
}

/* ---- routes ----------------------------------------------------------------------------------------------------- */

enum { SESSION_MAX = 4 * 1024 * 1024 };

static const char page_schema[] = "{\"type\":\"object\",\"required\":[\"next\"],\"properties\":"
                                  "{\"next\":{\"type\":[\"string\",\"null\"]}}}";
static const char session_request[] =
    "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"session_snapshot\"],"
    "\"properties\":{\"session_snapshot\":{},"
    "\"pending_form_id\":{\"type\":[\"string\",\"null\"]},"
    "\"pending_tool_call_id\":{\"type\":[\"string\",\"null\"]}}}";
static const char row_schema[] = "{\"type\":\"object\"}";

#define GET_ROUTE(path, handle, summary, schema)                                                   \
    {                                                                                              \
        "GET", path, AUTH_API, ERRORS_V1, 0, 0, handle, summary, NULL, schema                      \
    }
#define RETIRE_ROUTE(path, handle, summary)                                                        \
    {                                                                                              \
        "POST", path, AUTH_API, ERRORS_V1, 0, 0, handle, summary, NULL, ledger_retired_schema      \
    }

const struct route ledger_routes[] = {
    GET_ROUTE("/v1/bindings", handle_list_bindings, "Bindings, filtered, page by page",
              page_schema),
    GET_ROUTE("/v1/bindings/{id}", handle_get_binding, "One binding", ledger_binding_schema),
    GET_ROUTE("/v1/bindings/{id}/timeline", handle_timeline, "Every state change of a binding",
              page_schema),
    RETIRE_ROUTE("/v1/bindings/{id}/retire", handle_retire_binding, "Retire a binding"),
    {"PUT", "/v1/bindings/{id}/session-snapshot", AUTH_API, ERRORS_V1, 0, SESSION_MAX,
     handle_session, "Store the agent's session", session_request, NULL},
    GET_ROUTE("/v1/workspaces", handle_list_workspaces, "Workspaces, filtered, page by page",
              page_schema),
    GET_ROUTE("/v1/workspaces/{id}", handle_get_workspace, "One workspace", row_schema),
    RETIRE_ROUTE("/v1/workspaces/{id}/retire", handle_retire_workspace,
                 "Retire a workspace with its bindings"),
    GET_ROUTE("/v1/home-snapshots", handle_list_snapshots, "Home snapshots, filtered, page by page",
              page_schema),
    GET_ROUTE("/v1/home-snapshots/{id}", handle_get_snapshot, "One home snapshot", row_schema),
    RETIRE_ROUTE("/v1/home-snapshots/{id}/retire", handle_retire_snapshot,
                 "Retire a home snapshot"),
    RETIRE_ROUTE("/v1/apps/{id}/retire", handle_retire_app, "Retire everything of an app"),
    RETIRE_ROUTE("/v1/agents/{id}/home-snapshots/retire", handle_retire_agent,
                 "Retire an agent's home snapshots"),
    GET_ROUTE("/v1/orphans", handle_list_orphans, "Orphans, filtered, page by page", page_schema),
    {0},
};
