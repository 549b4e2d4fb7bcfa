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
    OPEN_BUSY_MS = 2000,         /* before the loop runs, waiting is allowed */
    CHECK_BYTES_MAX = 16 << 20,  /* a larger file is checked by use, not at start */
};

bool db_sqlite_lock(struct db_sqlite *s, struct error *err)
{
    struct buf name = {0};
    bool locked;

    buf_addf(&name, "%s.lock", s->path);
    s->lock_fd = open(buf_text(&name), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    locked = s->lock_fd >= 0 && flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0;
    if (s->lock_fd < 0)
        error_set(err, ERR_LEDGER, "cannot open %s: %s", buf_text(&name), strerror(errno));
    else if (!locked)
        error_set(err, ERR_LEDGER,
                  "the ledger %s is in use by another server: give each server its own file, or "
                  "share a PostgreSQL by BINDERY_LEDGER_URL",
                  s->path);
    buf_fini(&name);
    return locked;
}

void db_sqlite_error(const struct db_sqlite *s, int rc, const char *what, struct error *ret)
{
    error_set(ret, ERR_LEDGER, "could not %s: %s (%s)", what,
              s->handle != NULL ? sqlite3_errmsg(s->handle) : sqlite3_errstr(rc),
              sqlite3_errstr(rc));
    ret->retry_after_ms = DB_RETRY_AFTER_MS;
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

static int quick_check(struct db_sqlite *s, struct error *err)
{
    sqlite3_stmt *stmt = NULL;
    struct stat st;
    int rc;

    if (stat(s->path, &st) != 0 || st.st_size > CHECK_BYTES_MAX)
        return SQLITE_OK;
    rc = sqlite3_prepare_v2(s->handle, "PRAGMA quick_check(1)", -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        const char *verdict = (const char *)sqlite3_column_text(stmt, 0);
        rc = SQLITE_OK;
        if (verdict == NULL || strcmp(verdict, "ok") != 0) {
            error_set(err, ERR_LEDGER, "the ledger %s is damaged: %s", s->path,
                      verdict != NULL ? verdict : "no verdict");
            rc = SQLITE_CORRUPT;
        }
    }
    sqlite3_finalize(stmt);
    return rc;
}

/* Ours, or empty, and not newer than this program. */
static int check_identity(struct db_sqlite *s, int64_t *ret_version, struct error *err)
{
    int64_t id = 0, tables = 0;
    int rc = query_int(s->handle, "PRAGMA application_id", &id);

    if (rc == SQLITE_OK)
        rc = query_int(s->handle, "SELECT count(*) FROM sqlite_master", &tables);
    if (rc == SQLITE_OK)
        rc = query_int(s->handle, "PRAGMA user_version", ret_version);
    if (rc != SQLITE_OK)
        return rc;
    if (tables > 0 && id != APPLICATION_ID) {
        error_set(err, ERR_LEDGER, "%s is an SQLite file of another program, not a ledger",
                  s->path);
        return SQLITE_NOTADB;
    }
    if (*ret_version > migrations_count()) {
        error_set(err, ERR_LEDGER,
                  "the ledger %s has schema version %lld, and this program knows %d: run the "
                  "newer program, or restore the backup made before the upgrade",
                  s->path, (long long)*ret_version, migrations_count());
        return SQLITE_SCHEMA;
    }
    return SQLITE_OK;
}

static int exec(struct db_sqlite *s, const char *sql)
{
    return sqlite3_exec(s->handle, sql, NULL, NULL, NULL);
}

static int migrate(struct db_sqlite *s, int from)
{
    int rc = SQLITE_OK;

    for (int version = from + 1; version <= migrations_count() && rc == SQLITE_OK; version++) {
        struct buf script = {0};
        char *text = migration_script(&sql_sqlite, version);

        buf_addf(&script,
                 "BEGIN IMMEDIATE; PRAGMA application_id=%d; %s PRAGMA user_version=%d; COMMIT;",
                 APPLICATION_ID, text, version);
        rc = exec(s, buf_text(&script));
        if (rc != SQLITE_OK && !sqlite3_get_autocommit(s->handle))
            exec(s, "ROLLBACK");
        free(text);
        buf_fini(&script);
    }
    return rc;
}

static int set_up(struct db_sqlite *s, struct error *err)
{
    int64_t version = 0;
    int rc = SQLITE_OK;

    sqlite3_extended_result_codes(s->handle, 1);
    sqlite3_busy_timeout(s->handle, OPEN_BUSY_MS);
    if (sqlite3_db_readonly(s->handle, "main") == 1) {
        error_set(err, ERR_LEDGER,
                  "the ledger %s is read-only: make the file and its folder "
                  "writable for this user",
                  s->path);
        return SQLITE_READONLY;
    }
    rc = check_identity(s, &version, err);
    if (rc == SQLITE_OK)
        rc = quick_check(s, err);
    if (rc == SQLITE_OK)
        rc = exec(s, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                     "PRAGMA wal_autocheckpoint=0; PRAGMA journal_size_limit=67108864;"
                     "PRAGMA cache_size=-8000; PRAGMA temp_store=MEMORY;");
    if (rc == SQLITE_OK)
        rc = migrate(s, (int)version);
    /* This process has the file alone: whoever held a claim is dead. */
    if (rc == SQLITE_OK)
        rc = exec(s, "UPDATE bindings SET claimed_until=0 "
                     "WHERE status IN ('creating','retired') AND claimed_until>0;"
                     "UPDATE workspaces SET claimed_until=0 "
                     "WHERE status IN ('creating','retired') AND claimed_until>0;"
                     "UPDATE home_snapshots SET claimed_until=0 "
                     "WHERE status IN ('creating','retired') AND claimed_until>0;"
                     "UPDATE orphans SET claimed_until=0 "
                     "WHERE status='retired' AND claimed_until>0;");
    sqlite3_busy_timeout(s->handle, 0); /* on the loop nothing waits inside SQLite */
    return rc;
}

enum sqlite_opened db_sqlite_open_file(struct db_sqlite *s, struct error *err)
{
    int rc =
        sqlite3_open_v2(s->path, &s->handle,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);

    error_clear(err);
    if (rc == SQLITE_OK)
        rc = set_up(s, err);
    if (rc == SQLITE_OK)
        return SQLITE_OPENED;
    if (!error_is(err)) {
        struct buf what = {0};
        buf_addf(&what, "open the ledger %s", s->path);
        db_sqlite_error(s, rc, buf_text(&what), err);
        buf_fini(&what);
    }
    err->retry_after_ms = DB_RETRY_AFTER_MS;
    db_sqlite_close_file(s);
    return may_pass(rc) ? SQLITE_NOT_NOW : SQLITE_REFUSED;
}

void db_sqlite_close_file(struct db_sqlite *s)
{
    for (int i = 0; i < SQL_COUNT; i++) {
        sqlite3_finalize(s->stmts[i]);
        s->stmts[i] = NULL;
    }
    sqlite3_close(s->handle);
    s->handle = NULL;
}
