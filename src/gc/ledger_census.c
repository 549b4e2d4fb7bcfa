#include "gc/ledger_census.h"

#include "core/runtime/json.h"
#include "core/runtime/metrics.h"

#include <stdlib.h>

static const struct counted {
    enum ledger_kind kind;
    const char *noun, *status;
    bool ages;
} all_counted[] = {
    {LEDGER_BINDINGS, "binding", "creating", true},
    {LEDGER_BINDINGS, "binding", "active", false},
    {LEDGER_BINDINGS, "binding", "retired", true},
    {LEDGER_WORKSPACES, "workspace", "active", false},
    {LEDGER_WORKSPACES, "workspace", "retired", true},
    {LEDGER_SNAPSHOTS, "home_snapshot", "active", false},
    {LEDGER_SNAPSHOTS, "home_snapshot", "retired", true},
    {LEDGER_ORPHANS, "orphan", "reported", true},
    {LEDGER_ORPHANS, "orphan", "retired", true},
};

enum { COUNTED = sizeof(all_counted) / sizeof(all_counted[0]), FIRST_MS = 200 };

struct tally {
    int64_t rows, oldest_at, most_attempts;
};

struct ledger_census {
    struct loop *loop;
    struct ledger *ledger;
    int64_t interval_ms;
    struct timer timer;
    bool counting, stopping;
    struct task *stopped;
    struct tally tallies[COUNTED];
};

struct count_rows {
    struct op op;
    struct ledger_census *census;
    size_t at;
    struct ledger_count slice;
    struct tally tally;
};

enum count_state { COUNT_START, COUNT_COUNTING, COUNT_RESTING };
static const char *const count_states[] = {"start", "counting", "resting"};

static void add_slice(struct count_rows *t)
{
    t->tally.rows += t->slice.rows;
    if (t->slice.oldest_at > 0 &&
        (t->tally.oldest_at == 0 || t->slice.oldest_at < t->tally.oldest_at))
        t->tally.oldest_at = t->slice.oldest_at;
    if (t->slice.max_attempts > t->tally.most_attempts)
        t->tally.most_attempts = t->slice.max_attempts;
}

static void keep_tally(struct count_rows *t)
{
    const struct counted *c = &all_counted[t->at];
    const struct metric_labels *labels = LABELS(c->noun, c->status);
    int64_t age_ms =
        t->tally.oldest_at > 0 ? loop_wall_ms(t->census->loop) - t->tally.oldest_at : 0;

    t->census->tallies[t->at] = t->tally;
    metric_set(METRIC_LEDGER_ROWS, labels, (double)t->tally.rows);
    if (c->ages) {
        metric_set(METRIC_LEDGER_OLDEST_SECONDS, labels, (double)age_ms / 1000);
        metric_set(METRIC_LEDGER_MOST_ATTEMPTS, labels, (double)t->tally.most_attempts);
    }
    t->tally = (struct tally){0};
    t->slice.cursor = NULL;
}

static enum op_poll count_step(struct op *op)
{
    struct count_rows *t = container_of(op, struct count_rows, op);
    struct ledger *ledger = t->census->ledger;

    switch ((enum count_state)op->state) {
    case COUNT_START:
        for (t->at = 0; t->at < COUNTED; t->at++) {
            do {
                AWAIT(op, COUNT_COUNTING,
                      ledger->ops->count(ledger, op, all_counted[t->at].kind,
                                         all_counted[t->at].status, t->slice.cursor, &t->slice));
                add_slice(t);
                if (t->slice.cursor != NULL) /* the next slice in another turn */
                    AWAIT(op, COUNT_RESTING, op_sleep(op, 5));
            } while (t->slice.cursor != NULL);
            keep_tally(t);
        }
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type count_type = {"ledger_census", count_states, 3, count_step, NULL};

static void on_counted(struct op *op, void *ctx)
{
    struct ledger_census *census = ctx;

    (void)op; /* a count that failed is made again; /readyz tells of the ledger's trouble */
    census->counting = false;
    if (!census->stopping)
        timer_set_ms(census->loop, &census->timer, census->interval_ms);
    else if (census->stopped != NULL)
        loop_post(census->loop, census->stopped);
}

static void on_due(void *ctx)
{
    struct ledger_census *census = ctx;
    struct count_rows *t = OP_ROOT(census->loop, &count_type, count_rows, NULL);

    t->census = census;
    census->counting = true;
    op_start(&t->op, on_counted, census);
}

struct ledger_census *ledger_census_new(struct loop *loop, struct ledger *ledger,
                                        int64_t interval_ms)
{
    struct ledger_census *census = xcalloc(1, sizeof(*census));

    census->loop = loop;
    census->ledger = ledger;
    census->interval_ms = interval_ms;
    timer_init(&census->timer, on_due, census);
    timer_set_ms(loop, &census->timer, FIRST_MS);
    return census;
}

void ledger_census_stop(struct ledger_census *census, struct task *task)
{
    census->stopping = true;
    timer_cancel(census->loop, &census->timer);
    if (census->counting)
        census->stopped = task;
    else if (task != NULL)
        loop_post(census->loop, task);
}

void ledger_census_free(struct ledger_census *census)
{
    if (census == NULL)
        return;
    PRE(!census->counting);
    timer_cancel(census->loop, &census->timer);
    free(census);
}

void ledger_census_describe(const struct ledger_census *census, struct json_writer *w)
{
    json_key(w, "rows");
    json_array_begin(w);
    for (size_t i = 0; i < COUNTED; i++) {
        const struct tally *tally = &census->tallies[i];
        json_object_begin(w);
        json_member_string(w, "kind", all_counted[i].noun);
        json_member_string(w, "status", all_counted[i].status);
        json_member_int(w, "rows", tally->rows);
        json_key(w, "oldest_at");
        if (tally->oldest_at > 0)
            json_time_ms(w, tally->oldest_at);
        else
            json_null(w);
        json_member_int(w, "most_attempts", tally->most_attempts);
        json_object_finish(w);
    }
    json_array_finish(w);
}
