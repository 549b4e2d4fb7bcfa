/* How both databases plan what the ledger asks them, with many rows in place: nothing that runs for
 * a request, or again and again for the collector, reads a whole table. An engine that only notes
 * the statements stands below the ledger; each is then explained by the real database, with its
 * parameters. BINDERY_TEST_FULL=1 puts 1,000,000 bindings in place. */
#include "core/runtime/buf.h"
#include "gc/ledger_sql.h"
#include "support/ledger_fixture.h"
#include "support/test_postgres.h"

#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TEST_POSTGRES
TestSuite(plans, .timeout = 1700);

static const struct ledger_cause because = {"test", "because"};

static int rows_in_place(void)
{
    const char *full = getenv("BINDERY_TEST_FULL");

    return full != NULL && strcmp(full, "1") == 0 ? 1000000 : 100000;
}

/* ---- rows ------------------------------------------------------------------------------------------ */

/* `i` is the row's number. One in fifty is retired and one in five hundred being created. */
#define STATUS      "CASE WHEN i%50=1 THEN 'retired' WHEN i%500=0 THEN 'creating' ELSE 'active' END"
#define GUARD       "CASE WHEN i%50=1 THEN NULL ELSE 1 END"
#define RETIRED_AT  "CASE WHEN i%50=1 THEN 1000+i ELSE 0 END"
#define REF(prefix) "CASE WHEN i%500=0 THEN NULL ELSE '" prefix "'||i END"
#define TENANT      "'t-'||(i%100)"

static const char *const fills[] = {
    "INSERT INTO workspaces (id,tenant_id,app_id,backend,owner_type,owner_id,owner_scope_key,"
    "workspace_ref,status,active_guard,retired_at,created_at,updated_at,change_id) "
    "SELECT 'w-'||i," TENANT ",'app-'||(i%1000),'local','conversation','c-'||i,'root'," REF(
        "wr-") "," STATUS "," GUARD "," RETIRED_AT ",i,i,'x:'||i",
    "INSERT INTO bindings (id,tenant_id,app_id,agent_id,workspace_id,backend,owner_type,owner_id,"
    "owner_scope_key,agent_config_version_id,agent_config_version_kind,binding_ref,workspace_ref,"
    "status,active_guard,retired_at,next_attempt_at,claimed_by,claimed_until,created_at,updated_at,"
    "change_id) SELECT 'b-'||i," TENANT ",'app-'||(i%1000),'agent-'||(i%300),'w-'||i,'local',"
    "'conversation','c-'||i,'root','v','snapshot'," REF("r-") "," REF(
        "wr-") "," STATUS "," GUARD "," RETIRED_AT
               ",CASE WHEN i%50=1 THEN 9000000000000000 ELSE 0 END,"
               "CASE WHEN i%500=0 THEN 'somebody' END,CASE WHEN i%500=0 THEN i ELSE 0 "
               "END,i,i,'x:'||i",
    "INSERT INTO events (binding_id,at,event,actor,reason) "
    "SELECT 'b-'||(i/2),i,'active','api','because'",
    "INSERT INTO home_snapshots (id,tenant_id,agent_id,backend,snapshot_ref,status,retired_at,"
    "claimed_until,created_at,updated_at) SELECT 's-'||i," TENANT
    ",'agent-'||(i%300),'local'," REF("sr-") "," STATUS "," RETIRED_AT ",i,i,i",
    "INSERT INTO orphans (id,kind,backend,ref,status,seen_at,created_at,updated_at) "
    "SELECT 'o-'||i,'binding','local','or-'||i,"
    "CASE WHEN i%50=1 THEN 'retired' ELSE 'reported' END,i,i,i",
    "INSERT INTO revocations (id,until) SELECT 'l-'||i,i",
};

/* ---- the two databases -------------------------------------------------------------------------- */

struct planner {
    struct fixture f;
    sqlite3 *file;
    PGconn *server;
    struct db db; /* notes what it is given */
    struct ledger *ledger;
    int n_explained;
};

static void planner_exec(struct planner *p, const char *sql)
{
    if (p->file != NULL) {
        cr_assert(eq(int, sqlite3_exec(p->file, sql, NULL, NULL, NULL), SQLITE_OK), "%s: %s", sql,
                  sqlite3_errmsg(p->file));
    } else {
        PGresult *result = PQexec(p->server, sql);
        ExecStatusType status = PQresultStatus(result);
        cr_assert(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK, "%s: %s", sql,
                  PQerrorMessage(p->server));
        PQclear(result);
    }
}

static void planner_fill(struct planner *p)
{
    static const char recursive[] =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<";
    static const char generated[] = "SELECT generate_series(1,";
    char series[160];

    if (p->file != NULL) /* of a throwaway file */
        planner_exec(p, "PRAGMA synchronous=OFF; PRAGMA cache_size=-400000");
    snprintf(series, sizeof(series), "(%s%d%s", p->file != NULL ? recursive : generated,
             rows_in_place(), p->file != NULL ? ") SELECT i FROM n)" : ") AS i) AS n");
    for (size_t i = 0; i < sizeof(fills) / sizeof(fills[0]); i++) {
        struct buf sql = {0};
        buf_addf(&sql, "%s FROM %s", fills[i], series);
        planner_exec(p, buf_text(&sql));
        buf_fini(&sql);
    }
}

/* Does this line of a plan read a whole table that grows? */
static bool reads_all_sqlite(const char *line)
{
    /* `s` is a slice that an index has cut out already */
    return strncmp(line, "SCAN ", 5) == 0 && strncmp(line, "SCAN s", 6) != 0 &&
           strstr(line, "CONSTANT ROW") == NULL;
}

static bool reads_all_postgres(const char *line)
{
    return strstr(line, "Seq Scan") != NULL;
}

/* A status alone leaves as many rows as were ever retired: no way to those of one workspace. */
static bool reads_a_status_for_a_workspace(const char *line, const char *sql)
{
    return strstr(line, "bindings_status (status=?") != NULL &&
           strstr(sql, "workspace_id=") != NULL;
}

static void explain_sqlite(struct planner *p, const char *name, const char *sql)
{
    struct buf text = {0};
    sqlite3_stmt *stmt;

    buf_addf(&text, "EXPLAIN QUERY PLAN %s", sql);
    cr_assert(eq(int, sqlite3_prepare_v2(p->file, buf_text(&text), -1, &stmt, NULL), SQLITE_OK),
              "%s: %s: %s", name, sql, sqlite3_errmsg(p->file));
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        const char *line = (const char *)sqlite3_column_text(stmt, 3);
        cr_assert(not(reads_all_sqlite(line)), "%s: %s: %s", name, line, sql);
        cr_assert(not(reads_a_status_for_a_workspace(line, sql)), "%s: %s: %s", name, line, sql);
    }
    sqlite3_finalize(stmt);
    buf_fini(&text);
}

static void add_values(struct planner *p, struct buf *text, const struct db_step *step)
{
    for (int i = 0; i < step->n_params; i++) {
        const struct db_value *value = &step->params[i];
        char *quoted = value->type == DB_TEXT
                           ? PQescapeLiteral(p->server, value->text, strlen(value->text))
                           : NULL;
        buf_adds(text, i > 0 ? "," : "(");
        if (value->type == DB_INT)
            buf_addf(text, "%lld", (long long)value->number);
        else
            buf_adds(text, quoted != NULL ? quoted : "NULL");
        PQfreemem(quoted);
    }
    buf_adds(text, step->n_params > 0 ? ")" : "");
}

static void prepare_it(struct planner *p, const char *sql, const struct db_step *step)
{
    const char *types = step->text == NULL ? sql_info(step->sql)->types : NULL;
    struct buf text = {0};

    buf_adds(&text, "DEALLOCATE ALL; PREPARE it");
    for (int i = 0; i < step->n_params; i++) {
        bool number = types != NULL ? types[i] == 'i' : step->params[i].type == DB_INT;
        /* of a NULL the server finds the type by itself */
        bool open = types == NULL && step->params[i].type == DB_NULL;
        buf_addf(&text, "%s%s", i > 0 ? "," : "(", open ? "unknown" : number ? "bigint" : "text");
    }
    buf_addf(&text, "%s AS %s", step->n_params > 0 ? ")" : "", sql);
    planner_exec(p, buf_text(&text));
    buf_fini(&text);
}

/* The server makes a plan for the parameters of the first calls; after five it may go over to one
 * for all parameters. */
static void explain_postgres(struct planner *p, const char *name, const char *sql,
                             const struct db_step *step)
{
    struct buf text = {0};

    prepare_it(p, sql, step);
    buf_adds(&text, "EXPLAIN EXECUTE it");
    add_values(p, &text, step);
    for (int call = 0; call < 8; call++) {
        PGresult *plan = PQexec(p->server, buf_text(&text));
        cr_assert(eq(int, PQresultStatus(plan), PGRES_TUPLES_OK), "%s: %s: %s", name,
                  PQerrorMessage(p->server), sql);
        for (int row = 0; row < PQntuples(plan); row++)
            cr_assert(not(reads_all_postgres(PQgetvalue(plan, row, 0))), "%s, call %d: %s: %s",
                      name, call, PQgetvalue(plan, row, 0), sql);
        PQclear(plan);
    }
    buf_fini(&text);
}

/* ---- the engine that notes ------------------------------------------------------------------------ */

static void note_submit(struct db *db, struct db_call *call)
{
    struct planner *p = container_of(db, struct planner, db);
    struct error noted;

    timer_init(&call->deadline, NULL, NULL);
    for (int i = 0; i < call->n_steps; i++) {
        const struct db_step *step = &call->steps[i];
        const char *sql = step->text != NULL ? step->text : db->sql[step->sql];

        if (step->text == NULL && step->sql == SQL_LOCK_TENANT && p->file != NULL)
            continue;
        if (p->file != NULL)
            explain_sqlite(p, call->name, sql);
        else
            explain_postgres(p, call->name, sql, step);
        p->n_explained++;
    }
    error_set(&noted, ERR_LEDGER, "noted");
    db_call_finish(call, &noted);
}

static bool note_ready(struct db *db, struct error *err)
{
    (void)db;
    error_clear(err);
    return true;
}

static void note_close(struct db *db)
{
    db_fini(db);
}

static const struct db_ops note_ops = {"noted", note_submit, note_ready, note_close};

#define NOTE(p, function, ...) CALL_ON(&(p)->f, (p)->ledger, function, __VA_ARGS__)

static void note_reads(struct planner *p)
{
    static const char *const ids[] = {"b-700", "w-700", "s-700", "o-700"};
    const struct owner_key owner = {"t-0", "conversation", "c-700", "root"};
    const struct {
        enum ledger_kind kind;
        struct ledger_filter filter;
    } lists[] = {
        {LEDGER_BINDINGS, {.tenant_id = "t-7"}},
        {LEDGER_BINDINGS, {.tenant_id = "t-7", .app_id = "app-7", .status = "active"}},
        {LEDGER_BINDINGS, {.tenant_id = "t-7", .cursor = "b-5"}},
        {LEDGER_BINDINGS, {.status = "retired", .cursor = "b-5"}},
        {LEDGER_BINDINGS, {.workspace_id = "w-51", .status = "retired", .limit = 1000}},
        {LEDGER_BINDINGS,
         {.tenant_id = "t-0",
          .app_id = "app-700",
          .owner_type = "conversation",
          .owner_id = "c-700"}},
        {LEDGER_WORKSPACES, {.tenant_id = "t-7", .status = "retired"}},
        {LEDGER_SNAPSHOTS, {.tenant_id = "t-7", .agent_id = "agent-7"}},
        {LEDGER_SNAPSHOTS, {.snapshot_ref = "sr-7", .status = "active", .limit = 1}},
        {LEDGER_ORPHANS, {.status = "retired"}},
        {LEDGER_EVENTS, {.binding_id = "b-700", .cursor = "5"}},
    };
    struct ledger_page page;
    struct ledger_count count;
    struct ledger_binding *row;
    struct ledger_guard guard;
    void *any;
    bool revoked;

    for (int kind = LEDGER_BINDINGS; kind < LEDGER_EVENTS; kind++) {
        NOTE(p, get, (enum ledger_kind)kind, ids[kind], &any);
        NOTE(p, count, (enum ledger_kind)kind, "retired", "b-5", &count);
    }
    NOTE(p, count, LEDGER_BINDINGS, "active", "b-5", &count);
    NOTE(p, find_owner, &owner, &row);
    NOTE(p, find_ref, "local", "r-700", &row);
    NOTE(p, guard_ref, "local", "r-700", &guard);
    NOTE(p, is_revoked, "l-700", &revoked);
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        NOTE(p, list, lists[i].kind, &lists[i].filter, &page);
}

static void note_creates(struct planner *p)
{
    struct ledger_claim claim = fixture_claim(&p->f, 2000000);
    const struct ledger_binding row = claim.row;
    const struct binding refs = {"ref", "wref"};
    const struct error why = {.code = ERR_BINDING_CREATE};
    const char *ids[] = {"b-500"};
    struct ledger_claimed claimed;
    struct ledger_binding *made;
    bool done;

    NOTE(p, claim_binding, &claim, &claimed);
    claim.tenant_max = 10;
    claim.tenant_max_creating = 5;
    claim.row.owner_type = claim.row.owner_id = claim.row.owner_scope_key = NULL;
    NOTE(p, claim_binding, &claim, &claimed);
    NOTE(p, activate_binding, &row, &refs, &because, &made);
    NOTE(p, abandon_binding, &row, &why, true, &done);
    NOTE(p, abandon_binding, &row, &why, false, &done);
    NOTE(p, renew_claims, ids, 1, 1000);
}

static void note_changes(struct planner *p)
{
    const struct ledger_session session = {"{}", NULL, NULL};
    const struct ledger_use use = {"local", "r-700", 1, 2};
    const struct ledger_snapshot snapshot = {
        .id = "s-new", .tenant_id = "t-7", .agent_id = "agent-7", .backend = "local"};
    const struct ledger_orphan orphan = {.kind = "binding", .backend = "local", .ref = "or-700"};
    const char *leases[] = {"l-0"};
    const int64_t until[] = {5};
    int64_t n;
    bool done;

    NOTE(p, mark_lost, "b-700", &because, &done);
    NOTE(p, store_session, "b-700", &session, &done);
    NOTE(p, touch, &use, 1);
    NOTE(p, claim_snapshot, &snapshot, 1000, &done);
    NOTE(p, activate_snapshot, "s-700", "sref", &done);
    NOTE(p, abandon_snapshot, "s-700", &done);
    NOTE(p, report_orphan, &orphan);
    NOTE(p, settle_orphan, "o-700", false, &done);
    NOTE(p, settle_orphan, "o-700", true, &done);
    NOTE(p, revoke, leases, until, 1);
    NOTE(p, add_event, "b-700", "event", &because);
    NOTE(p, prune_events, 100, 50, &n);
}

static void note_retirements(struct planner *p)
{
    const struct ledger_retire selections[] = {
        {.tenant_id = "t-0",
         .app_id = "app-700",
         .owner_type = "conversation",
         .owner_id = "c-700"},
        {.binding_id = "b-700"},
        {.binding_id = "b-700", .keep_workspace = true, .claim_ms = 1000},
        {.workspace_id = "w-700"},
        {.tenant_id = "t-0", .app_id = "app-700"},
        {.tenant_id = "t-0", .agent_id = "agent-100"},
        {.snapshot_id = "s-700", .claim_ms = 1000},
    };
    struct ledger_retired retired;

    for (size_t i = 0; i < sizeof(selections) / sizeof(selections[0]); i++)
        NOTE(p, retire, &selections[i], &retired);
}

static void note_work(struct planner *p)
{
    struct ledger_binding binding = {.id = "b-51"};
    const struct error why = {.code = ERR_BINDING_DESTROY};
    struct ledger_works works;
    bool done;

    for (int kind = WORK_WORKSPACE; kind < WORK_KINDS; kind++) {
        struct ledger_work work = {.kind = (enum work_kind)kind, .id = "w-51"};
        if (kind == WORK_BINDING || kind == WORK_CREATING)
            work.binding = &binding;
        NOTE(p, claim_work, work.kind, 50, 60000, 1000, &works);
        NOTE(p, finish_work, &work, &because, &done);
        NOTE(p, retry_work, &work, &why, 1000);
    }
}

static void note_all(struct planner *p)
{
    p->n_explained = 0;
    note_reads(p);
    note_creates(p);
    note_changes(p);
    note_retirements(p);
    note_work(p);
    cr_assert(gt(int, p->n_explained, 100), "%d", p->n_explained);
}

static void planner_open(struct planner *p, enum fixture_kind kind)
{
    fixture_open(&p->f, kind);
    fixture_binding(&p->f, 3000000); /* the schema stands */
    if (kind == FIXTURE_SQLITE)
        cr_assert(eq(int, sqlite3_open(p->f.url, &p->file), SQLITE_OK));
    else
        p->server = PQconnectdb(p->f.url);
    planner_fill(p);
    db_init(&p->db, &note_ops, p->f.loop, kind == FIXTURE_SQLITE ? &sql_sqlite : &sql_postgres);
    p->ledger = ledger_sql_new(&p->db);
}

static void planner_close(struct planner *p)
{
    p->ledger->ops->close(p->ledger);
    sqlite3_close(p->file);
    PQfinish(p->server);
    fixture_close(&p->f);
}

Test(plans, sqlite_reads_no_whole_table)
{
    struct planner p = {0};

    planner_open(&p, FIXTURE_SQLITE);
    note_all(&p); /* as it plans without statistics */
    planner_exec(&p, "ANALYZE");
    sqlite3_close(p.file); /* they are read when a file is opened */
    cr_assert(eq(int, sqlite3_open(p.f.url, &p.file), SQLITE_OK));
    note_all(&p);
    planner_close(&p);
}

Test(plans, postgres_reads_no_whole_table)
{
    struct planner p = {0};

    planner_open(&p, FIXTURE_POSTGRES);
    planner_exec(&p, "ANALYZE");
    note_all(&p);
    planner_close(&p);
}
