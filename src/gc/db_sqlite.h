/* The SQLite engine's insides.
 *
 * sqlite_file   opening the file: one server per file, no damage, no newer schema
 * sqlite_conn   one connection: statements, steps, rows
 * sqlite_work   what the worker's thread does with the writer: batches, probes, checkpoints
 * ledger_sqlite what the loop does: reads, the queue of writes, deadlines, readiness */
#pragma once

#include "core/runtime/worker.h"
#include "gc/db.h"

#include <sqlite3.h>

/* ---- one connection ----------------------------------------------------------------------------- */

struct sqlite_conn {
    sqlite3 *handle; /* NULL while the file cannot be opened */
    char **sql;      /* the table's statements; borrowed from the db */
    sqlite3_stmt *stmts[SQL_COUNT];
};

/** Run the steps of a call; rows go into its arena. A code of SQLite. */
int sqlite_conn_run(struct sqlite_conn *conn, struct db_call *call);
/** Statements without results. A code of SQLite. */
int sqlite_conn_exec(struct sqlite_conn *conn, const char *sql);
/** Finalise statements and close the file. */
void sqlite_conn_close(struct sqlite_conn *conn);
/** ERR_LEDGER with the words of SQLite. `what` completes "could not …". */
void sqlite_conn_error(const struct sqlite_conn *conn, int rc, const char *what, struct error *ret);
/** The file is locked, by whoever. */
bool sqlite_is_busy(int rc);

/* ---- the file ------------------------------------------------------------------------------------ */

/** What an open came to. */
enum sqlite_opened { SQLITE_OPENED, SQLITE_REFUSED, SQLITE_NOT_NOW };

/** Open the file for writing, set it up, migrate; then once more for reading. Both handles are set on
 * SQLITE_OPENED and NULL otherwise. Blocks. */
enum sqlite_opened sqlite_file_open(const char *path, struct sqlite_conn *writer,
                                    struct sqlite_conn *reader, struct error *err);

/** Take the file for this process alone: the descriptor of the lock, or -1 with the reason. */
int sqlite_file_lock(const char *path, struct error *err);

/* ---- work ---------------------------------------------------------------------------------------- */

/** Writes that share a transaction. The loop fills `calls`; the worker moves those that it has run to
 * `ran`, each with its own `failure` or none. */
struct sqlite_batch {
    struct work work;
    struct sqlite_conn *writer;
    struct list calls, ran;
    bool changes;       /* a call of it does, see sql_info */
    bool busy;          /* the file is locked by another program: nothing was run */
    struct error fatal; /* set: nothing of the batch has happened */
    int wal_frames;     /* in the log after the commit */
};

/** While there is trouble: open the file, or see whether it takes a write. */
struct sqlite_probe {
    struct work work;
    const char *path;
    struct sqlite_conn *writer;
    struct sqlite_conn reader; /* set when the file was opened by this probe */
    struct error error;
};

/** Copy the log into the file, as far as no reader is in the way. */
struct sqlite_checkpoint {
    struct work work;
    struct sqlite_conn *writer;
    struct error error;
};

/** For work_init; `ctx` is the struct above. */
void sqlite_batch_run(void *batch);
void sqlite_probe_run(void *probe);
void sqlite_checkpoint_run(void *checkpoint);
