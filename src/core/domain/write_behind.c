#include "core/domain/write_behind.h"

#include "core/domain/use_table.h"
#include "core/runtime/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SOON_MS = 10,    /* for what others wait to know */
    ENDS_MS = 50,    /* for leases that ended: until then only this server refuses them */
    USES_MS = 1000,  /* for last use */
    AGAIN_MS = 2000, /* after a failure */
    BATCH = 256,     /* rows of one call */
    ROUNDS = 8, /* calls for ended leases in one op: another goes on, with what else has come */
    USES_PER_TICK = 4096,
};

/* One thing to write. Its strings are its arena's, as it is itself. */
struct item {
    struct list link;
    struct arena *arena;
    enum { ITEM_LOSS, ITEM_ORPHAN } kind;
    const char *binding_ref, *reason;
    struct ledger_orphan orphan;
};

/** A lease that ended before its time. Many: kept in a row, without anything of their own. */
struct ended {
    int64_t until_ms;
    char id[LEASE_ID_CHARS + 1];
};

struct write_behind {
    struct loop *loop;
    struct broker *broker;
    struct ledger *ledger;
    struct list items; /* in order of arrival */
    int n_orphans;     /* of them */
    struct ended *ended;
    size_t n_ended, cap_ended;
    struct use_table *uses;
    struct timer timer, uses_timer;
    bool writing;
    bool again, uses_again; /* more came while it wrote */
    struct op_waitlist orphan_waiters, use_waiters;
    struct list tasks; /* posted tasks of flushes; linked by task_waiter.link */
};

struct task_waiter {
    struct list link;
    struct task *task;
};

static const char *backend_name(const struct write_behind *w)
{
    struct backend *backend = broker_backend(w->broker);

    return backend != NULL ? backend->ops->name : "";
}

/* ---- what comes in ------------------------------------------------------------------------------- */

static void plan(struct write_behind *w, struct timer *timer, int64_t in_ms)
{
    int64_t due_us = loop_now_us(w->loop) + in_ms * 1000;

    if (!timer_armed(timer) || timer->due_us > due_us)
        timer_set_ms(w->loop, timer, in_ms);
}

static struct item *item_new(struct write_behind *w, int kind)
{
    struct arena *arena = arena_new();
    struct item *item = ARENA_NEW(arena, struct item);

    item->arena = arena;
    item->kind = kind;
    list_init(&item->link);
    list_push(&w->items, &item->link);
    plan(w, &w->timer, SOON_MS);
    return item;
}

static void item_done(struct write_behind *w, struct item *item)
{
    list_remove(&item->link);
    if (item->kind == ITEM_ORPHAN)
        w->n_orphans--;
    arena_free(item->arena);
}

static void on_revoke(void *ctx, const char *lease_id, int64_t until_wall_ms)
{
    struct write_behind *w = ctx;
    struct ended *ended;

    if (w->n_ended == w->cap_ended) {
        w->cap_ended = w->cap_ended == 0 ? BATCH : w->cap_ended * 2;
        w->ended = xrealloc(w->ended, w->cap_ended * sizeof(*w->ended));
    }
    ended = &w->ended[w->n_ended++];
    ended->until_ms = until_wall_ms;
    snprintf(ended->id, sizeof(ended->id), "%s", lease_id);
    plan(w, &w->timer, ENDS_MS);
}

static void ended_done(struct write_behind *w, size_t n)
{
    w->n_ended -= n;
    memmove(w->ended, w->ended + n, w->n_ended * sizeof(*w->ended));
}

static void on_check(void *ctx, struct op *op, const char *lease_id, bool *ret_revoked)
{
    struct ledger *ledger = ((struct write_behind *)ctx)->ledger;

    ledger->ops->is_revoked(ledger, op, lease_id, ret_revoked);
}

static void on_lost(void *ctx, const char *binding_ref, const struct error *why)
{
    struct item *item = item_new(ctx, ITEM_LOSS);

    item->binding_ref = arena_strdup(item->arena, binding_ref);
    item->reason = arena_strdup(item->arena, why != NULL ? why->message : "the backend said so");
}

static void on_used(void *ctx, const char *binding_ref)
{
    struct write_behind *w = ctx;

    use_table_note(w->uses, binding_ref, loop_wall_ms(w->loop));
    plan(w, &w->uses_timer, USES_MS);
}

/* What we failed to remove is to be removed; what we do not know is to be looked at. */
static void on_orphan(void *ctx, const struct backend *b, enum orphan_kind kind, const char *ref,
                      const struct binding_spec *spec, const struct error *why)
{
    static const char *const kinds[] = {
        [ORPHAN_BINDING] = "binding", [ORPHAN_UNKNOWN] = "unknown", [ORPHAN_SNAPSHOT] = "snapshot"};
    struct write_behind *w = ctx;
    struct item *item = item_new(w, ITEM_ORPHAN);
    struct ledger_orphan *o = &item->orphan;

    w->n_orphans++;
    o->kind = kinds[kind];
    o->backend = b->ops->name;
    o->status = kind == ORPHAN_UNKNOWN ? "reported" : "retired";
    o->ref = arena_strdup(item->arena, ref);
    if (spec != NULL) {
        o->tenant_id = arena_strdup(item->arena, spec->tenant_id);
        o->agent_id = arena_strdup(item->arena, spec->agent_id);
        o->binding_id = arena_strdup(item->arena, spec->binding_id);
        /* Coupled backends need it to destroy; the others find a new one by the spec. */
        o->workspace_ref = arena_strdup(item->arena, spec->existing_workspace_ref);
    }
    if (why != NULL)
        o->reason = arena_printf(item->arena, "%s: %s", err_wire(why->code), why->message);
}

/* ---- writing: one op at a time ----------------------------------------------------------------------- */

struct behind_write {
    struct op op;
    struct write_behind *w;
    struct ledger_use *uses;
    size_t n_uses, at;
    struct ended ended[BATCH]; /* copies of the first */
    const char *ids[BATCH];
    int64_t until_ms[BATCH];
    size_t n_batch;
    int rounds;
    struct item *item;
    struct ledger_binding *row;
    struct ledger_cause cause;
    bool done;
};

enum behind_state {
    BEHIND_START,
    BEHIND_REVOKING,
    BEHIND_ORPHAN,
    BEHIND_FINDING,
    BEHIND_LOSS,
    BEHIND_TOUCHING
};
static const char *const behind_states[] = {"start",   "revoking", "orphan",
                                            "finding", "loss",     "touching"};

static bool next_ended(struct behind_write *t)
{
    const struct write_behind *w = t->w;

    t->n_batch = w->n_ended < BATCH ? w->n_ended : BATCH;
    for (size_t i = 0; i < t->n_batch; i++) {
        t->ended[i] = w->ended[i];
        t->ids[i] = t->ended[i].id;
        t->until_ms[i] = t->ended[i].until_ms;
    }
    return t->n_batch > 0 && t->rounds++ < ROUNDS;
}

static bool next_item(struct behind_write *t, int kind)
{
    LIST_FOREACH_SAFE (it, next, &t->w->items) {
        t->item = container_of(it, struct item, link);
        if ((int)t->item->kind == kind)
            return true;
    }
    return false;
}

static size_t use_batch(const struct behind_write *t)
{
    return t->n_uses - t->at < BATCH ? t->n_uses - t->at : BATCH;
}

static enum op_poll behind_step(struct op *op)
{
    struct behind_write *t = container_of(op, struct behind_write, op);
    struct write_behind *w = t->w;
    struct ledger *ledger = w->ledger;

    switch ((enum behind_state)op->state) {
    case BEHIND_START:
        while (next_item(t, ITEM_ORPHAN)) {
            AWAIT(op, BEHIND_ORPHAN, ledger->ops->report_orphan(ledger, op, &t->item->orphan));
            item_done(w, t->item);
        }
        while (next_item(t, ITEM_LOSS)) {
            AWAIT(
                op, BEHIND_FINDING,
                ledger->ops->find_ref(ledger, op, backend_name(w), t->item->binding_ref, &t->row));
            t->cause = (struct ledger_cause){"lease", t->item->reason};
            if (t->row != NULL)
                AWAIT(op, BEHIND_LOSS,
                      ledger->ops->mark_lost(ledger, op, t->row->id, &t->cause, &t->done));
            item_done(w, t->item);
        }
        while (next_ended(t)) {
            AWAIT(op, BEHIND_REVOKING,
                  ledger->ops->revoke(ledger, op, t->ids, t->until_ms, t->n_batch));
            ended_done(w, t->n_batch);
        }
        for (t->at = 0; t->at < t->n_uses; t->at += use_batch(t))
            AWAIT(op, BEHIND_TOUCHING,
                  ledger->ops->touch(ledger, op, t->uses + t->at, use_batch(t)));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type behind_type = {"write_behind", behind_states, 6, behind_step, NULL};

static void post_tasks(struct write_behind *w)
{
    for (struct list *node; (node = list_pop(&w->tasks)) != NULL;) {
        struct task_waiter *waiter = container_of(node, struct task_waiter, link);
        loop_post(w->loop, waiter->task);
        free(waiter);
    }
}

static void write_failed(struct write_behind *w, const struct error *error)
{
    LOG_WITH(LOG_WARN, "the ledger did not take what was to be recorded; it is tried again",
             {"error", error->message});
    op_waitlist_wake_all(&w->orphan_waiters, error);
    op_waitlist_wake_all(&w->use_waiters, NULL);
    post_tasks(w);
    plan(w, &w->timer, AGAIN_MS);
}

/* Leases end all the time: who waits for something else is told before they are all written. */
static void write_succeeded(struct write_behind *w)
{
    if (w->n_orphans == 0)
        op_waitlist_wake_all(&w->orphan_waiters, NULL);
    if (!w->uses_again)
        op_waitlist_wake_all(&w->use_waiters, NULL);
    if (w->again || w->uses_again || (w->n_ended > 0 && !list_empty(&w->tasks)))
        plan(w, w->uses_again ? &w->uses_timer : &w->timer, 0);
    else if (w->n_ended > 0)
        plan(w, &w->timer, w->n_ended < BATCH ? ENDS_MS : 0);
    else
        post_tasks(w);
}

static void on_written(struct op *op, void *ctx)
{
    struct write_behind *w = ctx;

    w->writing = false;
    if (error_is(op_error(op)))
        write_failed(w, op_error(op));
    else
        write_succeeded(w);
    if (use_table_count(w->uses) > 0)
        plan(w, &w->uses_timer, USES_MS);
    w->again = w->uses_again = false;
}

static void write_begin(struct write_behind *w, bool with_uses)
{
    struct behind_write *t;

    if (w->writing) {
        w->again = true;
        w->uses_again |= with_uses;
        return;
    }
    t = OP_ROOT(w->loop, &behind_type, behind_write, NULL);
    t->w = w;
    if (with_uses) {
        size_t max = use_table_count(w->uses);
        max = max < USES_PER_TICK ? max : USES_PER_TICK;
        t->uses = arena_alloc(t->op.arena, max * sizeof(*t->uses));
        t->n_uses = use_table_take(w->uses, t->op.arena, backend_name(w), loop_wall_ms(w->loop),
                                   t->uses, max);
    }
    w->writing = true;
    op_start(&t->op, on_written, w);
}

static void on_due(void *ctx)
{
    write_begin(ctx, false);
}

static void on_uses_due(void *ctx)
{
    write_begin(ctx, true);
}

void write_behind_flush(struct write_behind *w, struct task *task)
{
    if (task != NULL) {
        struct task_waiter *waiter = xcalloc(1, sizeof(*waiter));
        waiter->task = task;
        list_init(&waiter->link);
        list_push(&w->tasks, &waiter->link);
    }
    write_begin(w, true);
}

void write_behind_await_orphans(struct write_behind *w, struct op *op)
{
    if (w->n_orphans == 0) {
        op_complete(op, NULL);
        return;
    }
    op_waitlist_wait(&w->orphan_waiters, op);
    write_begin(w, false);
}

void write_behind_await_uses(struct write_behind *w, struct op *op)
{
    if (use_table_count(w->uses) == 0) {
        op_complete(op, NULL);
        return;
    }
    op_waitlist_wait(&w->use_waiters, op);
    write_begin(w, true);
}

/* ---- making ----------------------------------------------------------------------------------------------- */

struct write_behind *write_behind_new(struct loop *loop, struct broker *broker,
                                      struct ledger *ledger)
{
    struct write_behind *w = xcalloc(1, sizeof(*w));
    const struct broker_observer observer = {on_lost, on_used, w};
    const struct lease_revocations revocations = {on_revoke, on_check, w};

    w->loop = loop;
    w->broker = broker;
    w->ledger = ledger;
    w->uses = use_table_new(broker_leases(broker));
    list_init(&w->items);
    list_init(&w->tasks);
    op_waitlist_init(&w->orphan_waiters);
    op_waitlist_init(&w->use_waiters);
    timer_init(&w->timer, on_due, w);
    timer_init(&w->uses_timer, on_uses_due, w);
    broker_set_observer(broker, &observer);
    broker_set_revocations(broker, &revocations);
    if (broker_backend(broker) != NULL)
        broker_backend(broker)->orphans = (struct orphan_sink){on_orphan, w};
    return w;
}

void write_behind_free(struct write_behind *w)
{
    PRE(!w->writing && op_waitlist_empty(&w->orphan_waiters) && list_empty(&w->tasks));
    broker_set_observer(w->broker, &(struct broker_observer){0});
    broker_set_revocations(w->broker, &(struct lease_revocations){0});
    if (broker_backend(w->broker) != NULL)
        broker_backend(w->broker)->orphans = (struct orphan_sink){0};
    timer_cancel(w->loop, &w->timer);
    timer_cancel(w->loop, &w->uses_timer);
    LIST_FOREACH_SAFE (it, next, &w->items)
        item_done(w, container_of(it, struct item, link));
    use_table_free(w->uses);
    free(w->ended);
    free(w);
}
