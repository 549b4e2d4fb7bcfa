#include "http/codec_ledger.h"

#include <json-c/json.h>
#include <string.h>

static const char *const version_kinds[] = {"snapshot", "draft", "build_draft", NULL};

void codec_read_owner_request(struct json_reader *r, struct owner_request *ret)
{
    const char *scope, *kind;

    ret->owner.tenant_id = json_read_string(r, "tenant_id", 1);
    ret->app_id = json_read_string(r, "app_id", 1);
    ret->generation.agent_id = json_read_string(r, "agent_id", 1);
    ret->generation.config_version_id = json_read_string(r, "agent_config_version_id", 1);
    kind = json_read_choice(r, "agent_config_version_kind", false, version_kinds);
    ret->generation.config_version_kind = kind != NULL ? kind : "snapshot";
    ret->generation.base_home_snapshot_id = json_read_string_opt(r, "home_snapshot_id", 1);
    scope = json_read_string_opt(r, "owner_scope_key", 1);
    ret->owner.scope_key = scope != NULL ? scope : "root";
    ret->replace_lost = json_read_bool(r, "replace_lost", false, false, false);
}

void codec_read_session(struct json_reader *r, struct arena *arena, struct ledger_session *ret)
{
    struct json_object *value = json_read_any(r, "session_snapshot");

    if (value == NULL)
        json_reader_problem(r, "session_snapshot", "missing", "Field required, and not null");
    else
        ret->snapshot = arena_strdup(
            arena, json_object_to_json_string_ext(value, JSON_C_TO_STRING_NOSLASHESCAPE));
    ret->pending_form_id = json_read_string_opt(r, "pending_form_id", 1);
    ret->pending_tool_call_id = json_read_string_opt(r, "pending_tool_call_id", 1);
}

static void member_time(struct json_writer *w, const char *key, int64_t wall_ms)
{
    json_key(w, key);
    if (wall_ms > 0)
        json_time_ms(w, wall_ms);
    else
        json_null(w);
}

static void member_owner(struct json_writer *w, const char *type, const char *id, const char *scope)
{
    json_member_string(w, "owner_type", type);
    json_member_string(w, "owner_id", id);
    json_member_string(w, "owner_scope_key", scope);
}

/* What a row that is neither here nor gone waits for. */
struct waiting {
    const char *status, *claimed_by, *last_error;
    int64_t claimed_until, attempts, next_attempt_at, since;
};

static void member_waiting(struct json_writer *w, const struct waiting *t)
{
    static const int64_t never_ms = INT64_C(4102444800000); /* the year 2100 */
    enum row_state state = row_state_of(t->status);

    json_key(w, "waiting");
    if (state != ROW_CREATING && state != ROW_RETIRED) {
        json_null(w);
        return;
    }
    json_object_begin(w);
    json_member_string(w, "for", state == ROW_CREATING ? "its creation" : "its destruction");
    member_time(w, "since", t->since);
    json_member_int(w, "attempts", t->attempts);
    member_time(w, "next_attempt_at", t->next_attempt_at < never_ms ? t->next_attempt_at : 0);
    json_member_string(w, "claimed_by", t->claimed_by);
    member_time(w, "claimed_until", t->claimed_until);
    json_member_string(w, "last_error", t->last_error);
    json_object_finish(w);
}

#define WAITING(row, since_)                                                                       \
    (&(const struct waiting){(row)->status, (row)->claimed_by, (row)->last_error,                  \
                             (row)->claimed_until, (row)->attempts, (row)->next_attempt_at,        \
                             since_})

static void member_session(struct json_writer *w, const struct ledger_binding *row)
{
    json_key(w, "session_snapshot");
    if (row->session_snapshot != NULL)
        json_raw(w, row->session_snapshot, strlen(row->session_snapshot));
    else
        json_null(w);
    json_member_string(w, "pending_form_id", row->pending_form_id);
    json_member_string(w, "pending_tool_call_id", row->pending_tool_call_id);
}

void codec_write_ledger_binding(struct json_writer *w, const struct ledger_binding *row)
{
    json_member_string(w, "binding_id", row->id);
    json_member_string(w, "workspace_id", row->workspace_id);
    json_member_string(w, "binding_ref", row->binding_ref);
    json_member_string(w, "workspace_ref", row->workspace_ref);
    json_member_string(w, "status", row->status);
    json_member_string(w, "tenant_id", row->tenant_id);
    json_member_string(w, "app_id", row->app_id);
    json_member_string(w, "agent_id", row->agent_id);
    json_member_string(w, "backend", row->backend);
    member_owner(w, row->owner_type, row->owner_id, row->owner_scope_key);
    json_member_string(w, "home_snapshot_id", row->base_home_snapshot_id);
    json_member_string(w, "agent_config_version_id", row->agent_config_version_id);
    json_member_string(w, "agent_config_version_kind", row->agent_config_version_kind);
    json_member_int(w, "generation", row->generation);
    member_session(w, row);
    member_time(w, "lost_at", row->lost_at);
    json_member_string(w, "lost_reason", row->lost_reason);
    member_time(w, "created_at", row->created_at);
    member_time(w, "updated_at", row->updated_at);
    member_time(w, "last_used_at", row->last_used_at);
    member_time(w, "retired_at", row->retired_at);
    json_member_string(w, "retired_reason", row->retired_reason);
    member_waiting(w, WAITING(row, row->retired_at > 0 ? row->retired_at : row->created_at));
}

void codec_write_ledger_workspace(struct json_writer *w, const struct ledger_workspace *row)
{
    json_member_string(w, "workspace_id", row->id);
    json_member_string(w, "workspace_ref", row->workspace_ref);
    json_member_string(w, "status", row->status);
    json_member_string(w, "tenant_id", row->tenant_id);
    json_member_string(w, "app_id", row->app_id);
    json_member_string(w, "backend", row->backend);
    member_owner(w, row->owner_type, row->owner_id, row->owner_scope_key);
    member_time(w, "created_at", row->created_at);
    member_time(w, "updated_at", row->updated_at);
    member_time(w, "retired_at", row->retired_at);
    member_waiting(w, WAITING(row, row->retired_at > 0 ? row->retired_at : row->created_at));
}

void codec_write_ledger_snapshot(struct json_writer *w, const struct ledger_snapshot *row)
{
    json_member_string(w, "home_snapshot_id", row->id);
    json_member_string(w, "snapshot_ref", row->snapshot_ref);
    json_member_string(w, "status", row->status);
    json_member_string(w, "tenant_id", row->tenant_id);
    json_member_string(w, "agent_id", row->agent_id);
    json_member_string(w, "backend", row->backend);
    member_time(w, "created_at", row->created_at);
    member_time(w, "retired_at", row->retired_at);
    member_waiting(w, WAITING(row, row->retired_at > 0 ? row->retired_at : row->created_at));
}

void codec_write_ledger_orphan(struct json_writer *w, const struct ledger_orphan *row)
{
    json_member_string(w, "orphan_id", row->id);
    json_member_string(w, "kind", row->kind);
    json_member_string(w, "backend", row->backend);
    json_member_string(w, "ref", row->ref);
    json_member_string(w, "workspace_ref", row->workspace_ref);
    json_member_string(w, "tenant_id", row->tenant_id);
    json_member_string(w, "agent_id", row->agent_id);
    json_member_string(w, "binding_id", row->binding_id);
    json_member_string(w, "reason", row->reason);
    json_member_string(w, "status", row->status);
    member_time(w, "found_at", row->created_at);
    member_time(w, "seen_at", row->seen_at);
    member_waiting(w, WAITING(row, row->created_at));
}

void codec_write_ledger_event(struct json_writer *w, const struct ledger_event *row)
{
    member_time(w, "at", row->at);
    json_member_string(w, "event", row->event);
    json_member_string(w, "actor", row->actor);
    json_member_string(w, "reason", row->reason);
}

static void member_ids(struct json_writer *w, const char *key, const char **ids, size_t n)
{
    json_key(w, key);
    json_array_begin(w);
    for (size_t i = 0; i < n; i++)
        json_string(w, ids[i]);
    json_array_finish(w);
}

void codec_write_retired(struct json_writer *w, const struct ledger_retired *retired)
{
    member_ids(w, "binding_ids", retired->binding_ids, retired->n_bindings);
    member_ids(w, "workspace_ids", retired->workspace_ids, retired->n_workspaces);
    member_ids(w, "home_snapshot_ids", retired->snapshot_ids, retired->n_snapshots);
}
