/* Rates of the ledger beside those of the bare database, in one run on one machine.
 *
 *   ledger_bench sqlite FOLDER [ROWS [RETIRED]]        (a new file in FOLDER)
 *   ledger_bench postgres URL [ROWS [RETIRED]]         (an empty database)
 *
 * Bare: one connection, prepared statements, one at a time. Ledger: the port's calls from many
 * operations at once, as requests make them. ROWS active bindings are in place before; RETIRED
 * workspaces are collected over a backend that does nothing. */
#include "core/domain/lifecycle.h"
#include "gc/collector.h"
#include "gc/ledger_postgres.h"
#include "gc/ledger_sqlite.h"
#include "support/fake_backend.h"

#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { AT_ONCE_HITS = 64, AT_ONCE_CREATES = 256, SECONDS = 3 };

static double now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static const char fill_columns[] =
    "id,tenant_id,app_id,agent_id,workspace_id,backend,owner_type,owner_id,owner_scope_key,"
    "agent_config_version_id,agent_config_version_kind,binding_ref,workspace_ref,status,"
    "active_guard,created_at,updated_at,change_id";
static const char fill_values[] =
    "'b-'||i,'t','a','g','w-'||i,'fake','conversation','c-'||i,'root','v','snapshot','r-'||i,"
    "'wr-'||i,'active',1,1,1,''";
static const char find_sql[] =
    "SELECT * FROM bindings WHERE tenant_id='t' AND owner_type='conversation' AND owner_id=%s "
    "AND owner_scope_key='root' AND active_guard=1";

/* ---- the bare database ------------------------------------------------------------------------------ */

struct bare {
    sqlite3 *file;
    PGconn *server;
};

static void bare_exec(struct bare *bare, const char *sql)
{
    char *why = NULL;

    if (bare->file != NULL && sqlite3_exec(bare->file, sql, NULL, NULL, &why) != SQLITE_OK) {
        fprintf(stderr, "%s\n", why);
        exit(1);
    }
    if (bare->server != NULL) {
        PGresult *result = PQexec(bare->server, sql);
        if (PQresultStatus(result) != PGRES_COMMAND_OK &&
            PQresultStatus(result) != PGRES_TUPLES_OK) {
            fprintf(stderr, "%s\n", PQerrorMessage(bare->server));
            exit(1);
        }
        PQclear(result);
    }
}

static void bare_fill(struct bare *bare, int rows)
{
    char sql[2048];
    const char *series = bare->file != NULL /* of numbers from 1 */
                             ? "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n "
                               "WHERE i<%d) SELECT i FROM n)"
                             : "(SELECT generate_series(1,%d) AS i) AS n";
    char from[256];

    snprintf(from, sizeof(from), series, rows);
    snprintf(sql, sizeof(sql), "INSERT INTO bindings (%s) SELECT %s FROM %s", fill_columns,
             fill_values, from);
    bare_exec(bare, sql);
    snprintf(sql, sizeof(sql),
             "INSERT INTO workspaces (id,tenant_id,app_id,backend,owner_type,owner_id,"
             "owner_scope_key,workspace_ref,status,active_guard,created_at,updated_at,change_id) "
             "SELECT workspace_id,tenant_id,app_id,backend,owner_type,owner_id,owner_scope_key,"
             "workspace_ref,'active',1,1,1,'' FROM bindings");
    bare_exec(bare, sql);
    if (bare->server != NULL)
        bare_exec(bare, "ANALYZE");
}

static long bare_select(struct bare *bare, sqlite3_stmt *stmt, int rows, long n)
{
    char key[32];
    const char *values[] = {key};
    long got = 0;

    snprintf(key, sizeof(key), "c-%ld", n * 7919 % rows + 1);
    if (bare->file != NULL) {
        sqlite3_bind_text(stmt, 1, key, -1, SQLITE_STATIC);
        while (sqlite3_step(stmt) == SQLITE_ROW)
            got += sqlite3_column_bytes(stmt, 0) > 0;
        sqlite3_reset(stmt);
    } else {
        PGresult *result = PQexecPrepared(bare->server, "find", 1, values, NULL, NULL, 0);
        got = PQntuples(result);
        PQclear(result);
    }
    return got;
}

static double bare_select_rate(struct bare *bare, int rows)
{
    char sql[512];
    sqlite3_stmt *stmt = NULL;
    double from = now_s();
    long n = 0;

    snprintf(sql, sizeof(sql), find_sql, bare->file != NULL ? "?1" : "$1");
    if (bare->file != NULL)
        sqlite3_prepare_v2(bare->file, sql, -1, &stmt, NULL);
    else
        PQclear(PQprepare(bare->server, "find", sql, 0, NULL));
    while (now_s() - from < SECONDS) {
        for (int i = 0; i < 100; i++, n++) {
            if (bare_select(bare, stmt, rows, n) != 1)
                exit(1);
        }
    }
    sqlite3_finalize(stmt);
    return (double)n / (now_s() - from);
}

static double bare_insert_rate(struct bare *bare)
{
    double from = now_s();
    long n = 0;
    char sql[256];

    while (now_s() - from < SECONDS) {
        snprintf(sql, sizeof(sql),
                 "INSERT INTO events (binding_id,at,event,actor,reason) "
                 "VALUES ('bare-%ld',1,'x','y','z')",
                 n++);
        bare_exec(bare, sql);
    }
    return (double)n / (now_s() - from);
}

/* ---- the ledger ----------------------------------------------------------------------------------------- */

struct bench {
    struct loop *loop;
    struct ledger *ledger;
    int rows;
    long done, next, failed;
    int running;
    double until_s;
    bool creates;
    const char *prefix;
};

struct bench_op {
    struct op op;
    struct bench *bench;
    struct owner_key key;
    struct ledger_binding *row;
    struct ledger_claim claim;
    struct ledger_claimed claimed;
    struct binding refs;
    struct ledger_cause cause;
};

enum bench_state { BENCH_START, BENCH_FINDING, BENCH_CLAIMING, BENCH_ACTIVATING };
static const char *const bench_states[] = {"start", "finding", "claiming", "activating"};

static void claim_start(struct bench_op *t, struct op *op)
{
    long n = t->bench->next++;
    const char *p = t->bench->prefix;

    t->claim =
        (struct ledger_claim){.row = {.id = arena_printf(op->arena, "%s-%ld", p, n),
                                      .tenant_id = "t",
                                      .app_id = "bench",
                                      .agent_id = "g",
                                      .workspace_id = arena_printf(op->arena, "%s-w-%ld", p, n),
                                      .backend = "fake",
                                      .owner_type = "conversation",
                                      .owner_id = arena_printf(op->arena, "%s-%ld", p, n),
                                      .owner_scope_key = "root",
                                      .agent_config_version_id = "v",
                                      .agent_config_version_kind = "snapshot"},
                              .claim_ms = 60000,
                              .cause = {"bench", "bench"}};
    t->bench->ledger->ops->claim_binding(t->bench->ledger, op, &t->claim, &t->claimed);
}

static void activate_start(struct bench_op *t, struct op *op)
{
    t->refs = (struct binding){t->claim.row.id, t->claim.row.workspace_id};
    t->bench->ledger->ops->activate_binding(t->bench->ledger, op, t->claimed.row, &t->refs,
                                            &t->claim.cause, &t->row);
}

static enum op_poll bench_step(struct op *op)
{
    struct bench_op *t = container_of(op, struct bench_op, op);
    struct ledger *ledger = t->bench->ledger;

    switch ((enum bench_state)op->state) {
    case BENCH_START:
        if (!t->bench->creates) {
            t->key = (struct owner_key){
                "t", "conversation",
                arena_printf(op->arena, "c-%ld", t->bench->next++ * 7919 % t->bench->rows + 1),
                "root"};
            AWAIT(op, BENCH_FINDING, ledger->ops->find_owner(ledger, op, &t->key, &t->row));
        } else {
            AWAIT(op, BENCH_CLAIMING, claim_start(t, op));
            AWAIT(op, BENCH_ACTIVATING, activate_start(t, op));
        }
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type bench_type = {"bench", bench_states, 4, bench_step, NULL};

static void bench_start(struct bench *bench);

static void on_bench_done(struct op *op, void *ctx)
{
    struct bench *bench = ctx;

    bench->running--;
    bench->done++;
    if (error_is(op_error(op)) || container_of(op, struct bench_op, op)->row == NULL)
        bench->failed++;
    if (now_s() < bench->until_s)
        bench_start(bench);
}

static void bench_start(struct bench *bench)
{
    struct bench_op *t = OP_ROOT(bench->loop, &bench_type, bench_op, NULL);

    t->bench = bench;
    bench->running++;
    op_start(&t->op, on_bench_done, bench);
}

static double bench_rate(struct bench *bench, bool creates, int at_once, long limit,
                         const char *prefix)
{
    double from = now_s();

    bench->creates = creates;
    bench->done = bench->failed = 0;
    bench->next = 0;
    bench->prefix = prefix;
    bench->until_s = limit > 0 ? from : from + SECONDS;
    for (long started = 0; started < at_once || (limit > 0 && started < limit); started++) {
        while (bench->running >= at_once)
            loop_turn(bench->loop, true);
        bench_start(bench);
    }
    while (bench->running > 0)
        loop_turn(bench->loop, true);
    if (bench->failed > 0) {
        fprintf(stderr, "%ld failed\n", bench->failed);
        exit(1);
    }
    return (double)bench->done / (now_s() - from);
}

/* ---- the collector ------------------------------------------------------------------------------------------ */

static void note_stopped(void *ctx)
{
    *(bool *)ctx = true;
}

static void collect_all(struct bench *bench, struct bare *bare, int retired)
{
    struct fake_backend *fake = fake_backend_new(bench->loop, 0);
    struct broker *broker =
        broker_new(bench->loop, &fake->backend,
                   &(struct broker_options){.destroy_timeout_ms = 60000,
                                            .create_timeout_ms = 60000,
                                            .acquire_timeout_ms = 5000,
                                            .leases = {60000, 60000, 60000, 0, 0},
                                            .lease_secret = "a secret of some length"});
    struct lifecycle *lc =
        lifecycle_new(bench->loop, broker, bench->ledger, &(struct lifecycle_options){0});
    struct collector *collector;
    struct collector_status status;
    struct task stopped;
    bool over = false;
    double from;
    char sql[512];

    snprintf(sql, sizeof(sql),
             "UPDATE workspaces SET status='retired',active_guard=NULL,retired_at=1 WHERE id IN "
             "(SELECT id FROM workspaces WHERE id LIKE 'w-%%' LIMIT %d)",
             retired);
    bare_exec(bare, sql);
    bare_exec(bare, "UPDATE bindings SET status='retired',active_guard=NULL,retired_at=1,"
                    "next_attempt_at=9000000000000000 WHERE workspace_id IN "
                    "(SELECT id FROM workspaces WHERE status='retired')");
    from = now_s();
    collector = collector_new(bench->loop, lc,
                              &(struct collector_options){.interval_ms = 1000,
                                                          .claim_ms = 60000,
                                                          .retention_ms = 86400000000,
                                                          .concurrency = 64});
    do {
        loop_turn(bench->loop, true);
        collector_status(collector, &status);
    } while (status.done < retired);
    printf("collector: %d workspaces           %10.0f /s\n", retired, retired / (now_s() - from));
    task_init(&stopped, note_stopped, &over);
    collector_stop(collector, &stopped);
    while (!over)
        loop_turn(bench->loop, true);
    collector_free(collector);
    lifecycle_free(lc);
    broker_free(broker);
    fake_backend_free(fake);
}

/* ---- the run ---------------------------------------------------------------------------------------------------- */

static int64_t longest_us;

static void note_turn(void *ctx, int64_t turn_us, int64_t cpu_us)
{
    (void)ctx;
    (void)cpu_us;
    if (turn_us > longest_us)
        longest_us = turn_us;
}

static void report(const char *what, double rate, double beside)
{
    printf("%-35s %10.0f /s", what, rate);
    if (beside > 0)
        printf("   %5.0f %% of bare", 100 * rate / beside);
    printf("   longest turn %.1f ms\n", (double)longest_us / 1000);
    longest_us = 0;
}

int main(int argc, char **argv)
{
    struct bench bench = {.loop = loop_new(NULL), .rows = argc > 3 ? atoi(argv[3]) : 100000};
    int retired = argc > 4 ? atoi(argv[4]) : bench.rows / 2;
    struct bare bare = {0};
    struct error err = {0};
    char path[512];
    double selects, inserts;

    if (argc < 3)
        return 64;
    setlinebuf(stdout);
    if (strcmp(argv[1], "sqlite") == 0) {
        snprintf(path, sizeof(path), "%s/bench.db", argv[2]);
        bench.ledger = ledger_sqlite_open(bench.loop, path, &err);
        sqlite3_open(path, &bare.file);
        sqlite3_exec(bare.file, "PRAGMA synchronous=FULL", NULL, NULL, NULL);
    } else {
        bench.ledger = ledger_postgres_open(
            bench.loop, &(struct ledger_postgres_options){.url = argv[2]}, &err);
        bare.server = PQconnectdb(argv[2]);
    }
    if (bench.ledger == NULL) {
        fprintf(stderr, "%s\n", err.message);
        return 78;
    }
    while (!bench.ledger->ops->ready(bench.ledger, &err))
        loop_turn(bench.loop, true);
    bare_fill(&bare, bench.rows);
    loop_set_turn_observer(bench.loop, note_turn, NULL);
    printf("%s, %d bindings in place\n", argv[1], bench.rows);
    selects = bare_select_rate(&bare, bench.rows);
    report("bare SELECT", selects, 0);
    inserts = bare_insert_rate(&bare);
    report("bare INSERT and COMMIT", inserts, 0);
    report("existing binding found", bench_rate(&bench, false, AT_ONCE_HITS, 0, ""), selects);
    report("create, one at a time", bench_rate(&bench, true, 1, 0, "one"), 0);
    report("create, 256 at once", bench_rate(&bench, true, AT_ONCE_CREATES, 0, "many"), inserts);
    collect_all(&bench, &bare, retired);
    report("(the collector's turns)", 0, 0);
    bench.ledger->ops->close(bench.ledger);
    sqlite3_close(bare.file);
    PQfinish(bare.server);
    loop_free(bench.loop);
    return 0;
}
