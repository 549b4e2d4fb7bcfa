#include "http/codec_ledger.h"

#include <json-c/json.h>
#include <stddef.h>
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

/* One member of a row's JSON: its name, and where in the row's struct its value is. */
struct field {
    const char *name; /* NULL ends a table */
    enum { FIELD_TEXT, FIELD_NUMBER, FIELD_TIME, FIELD_JSON } type;
    size_t offset;
};

#define FIELD(type_, row, member, name_)                                                           \
    {                                                                                              \
        .name = #name_, .type = FIELD_##type_, .offset = offsetof(struct ledger_##row, member)     \
    }
#define TEXT_AS(row, member, name) FIELD(TEXT, row, member, name)
#define TEXT(row, member)          FIELD(TEXT, row, member, member)
#define NUMBER(row, member)        FIELD(NUMBER, row, member, member)
#define TIME_AS(row, member, name) FIELD(TIME, row, member, name)
#define TIME(row, member)          FIELD(TIME, row, member, member)
#define JSON(row, member)          FIELD(JSON, row, member, member)

static const struct field binding_fields[] = {
    TEXT_AS(binding, id, binding_id),
    TEXT(binding, workspace_id),
    TEXT(binding, binding_ref),
    TEXT(binding, workspace_ref),
    TEXT(binding, status),
    TEXT(binding, tenant_id),
    TEXT(binding, app_id),
    TEXT(binding, agent_id),
    TEXT(binding, backend),
    TEXT(binding, owner_type),
    TEXT(binding, owner_id),
    TEXT(binding, owner_scope_key),
    TEXT_AS(binding, base_home_snapshot_id, home_snapshot_id),
    TEXT(binding, agent_config_version_id),
    TEXT(binding, agent_config_version_kind),
    NUMBER(binding, generation),
    JSON(binding, session_snapshot),
    TEXT(binding, pending_form_id),
    TEXT(binding, pending_tool_call_id),
    TIME(binding, lost_at),
    TEXT(binding, lost_reason),
    TIME(binding, created_at),
    TIME(binding, updated_at),
    TIME(binding, last_used_at),
    TIME(binding, retired_at),
    TEXT(binding, retired_reason),
    {0},
};

static const struct field workspace_fields[] = {
    TEXT_AS(workspace, id, workspace_id),
    TEXT(workspace, workspace_ref),
    TEXT(workspace, status),
    TEXT(workspace, tenant_id),
    TEXT(workspace, app_id),
    TEXT(workspace, backend),
    TEXT(workspace, owner_type),
    TEXT(workspace, owner_id),
    TEXT(workspace, owner_scope_key),
    TIME(workspace, created_at),
    TIME(workspace, updated_at),
    TIME(workspace, retired_at),
    {0},
};

static const struct field snapshot_fields[] = {
    TEXT_AS(snapshot, id, home_snapshot_id),
    TEXT(snapshot, snapshot_ref),
    TEXT(snapshot, status),
    TEXT(snapshot, tenant_id),
    TEXT(snapshot, agent_id),
    TEXT(snapshot, backend),
    TIME(snapshot, created_at),
    TIME(snapshot, retired_at),
    {0},
};

static const struct field orphan_fields[] = {
    TEXT_AS(orphan, id, orphan_id),
    TEXT(orphan, kind),
    TEXT(orphan, backend),
    TEXT(orphan, ref),
    TEXT(orphan, workspace_ref),
    TEXT(orphan, tenant_id),
    TEXT(orphan, agent_id),
    TEXT(orphan, binding_id),
    TEXT(orphan, reason),
    TEXT(orphan, status),
    TIME_AS(orphan, created_at, found_at),
    TIME(orphan, seen_at),
    {0},
};

static const struct field event_fields[] = {
    TIME(event, at), TEXT(event, event), TEXT(event, actor), TEXT(event, reason), {0},
};

static void member_json(struct json_writer *w, const char *key, const char *text)
{
    json_key(w, key);
    if (text != NULL)
        json_raw(w, text, strlen(text));
    else
        json_null(w);
}

static void members(struct json_writer *w, const struct field *fields, const void *row)
{
    for (const struct field *f = fields; f->name != NULL; f++) {
        const void *value = (const char *)row + f->offset;

        switch (f->type) {
        case FIELD_TEXT:
            json_member_string(w, f->name, *(const char *const *)value);
            break;
        case FIELD_NUMBER:
            json_member_int(w, f->name, *(const int64_t *)value);
            break;
        case FIELD_TIME:
            member_time(w, f->name, *(const int64_t *)value);
            break;
        case FIELD_JSON:
            member_json(w, f->name, *(const char *const *)value);
            break;
        }
    }
}

/* Since when a row waits: its end, or else its beginning. */
#define WAITING(row, since_)                                                                       \
    (&(const struct waiting){(row)->status, (row)->claimed_by, (row)->last_error,                  \
                             (row)->claimed_until, (row)->attempts, (row)->next_attempt_at,        \
                             since_})
#define SINCE(row) ((row)->retired_at > 0 ? (row)->retired_at : (row)->created_at)

void codec_write_ledger_binding(struct json_writer *w, const struct ledger_binding *row)
{
    members(w, binding_fields, row);
    member_waiting(w, WAITING(row, SINCE(row)));
}

void codec_write_ledger_workspace(struct json_writer *w, const struct ledger_workspace *row)
{
    members(w, workspace_fields, row);
    member_waiting(w, WAITING(row, SINCE(row)));
}

void codec_write_ledger_snapshot(struct json_writer *w, const struct ledger_snapshot *row)
{
    members(w, snapshot_fields, row);
    member_waiting(w, WAITING(row, SINCE(row)));
}

void codec_write_ledger_orphan(struct json_writer *w, const struct ledger_orphan *row)
{
    members(w, orphan_fields, row);
    member_waiting(w, WAITING(row, row->created_at));
}

void codec_write_ledger_event(struct json_writer *w, const struct ledger_event *row)
{
    members(w, event_fields, row);
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
