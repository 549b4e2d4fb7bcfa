/* Bad luck with a server, replicas beside each other, and how PostgreSQL plans. */
#include "core/runtime/buf.h"
#include "gc/db.h"
#include "gc/ledger_postgres.h"
#include "support/ledger_fixture.h"
#include "support/test_postgres.h"

#include <libpq-fe.h>
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

Test(postgres, locked_row_does_not_hold_up_the_loop_or_the_others)
{
    struct fixture f = {0};
    struct ledger_retired retired;
    struct ledger_binding *row = NULL;
    bool done;

    fixture_open(&f, FIXTURE_POSTGRES);
    fixture_binding(&f, 1);
    fixture_binding(&f, 2);
    PGconn *other = PQconnectdb(f.url);
    PQclear(PQexec(other, "BEGIN; SELECT * FROM bindings WHERE id='b-1' FOR UPDATE"));
    struct op *stuck = fixture_begin(&f);
    f.ledger->ops->retire(f.ledger, stuck, &(struct ledger_retire){.binding_id = "b-1"}, &retired);
    loop_turn(f.loop, false);
    CALL(&f, get, LEDGER_BINDINGS, "b-1", (void **)&row);
    CALL(&f, mark_lost, "b-2", &because, &done);
    cr_assert(not(stuck->done));
    PQclear(PQexec(other, "ROLLBACK"));
    PQfinish(other);
    fixture_finish(&f, stuck);
    cr_assert(eq(sz, retired.n_bindings, 1));
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

Test(postgres, reads_of_one_request_use_an_index)
{
    struct fixture f = {0};
    struct db db;
    PGconn *conn;

    fixture_open(&f, FIXTURE_POSTGRES);
    fixture_binding(&f, 1);
    db_init(&db, NULL, NULL, &sql_postgres);
    conn = PQconnectdb(f.url);
    PQclear(PQexec(conn, "SET enable_seqscan=off; SET plan_cache_mode=force_generic_plan"));
    for (int i = 0; i < SQL_COUNT; i++) {
        const char *types = sql_info((enum sql)i)->types;
        struct buf text = {0};
        PGresult *plan;

        /* Parentheses around no parameter are a syntax error. */
        buf_addf(&text, "PREPARE s%d", i);
        for (size_t k = 0; types[k] != '\0'; k++)
            buf_addf(&text, "%s%s", k > 0 ? "," : " (", types[k] == 'i' ? "bigint" : "text");
        buf_addf(&text, "%s AS %s; EXPLAIN EXECUTE s%d", types[0] != '\0' ? ")" : "", db.sql[i], i);
        for (size_t k = 0; types[k] != '\0'; k++)
            buf_addf(&text, "%s%s", k > 0 ? "," : " (", types[k] == 'i' ? "1" : "'x'");
        buf_adds(&text, types[0] != '\0' ? ")" : "");
        plan = PQexec(conn, buf_text(&text));
        cr_assert(eq(int, PQresultStatus(plan), PGRES_TUPLES_OK), "%s: %s",
                  sql_info((enum sql)i)->name, PQerrorMessage(conn));
        for (int row = 0; row < PQntuples(plan); row++)
            cr_assert(strstr(PQgetvalue(plan, row, 0), "Seq Scan") == NULL, "%s: %s",
                      sql_info((enum sql)i)->name, PQgetvalue(plan, row, 0));
        PQclear(plan);
        buf_fini(&text);
    }
    PQfinish(conn);
    db_fini(&db);
    fixture_close(&f);
}
