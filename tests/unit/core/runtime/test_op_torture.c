/* The torture harness, on an operation that keeps its promise and on one that breaks it. */
#include "support/op_torture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

TestSuite(op_torture, .timeout = 60);

/* A place where things are made, and what has happened there. */
struct world {
    int things, orphans;
    int runs[5], hits[5], failed[5]; /* by kind of trouble */
    int double_faults;
    bool forgetful; /* undo is left out */
};

/* Makes a thing by a child, looks at it twice, tells about it; removes it if anything fails. */
struct maker {
    struct op op;
    struct world *world;
    bool made;
};

enum maker_state { MAKER_START, MAKER_MAKING, MAKER_LOOKING, MAKER_TELLING, MAKER_UNDOING };
static const char *const maker_states[] = {"start", "making", "looking", "telling", "undoing"};

struct factory {
    struct op op;
    struct maker *maker;
};

enum factory_state { FACTORY_START, FACTORY_SENDING };
static const char *const factory_states[] = {"start", "sending"};

/* The thing exists from here on; the answer needs a while. */
static void send(struct factory *f)
{
    f->maker->world->things++;
    f->maker->made = true;
    op_sleep(&f->op, 500);
}

static enum op_poll factory_step(struct op *op)
{
    struct factory *f = container_of(op, struct factory, op);

    switch ((enum factory_state)op->state) {
    case FACTORY_START:
        AWAIT_HELD(op, FACTORY_SENDING, send(f));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type factory_type = {"factory", factory_states, 2, factory_step, NULL};

static void make(struct maker *m)
{
    struct factory *f = OP_CHILD(&m->op, &factory_type, factory);

    f->maker = m;
    op_await_child(&m->op, &f->op);
}

static void remove_thing(struct maker *m)
{
    m->world->things--;
    op_sleep(&m->op, 100);
}

static enum op_poll maker_step(struct op *op)
{
    struct maker *m = container_of(op, struct maker, op);

    switch ((enum maker_state)op->state) {
    case MAKER_START:
        AWAIT_HELD(op, MAKER_MAKING, make(m));
        AWAIT(op, MAKER_LOOKING, op_sleep(op, 1000));
        AWAIT_ANY(op, MAKER_TELLING, op_sleep(op, 1000));
        return OP_DONE;

    undo:
        op_begin_undo(op, 1000);
        if (m->made && !m->world->forgetful) {
            AWAIT_ANY(op, MAKER_UNDOING, remove_thing(m));
            if (op_last_failed(op))
                m->world->orphans++;
        }
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type maker_type = {"maker", maker_states, 5, maker_step, NULL};

static void start(struct torture_run *run)
{
    struct maker *m = OP_ROOT(run->loop, &maker_type, maker, NULL);

    m->world = run->ctx;
    m->world->things = m->world->orphans = 0;
    op_start(&m->op, torture_done, run);
}

static void check(struct torture_run *run)
{
    struct world *w = run->ctx;

    w->runs[run->what]++;
    w->hits[run->what] += run->hit;
    w->failed[run->what] += error_is(&run->error);
    w->double_faults += run->undo_failed;
    if (error_is(&run->error))
        cr_assert(w->things <= w->orphans, "%s: %d things left", run->what_happened, w->things);
    else
        cr_assert(w->things == 1, "%s: %d things", run->what_happened, w->things);
    if (run->what != OP_TORTURE_NONE && !run->undo_failed)
        cr_assert(eq(int, w->orphans, 0), "%s", run->what_happened);
}

Test(op_torture, every_trouble_at_every_wait)
{
    struct world w = {0};

    cr_assert(eq(
        u32, op_torture_run(&(struct torture_scenario){.start = start, .check = check, .ctx = &w}),
        4));
    cr_assert(eq(int, w.runs[OP_TORTURE_NONE], 1));
    for (int what = OP_TORTURE_FAIL; what <= OP_TORTURE_CANCEL_LATE; what++)
        cr_assert(eq(int, w.runs[what], 4));
    cr_assert(eq(int, w.hits[OP_TORTURE_FAIL], 4));
    cr_assert(eq(int, w.failed[OP_TORTURE_FAIL], 3), "telling may fail");
    cr_assert(eq(int, w.hits[OP_TORTURE_LOSE], 3), "a child has no answer to lose");
    cr_assert(eq(int, w.failed[OP_TORTURE_LOSE], 2));
    cr_assert(eq(int, w.hits[OP_TORTURE_CANCEL], 4));
    cr_assert(eq(int, w.failed[OP_TORTURE_CANCEL], 3), "at the last wait it is too late");
    cr_assert(eq(int, w.failed[OP_TORTURE_CANCEL_LATE], 3));
}

Test(op_torture, undo_can_be_failed_too)
{
    struct world w = {0};

    op_torture_run(
        &(struct torture_scenario){.start = start, .check = check, .ctx = &w, .fail_undo = true});
    cr_assert(ge(int, w.double_faults, 6), "%d", w.double_faults);
}

/* A check that cannot fail would prove nothing. */
Test(op_torture, a_forgetful_operation_would_be_caught)
{
    struct world w = {.forgetful = true};
    struct torture_run run = {.ctx = &w};

    run.loop = loop_new(&(struct loop_options){.virtual_clock = true});
    op_torture_arm(OP_TORTURE_FAIL, 3);
    start(&run);
    loop_advance_ms(run.loop, 10000);
    cr_assert(eq(int, run.ends, 1));
    cr_assert(error_is(&run.error));
    cr_assert(eq(int, w.things, 1), "so check would have failed");
    cr_assert(eq(int, op_torture_hits(), 1));
    cr_assert_str_eq(op_torture_where(), "maker.looking");
    loop_free(run.loop);
}

/* With a real clock nothing is slower than it must be. */
static const char *const napper_states[] = {"start", "napping"};

static enum op_poll napper_step(struct op *op)
{
    switch (op->state) {
    case 0:
        AWAIT(op, 1, op_sleep(op, 2));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type napper_type = {"napper", napper_states, 2, napper_step, NULL};

static void start_nap(struct torture_run *run)
{
    op_start(op_root_new(run->loop, &napper_type, sizeof(struct op), NULL), torture_done, run);
}

static void check_nap(struct torture_run *run)
{
    cr_assert(error_is(&run->error) == run->hit, "%s", run->what_happened);
}

Test(op_torture, real_clock)
{
    cr_assert(eq(u32,
                 op_torture_run(&(struct torture_scenario){
                     .start = start_nap, .check = check_nap, .real_clock = true}),
                 1));
}
