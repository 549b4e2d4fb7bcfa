/* SQLite on the loop. Reads run where they are asked for. Writes of one turn go into one
 * transaction at its end, with one sync for all of them, and their ops wake after the commit: an
 * answered write is on the disk. Nothing here waits: a file locked by another program is tried
 * again by a timer until each call's own deadline. */
#include "gc/ledger_sqlite.h"

#include "gc/db_sqlite.h"
#include "gc/ledger_sql.h"
#include "gc/migrations.h"

#include "core/runtime/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    BUSY_RETRY_MS = 10,
    PROBE_MS = 1000,
    FLUSH_CALLS_MAX = 512, /* of one transaction; the rest waits for the next turn */
    FLUSH_US_MAX = 5000,   /* likewise */
    CHECKPOINT_FRAMES = 1000,
    CHECKPOINT_IDLE_MS = 1000,
};

static struct db_sqlite *sqlite_of(struct db *db)
{
    return container_of(db, struct db_sqlite, db);
}

/* ---- statements ------------------------------------------------------------------------------- */

static int stmt_get(struct db_sqlite *s, const struct db_step *step, sqlite3_stmt **ret)
{
    if (step->text != NULL)
        return sqlite3_prepare_v2(s->handle, step->text, -1, ret, NULL);
    if (s->stmts[step->sql] == NULL) {
        int rc = sqlite3_prepare_v3(s->handle, s->db.sql[step->sql], -1, SQLITE_PREPARE_PERSISTENT,
                                    &s->stmts[step->sql], NULL);
        if (rc != SQLITE_OK)
            return rc;
    }
    *ret = s->stmts[step->sql];
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

static int step_run(struct db_sqlite *s, struct arena *arena, struct db_step *step)
{
    sqlite3_stmt *stmt = NULL;
    size_t cap = 0;
    int rc = stmt_get(s, step, &stmt);

    if (rc != SQLITE_OK)
        return rc;
    stmt_bind(stmt, step);
    step->result = (struct db_result){.n_columns = (size_t)sqlite3_column_count(stmt)};
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
        row_add(arena, &step->result, &cap, stmt);
    stmt_put(step, stmt);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int steps_run(struct db_sqlite *s, struct db_call *call)
{
    int rc = SQLITE_OK;

    for (int i = 0; i < call->n_steps && rc == SQLITE_OK; i++)
        rc = step_run(s, call->arena, &call->steps[i]);
    return rc;
}

static int exec(struct db_sqlite *s, const char *sql)
{
    return sqlite3_exec(s->handle, sql, NULL, NULL, NULL);
}

/* ---- readiness ------------------------------------------------------------------------------------ */

/* Remembered, and shown by /readyz, until a write succeeds. A server that is not ready gets no
 * requests, so it tries a write by itself. */
static void note_trouble(struct db_sqlite *s, const struct error *err)
{
    if (!error_is(&s->trouble))
        LOG_WITH(LOG_ERROR, "the ledger is not available", {"error", err->message});
    s->trouble = *err;
    timer_set_ms(s->db.loop, &s->probe, PROBE_MS);
}

static void note_success(struct db_sqlite *s)
{
    if (error_is(&s->trouble))
        log_info("the ledger is available again");
    error_clear(&s->trouble);
    timer_cancel(s->db.loop, &s->probe);
}

static bool sqlite_ready(struct db *db, struct error *err)
{
    struct db_sqlite *s = sqlite_of(db);

    if (!error_is(&s->trouble))
        return true;
    *err = s->trouble;
    return false;
}

static int on_wal_grown(void *ctx, sqlite3 *handle, const char *name, int frames)
{
    struct db_sqlite *s = ctx;

    (void)handle;
    (void)name;
    s->wal_frames = frames;
    return SQLITE_OK;
}

static enum sqlite_opened file_open(struct db_sqlite *s, struct error *err)
{
    enum sqlite_opened opened = db_sqlite_open_file(s, err);

    if (opened == SQLITE_OPENED)
        sqlite3_wal_hook(s->handle, on_wal_grown, s);
    return opened;
}

/* The schema's version is written as it is: a page goes to the disk and nothing changes. */
static int probe_write(struct db_sqlite *s)
{
    char sql[64];
    int rc;

    snprintf(sql, sizeof(sql), "BEGIN IMMEDIATE; PRAGMA user_version=%d; COMMIT",
             migrations_count());
    rc = exec(s, sql);
    if (rc != SQLITE_OK && !sqlite3_get_autocommit(s->handle))
        exec(s, "ROLLBACK");
    return rc;
}

static void on_probe(void *ctx)
{
    struct db_sqlite *s = ctx;
    struct error err = {0};
    int rc;

    if (s->handle == NULL) {
        file_open(s, &err);
    } else if ((rc = probe_write(s)) != SQLITE_OK) {
        db_sqlite_error(s, rc, "write to the ledger", &err);
    }
    if (error_is(&err))
        note_trouble(s, &err);
    else
        note_success(s);
}

/* ---- checkpoints ------------------------------------------------------------------------------------ */

/* In a turn of its own: by itself soon after a pause, at once when the log has grown long. */
static void checkpoint_plan(struct db_sqlite *s)
{
    if (s->wal_frames >= CHECKPOINT_FRAMES)
        timer_set_ms(s->db.loop, &s->checkpoint, 0);
    else if (s->wal_frames > 0)
        timer_set_ms(s->db.loop, &s->checkpoint, CHECKPOINT_IDLE_MS);
}

static void on_checkpoint(void *ctx)
{
    struct db_sqlite *s = ctx;
    struct error err;
    int rc;

    if (s->handle == NULL)
        return;
    s->wal_frames = 0;
    rc = sqlite3_wal_checkpoint_v2(s->handle, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    if (rc == SQLITE_OK || (rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED)
        return; /* what is in use now is copied next time */
    db_sqlite_error(s, rc, "checkpoint the ledger", &err);
    note_trouble(s, &err);
}

/* ---- the turn's transaction ------------------------------------------------------------------------- */

static void fail_all(struct list *calls, const struct error *err)
{
    for (struct list *node; (node = list_pop(calls)) != NULL;)
        db_call_finish(container_of(node, struct db_call, link), err);
}

static bool is_busy(int rc)
{
    return (rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED;
}

/* One call inside the transaction. A failure that leaves the transaction alive is the call's own. */
static bool run_in_transaction(struct db_sqlite *s, struct db_call *call, struct error *err)
{
    bool nested = call->n_steps > 1;
    int rc = nested ? exec(s, "SAVEPOINT call") : SQLITE_OK;

    error_clear(err);
    if (rc == SQLITE_OK)
        rc = steps_run(s, call);
    if (rc != SQLITE_OK)
        db_sqlite_error(s, rc, call->name, err);
    if (sqlite3_get_autocommit(s->handle))
        return false; /* SQLite rolled everything back */
    if (nested && rc != SQLITE_OK)
        exec(s, "ROLLBACK TO call");
    if (nested)
        exec(s, "RELEASE call");
    return (rc & 0xff) != SQLITE_FULL && (rc & 0xff) != SQLITE_IOERR;
}

struct finished {
    struct db_call *call;
    struct error *error; /* NULL = success; in the call's arena */
};

static struct error *keep_error(struct db_call *call, const struct error *err)
{
    return error_is(err) ? (void *)arena_memdup(call->arena, err, sizeof(*err)) : NULL;
}

/* Not the loop's clock: that stands still within a turn. */
static int64_t clock_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* Move calls from the queue into the open transaction, as many as fit in a turn. */
static int run_queue(struct db_sqlite *s, struct finished *done, struct error *fatal)
{
    int64_t until_us = clock_us() + FLUSH_US_MAX;
    int n = 0;

    while (n < FLUSH_CALLS_MAX && !list_empty(&s->queue) && clock_us() < until_us) {
        struct db_call *call = container_of(list_pop(&s->queue), struct db_call, link);
        struct error err;

        if (call->op == NULL) { /* cancelled before it began: nothing to do, nothing done */
            db_call_drop(call);
            continue;
        }
        if (!run_in_transaction(s, call, &err)) {
            list_push(&s->queue, &call->link);
            *fatal = err;
            break;
        }
        done[n++] = (struct finished){call, keep_error(call, &err)};
    }
    return n;
}

static void tell_notices(struct db_sqlite *s, const struct db_call *call)
{
    struct error error;
    const char *key;

    if (call->notice == NULL || s->db.watches == NULL)
        return;
    key = notice_decode(call->arena, call->notice, &error);
    if (key != NULL)
        watches_tell(s->db.watches, key, error_is(&error) ? &error : NULL);
}

static void on_flush(void *ctx)
{
    static struct finished done[FLUSH_CALLS_MAX];
    struct db_sqlite *s = ctx;
    struct error fatal = {0};
    int n = 0, rc;

    if (s->handle == NULL || list_empty(&s->queue) || timer_armed(&s->retry))
        return;
    rc = exec(s, "BEGIN IMMEDIATE");
    if (is_busy(rc)) {
        timer_set_ms(s->db.loop, &s->retry, BUSY_RETRY_MS);
        return;
    }
    if (rc != SQLITE_OK)
        db_sqlite_error(s, rc, "begin a transaction", &fatal);
    else
        n = run_queue(s, done, &fatal);
    if (!error_is(&fatal) && (rc = exec(s, "COMMIT")) != SQLITE_OK)
        db_sqlite_error(s, rc, "commit", &fatal);
    if (error_is(&fatal)) {
        if (!sqlite3_get_autocommit(s->handle))
            exec(s, "ROLLBACK");
        note_trouble(s, &fatal);
        for (int i = 0; i < n; i++)
            db_call_finish(done[i].call, &fatal);
        fail_all(&s->queue, &fatal);
        return;
    }
    note_success(s);
    for (int i = 0; i < n; i++) {
        if (done[i].error == NULL)
            tell_notices(s, done[i].call);
        db_call_finish(done[i].call, done[i].error);
    }
    checkpoint_plan(s);
    if (!list_empty(&s->queue))
        loop_at_turn_end(s->db.loop, &s->flush);
}

static void on_busy_retry(void *ctx)
{
    struct db_sqlite *s = ctx;

    loop_at_turn_end(s->db.loop, &s->flush);
}

/* ---- calls ---------------------------------------------------------------------------------------------- */

static void on_call_deadline(void *ctx)
{
    struct db_call *call = ctx;
    struct db_sqlite *s = sqlite_of(call->db);
    struct error err;

    error_set(&err, ERR_LEDGER, "the ledger %s was locked by another program for %d ms", s->path,
              DB_CALL_DEADLINE_MS);
    err.retry_after_ms = DB_RETRY_AFTER_MS;
    note_trouble(s, &err);
    db_call_finish(call, &err);
}

static void read_run(struct db_sqlite *s, struct db_call *call)
{
    struct error err = {0};
    int rc = steps_run(s, call);

    if (rc != SQLITE_OK) {
        db_sqlite_error(s, rc, call->name, &err);
        note_trouble(s, &err);
    }
    db_call_finish(call, &err);
}

static void sqlite_submit(struct db *db, struct db_call *call)
{
    struct db_sqlite *s = sqlite_of(db);

    if (s->handle == NULL) {
        db_call_finish(call, &s->trouble);
    } else if (!call->writes) {
        read_run(s, call);
    } else {
        timer_init(&call->deadline, on_call_deadline, call);
        timer_set_ms(db->loop, &call->deadline, DB_CALL_DEADLINE_MS);
        list_push(&s->queue, &call->link);
        loop_at_turn_end(db->loop, &s->flush);
    }
}

static void sqlite_close(struct db *db)
{
    struct db_sqlite *s = sqlite_of(db);

    for (struct list *node; (node = list_pop(&s->queue)) != NULL;) {
        struct db_call *call = container_of(node, struct db_call, link);
        PRE(call->op == NULL);
        db_call_drop(call);
    }
    turn_hook_cancel(&s->flush);
    timer_cancel(db->loop, &s->retry);
    timer_cancel(db->loop, &s->checkpoint);
    timer_cancel(db->loop, &s->probe);
    db_sqlite_close_file(s);
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    free(s->path);
    db_fini(db);
    free(s);
}

static const struct db_ops sqlite_ops = {"sqlite", sqlite_submit, sqlite_ready, sqlite_close};

struct ledger *ledger_sqlite_open(struct loop *loop, const char *path, struct error *err)
{
    struct db_sqlite *s = xcalloc(1, sizeof(*s));
    enum sqlite_opened opened;

    db_init(&s->db, &sqlite_ops, loop, &sql_sqlite);
    s->path = xstrdup(path);
    list_init(&s->queue);
    turn_hook_init(&s->flush, on_flush, s);
    timer_init(&s->retry, on_busy_retry, s);
    timer_init(&s->checkpoint, on_checkpoint, s);
    timer_init(&s->probe, on_probe, s);
    if (!db_sqlite_lock(s, err)) {
        sqlite_close(&s->db);
        return NULL;
    }
    opened = file_open(s, err);
    if (opened == SQLITE_REFUSED) {
        sqlite_close(&s->db);
        return NULL;
    }
    if (opened == SQLITE_NOT_NOW)
        note_trouble(s, err);
    error_clear(err);
    return ledger_sql_new(&s->db);
}
