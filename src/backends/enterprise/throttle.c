#include "backends/enterprise/throttle.h"

enum {
    SPREAD_MS = 600, /* those who waited leave over this long */
};

static void let_one_go(void *ctx)
{
    struct throttle *t = ctx;

    if (throttle_closed_ms(t) > 0) { /* closed again by an answer in the meantime */
        timer_set_ms(t->loop, &t->opening, throttle_closed_ms(t));
        return;
    }
    op_waitlist_wake_one(&t->waiters, NULL);
    if (!op_waitlist_empty(&t->waiters))
        timer_set_ms(t->loop, &t->opening, t->spacing_ms);
    else
        t->waiting = 0;
}

void throttle_init(struct throttle *throttle, struct loop *loop)
{
    *throttle = (struct throttle){.loop = loop};
    op_waitlist_init(&throttle->waiters);
    timer_init(&throttle->opening, let_one_go, throttle);
}

void throttle_fini(struct throttle *throttle)
{
    PRE(op_waitlist_empty(&throttle->waiters));
    timer_cancel(throttle->loop, &throttle->opening);
}

int64_t throttle_closed_ms(const struct throttle *throttle)
{
    int64_t left_ms = throttle->closed_until_ms - loop_now_ms(throttle->loop);

    return left_ms > 0 ? left_ms : 0;
}

void throttle_enter(struct throttle *throttle, struct op *op, int64_t budget_ms)
{
    int64_t left_ms = throttle_closed_ms(throttle);
    struct error refused;

    if (left_ms == 0 && op_waitlist_empty(&throttle->waiters)) {
        op_complete(op, NULL);
        return;
    }
    if (left_ms > 0 && (!throttle->waitable || left_ms + SPREAD_MS > budget_ms)) {
        refused = throttle->why;
        if (throttle->waitable)
            refused.retry_after_ms = left_ms;
        op_complete(op, &refused);
        return;
    }
    op_waitlist_wait(&throttle->waiters, op);
    throttle->waiting++;
    throttle->spacing_ms = SPREAD_MS / throttle->waiting;
    if (!timer_armed(&throttle->opening))
        timer_set_ms(throttle->loop, &throttle->opening, left_ms);
}

void throttle_close(struct throttle *throttle, int64_t for_ms, bool waitable,
                    const struct error *why)
{
    int64_t until_ms = loop_now_ms(throttle->loop) + for_ms;

    if (until_ms <= throttle->closed_until_ms)
        return;
    throttle->closed_until_ms = until_ms;
    throttle->waitable = waitable;
    throttle->why = *why;
    if (!op_waitlist_empty(&throttle->waiters))
        timer_set_ms(throttle->loop, &throttle->opening, for_ms);
}
