/* Bad luck with a file: one that must not be used, locks, a full disk; and what SQLite itself
 * refuses and how it plans. */
#include "core/runtime/buf.h"
#include "gc/db_sqlite.h"
#include "gc/ledger_sqlite.h"
#include "gc/migrations.h"
#include "support/ledger_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(sqlite, .timeout = 60);

static const struct ledger_cause because = {"test", NULL};

static void sql(const char *path, const char *text)
{
    sqlite3 *handle;

    cr_assert(eq(int, sqlite3_open(path, &handle), SQLITE_OK));
    cr_assert(eq(int, sqlite3_exec(handle, text, NULL, NULL, NULL), SQLITE_OK), "%s",
              sqlite3_errmsg(handle));
    sqlite3_close(handle);
}

/* What a refused open leaves of the file. */
static void expect_refusal(const char *path, const char *words)
{
    struct loop *loop = loop_new(NULL);
    struct error err = {0};

    cr_assert(ledger_sqlite_open(loop, path, &err) == NULL);
    cr_assert(strstr(err.message, words) != NULL, "%s", err.message);
    loop_free(loop);
}

static long file_bytes(const char *path, char *ret, size_t size)
{
    FILE *file = fopen(path, "r");
    size_t n = fread(ret, 1, size, file);

    fclose(file);
    return (long)n;
}

Test(sqlite, second_server_on_one_file_is_refused)
{
    struct fixture f = {0};

    fixture_open(&f, FIXTURE_SQLITE);
    expect_refusal(f.url, "in use by another server");
    fixture_close(&f);
}

Test(sqlite, foreign_newer_and_damaged_files_are_refused_and_left_alone)
{
    char path[] = "/tmp/bindery-file.XXXXXX", before[8192], after[8192], lock[64];
    char newer[64];
    long n;

    close(mkstemp(path));
    sql(path, "CREATE TABLE other (x)");
    expect_refusal(path, "another program");
    truncate(path, 0);
    snprintf(newer, sizeof(newer), "PRAGMA user_version=%d", migrations_count() + 1);
    sql(path, newer);
    expect_refusal(path, "run the newer program");
    FILE *file = fopen(path, "w");
    fputs("this is not a database, it only says so at some length, over and over again", file);
    fclose(file);
    n = file_bytes(path, before, sizeof(before));
    expect_refusal(path, "not a database");
    cr_assert(eq(long, file_bytes(path, after, sizeof(after)), n));
    cr_assert(eq(int, memcmp(before, after, (size_t)n), 0));
    unlink(path);
    snprintf(lock, sizeof(lock), "%s.lock", path);
    unlink(lock);
}

Test(sqlite, damage_inside_is_refused)
{
    struct fixture f = {0};
    char copy[128], command[512];

    fixture_open(&f, FIXTURE_SQLITE);
    for (int i = 0; i < 50; i++)
        fixture_binding(&f, i);
    snprintf(copy, sizeof(copy), "%s/copy.db", f.dir);
    snprintf(command, sizeof(command), "VACUUM INTO '%s'", copy);
    sql(f.url, command);
    snprintf(command, sizeof(command),
             "dd if=/dev/urandom of=%s bs=4096 seek=3 count=4 conv=notrunc status=none", copy);
    cr_assert(eq(int, system(command), 0));
    expect_refusal(copy, "");
    fixture_close(&f);
}

Test(sqlite, rows_outlive_the_process)
{
    struct fixture f = {0};
    struct error err = {0};
    struct ledger_binding *row = NULL;

    fixture_open(&f, FIXTURE_SQLITE);
    fixture_binding(&f, 1);
    f.ledger->ops->close(f.ledger);
    f.ledger = ledger_sqlite_open(f.loop, f.url, &err);
    CALL(&f, get, LEDGER_BINDINGS, "b-1", (void **)&row);
    cr_assert(eq(str, (char *)row->status, "active"));
    fixture_close(&f);
}

Test(sqlite, moves_that_are_not_legal_cannot_be_written)
{
    const char *attempts[] = {
        "UPDATE bindings SET status='creating', binding_ref=NULL WHERE id='b-1'",
        "DELETE FROM bindings WHERE id='b-1'",
        "UPDATE bindings SET status='retired' WHERE id='b-1'",
        "UPDATE bindings SET binding_ref=NULL WHERE id='b-1'",
        "UPDATE bindings SET status='gone' WHERE id='b-1'",
        "UPDATE bindings SET active_guard=NULL WHERE id='b-1'",
        "UPDATE bindings SET status='active', active_guard=1 WHERE id='b-2'",
    };
    struct fixture f = {0};
    struct ledger_retired retired;
    sqlite3 *handle;

    fixture_open(&f, FIXTURE_SQLITE);
    fixture_binding(&f, 1);
    fixture_binding(&f, 2);
    CALL(&f, retire, &(struct ledger_retire){.binding_id = "b-2"}, &retired);
    sqlite3_open(f.url, &handle);
    for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++)
        cr_assert(eq(int, sqlite3_exec(handle, attempts[i], NULL, NULL, NULL), SQLITE_CONSTRAINT),
                  "%s", attempts[i]);
    sqlite3_close(handle);
    fixture_close(&f);
}

/* A53 */
Test(sqlite, short_lock_is_waited_out_and_a_long_one_is_retryable)
{
    struct fixture f = {0};
    struct ledger_claim claim;
    struct ledger_claimed claimed = {0};
    struct error why = {0};
    sqlite3 *other;
    struct op *op;

    fixture_open(&f, FIXTURE_SQLITE);
    claim = fixture_claim(&f, 1);
    sqlite3_open(f.url, &other);
    sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    op = fixture_begin(&f);
    f.ledger->ops->claim_binding(f.ledger, op, &claim, &claimed);
    fixture_run_ms(&f, 300);
    cr_assert(not(op->done));
    sqlite3_exec(other, "COMMIT", NULL, NULL, NULL);
    fixture_finish(&f, op);
    cr_assert(eq(int, claimed.outcome, CLAIM_NEW));

    sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    claim = fixture_claim(&f, 2);
    CALL_ON(&f, f.ledger, claim_binding, &claim, &claimed);
    cr_assert(eq(int, f.error.code, ERR_LEDGER));
    cr_assert(gt(i64, f.error.retry_after_ms, 0));
    cr_assert(not(f.ledger->ops->ready(f.ledger, &why)));
    sqlite3_exec(other, "COMMIT", NULL, NULL, NULL);
    fixture_run_ms(&f, 1200);
    cr_assert(f.ledger->ops->ready(f.ledger, &why), "it finds out by itself");
    sqlite3_close(other);
    fixture_close(&f);
}

/* A small file system of the test's own; false where that is not allowed. */
static bool mount_small(const char *dir)
{
    return mount("tmpfs", dir, "tmpfs", 0, "size=2m") == 0;
}

static void fill(const char *path)
{
    FILE *file = fopen(path, "w");
    char block[4096] = {1};

    while (fwrite(block, sizeof(block), 1, file) == 1 && fflush(file) == 0)
        ;
    fclose(file);
}

/* A54 */
Test(sqlite, full_disk_refuses_writes_answers_reads_and_recovers)
{
    struct fixture f = {0};
    struct ledger_claim claim;
    struct ledger_claimed claimed = {0};
    struct ledger_binding *row = NULL;
    struct error err = {0};
    char small[96], ballast[128];

    fixture_open(&f, FIXTURE_SQLITE);
    snprintf(small, sizeof(small), "%s/small", f.dir);
    mkdir(small, 0700);
    if (!mount_small(small)) {
        fixture_close(&f);
        cr_skip_test("mounting is not allowed here");
    }
    f.ledger->ops->close(f.ledger);
    snprintf(f.url, sizeof(f.url), "%s/ledger.db", small);
    snprintf(ballast, sizeof(ballast), "%s/ballast", small);
    f.ledger = ledger_sqlite_open(f.loop, f.url, &err);
    fixture_binding(&f, 1);
    fill(ballast);
    for (int i = 2; f.error.code == ERR_NONE && i < 500; i++) {
        claim = fixture_claim(&f, i);
        CALL_ON(&f, f.ledger, claim_binding, &claim, &claimed);
    }
    cr_assert(eq(int, f.error.code, ERR_LEDGER), "the disk is full");
    CALL(&f, get, LEDGER_BINDINGS, "b-1", (void **)&row);
    cr_assert(row != NULL);
    cr_assert(not(f.ledger->ops->ready(f.ledger, &err)));

    f.ledger->ops->close(f.ledger); /* a restart on the full disk: degraded, no crash */
    f.ledger = ledger_sqlite_open(f.loop, f.url, &err);
    cr_assert(f.ledger != NULL, "%s", err.message);
    unlink(ballast);
    fixture_run_ms(&f, 1200);
    cr_assert(f.ledger->ops->ready(f.ledger, &err), "%s", err.message);
    fixture_binding(&f, 1000);
    CALL(&f, activate_binding, row, &(struct binding){"r", "w"}, &because, &row);
    f.ledger->ops->close(f.ledger);
    umount(small);
    snprintf(f.url, sizeof(f.url), "%s/ledger.db", f.dir);
    f.ledger = ledger_sqlite_open(f.loop, f.url, &err);
    fixture_close(&f);
}
