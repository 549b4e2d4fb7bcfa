#include "observe.h"

#include "core/runtime/log.h"
#include "core/runtime/loop.h"
#include "core/runtime/metrics.h"
#include "core/runtime/op.h"

#include <stdint.h>
#include <stdio.h>

enum { SLOW_TURN_US = 50 * 1000, SLOW_LOG_INTERVAL_MS = 1000, KNOWN_OPS = 128 };

/* The two series of a kind of operation that ended well, which is what most do. */
struct known_op {
    const struct op_type *type;
    struct metric_series *count, *seconds;
};

static struct {
    struct loop *loop;
    struct metric_series *turns, *turns_cpu;
    int64_t logged_ms;
    struct known_op known[KNOWN_OPS]; /* by the type's address; the last one of a slot stays */
} seen;

static const struct known_op *known_op(const struct op_type *type)
{
    struct known_op *known = &seen.known[((uintptr_t)type >> 4) % KNOWN_OPS];

    if (known->type != type) {
        const struct metric_labels *labels = LABELS(type->name, err_wire(ERR_NONE));

        *known = (struct known_op){type, metric_series(METRIC_OPS, labels),
                                   metric_series(METRIC_OP_SECONDS, labels)};
    }
    return known;
}

static void on_op(void *ctx, const struct op *op)
{
    int64_t took_us = loop_now_us(op->loop) - op->started_us;

    (void)ctx;
    if (op_error(op)->code == ERR_NONE) {
        const struct known_op *known = known_op(op->type);

        metric_series_add(known->count, 1);
        metric_series_observe_us(known->seconds, took_us);
    } else {
        const struct metric_labels *labels = LABELS(op->type->name, err_wire(op_error(op)->code));

        metric_add(METRIC_OPS, labels, 1);
        metric_observe_us(METRIC_OP_SECONDS, labels, took_us);
    }
}

static void on_turn(void *ctx, int64_t turn_us, int64_t cpu_us)
{
    char turn[24], cpu[24];

    (void)ctx;
    metric_series_observe_us(seen.turns, turn_us);
    metric_series_observe_us(seen.turns_cpu, cpu_us);
    if (turn_us < SLOW_TURN_US || loop_now_ms(seen.loop) - seen.logged_ms < SLOW_LOG_INTERVAL_MS)
        return;
    seen.logged_ms = loop_now_ms(seen.loop);
    snprintf(turn, sizeof(turn), "%lld", (long long)turn_us);
    snprintf(cpu, sizeof(cpu), "%lld", (long long)cpu_us);
    LOG_WITH(LOG_WARN, "slow turn of the event loop", {"turn_us", turn}, {"cpu_us", cpu});
}

void observe_loop(struct loop *loop)
{
    seen.loop = loop;
    seen.turns = metric_series(METRIC_LOOP_TURN_SECONDS, NULL);
    seen.turns_cpu = metric_series(METRIC_LOOP_TURN_CPU_SECONDS, NULL);
    seen.logged_ms = -SLOW_LOG_INTERVAL_MS;
    op_set_observer(on_op, NULL);
    loop_set_turn_observer(loop, on_turn, NULL);
}
