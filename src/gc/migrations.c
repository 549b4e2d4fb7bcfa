#include "gc/migrations.h"

#include "core/runtime/buf.h"
#include "core/runtime/check.h"

#include <stdlib.h>

#define WORK_COLUMNS                                                                               \
    "claimed_by TEXT,"                                                                             \
    "claimed_until BIGINT NOT NULL DEFAULT 0,"                                                     \
    "attempts BIGINT NOT NULL DEFAULT 0,"                                                          \
    "next_attempt_at BIGINT NOT NULL DEFAULT 0,"                                                   \
    "last_error TEXT,"
#define CHANGE_COLUMNS                                                                             \
    "created_at BIGINT NOT NULL,"                                                                  \
    "updated_at BIGINT NOT NULL,"                                                                  \
    "change_id TEXT"

/* States and guards hold together whatever statement is run; so do the moves (triggers below). */
static const char v1_bindings[] =
    "CREATE TABLE bindings ("
    "id TEXT NOT NULL PRIMARY KEY,"
    "tenant_id TEXT NOT NULL,"
    "app_id TEXT,"
    "agent_id TEXT NOT NULL,"
    "workspace_id TEXT NOT NULL,"
    "backend TEXT NOT NULL,"
    "owner_type TEXT CHECK (owner_type IN ('conversation','build_draft','workflow_run')),"
    "owner_id TEXT,"
    "owner_scope_key TEXT,"
    "base_home_snapshot_id TEXT,"
    "home_snapshot_ref TEXT,"
    "agent_config_version_id TEXT,"
    "agent_config_version_kind TEXT "
    "CHECK (agent_config_version_kind IN ('snapshot','draft','build_draft')),"
    "spec_digest TEXT,"
    "generation BIGINT NOT NULL DEFAULT 1,"
    "binding_ref TEXT,"
    "workspace_ref TEXT,"
    "session_snapshot TEXT,"
    "pending_form_id TEXT,"
    "pending_tool_call_id TEXT,"
    "status TEXT NOT NULL CHECK (status IN ('creating','active','retired')),"
    "active_guard SMALLINT CHECK (active_guard=1),"
    "lost_at BIGINT NOT NULL DEFAULT 0,"
    "lost_reason TEXT,"
    "retired_at BIGINT NOT NULL DEFAULT 0,"
    "retired_reason TEXT,"
    "last_used_at BIGINT NOT NULL DEFAULT 0,"
    "leased_until BIGINT NOT NULL DEFAULT 0," WORK_COLUMNS CHANGE_COLUMNS ","
    "CHECK ((status='retired')=(active_guard IS NULL)),"
    "CHECK (status<>'active' OR (binding_ref IS NOT NULL AND workspace_ref IS NOT NULL)),"
    "CHECK (status<>'creating' OR binding_ref IS NULL),"
    "CHECK (status<>'retired' OR retired_at>0));"
    "CREATE UNIQUE INDEX bindings_owner ON bindings "
    "(tenant_id,owner_type,owner_id,owner_scope_key,active_guard);"
    "CREATE INDEX bindings_ref ON bindings (backend,binding_ref);"
    "CREATE INDEX bindings_workspace ON bindings (workspace_id);"
    "CREATE INDEX bindings_tenant ON bindings (tenant_id,id);"
    "CREATE INDEX bindings_app ON bindings (tenant_id,app_id,status);"
    "CREATE INDEX bindings_status ON bindings (status,id);"
    "CREATE INDEX bindings_retired ON bindings (status,next_attempt_at) WHERE status='retired';"
    "CREATE INDEX bindings_creating ON bindings (status,claimed_until) WHERE status='creating';";

static const char v1_workspaces[] =
    "CREATE TABLE workspaces ("
    "id TEXT NOT NULL PRIMARY KEY,"
    "tenant_id TEXT NOT NULL,"
    "app_id TEXT,"
    "backend TEXT NOT NULL,"
    "owner_type TEXT CHECK (owner_type IN ('conversation','build_draft','workflow_run')),"
    "owner_id TEXT,"
    "owner_scope_key TEXT,"
    "workspace_ref TEXT,"
    "status TEXT NOT NULL CHECK (status IN ('creating','active','retired')),"
    "active_guard SMALLINT CHECK (active_guard=1),"
    "retired_at BIGINT NOT NULL DEFAULT 0," WORK_COLUMNS CHANGE_COLUMNS ","
    "CHECK ((status='retired')=(active_guard IS NULL)),"
    "CHECK (status<>'active' OR workspace_ref IS NOT NULL),"
    "CHECK (status<>'retired' OR retired_at>0));"
    "CREATE UNIQUE INDEX workspaces_owner ON workspaces "
    "(tenant_id,owner_type,owner_id,owner_scope_key,active_guard);"
    "CREATE INDEX workspaces_tenant ON workspaces (tenant_id,id);"
    "CREATE INDEX workspaces_app ON workspaces (tenant_id,app_id,status);"
    "CREATE INDEX workspaces_status ON workspaces (status,id);"
    "CREATE INDEX workspaces_retired ON workspaces (status,next_attempt_at) WHERE "
    "status='retired';";

static const char v1_home_snapshots[] =
    "CREATE TABLE home_snapshots ("
    "id TEXT NOT NULL PRIMARY KEY,"
    "tenant_id TEXT NOT NULL,"
    "agent_id TEXT NOT NULL,"
    "backend TEXT NOT NULL,"
    "snapshot_ref TEXT,"
    "status TEXT NOT NULL CHECK (status IN ('creating','active','retired')),"
    "retired_at BIGINT NOT NULL DEFAULT 0," WORK_COLUMNS CHANGE_COLUMNS ","
    "CHECK (status<>'active' OR snapshot_ref IS NOT NULL),"
    "CHECK (status<>'retired' OR retired_at>0));"
    "CREATE INDEX home_snapshots_agent ON home_snapshots (tenant_id,agent_id);"
    "CREATE INDEX home_snapshots_status ON home_snapshots (status,id);"
    "CREATE INDEX home_snapshots_ref ON home_snapshots (snapshot_ref);"
    "CREATE INDEX home_snapshots_retired ON home_snapshots (status,next_attempt_at) "
    "WHERE status='retired';";

static const char v1_orphans[] =
    "CREATE TABLE orphans ("
    "id TEXT NOT NULL PRIMARY KEY,"
    "kind TEXT NOT NULL CHECK (kind IN ('binding','unknown','snapshot')),"
    "backend TEXT NOT NULL,"
    "ref TEXT,"
    "workspace_ref TEXT,"
    "tenant_id TEXT,"
    "agent_id TEXT,"
    "binding_id TEXT,"
    "reason TEXT,"
    "status TEXT NOT NULL CHECK (status IN ('reported','retired')),"
    "seen_at BIGINT NOT NULL DEFAULT 0," WORK_COLUMNS CHANGE_COLUMNS ");"
    "CREATE UNIQUE INDEX orphans_ref ON orphans (backend,kind,ref);"
    "CREATE INDEX orphans_status ON orphans (status,id);"
    "CREATE INDEX orphans_retired ON orphans (status,next_attempt_at) WHERE status='retired';";

static const char v1_events[] = "CREATE TABLE events ("
                                "id {serial},"
                                "binding_id TEXT NOT NULL,"
                                "at BIGINT NOT NULL,"
                                "event TEXT NOT NULL,"
                                "actor TEXT,"
                                "reason TEXT);"
                                "CREATE INDEX events_binding ON events (binding_id,id);"
                                "CREATE INDEX events_at ON events (at);"

                                "CREATE TABLE revocations ("
                                "id TEXT NOT NULL PRIMARY KEY,"
                                "until BIGINT NOT NULL);"
                                "CREATE INDEX revocations_until ON revocations (until);";

#define SQLITE_MOVES(table)                                                                        \
    "CREATE TRIGGER " table "_moves BEFORE UPDATE OF status ON " table " WHEN NOT ("               \
    "OLD.status=NEW.status OR (OLD.status='creating' AND NEW.status IN ('active','retired')) "     \
    "OR (OLD.status='active' AND NEW.status='retired')) "                                          \
    "BEGIN SELECT RAISE(ABORT,'illegal move of a row'); END;"                                      \
    "CREATE TRIGGER " table "_ends BEFORE DELETE ON " table " WHEN OLD.status='active' "           \
    "BEGIN SELECT RAISE(ABORT,'an active row cannot go'); END;"

static const char v1_sqlite[] =
    SQLITE_MOVES("bindings") SQLITE_MOVES("workspaces") SQLITE_MOVES("home_snapshots");

#define POSTGRES_MOVES(table)                                                                      \
    "CREATE TRIGGER " table "_moves BEFORE UPDATE OF status ON " table " FOR EACH ROW "            \
    "WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION bindery_check_move();"         \
    "CREATE TRIGGER " table "_ends BEFORE DELETE ON " table " FOR EACH ROW "                       \
    "WHEN (OLD.status='active') EXECUTE FUNCTION bindery_check_move();"

static const char v1_postgres[] =
    "CREATE FUNCTION bindery_check_move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "IF TG_OP='DELETE' THEN RAISE EXCEPTION 'an active row cannot go'; END IF; "
    "IF (OLD.status='creating' AND NEW.status IN ('active','retired')) "
    "OR (OLD.status='active' AND NEW.status='retired') THEN RETURN NEW; END IF; "
    "RAISE EXCEPTION 'illegal move of a row'; END $$;" POSTGRES_MOVES("bindings")
        POSTGRES_MOVES("workspaces") POSTGRES_MOVES("home_snapshots");

/* Who asks whether a creator is still at work for a workspace reads the claimed rows, not all. */
static const char v2_claimed[] =
    "CREATE INDEX bindings_claimed ON bindings (workspace_id) WHERE claimed_until>0;";

/* Every lease that ends writes a row here: one B-tree less to write. */
static const char v3_sqlite[] = "CREATE TABLE revocations_by_id (id TEXT NOT NULL PRIMARY "
                                "KEY,until BIGINT NOT NULL) WITHOUT ROWID;"
                                "INSERT INTO revocations_by_id SELECT id,until FROM revocations;"
                                "DROP TABLE revocations;"
                                "ALTER TABLE revocations_by_id RENAME TO revocations;"
                                "CREATE INDEX revocations_until ON revocations (until);";

/* The collector asks for a workspace's retired rows: with an index on each of the two alone, SQLite took the one
 * on the status, and read every retired row for each workspace. */
static const char v3_workspace[] =
    "DROP INDEX bindings_workspace;"
    "CREATE INDEX bindings_workspace ON bindings (workspace_id,status,id);";

/* PostgreSQL: an index WHERE status='retired' fits every statement that names the status, also those that look for one id;
 * and as long as the database has not counted, after many rows were retired at once, it thinks it the shortest
 * way. These serve the search for due work alone. */
#define RETIRED_INDEX(table)                                                                       \
    "DROP INDEX " table "_retired;"                                                                \
    "CREATE INDEX " table "_retired ON " table " (next_attempt_at) WHERE retired_at>0;"

static const char v3_postgres[] =
    RETIRED_INDEX("bindings") RETIRED_INDEX("workspaces") RETIRED_INDEX("home_snapshots");

static const struct migration migrations[] = {
    {{v1_bindings, v1_workspaces, v1_home_snapshots, v1_orphans, v1_events},
     v1_sqlite,
     v1_postgres},
    {{v2_claimed}, "", ""},
    {{v3_workspace}, v3_sqlite, v3_postgres},
};

int migrations_count(void)
{
    return (int)(sizeof(migrations) / sizeof(migrations[0]));
}

const struct migration *migration_get(int version)
{
    PRE(version >= 1 && version <= migrations_count());
    return &migrations[version - 1];
}

char *migration_script(const struct sql_dialect *dialect, int version)
{
    const struct migration *m = migration_get(version);
    struct buf script = {0};

    buf_reserve(&script, 1); /* a step may have nothing to do here */
    for (size_t i = 0; m->common[i] != NULL; i++) {
        char *part = sql_render(dialect, m->common[i]);
        buf_adds(&script, part);
        free(part);
    }
    buf_adds(&script, dialect == &sql_postgres ? m->postgres : m->sqlite);
    return script.data;
}
