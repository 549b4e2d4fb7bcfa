#include "support/ledger_fixture.h"

#include "gc/ledger_postgres.h"
#include "gc/ledger_sqlite.h"
#include "support/test_postgres.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static enum op_poll manual_step(struct op *op)
{
    (void)op;
    return OP_DONE;
}

static const char *const manual_states[] = {"calling"};
static const struct op_type manual_type = {"manual", manual_states, 1, manual_step, NULL};

static int64_t clock_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void fixture_open(struct fixture *f, enum fixture_kind kind)
{
    struct error err = {0};

    f->kind = kind;
    snprintf(f->dir, sizeof(f->dir), "/tmp/bindery-ledger.XXXXXX");
    cr_assert(mkdtemp(f->dir) != NULL);
    f->loop = loop_new(NULL);
    f->arena = arena_new();
    if (kind == FIXTURE_SQLITE) {
        snprintf(f->url, sizeof(f->url), "%s/ledger.db", f->dir);
        f->ledger = ledger_sqlite_open(f->loop, f->url, &err);
    } else {
        if (!test_postgres_database(f->url, sizeof(f->url)))
            cr_skip_test("no PostgreSQL server program");
        f->ledger =
            ledger_postgres_open(f->loop, &(struct ledger_postgres_options){.url = f->url}, &err);
    }
    cr_assert(f->ledger != NULL, "%s", err.message);
}

struct ledger *fixture_second(struct fixture *f)
{
    struct error err = {0};
    struct ledger *second;

    PRE(f->kind == FIXTURE_POSTGRES);
    second = ledger_postgres_open(f->loop, &(struct ledger_postgres_options){.url = f->url}, &err);
    cr_assert(second != NULL, "%s", err.message);
    return second;
}

void fixture_close(struct fixture *f)
{
    char command[128];

    f->ledger->ops->close(f->ledger);
    arena_free(f->arena);
    loop_free(f->loop);
    snprintf(command, sizeof(command), "rm -rf '%s'", f->dir);
    cr_assert(eq(int, system(command), 0));
}

void fixture_run_until(struct fixture *f, const bool *flag)
{
    int64_t until = clock_ms() + 20000;

    while (!*flag) {
        struct timespec pause = {.tv_nsec = 200000};
        loop_turn(f->loop, false);
        if (!*flag)
            nanosleep(&pause, NULL);
        cr_assert(lt(i64, clock_ms(), until), "not over in 20 s");
    }
}

void fixture_run_until_ready(struct fixture *f)
{
    int64_t until = clock_ms() + 20000;
    struct error err = {0};

    while (!f->ledger->ops->ready(f->ledger, &err)) {
        fixture_run_ms(f, 1);
        cr_assert(lt(i64, clock_ms(), until), "%s", err.message);
    }
}

void fixture_run_ms(struct fixture *f, int64_t ms)
{
    int64_t until = clock_ms() + ms;

    while (clock_ms() < until) {
        struct timespec pause = {.tv_nsec = 1000000};
        loop_turn(f->loop, false);
        nanosleep(&pause, NULL);
    }
}

struct op *fixture_begin(struct fixture *f)
{
    struct op *op = op_root_new(f->loop, &manual_type, sizeof(*op), f->arena);

    op->started = true;
    op_prepare_wait(op, 0, OP_WAIT_ANY);
    return op;
}

void fixture_finish(struct fixture *f, struct op *op)
{
    fixture_run_until(f, &op->done);
    f->error = *op_last(op);
}

struct ledger_claim fixture_claim(struct fixture *f, int n)
{
    return (struct ledger_claim){
        .row = {.id = arena_printf(f->arena, "b-%d", n),
                .tenant_id = "t-1",
                .app_id = "app-1",
                .agent_id = "agent-1",
                .workspace_id = arena_printf(f->arena, "w-%d", n),
                .backend = "local",
                .owner_type = "conversation",
                .owner_id = arena_printf(f->arena, "c-%d", n),
                .owner_scope_key = "root",
                .agent_config_version_id = "v-1",
                .agent_config_version_kind = "snapshot"},
        .claim_ms = 60000,
        .cause = {"test", "because"},
    };
}

struct ledger_binding *fixture_binding(struct fixture *f, int n)
{
    struct ledger_claim claim = fixture_claim(f, n);
    struct ledger_claimed claimed = {0};
    struct ledger_binding *row = NULL;
    struct binding refs = {arena_printf(f->arena, "ref-%d", n),
                           arena_printf(f->arena, "wref-%d", n)};

    CALL(f, claim_binding, &claim, &claimed);
    cr_assert(eq(int, claimed.outcome, CLAIM_NEW));
    CALL(f, activate_binding, claimed.row, &refs, &claim.cause, &row);
    cr_assert(row != NULL);
    return row;
}
