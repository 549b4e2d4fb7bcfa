/* A PostgreSQL server that dies: in a program of its own, since it is everybody's server. */
#include "gc/db.h"
#include "support/ledger_fixture.h"
#include "support/test_postgres.h"

TEST_POSTGRES
TestSuite(postgres, .timeout = 90);

Test(postgres, killed_server_fails_calls_in_time_and_comes_back)
{
    struct fixture f = {0};
    struct ledger_claim claim;
    struct ledger_claimed claimed = {0};
    struct error err = {0};
    struct ledger_binding *row = NULL;
    struct op *op;
    int64_t sent_ms;
    bool late;

    fixture_open(&f, FIXTURE_POSTGRES);
    fixture_binding(&f, 1);
    sent_ms = loop_now_ms(f.loop);
    op = fixture_begin(&f); /* sent, and the server dies before it answers, or just after */
    claim = fixture_claim(&f, 2);
    f.ledger->ops->claim_binding(f.ledger, op, &claim, &claimed);
    loop_turn(f.loop, false);
    test_postgres_kill();
    fixture_run_ms(&f, 100);
    cr_assert(not(f.ledger->ops->ready(f.ledger, &err)));
    test_postgres_start();
    loop_turn(f.loop, false);
    late = loop_now_ms(f.loop) - sent_ms > DB_CALL_DEADLINE_MS / 2;
    fixture_finish(&f, op);               /* waited for the new connection within its deadline */
    if (f.error.code != ERR_NONE && late) /* … unless the server took its time to start */
        CALL(&f, claim_binding, &claim, &claimed);
    cr_assert(eq(int, f.error.code, ERR_NONE), "%s", f.error.message);
    cr_assert(claimed.outcome == CLAIM_NEW || late);
    CALL(&f, get, LEDGER_BINDINGS, "b-1", (void **)&row);
    cr_assert(row != NULL, "what was committed is there");

    test_postgres_kill();
    claim = fixture_claim(&f, 3);
    CALL_ON(&f, f.ledger, claim_binding, &claim, &claimed);
    cr_assert(eq(int, f.error.code, ERR_LEDGER));
    cr_assert(gt(i64, f.error.retry_after_ms, 0));
    test_postgres_start();
    fixture_run_until_ready(&f);
    fixture_binding(&f, 4);
    fixture_close(&f);
}
