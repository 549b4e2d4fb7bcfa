/* The SQLite engine's insides, shared by its two files. */
#pragma once

#include "gc/db.h"

#include <sqlite3.h>

struct db_sqlite {
    struct db db;
    char *path;
    int lock_fd;
    sqlite3 *handle; /* NULL while the file cannot be opened */
    sqlite3_stmt *stmts[SQL_COUNT];
    struct list queue; /* writes of this turn, in order of arrival */
    struct turn_hook flush;
    struct timer retry; /* of a flush that found the file locked */
    struct timer checkpoint;
    struct timer probe;   /* while there is trouble: try to open, or to write */
    int wal_frames;       /* after the last commit */
    struct error trouble; /* what keeps it from being ready */
};

/** What an open came to. */
enum sqlite_opened { SQLITE_OPENED, SQLITE_REFUSED, SQLITE_NOT_NOW };

/** Open the file, set it up, migrate. On SQLITE_OPENED `s->handle` is set. */
enum sqlite_opened db_sqlite_open_file(struct db_sqlite *s, struct error *err);
/** Finalise statements and close the file. */
void db_sqlite_close_file(struct db_sqlite *s);

/** Take the file for this process alone; false with the reason. */
bool db_sqlite_lock(struct db_sqlite *s, struct error *err);

/** ERR_LEDGER with the words of SQLite. `what` completes "could not …". */
void db_sqlite_error(const struct db_sqlite *s, int rc, const char *what, struct error *ret);
