#include "support/op_torture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum {
    VIRTUAL_LIMIT_MS = 3600 * 1000,
    VIRTUAL_SETTLE_MS = 60 * 1000,
    REAL_LIMIT_MS = 20 * 1000,
    WAITS_MAX = 2000, /* a scenario with more is a loop without end */
};

static const char *const names[] = {"no trouble", "FAIL", "LOSE", "CANCEL", "CANCEL_LATE"};

void torture_done(struct op *op, void *ctx)
{
    struct torture_run *run = ctx;

    run->ends++;
    run->error = *op_error(op);
}

static void on_tick(void *ctx)
{
    (void)ctx; /* it only ends a blocking turn */
}

/* One piece of time: a jump of the virtual clock, or one turn of at most 50 ms. */
static void pass_some(const struct torture_scenario *s, struct loop *loop)
{
    struct timer tick;

    if (!s->real_clock) {
        loop_advance_ms(loop, 100);
        return;
    }
    timer_init(&tick, on_tick, NULL);
    timer_set_ms(loop, &tick, 50);
    loop_turn(loop, true);
    timer_cancel(loop, &tick);
}

static void pass(const struct torture_scenario *s, struct torture_run *run, int64_t ms,
                 bool until_ended)
{
    int64_t start_ms = loop_now_ms(run->loop);

    while (loop_now_ms(run->loop) - start_ms < ms && !(until_ended && run->ends > 0))
        pass_some(s, run->loop);
}

/* Until the operation has ended or its time is over, then on for what is behind it. */
static void pass_time(const struct torture_scenario *s, struct torture_run *run)
{
    int64_t limit_ms = s->real_clock ? REAL_LIMIT_MS : VIRTUAL_LIMIT_MS;
    int64_t settle_ms = s->real_clock ? 0 : VIRTUAL_SETTLE_MS;

    pass(s, run, s->limit_ms != 0 ? s->limit_ms : limit_ms, true);
    pass(s, run, s->settle_ms != 0 ? s->settle_ms : settle_ms, false);
}

/* One run with trouble `what` at wait `k` and, unless 0, a failure at wait `also`. Returns how many
 * waits it had. */
static uint32_t run_once(const struct torture_scenario *s, enum op_torture what, uint32_t k,
                         uint32_t also)
{
    struct torture_run run = {.ctx = s->ctx, .what = what};
    char happened[200];
    uint32_t waits;

    run.loop = loop_new(
        &(struct loop_options){.virtual_clock = !s->real_clock, .virtual_wall_ms = 1764547200000});
    op_torture_arm(what, k);
    op_torture_also_fail(also);
    s->start(&run);
    pass_time(s, &run);
    waits = op_torture_waits();
    run.hit = op_torture_hits() > 0;
    run.undo_failed = also != 0 && op_torture_hits() > 1;
    snprintf(happened, sizeof(happened), "%s at wait %u (%s)", names[what], k, op_torture_where());
    if (also != 0)
        snprintf(happened + strlen(happened), sizeof(happened) - strlen(happened),
                 " and FAIL at wait %u", also);
    run.what_happened = happened;
    op_torture_arm(OP_TORTURE_NONE, 0);
    cr_assert(run.ends == 1, "%s: the operation ended %d times", happened, run.ends);
    if (what == OP_TORTURE_NONE)
        cr_assert(run.error.code == s->expected, "undisturbed, it ended with %s: %s",
                  err_wire(run.error.code), run.error.message);
    s->check(&run);
    loop_free(run.loop);
    return waits;
}

uint32_t op_torture_run(const struct torture_scenario *scenario)
{
    uint32_t waits = run_once(scenario, OP_TORTURE_NONE, 0, 0);

    cr_assert(waits > 0 && waits < WAITS_MAX, "the scenario has %u waits", waits);
    for (int what = OP_TORTURE_FAIL; what <= OP_TORTURE_CANCEL_LATE; what++) {
        for (uint32_t k = 1; k <= waits; k++) {
            uint32_t now = run_once(scenario, what, k, 0);
            for (uint32_t also = k + 1; scenario->fail_undo && also <= now; also++)
                run_once(scenario, what, k, also);
        }
    }
    return waits;
}
