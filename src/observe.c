#include "observe.h"

#include "core/runtime/log.h"
#include "core/runtime/loop.h"
#include "core/runtime/metrics.h"
#include "core/runtime/op.h"

#include <stdio.h>

enum { SLOW_TURN_US = 50 * 1000, SLOW_LOG_INTERVAL_MS = 1000 };

static struct {
    struct loop *loop;
    struct metric_series *turns;
    int64_t logged_ms;
} seen;

static void on_op(void *ctx, const struct op *op)
{
    const struct metric_labels *labels = LABELS(op->type->name, err_wire(op->error.code));

    (void)ctx;
    metric_add(METRIC_OPS, labels, 1);
    metric_observe_us(METRIC_OP_SECONDS, labels, loop_now_us(op->loop) - op->started_us);
}

static void on_turn(void *ctx, int64_t turn_us)
{
    char text[24];

    (void)ctx;
    metric_series_observe_us(seen.turns, turn_us);
    if (turn_us < SLOW_TURN_US || loop_now_ms(seen.loop) - seen.logged_ms < SLOW_LOG_INTERVAL_MS)
        return;
    seen.logged_ms = loop_now_ms(seen.loop);
    snprintf(text, sizeof(text), "%lld", (long long)turn_us);
    LOG_WITH(LOG_WARN, "slow turn of the event loop", {"turn_us", text});
}

void observe_loop(struct loop *loop)
{
    seen.loop = loop;
    seen.turns = metric_series(METRIC_LOOP_TURN_SECONDS, NULL);
    seen.logged_ms = -SLOW_LOG_INTERVAL_MS;
    op_set_observer(on_op, NULL);
    loop_set_turn_observer(loop, on_turn, NULL);
}
