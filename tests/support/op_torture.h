/* The torture harness: trouble at every wait of an operation, one wait at a time.
 *
 * A scenario makes a small world and starts one root operation in it. The harness runs it once
 * undisturbed and counts its waits (those of children and of background operations too). Then, for
 * each wait and each kind of trouble, it makes the world afresh, runs the scenario with that
 * trouble, and lets `check` look at what is left. It asserts by itself that the operation ends,
 * ends once and in time, and that the undisturbed run has the expected outcome.
 *
 *     static void start(struct torture_run *run)
 *     {
 *         struct world *w = run->ctx = make_world(run->loop);
 *         struct create *c = create_new(run->loop, w->gateway);
 *         op_start(&c->op, torture_done, run);
 *     }
 *     static void check(struct torture_run *run)
 *     {
 *         struct world *w = run->ctx;
 *         if (error_is(&run->error))
 *             cr_assert(eq(int, w->sandboxes, w->orphans), "%s", run->what_happened);
 *         free_world(w);
 *     }
 *     op_torture_run(&(struct torture_scenario){.start = start, .check = check});
 *
 * What a check must expect: trouble in a wait whose failure the operation tolerates (AWAIT_ANY)
 * leaves it a success; a failed undo leaves an orphan, recorded; a lost answer to a create leaves
 * what the operation has no name for, reported as unknown; a cancellation that comes too late is
 * no failure. */
#pragma once

#include "core/runtime/op.h"

/** One run. `ctx` is the scenario's own; the rest is the harness's. */
struct torture_run {
    struct loop *loop;
    void *ctx;
    enum op_torture what;      /* OP_TORTURE_NONE in the undisturbed run */
    bool hit;                  /* the trouble has taken place */
    bool undo_failed;          /* a wait of undo was failed as well */
    int ends;                  /* calls of torture_done */
    struct error error;        /* of the root operation, once it has ended */
    const char *what_happened; /* "LOSE at wait 3 (enterprise_create.waiting)", for messages */
};

struct torture_scenario {
    /** Make the world and start the root operation with torture_done and the run as its ctx. */
    void (*start)(struct torture_run *run);
    /** After the end and `settle_ms` more: assert, then take the world down. */
    void (*check)(struct torture_run *run);
    void *ctx;              /* initial value of each run's ctx */
    enum err_code expected; /* outcome of the undisturbed run; ERR_NONE unless set */
    int64_t limit_ms;       /* time for the operation to end; 0 = one hour of the virtual clock,
                                or 20 s of the real one */
    int64_t settle_ms;      /* time for background operations behind it; 0 = one minute virtual,
                                none real */
    bool real_clock;        /* for scenarios with real sockets */
    bool fail_undo;         /* also fail, next to each failed wait, each wait that follows it */
};

/** on_done of the root operation. */
void torture_done(struct op *op, void *run);

/** Run it all. Fails the Criterion test at the first broken promise. Returns the number of waits. */
uint32_t op_torture_run(const struct torture_scenario *scenario);
