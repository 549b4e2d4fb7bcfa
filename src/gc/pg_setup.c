/* What a fresh connection does before it is used. The first one of the pool reads the schema's
 * version under a lock that all replicas share and applies what is missing; the others only check
 * it. Then every statement is prepared, and the first connection listens for notices. */
#include "gc/db_postgres.h"

#include "core/runtime/buf.h"
#include "core/runtime/log.h"
#include "gc/migrations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OID_TEXT = 25, OID_INT8 = 20 };

#define MIGRATION_LOCK "74305"

static void setup_failed(struct pg_conn *conn, const PGresult *result, const char *what)
{
    struct error err;

    pg_conn_error(conn, result, what, &err);
    pg_conn_drop(conn, &err);
}

static void setup_query(struct pg_conn *conn, enum pg_state state, const char *sql)
{
    conn->state = state;
    if (PQsendQuery(conn->pg, sql) == 1)
        pg_conn_flush(conn);
    else
        setup_failed(conn, NULL, "set the connection to the ledger up");
}

void pg_setup_begin(struct pg_conn *conn)
{
    conn->version = -1;
    setup_query(conn, PG_CHECKING,
                conn->index == 0
                    ? "SET lock_timeout=0; SET statement_timeout=0;"
                      "SELECT pg_advisory_lock(" MIGRATION_LOCK ");"
                      "CREATE TABLE IF NOT EXISTS bindery_schema (version INT NOT NULL);"
                      "SELECT COALESCE(max(version),0) AS version FROM bindery_schema"
                    : "SELECT COALESCE(max(version),0) AS version FROM bindery_schema");
}

/* ---- prepare ---------------------------------------------------------------------------------------- */

static int prepare_one(struct pg_conn *conn, enum sql sql)
{
    const char *types = sql_info(sql)->types;
    int n = (int)strlen(types);
    Oid oids[PG_PARAMS_MAX];
    char name[16];

    PRE(n <= PG_PARAMS_MAX);
    for (int i = 0; i < n; i++)
        oids[i] = types[i] == 'i' ? OID_INT8 : OID_TEXT;
    snprintf(name, sizeof(name), "s%d", (int)sql);
    return PQsendPrepare(conn->pg, name, conn->pool->db.sql[sql], n, oids);
}

static void prepare_all(struct pg_conn *conn)
{
    char limits[256];
    int good = PQenterPipelineMode(conn->pg);

    /* What the server ends by itself: neither a lock nor a program that went away holds others up. */
    snprintf(limits, sizeof(limits),
             "SELECT set_config('lock_timeout','%d',false),"
             "set_config('statement_timeout','%d',false),"
             "set_config('idle_in_transaction_session_timeout','%d',false)",
             PG_LOCK_MS, PG_STATEMENT_MS, 2 * PG_STATEMENT_MS);
    conn->state = PG_PREPARING;
    timer_set_ms(conn->pool->db.loop, &conn->timer, PG_CONNECT_MS);
    if (good == 1)
        good = PQsendQueryParams(conn->pg, limits, 0, NULL, NULL, NULL, NULL, 0);
    for (int i = 0; i < SQL_COUNT && good == 1; i++)
        good = prepare_one(conn, (enum sql)i);
    if (good == 1 && conn->index == 0)
        good = PQsendQueryParams(conn->pg, "LISTEN bindery_ledger", 0, NULL, NULL, NULL, NULL, 0);
    if (good == 1 && PQpipelineSync(conn->pg) == 1)
        pg_conn_flush(conn);
    else
        setup_failed(conn, NULL, "prepare the ledger's statements");
}

/* ---- schema ------------------------------------------------------------------------------------------ */

static void migrate(struct pg_conn *conn)
{
    struct buf script = {0};

    for (int version = conn->version + 1; version <= migrations_count(); version++) {
        char *text = migration_script(&sql_postgres, version);
        buf_addf(&script, "BEGIN; %s INSERT INTO bindery_schema VALUES (%d); COMMIT;", text,
                 version);
        free(text);
        log_info("bringing the ledger's schema to version %d", version);
    }
    buf_adds(&script, "SELECT pg_advisory_unlock(" MIGRATION_LOCK ")");
    timer_cancel(conn->pool->db.loop, &conn->timer); /* a big table takes the time it takes */
    setup_query(conn, PG_MIGRATING, buf_text(&script));
    buf_fini(&script);
}

static void schema_checked(struct pg_conn *conn)
{
    struct error err;

    if (conn->version > migrations_count()) {
        error_set(&err, ERR_LEDGER,
                  "the ledger's database has schema version %d, and this program knows %d: run "
                  "the newer program, or restore the backup made before the upgrade",
                  conn->version, migrations_count());
        pg_pool_refuse(conn->pool, &err);
        pg_conn_drop(conn, &err);
    } else if (conn->index == 0) {
        migrate(conn);
    } else if (conn->version < migrations_count()) {
        error_set(&err, ERR_LEDGER, "the ledger's schema is not up to date yet");
        pg_conn_drop(conn, &err);
    } else {
        prepare_all(conn);
    }
}

static void take_version(struct pg_conn *conn, const PGresult *result)
{
    int column = PQfnumber(result, "version");

    if (column >= 0 && PQntuples(result) == 1)
        conn->version = atoi(PQgetvalue(result, 0, column));
}

static void query_over(struct pg_conn *conn)
{
    if (conn->state == PG_CHECKING)
        schema_checked(conn);
    else if (conn->state == PG_MIGRATING)
        prepare_all(conn);
}

void pg_setup_result(struct pg_conn *conn, PGresult *result)
{
    ExecStatusType status;

    if (result == NULL) {
        query_over(conn);
        return;
    }
    status = PQresultStatus(result);
    if (status == PGRES_PIPELINE_SYNC) {
        timer_cancel(conn->pool->db.loop, &conn->timer);
        conn->backoff.attempts = 0;
        conn->state = PG_READY;
        pg_pool_conn_ready(conn->pool, conn);
    } else if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) {
        if (conn->state == PG_CHECKING)
            take_version(conn, result);
    } else {
        setup_failed(conn, result, "set the ledger's schema up");
    }
    PQclear(result);
}
