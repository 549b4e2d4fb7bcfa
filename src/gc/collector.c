/* A sweep goes through the kinds of work in order; for each it claims as much as there is room for,
 * starts an operation for each piece, and claims again as room comes free, until nothing is due.
 * Then it prunes old events. A failed claim ends the sweep; the timer begins another. */
#include "gc/collector.h"

#include "core/runtime/log.h"
#include "core/runtime/metrics.h"
#include "gc/collect.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    FIRST_SWEEP_MS = 100,
    ITEM_MARGIN_MS = 5000, /* an item ends this long before its claim does */
    PRUNE_EVENTS = 500,    /* in one go */
    REST_MS = 50,          /* at least, between two sweeps */
};

static const char *const kind_names[WORK_KINDS] = {"workspace", "binding", "snapshot", "orphan",
                                                   "creating"};

struct collector {
    struct loop *loop;
    struct lifecycle *lc;
    struct collector_options options;
    struct timer timer;
    struct task *stopped; /* posted when idle */
    bool stopping;
    bool sweeping, claiming, poked;
    enum work_kind kind; /* of the sweep, now */
    struct list pieces;  /* collect.link, of those that run */
    int running;
    int64_t sweep_started_ms, soonest_retry_ms;
    struct collector_status status;
    char last_error[ERROR_MESSAGE_MAX];
};

static void sweep_go_on(struct collector *collector);

/* ---- one piece ------------------------------------------------------------------------------------------ */

static void collector_idle(struct collector *collector)
{
    if (collector->stopping && collector->running == 0 && !collector->claiming &&
        collector->stopped != NULL) {
        loop_post(collector->loop, collector->stopped);
        collector->stopped = NULL;
    }
}

static void on_collected(struct op *op, void *ctx)
{
    struct collector *collector = ctx;
    struct collect *c = container_of(op, struct collect, op);
    bool failed = error_is(op_error(op));

    list_remove(&c->link);
    collector->running--;
    metric_add(METRIC_GC_ATTEMPTS, LABELS(kind_names[c->work.kind], failed ? "failed" : "done"), 1);
    if (failed) {
        collector->status.failed++;
        if (c->delay_ms > 0 && c->delay_ms < collector->soonest_retry_ms)
            collector->soonest_retry_ms = c->delay_ms;
        LOG_WITH(LOG_WARN, "not collected, will be tried again", {"kind", kind_names[c->work.kind]},
                 {"id", c->work.id}, {"code", err_wire(op_error(op)->code)},
                 {"error", op_error(op)->message});
    } else {
        collector->status.done++;
    }
    if (c->more)
        collector->poked = true;
    sweep_go_on(collector);
    collector_idle(collector);
}

/* ---- claiming --------------------------------------------------------------------------------------------- */

struct claim_some {
    struct op op;
    struct collector *collector;
    struct ledger_works works;
    int64_t pruned;
    int room;
};

enum claim_state { CLAIM_START, CLAIM_CLAIMING, CLAIM_PRUNING };
static const char *const claim_states[] = {"start", "claiming", "pruning"};

static enum op_poll claim_step(struct op *op)
{
    struct claim_some *t = container_of(op, struct claim_some, op);
    struct collector *collector = t->collector;
    struct ledger *ledger = lifecycle_ledger(collector->lc);

    switch ((enum claim_state)op->state) {
    case CLAIM_START:
        if (collector->kind < WORK_KINDS)
            AWAIT_HELD(op, CLAIM_CLAIMING,
                       ledger->ops->claim_work(ledger, op, collector->kind, t->room,
                                               collector->options.claim_ms,
                                               collector->options.claim_ms, &t->works));
        else
            AWAIT(op, CLAIM_PRUNING,
                  ledger->ops->prune_events(
                      ledger, op, loop_wall_ms(collector->loop) - collector->options.retention_ms,
                      PRUNE_EVENTS, &t->pruned));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type claim_type = {"collector_claim", claim_states, 3, claim_step, NULL};

static void sweep_end(struct collector *collector, const struct error *err)
{
    int64_t now = loop_now_ms(collector->loop), pause = collector->options.interval_ms;

    collector->sweeping = false;
    collector->last_error[0] = '\0';
    if (err != NULL) {
        snprintf(collector->last_error, sizeof(collector->last_error), "%s", err->message);
        LOG_WITH(LOG_WARN, "sweep ended early", {"error", err->message});
    } else {
        collector->status.sweeps++;
        collector->status.last_sweep_ms = now - collector->sweep_started_ms;
        collector->status.last_sweep_wall_ms = loop_wall_ms(collector->loop);
        metric_observe_us(METRIC_GC_SWEEP_SECONDS, NULL, collector->status.last_sweep_ms * 1000);
    }
    if (collector->poked && err == NULL)
        pause = REST_MS;
    else if (collector->soonest_retry_ms < pause)
        pause = collector->soonest_retry_ms;
    collector->poked = false;
    if (!collector->stopping)
        timer_set_ms(collector->loop, &collector->timer, pause > REST_MS ? pause : REST_MS);
}

static void start_pieces(struct collector *collector, const struct ledger_works *works)
{
    int64_t deadline_ms = collector->options.claim_ms > 2 * ITEM_MARGIN_MS
                              ? collector->options.claim_ms - ITEM_MARGIN_MS
                              : collector->options.claim_ms / 2;

    for (size_t i = 0; i < works->n; i++) {
        struct collect *c = collect_new(collector->lc, &works->items[i], deadline_ms);
        list_init(&c->link);
        list_push(&collector->pieces, &c->link);
        collector->running++;
        op_start(&c->op, on_collected, collector);
    }
}

static void on_claimed(struct op *op, void *ctx)
{
    struct collector *collector = ctx;
    struct claim_some *t = container_of(op, struct claim_some, op);

    collector->claiming = false;
    if (error_is(op_error(op))) {
        sweep_end(collector, op_error(op));
    } else if (collector->kind == WORK_KINDS) {
        if (t->pruned == PRUNE_EVENTS)
            collector->poked = true;
        sweep_end(collector, NULL);
    } else {
        start_pieces(collector, &t->works);
        if (t->works.n < (size_t)t->room)
            collector->kind++;
        sweep_go_on(collector);
    }
    collector_idle(collector);
}

static void sweep_go_on(struct collector *collector)
{
    struct claim_some *t;
    int room = collector->options.concurrency - collector->running;

    if (!collector->sweeping || collector->claiming)
        return;
    if (collector->stopping) {
        collector->sweeping = false;
        return;
    }
    /* The last pieces of a kind end before the sweep does: its duration is the work's. */
    if (collector->kind == WORK_KINDS && collector->running > 0)
        return;
    if (room < (collector->options.concurrency + 1) / 2) /* claim many at once */
        return;
    t = OP_ROOT(collector->loop, &claim_type, claim_some, NULL);
    t->collector = collector;
    t->room = room;
    collector->claiming = true;
    op_start(&t->op, on_claimed, collector);
}

static void on_due(void *ctx)
{
    struct collector *collector = ctx;

    if (collector->sweeping || collector->stopping)
        return;
    if (broker_backend(lifecycle_broker(collector->lc)) == NULL)
        return;
    collector->sweeping = true;
    collector->kind = WORK_WORKSPACE;
    collector->sweep_started_ms = loop_now_ms(collector->loop);
    collector->soonest_retry_ms = collector->options.interval_ms;
    sweep_go_on(collector);
}

/* ---- the rest ------------------------------------------------------------------------------------------------ */

void collector_poke(struct collector *collector)
{
    if (collector->sweeping)
        collector->poked = true;
    else if (!collector->stopping)
        timer_set_ms(collector->loop, &collector->timer, 0);
}

void collector_status(const struct collector *collector, struct collector_status *ret)
{
    *ret = collector->status;
    ret->running = collector->running;
    ret->sweeping = collector->sweeping;
    ret->last_error = collector->last_error[0] != '\0' ? collector->last_error : NULL;
}

struct collector *collector_new(struct loop *loop, struct lifecycle *lc,
                                const struct collector_options *options)
{
    struct collector *collector = xcalloc(1, sizeof(*collector));

    collector->loop = loop;
    collector->lc = lc;
    collector->options = *options;
    list_init(&collector->pieces);
    timer_init(&collector->timer, on_due, collector);
    timer_set_ms(loop, &collector->timer, FIRST_SWEEP_MS);
    return collector;
}

void collector_stop(struct collector *collector, struct task *task)
{
    collector->stopping = true;
    collector->stopped = task;
    timer_cancel(collector->loop, &collector->timer);
    if (collector->sweeping && !collector->claiming)
        collector->sweeping = false;
    LIST_FOREACH_SAFE (it, next, &collector->pieces)
        op_abort(&container_of(it, struct collect, link)->op, ERR_DRAINING, "the server stops");
    collector_idle(collector);
}

void collector_free(struct collector *collector)
{
    if (collector == NULL)
        return;
    PRE(collector->running == 0 && !collector->claiming);
    timer_cancel(collector->loop, &collector->timer);
    free(collector);
}
