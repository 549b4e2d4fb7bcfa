/* SQLite beside the loop. Reads run on the loop where they are asked for: a few pages of an index. Writes
 * go to a worker in batches, one transaction and one sync for all that came while the batch before was
 * under way, and their ops wake after the commit: an answered write is on the disk. A file that another
 * program has locked is tried again by a timer until each call's own deadline. */
#include "gc/ledger_sqlite.h"

#include "gc/db_sqlite.h"
#include "gc/ledger_sql.h"

#include "core/runtime/log.h"

#include <stdlib.h>
#include <unistd.h>

enum {
    BUSY_RETRY_MS = 10,
    PROBE_MS = 1000,
    BATCH_CALLS_MAX = 512,
    CHECKPOINT_FRAMES = 1000,
    CHECKPOINT_IDLE_MS = 1000,
};

struct db_sqlite {
    struct db db;
    char *path;
    int lock_fd;
    struct worker *worker;
    struct sqlite_conn reader; /* the loop's; open from when the file is */
    struct sqlite_conn writer; /* the worker's, whenever work is away */

    struct list queue; /* writes that wait for the next batch, in order of arrival */
    struct turn_hook flush;
    struct timer retry; /* of a batch that found the file locked */
    struct sqlite_batch batch;
    struct timer checkpoint_pause;
    struct sqlite_checkpoint checkpoint;
    struct timer probe_pause;
    struct sqlite_probe probe;
    struct error trouble; /* what keeps the ledger from being ready */
};

static struct db_sqlite *sqlite_of(struct db *db)
{
    return container_of(db, struct db_sqlite, db);
}

static bool is_open(const struct db_sqlite *s)
{
    return s->reader.handle != NULL;
}

/* ---- readiness ------------------------------------------------------------------------------------ */

/* Remembered, and shown by /readyz, until a write succeeds. A server that is not ready gets no
 * requests, so it tries a write by itself. */
static void note_trouble(struct db_sqlite *s, const struct error *err)
{
    if (!error_is(&s->trouble))
        LOG_WITH(LOG_ERROR, "the ledger is not available", {"error", err->message});
    s->trouble = *err;
    if (!s->probe.work.away)
        timer_set_ms(s->db.loop, &s->probe_pause, PROBE_MS);
}

static void note_success(struct db_sqlite *s)
{
    if (error_is(&s->trouble))
        log_info("the ledger is available again");
    error_clear(&s->trouble);
    timer_cancel(s->db.loop, &s->probe_pause);
}

static bool sqlite_ready(struct db *db, struct error *err)
{
    struct db_sqlite *s = sqlite_of(db);

    if (!error_is(&s->trouble))
        return true;
    *err = s->trouble;
    return false;
}

static void on_probe_due(void *ctx)
{
    struct db_sqlite *s = ctx;

    worker_submit(s->worker, &s->probe.work);
}

static void on_probed(void *ctx)
{
    struct db_sqlite *s = container_of(ctx, struct db_sqlite, probe);

    if (s->probe.reader.handle != NULL) {
        s->reader = s->probe.reader;
        s->probe.reader = (struct sqlite_conn){.sql = s->db.sql};
    }
    if (error_is(&s->probe.error))
        note_trouble(s, &s->probe.error);
    else
        note_success(s);
}

/* ---- checkpoints ------------------------------------------------------------------------------------ */

static void on_checkpoint_due(void *ctx)
{
    struct db_sqlite *s = ctx;

    if (!s->checkpoint.work.away)
        worker_submit(s->worker, &s->checkpoint.work);
}

/* Soon after the last write, or at once when the log has grown long. */
static void checkpoint_plan(struct db_sqlite *s)
{
    if (s->batch.wal_frames >= CHECKPOINT_FRAMES)
        on_checkpoint_due(s);
    else if (s->batch.wal_frames > 0)
        timer_set_ms(s->db.loop, &s->checkpoint_pause, CHECKPOINT_IDLE_MS);
}

static void on_checkpointed(void *ctx)
{
    struct db_sqlite *s = container_of(ctx, struct db_sqlite, checkpoint);

    if (error_is(&s->checkpoint.error))
        note_trouble(s, &s->checkpoint.error);
}

/* ---- batches ---------------------------------------------------------------------------------------- */

static void fail_all(struct list *calls, const struct error *err)
{
    for (struct list *node; (node = list_pop(calls)) != NULL;)
        db_call_finish(container_of(node, struct db_call, link), err);
}

static void batch_fill(struct db_sqlite *s)
{
    int n = 0;

    s->batch.changes = false;
    while (n < BATCH_CALLS_MAX && !list_empty(&s->queue)) {
        struct db_call *call = container_of(list_pop(&s->queue), struct db_call, link);

        if (call->op == NULL) { /* cancelled before it began: nothing to do, nothing done */
            db_call_drop(call);
            continue;
        }
        call->flight = &s->batch;
        s->batch.changes |= call->changes;
        list_push(&s->batch.calls, &call->link);
        n++;
    }
}

static void on_flush(void *ctx)
{
    struct db_sqlite *s = ctx;

    if (!is_open(s) || s->batch.work.away || timer_armed(&s->retry))
        return;
    batch_fill(s);
    if (!list_empty(&s->batch.calls))
        worker_submit(s->worker, &s->batch.work);
}

static void on_busy_retry(void *ctx)
{
    struct db_sqlite *s = ctx;

    loop_at_turn_end(s->db.loop, &s->flush);
}

/* Nothing was run: the calls go back to the head of the queue. */
static void batch_put_back(struct db_sqlite *s)
{
    LIST_FOREACH_SAFE (it, next, &s->batch.calls)
        container_of(it, struct db_call, link)->flight = NULL;
    list_splice(&s->batch.calls, &s->queue);
    list_splice(&s->queue, &s->batch.calls);
    timer_set_ms(s->db.loop, &s->retry, BUSY_RETRY_MS);
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

static void on_batch_done(void *ctx)
{
    struct db_sqlite *s = container_of(ctx, struct db_sqlite, batch);

    if (s->batch.busy) {
        batch_put_back(s);
        return;
    }
    if (error_is(&s->batch.fatal)) {
        note_trouble(s, &s->batch.fatal);
        fail_all(&s->batch.ran, &s->batch.fatal);
        fail_all(&s->batch.calls, &s->batch.fatal);
        fail_all(&s->queue, &s->batch.fatal);
        return;
    }
    note_success(s);
    s->db.generation += s->batch.changes;
    for (struct list *node; (node = list_pop(&s->batch.ran)) != NULL;) {
        struct db_call *call = container_of(node, struct db_call, link);
        if (call->failure == NULL)
            tell_notices(s, call);
        db_call_finish(call, call->failure);
    }
    checkpoint_plan(s);
    if (!list_empty(&s->queue))
        loop_at_turn_end(s->db.loop, &s->flush);
}

/* ---- calls ---------------------------------------------------------------------------------------------- */

/* In the queue, nothing of it has happened. In a batch it may happen yet: the caller hears that, and the
 * call stays with the batch. */
static void on_call_deadline(void *ctx)
{
    struct db_call *call = ctx;
    struct db_sqlite *s = sqlite_of(call->db);
    struct op *op = call->op;
    struct error err;

    if (op == NULL)
        return;
    if (call->flight != NULL)
        error_set(&err, ERR_LEDGER, "the ledger %s did not answer within %d ms: its disk is slow",
                  s->path, DB_CALL_DEADLINE_MS);
    else
        error_set(&err, ERR_LEDGER, "the ledger %s was locked by another program for %d ms",
                  s->path, DB_CALL_DEADLINE_MS);
    err.retry_after_ms = DB_RETRY_AFTER_MS;
    err.admitted = call->flight != NULL ? ADMITTED_UNKNOWN : ADMITTED_NO;
    note_trouble(s, &err);
    if (call->flight == NULL) {
        db_call_finish(call, &err);
        return;
    }
    call->op = NULL;
    op_wake(op, &err);
}

static void read_run(struct db_sqlite *s, struct db_call *call)
{
    struct error err = {0};
    int rc = sqlite_conn_run(&s->reader, call);

    if (rc != SQLITE_OK) {
        sqlite_conn_error(&s->reader, rc, call->name, &err);
        note_trouble(s, &err);
    }
    db_call_finish(call, &err);
}

static void sqlite_submit(struct db *db, struct db_call *call)
{
    struct db_sqlite *s = sqlite_of(db);

    if (!is_open(s)) {
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

/* ---- begin and end ---------------------------------------------------------------------------------- */

static void drop_all(struct list *calls)
{
    for (struct list *node; (node = list_pop(calls)) != NULL;) {
        struct db_call *call = container_of(node, struct db_call, link);
        PRE(call->op == NULL);
        db_call_drop(call);
    }
}

static void sqlite_close(struct db *db)
{
    struct db_sqlite *s = sqlite_of(db);

    worker_free(s->worker);
    drop_all(&s->batch.ran);
    drop_all(&s->batch.calls);
    drop_all(&s->queue);
    turn_hook_cancel(&s->flush);
    timer_cancel(db->loop, &s->retry);
    timer_cancel(db->loop, &s->checkpoint_pause);
    timer_cancel(db->loop, &s->probe_pause);
    sqlite_conn_close(&s->reader);
    sqlite_conn_close(&s->probe.reader);
    sqlite_conn_close(&s->writer);
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    free(s->path);
    db_fini(db);
    free(s);
}

static const struct db_ops sqlite_ops = {"sqlite", sqlite_submit, sqlite_ready, sqlite_close};

static struct db_sqlite *sqlite_new(struct loop *loop, const char *path)
{
    struct db_sqlite *s = xcalloc(1, sizeof(*s));

    db_init(&s->db, &sqlite_ops, loop, &sql_sqlite);
    s->db.generation = 1; /* the lock on the file keeps other programs of ours away */
    s->path = xstrdup(path);
    s->lock_fd = -1;
    s->reader.sql = s->writer.sql = s->probe.reader.sql = s->db.sql;
    list_init(&s->queue);
    turn_hook_init(&s->flush, on_flush, s);
    timer_init(&s->retry, on_busy_retry, s);

    s->batch.writer = &s->writer;
    list_init(&s->batch.calls);
    list_init(&s->batch.ran);
    work_init(&s->batch.work, sqlite_batch_run, on_batch_done, &s->batch);
    s->checkpoint.writer = &s->writer;
    timer_init(&s->checkpoint_pause, on_checkpoint_due, s);
    work_init(&s->checkpoint.work, sqlite_checkpoint_run, on_checkpointed, &s->checkpoint);
    s->probe.writer = &s->writer;
    s->probe.path = s->path;
    timer_init(&s->probe_pause, on_probe_due, s);
    work_init(&s->probe.work, sqlite_probe_run, on_probed, &s->probe);
    return s;
}

struct ledger *ledger_sqlite_open(struct loop *loop, const char *path, struct error *err)
{
    struct db_sqlite *s = sqlite_new(loop, path);
    enum sqlite_opened opened = SQLITE_REFUSED;

    s->lock_fd = sqlite_file_lock(path, err);
    if (s->lock_fd >= 0) /* before the loop runs, waiting is allowed */
        opened = sqlite_file_open(path, &s->writer, &s->reader, err);
    if (opened == SQLITE_REFUSED) {
        sqlite_close(&s->db);
        return NULL;
    }
    s->worker = worker_new(loop, "ledger");
    if (opened == SQLITE_NOT_NOW)
        note_trouble(s, err);
    error_clear(err);
    return ledger_sql_new(&s->db);
}
