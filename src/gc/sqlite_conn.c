/* One connection: prepared statements, bound parameters, rows into the call's arena. */
#include "gc/db_sqlite.h"

#include <string.h>

static int stmt_get(struct sqlite_conn *conn, const struct db_step *step, sqlite3_stmt **ret)
{
    if (step->text != NULL)
        return sqlite3_prepare_v2(conn->handle, step->text, -1, ret, NULL);
    if (conn->stmts[step->sql] == NULL) {
        int rc = sqlite3_prepare_v3(conn->handle, conn->sql[step->sql], -1,
                                    SQLITE_PREPARE_PERSISTENT, &conn->stmts[step->sql], NULL);
        if (rc != SQLITE_OK)
            return rc;
    }
    *ret = conn->stmts[step->sql];
    return SQLITE_OK;
}

static void stmt_put(const struct db_step *step, sqlite3_stmt *stmt)
{
    if (step->text != NULL) {
        sqlite3_finalize(stmt);
        return;
    }
    sqlite3_reset(stmt);
    sqlite3_clear_bindings(stmt); /* they point into the call's arena */
}

static void stmt_bind(sqlite3_stmt *stmt, const struct db_step *step)
{
    for (int i = 0; i < step->n_params; i++) {
        const struct db_value *p = &step->params[i];
        if (p->type == DB_INT)
            sqlite3_bind_int64(stmt, i + 1, p->number);
        else if (p->type == DB_TEXT)
            sqlite3_bind_text(stmt, i + 1, p->text, -1, SQLITE_STATIC);
    }
}

static void row_add(struct arena *arena, struct db_result *result, size_t *cap, sqlite3_stmt *stmt)
{
    struct db_value *cell;

    if (result->n_rows == *cap) {
        struct db_value *old = result->cells;
        *cap = *cap == 0 ? 1 : *cap * 4;
        result->cells = arena_alloc(arena, *cap * result->n_columns * sizeof(*cell));
        if (old != NULL)
            memcpy(result->cells, old, result->n_rows * result->n_columns * sizeof(*cell));
    }
    cell = &result->cells[result->n_rows++ * result->n_columns];
    for (int i = 0; i < (int)result->n_columns; i++, cell++) {
        switch (sqlite3_column_type(stmt, i)) {
        case SQLITE_NULL:
            break;
        case SQLITE_INTEGER:
            *cell = (struct db_value){.type = DB_INT, .number = sqlite3_column_int64(stmt, i)};
            break;
        default:
            cell->type = DB_TEXT;
            cell->text = arena_memdup(arena, sqlite3_column_text(stmt, i),
                                      (size_t)sqlite3_column_bytes(stmt, i));
        }
    }
}

static int step_run(struct sqlite_conn *conn, struct arena *arena, struct db_step *step)
{
    sqlite3_stmt *stmt = NULL;
    size_t cap = 0;
    int rc = stmt_get(conn, step, &stmt);

    if (rc != SQLITE_OK)
        return rc;
    stmt_bind(stmt, step);
    step->result = (struct db_result){.n_columns = (size_t)sqlite3_column_count(stmt)};
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
        row_add(arena, &step->result, &cap, stmt);
    stmt_put(step, stmt);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int sqlite_conn_run(struct sqlite_conn *conn, struct db_call *call)
{
    int rc = SQLITE_OK;

    for (int i = 0; i < call->n_steps && rc == SQLITE_OK; i++)
        rc = step_run(conn, call->arena, &call->steps[i]);
    return rc;
}

int sqlite_conn_exec(struct sqlite_conn *conn, const char *sql)
{
    return sqlite3_exec(conn->handle, sql, NULL, NULL, NULL);
}

void sqlite_conn_close(struct sqlite_conn *conn)
{
    for (int i = 0; i < SQL_COUNT; i++) {
        sqlite3_finalize(conn->stmts[i]);
        conn->stmts[i] = NULL;
    }
    sqlite3_close(conn->handle);
    conn->handle = NULL;
}

void sqlite_conn_error(const struct sqlite_conn *conn, int rc, const char *what, struct error *ret)
{
    error_set(ret, ERR_LEDGER, "could not %s: %s (%s)", what,
              conn->handle != NULL ? sqlite3_errmsg(conn->handle) : sqlite3_errstr(rc),
              sqlite3_errstr(rc));
    ret->retry_after_ms = DB_RETRY_AFTER_MS;
}

bool sqlite_is_busy(int rc)
{
    return (rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED;
}
