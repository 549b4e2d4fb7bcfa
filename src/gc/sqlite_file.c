/* Opening the file: one server per file, no damage, no newer schema, WAL. */
#include "gc/db_sqlite.h"

#include "core/runtime/buf.h"
#include "gc/migrations.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    APPLICATION_ID = 0x424e4459, /* "BNDY", in the file's header */
    OPEN_BUSY_MS = 2000,         /* nothing else can be done meanwhile */
    CHECK_BYTES_MAX = 16 << 20,  /* a larger file is checked by use, not at start */
};

int sqlite_file_lock(const char *path, struct error *err)
{
    struct buf name = {0};
    int fd;

    buf_addf(&name, "%s.lock", path);
    fd = open(buf_text(&name), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        error_set(err, ERR_LEDGER, "cannot open %s: %s", buf_text(&name), strerror(errno));
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        error_set(err, ERR_LEDGER,
                  "the ledger %s is in use by another server: give each server its own file, or "
                  "share a PostgreSQL by BINDERY_LEDGER_URL",
                  path);
        close(fd);
        fd = -1;
    }
    buf_fini(&name);
    return fd;
}

/* What time or an operator's rm may cure without a restart. */
static bool may_pass(int rc)
{
    int primary = rc & 0xff;

    return primary == SQLITE_BUSY || primary == SQLITE_LOCKED || primary == SQLITE_FULL ||
           primary == SQLITE_IOERR || primary == SQLITE_NOMEM;
}

static int query_int(sqlite3 *handle, const char *sql, int64_t *ret)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(handle, sql, -1, &stmt, NULL);

    if (rc == SQLITE_OK) {
        rc = sqlite3_step(stmt);
        if (rc == SQLITE_ROW)
            *ret = sqlite3_column_int64(stmt, 0);
    }
    sqlite3_finalize(stmt);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int quick_check(const char *path, struct sqlite_conn *conn, struct error *err)
{
    sqlite3_stmt *stmt = NULL;
    struct stat st;
    int rc;

    if (stat(path, &st) != 0 || st.st_size > CHECK_BYTES_MAX)
        return SQLITE_OK;
    rc = sqlite3_prepare_v2(conn->handle, "PRAGMA quick_check(1)", -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        const char *verdict = (const char *)sqlite3_column_text(stmt, 0);
        rc = SQLITE_OK;
        if (verdict == NULL || strcmp(verdict, "ok") != 0) {
            error_set(err, ERR_LEDGER, "the ledger %s is damaged: %s", path,
                      verdict != NULL ? verdict : "no verdict");
            rc = SQLITE_CORRUPT;
        }
    }
    sqlite3_finalize(stmt);
    return rc;
}

/* Ours, or empty, and not newer than this program. */
static int check_identity(const char *path, struct sqlite_conn *conn, int64_t *ret_version,
                          struct error *err)
{
    int64_t id = 0, tables = 0;
    int rc = query_int(conn->handle, "PRAGMA application_id", &id);

    if (rc == SQLITE_OK)
        rc = query_int(conn->handle, "SELECT count(*) FROM sqlite_master", &tables);
    if (rc == SQLITE_OK)
        rc = query_int(conn->handle, "PRAGMA user_version", ret_version);
    if (rc != SQLITE_OK)
        return rc;
    if (tables > 0 && id != APPLICATION_ID) {
        error_set(err, ERR_LEDGER, "%s is an SQLite file of another program, not a ledger", path);
        return SQLITE_NOTADB;
    }
    if (*ret_version > migrations_count()) {
        error_set(err, ERR_LEDGER,
                  "the ledger %s has schema version %lld, and this program knows %d: run the "
                  "newer program, or restore the backup made before the upgrade",
                  path, (long long)*ret_version, migrations_count());
        return SQLITE_SCHEMA;
    }
    return SQLITE_OK;
}

static int migrate(struct sqlite_conn *conn, int from)
{
    int rc = SQLITE_OK;

    for (int version = from + 1; version <= migrations_count() && rc == SQLITE_OK; version++) {
        struct buf script = {0};
        char *text = migration_script(&sql_sqlite, version);

        buf_addf(&script,
                 "BEGIN IMMEDIATE; PRAGMA application_id=%d; %s PRAGMA user_version=%d; COMMIT;",
                 APPLICATION_ID, text, version);
        rc = sqlite_conn_exec(conn, buf_text(&script));
        if (rc != SQLITE_OK && !sqlite3_get_autocommit(conn->handle))
            sqlite_conn_exec(conn, "ROLLBACK");
        free(text);
        buf_fini(&script);
    }
    return rc;
}

static int set_up(const char *path, struct sqlite_conn *conn, struct error *err)
{
    int64_t version = 0;
    int rc = SQLITE_OK;

    sqlite3_extended_result_codes(conn->handle, 1);
    sqlite3_busy_timeout(conn->handle, OPEN_BUSY_MS);
    if (sqlite3_db_readonly(conn->handle, "main") == 1) {
        error_set(err, ERR_LEDGER,
                  "the ledger %s is read-only: make the file and its folder "
                  "writable for this user",
                  path);
        return SQLITE_READONLY;
    }
    rc = check_identity(path, conn, &version, err);
    if (rc == SQLITE_OK)
        rc = quick_check(path, conn, err);
    if (rc == SQLITE_OK)
        rc = sqlite_conn_exec(conn,
                              "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                              "PRAGMA wal_autocheckpoint=0; PRAGMA journal_size_limit=67108864;"
                              "PRAGMA cache_size=-8000; PRAGMA temp_store=MEMORY;");
    if (rc == SQLITE_OK)
        rc = migrate(conn, (int)version);
    /* This process has the file alone: whoever held a claim is dead. */
    if (rc == SQLITE_OK)
        rc = sqlite_conn_exec(conn, "UPDATE bindings SET claimed_until=0 "
                                    "WHERE status IN ('creating','retired') AND claimed_until>0;"
                                    "UPDATE workspaces SET claimed_until=0 "
                                    "WHERE status IN ('creating','retired') AND claimed_until>0;"
                                    "UPDATE home_snapshots SET claimed_until=0 "
                                    "WHERE status IN ('creating','retired') AND claimed_until>0;"
                                    "UPDATE orphans SET claimed_until=0 "
                                    "WHERE status='retired' AND claimed_until>0;");
    sqlite3_busy_timeout(conn->handle, 0); /* whoever meets a lock later tries again by himself */
    return rc;
}

static int writer_open(const char *path, struct sqlite_conn *writer, struct error *err)
{
    int rc =
        sqlite3_open_v2(path, &writer->handle,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);

    return rc == SQLITE_OK ? set_up(path, writer, err) : rc;
}

/* Also the reader writes: the index of the log, which all connections share. */
static int reader_open(const char *path, struct sqlite_conn *reader)
{
    int rc =
        sqlite3_open_v2(path, &reader->handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);

    if (rc == SQLITE_OK)
        rc = sqlite3_extended_result_codes(reader->handle, 1);
    if (rc == SQLITE_OK)
        rc = sqlite_conn_exec(reader, "PRAGMA query_only=1; PRAGMA cache_size=-8000;"
                                      "PRAGMA temp_store=MEMORY;");
    return rc;
}

enum sqlite_opened sqlite_file_open(const char *path, struct sqlite_conn *writer,
                                    struct sqlite_conn *reader, struct error *err)
{
    const struct sqlite_conn *failed = writer;
    int rc;

    error_clear(err);
    rc = writer_open(path, writer, err);
    if (rc == SQLITE_OK) {
        failed = reader;
        rc = reader_open(path, reader);
    }
    if (rc == SQLITE_OK)
        return SQLITE_OPENED;
    if (!error_is(err)) {
        struct buf what = {0};
        buf_addf(&what, "open the ledger %s", path);
        sqlite_conn_error(failed, rc, buf_text(&what), err);
        buf_fini(&what);
    }
    err->retry_after_ms = DB_RETRY_AFTER_MS;
    sqlite_conn_close(reader);
    sqlite_conn_close(writer);
    return may_pass(rc) ? SQLITE_NOT_NOW : SQLITE_REFUSED;
}
