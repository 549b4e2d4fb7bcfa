/* What the worker's thread does with the writing connection. */
#include "gc/db_sqlite.h"

#include "gc/migrations.h"

#include <stdio.h>

/* ---- batches --------------------------------------------------------------------------------------- */

static int begin(struct sqlite_batch *batch)
{
    int rc = sqlite_conn_exec(batch->writer, "BEGIN IMMEDIATE");

    if (rc != SQLITE_OK && !sqlite_is_busy(rc))
        sqlite_conn_error(batch->writer, rc, "begin a transaction", &batch->fatal);
    batch->busy = sqlite_is_busy(rc);
    return rc;
}

/* One call inside the transaction. A failure that leaves the transaction alive is the call's own;
 * false when the transaction is dead, or not worth going on with. */
static bool call_run(struct sqlite_batch *batch, struct db_call *call)
{
    struct sqlite_conn *writer = batch->writer;
    bool nested = call->n_steps > 1;
    struct error err = {0};
    int rc = nested ? sqlite_conn_exec(writer, "SAVEPOINT call") : SQLITE_OK;

    if (rc == SQLITE_OK)
        rc = sqlite_conn_run(writer, call);
    if (rc != SQLITE_OK)
        sqlite_conn_error(writer, rc, call->name, &err);
    if (sqlite3_get_autocommit(writer->handle)) { /* SQLite rolled everything back */
        batch->fatal = err;
        return false;
    }
    if (nested && rc != SQLITE_OK)
        sqlite_conn_exec(writer, "ROLLBACK TO call");
    if (nested)
        sqlite_conn_exec(writer, "RELEASE call");
    if ((rc & 0xff) == SQLITE_FULL || (rc & 0xff) == SQLITE_IOERR) {
        batch->fatal = err;
        return false;
    }
    call->failure = error_is(&err) ? (void *)arena_memdup(call->arena, &err, sizeof(err)) : NULL;
    return true;
}

static void calls_run(struct sqlite_batch *batch)
{
    while (!list_empty(&batch->calls)) {
        struct list *node = batch->calls.next;

        if (!call_run(batch, container_of(node, struct db_call, link)))
            return;
        list_remove(node);
        list_push(&batch->ran, node);
    }
}

static int on_wal_grown(void *ctx, sqlite3 *handle, const char *name, int frames)
{
    struct sqlite_batch *batch = ctx;

    (void)handle;
    (void)name;
    batch->wal_frames = frames;
    return SQLITE_OK;
}

void sqlite_batch_run(void *ctx)
{
    struct sqlite_batch *batch = ctx;
    int rc;

    error_clear(&batch->fatal);
    if (begin(batch) != SQLITE_OK)
        return;
    sqlite3_wal_hook(batch->writer->handle, on_wal_grown, batch);
    calls_run(batch);
    if (!error_is(&batch->fatal) && (rc = sqlite_conn_exec(batch->writer, "COMMIT")) != SQLITE_OK)
        sqlite_conn_error(batch->writer, rc, "commit", &batch->fatal);
    if (error_is(&batch->fatal) && !sqlite3_get_autocommit(batch->writer->handle))
        sqlite_conn_exec(batch->writer, "ROLLBACK");
}

/* ---- probes ------------------------------------------------------------------------------------------ */

/* The schema's version is written as it is: a page goes to the disk and nothing changes. */
static int probe_write(struct sqlite_conn *writer)
{
    char sql[64];
    int rc;

    snprintf(sql, sizeof(sql), "BEGIN IMMEDIATE; PRAGMA user_version=%d; COMMIT",
             migrations_count());
    rc = sqlite_conn_exec(writer, sql);
    if (rc != SQLITE_OK && !sqlite3_get_autocommit(writer->handle))
        sqlite_conn_exec(writer, "ROLLBACK");
    return rc;
}

void sqlite_probe_run(void *ctx)
{
    struct sqlite_probe *probe = ctx;
    int rc;

    error_clear(&probe->error);
    if (probe->writer->handle == NULL)
        sqlite_file_open(probe->path, probe->writer, &probe->reader, &probe->error);
    else if ((rc = probe_write(probe->writer)) != SQLITE_OK)
        sqlite_conn_error(probe->writer, rc, "write to the ledger", &probe->error);
}

/* ---- checkpoints ------------------------------------------------------------------------------------- */

void sqlite_checkpoint_run(void *ctx)
{
    struct sqlite_checkpoint *checkpoint = ctx;
    int rc = sqlite3_wal_checkpoint_v2(checkpoint->writer->handle, NULL, SQLITE_CHECKPOINT_PASSIVE,
                                       NULL, NULL);

    error_clear(&checkpoint->error);
    if (rc != SQLITE_OK && !sqlite_is_busy(rc)) /* what is in use now is copied next time */
        sqlite_conn_error(checkpoint->writer, rc, "checkpoint the ledger", &checkpoint->error);
}
