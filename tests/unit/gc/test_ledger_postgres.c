/* Bad luck with a server, replicas beside each other, and how PostgreSQL plans. */
#include "core/runtime/buf.h"
#include "gc/db.h"
#include "gc/ledger_postgres.h"
#include "support/ledger_fixture.h"
#include "support/test_postgres.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TEST_POSTGRES
TestSuite(postgres, .timeout = 90);

static const struct ledger_cause because = {"test", NULL};

Test(postgres, newer_schema_is_refused)
{
    struct fixture f = {0};
    struct error err = {0};

    fixture_open(&f, FIXTURE_POSTGRES);
    fixture_binding(&f, 1);
    f.ledger->ops->close(f.ledger);
    cr_assert(test_postgres_sql(f.url, "INSERT INTO bindery_schema VALUES (1000)"));
    f.ledger = ledger_postgres_open(f.loop, &(struct ledger_postgres_options){.url = f.url}, &err);
    fixture_run_ms(&f, 500);
    cr_assert(not(f.ledger->ops->ready(f.ledger, &err)));
    cr_assert(strstr(err.message, "run the newer program") != NULL, "%s", err.message);
    fixture_close(&f);
}

Test(postgres, bad_connection_string_is_refused_without_its_password)
{
    struct loop *loop = loop_new(NULL);
    struct error err = {0};

    cr_assert(ledger_postgres_open(loop,
                                   &(struct ledger_postgres_options){
                                       .url = "postgresql://u:secret@h:x/db?nonsense=1"},
                                   &err) == NULL);
    cr_assert(strstr(err.message, "secret") == NULL);
    loop_free(loop);
}

/* Somebody else's transaction that holds rows. */
static PGconn *hold(struct fixture *f, const char *sql)
{
    PGconn *other = PQconnectdb(f->url);
    char text[256];
    PGresult *result;

    snprintf(text, sizeof(text), "BEGIN; %s", sql);
    result = PQexec(other, text);
    cr_assert(eq(int, PQresultStatus(result), PGRES_TUPLES_OK), "%s", PQerrorMessage(other));
    PQclear(result);
    return other;
}

static void let_go(PGconn *other)
{
    PQclear(PQexec(other, "ROLLBACK"));
    PQfinish(other);
}

static void retire_locked_row(struct fixture *f, struct ledger *ledger)
{
    struct ledger_retired retired[6] = {{0}};
    struct op *stuck[6];
    struct ledger_binding *row = NULL;
    struct ledger_claim claim = fixture_claim(f, 3);
    struct ledger_claimed claimed = {0};
    PGconn *other;
    bool done;

    fixture_binding(f, 1);
    fixture_binding(f, 2);
    other = hold(f, "SELECT * FROM bindings WHERE id='b-1' FOR UPDATE");
    for (int i = 0; i < 6; i++) {
        stuck[i] = fixture_begin(f);
        ledger->ops->retire(ledger, stuck[i], &(struct ledger_retire){.binding_id = "b-1"},
                            &retired[i]);
        loop_turn(f->loop, false);
    }
    CALL_ON(f, ledger, get, LEDGER_BINDINGS, "b-1", (void **)&row);
    cr_assert(eq(int, f->error.code, ERR_NONE), "%s", f->error.message);
    CALL_ON(f, ledger, mark_lost, "b-2", &because, &done);
    cr_assert(eq(int, f->error.code, ERR_NONE), "%s", f->error.message);
    CALL_ON(f, ledger, claim_binding, &claim, &claimed);
    cr_assert(eq(int, f->error.code, ERR_NONE), "%s", f->error.message);
    for (int i = 0; i < 6; i++)
        cr_assert(not(stuck[i]->done), "call %d waits for the row, within its own time", i);
    let_go(other);
    for (int i = 0; i < 6; i++) {
        fixture_finish(f, stuck[i]);
        cr_assert(eq(int, f->error.code, ERR_NONE), "%s", f->error.message);
        cr_assert(eq(sz, retired[i].n_bindings, 1));
    }
}

Test(postgres, locked_row_holds_up_nobody_else)
{
    struct fixture f = {0};

    fixture_open(&f, FIXTURE_POSTGRES);
    retire_locked_row(&f, f.ledger);
    fixture_close(&f);
}

Test(postgres, locked_row_holds_up_nobody_else_on_a_single_connection)
{
    struct fixture f = {0};
    struct error err = {0};
    struct ledger *narrow;

    fixture_open(&f, FIXTURE_POSTGRES);
    narrow = ledger_postgres_open(
        f.loop, &(struct ledger_postgres_options){.url = f.url, .connections = 1}, &err);
    retire_locked_row(&f, narrow);
    narrow->ops->close(narrow);
    fixture_close(&f);
}

Test(postgres, call_for_a_row_that_stays_locked_fails_in_time_and_may_be_repeated)
{
    struct fixture f = {0};
    struct ledger_retired retired = {0};
    struct ledger_binding *row = NULL;
    struct error err = {0};
    PGconn *other;

    fixture_open(&f, FIXTURE_POSTGRES);
    fixture_binding(&f, 1);
    other = hold(&f, "SELECT * FROM bindings WHERE id='b-1' FOR UPDATE");
    CALL_ON(&f, f.ledger, retire, &(struct ledger_retire){.binding_id = "b-1"}, &retired);
    cr_assert(eq(int, f.error.code, ERR_LEDGER));
    cr_assert(eq(int, f.error.admitted, ADMITTED_NO), "it was rolled back");
    cr_assert(gt(i64, f.error.retry_after_ms, 0));
    cr_assert(strstr(f.error.message, "retire") != NULL, "%s", f.error.message);
    cr_assert(f.ledger->ops->ready(f.ledger, &err), "no connection was lost by it");
    CALL(&f, get, LEDGER_BINDINGS, "b-1", (void **)&row);
    cr_assert(eq(str, (char *)row->status, "active"));
    let_go(other);
    CALL(&f, retire, &(struct ledger_retire){.binding_id = "b-1"}, &retired);
    cr_assert(eq(sz, retired.n_bindings, 1));
    fixture_close(&f);
}

Test(postgres, calls_beyond_the_queue_are_refused_at_once)
{
    enum { WAITING = 16384 }; /* PG_QUEUED_MAX */
    struct fixture f = {0};
    struct ledger_binding *row = NULL;
    struct error err = {0};
    struct ledger *away = NULL;
    struct op **ops = calloc(WAITING, sizeof(*ops));

    fixture_open(&f, FIXTURE_POSTGRES);
    away = ledger_postgres_open(
        f.loop, &(struct ledger_postgres_options){.url = "postgresql:///x?host=/nonexistent"},
        &err);
    for (int i = 0; i < WAITING; i++) {
        ops[i] = fixture_begin(&f);
        away->ops->get(away, ops[i], LEDGER_BINDINGS, "b-1", (void **)&row);
    }
    CALL_ON(&f, away, get, LEDGER_BINDINGS, "b-1", (void **)&row);
    cr_assert(eq(int, f.error.code, ERR_LEDGER));
    cr_assert(strstr(f.error.message, "wait for the ledger already") != NULL, "%s",
              f.error.message);
    cr_assert(not(ops[0]->done), "those before it still wait");
    for (int i = 0; i < WAITING; i++) {
        fixture_finish(&f, ops[i]);
        cr_assert(eq(int, f.error.code, ERR_LEDGER));
        cr_assert(gt(i64, f.error.retry_after_ms, 0));
    }
    free(ops);
    away->ops->close(away);
    fixture_close(&f);
}

Test(postgres, two_replicas_share_claims_and_notices)
{
    struct fixture f = {0};
    struct ledger *second;
    struct ledger_claim claim;
    struct ledger_claimed mine = {0}, theirs = {0};
    struct ledger_works works[2] = {{0}};
    struct ledger_retired retired;

    fixture_open(&f, FIXTURE_POSTGRES);
    fixture_binding(&f, 100);
    second = fixture_second(&f);
    for (int i = 0; i < 20; i++) {
        struct op *a = fixture_begin(&f), *b = fixture_begin(&f);
        claim = fixture_claim(&f, i);
        f.ledger->ops->claim_binding(f.ledger, a, &claim, &mine);
        second->ops->claim_binding(second, b, &claim, &theirs);
        fixture_finish(&f, a);
        fixture_finish(&f, b);
        cr_assert(eq(int, (mine.outcome == CLAIM_NEW) + (theirs.outcome == CLAIM_NEW), 1));
        cr_assert(eq(int, (mine.outcome == CLAIM_BUSY) + (theirs.outcome == CLAIM_BUSY), 1));
    }
    for (int i = 200; i < 240; i++)
        fixture_binding(&f, i);
    CALL(&f, retire, &(struct ledger_retire){.tenant_id = "t-1", .app_id = "app-1"}, &retired);
    for (int total = 0; total < 41;) {
        struct op *a = fixture_begin(&f), *b = fixture_begin(&f);
        f.ledger->ops->claim_work(f.ledger, a, WORK_WORKSPACE, 7, 60000, 0, &works[0]);
        second->ops->claim_work(second, b, WORK_WORKSPACE, 7, 60000, 0, &works[1]);
        fixture_finish(&f, a);
        fixture_finish(&f, b);
        for (size_t i = 0; i < works[0].n; i++)
            for (size_t j = 0; j < works[1].n; j++)
                cr_assert(ne(str, (char *)works[0].items[i].id, (char *)works[1].items[j].id));
        total += (int)(works[0].n + works[1].n);
        cr_assert(gt(sz, works[0].n + works[1].n, 0));
    }
    second->ops->close(second);
    fixture_close(&f);
}
