/* One comparison.
 *
 * Happy path: read the backend's list to its end; for each item that no row knows, by its ref or by
 *   its binding id, and that is older than the grace, record an orphan. Then read the active rows;
 *   for each that is old enough and not in the list, ask for it by its binding id: a list may be
 *   late, so absence from it is a hint only. What is not there either is marked lost.
 * Failures: a page that cannot be read makes the list incomplete: then nothing is concluded.
 * A row that is being created is known by its binding id, or by the ref that it will get: those rows
 * are read after the list, so what is just being born is no orphan, however long it takes.
 * Destroying is the collector's: it looks once more for a row before it does. */
#include "gc/reconcile.h"

#include "core/runtime/log.h"
#include "core/runtime/metrics.h"
#include "gc/ref_set.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_RUN_MS = 1000, ROWS_OF_A_PAGE = 200 };

struct reconciler {
    struct loop *loop;
    struct lifecycle *lc;
    struct collector *collector;
    struct reconciler_options options;
    struct timer timer;
    struct op *run; /* NULL when none */
    bool stopping;
    struct task *stopped;
    struct ref_set *seen; /* items without a creation time: when we saw them first */
    struct reconciler_status status;
};

struct reconcile {
    struct op op;
    struct reconciler *r;
    const char *cursor; /* of the backend's list */
    struct backend_item *page;
    size_t n_page, at;
    struct ref_set *listed; /* refs; the value is 0 */
    struct ref_set *born; /* refs of rows that are being created, as far as they follow from ids */
    struct list pages;    /* of what was listed, until it is complete */
    struct listed_page *current;
    struct ledger_binding *row;
    struct ledger_orphan orphan;
    struct ledger_filter filter;
    struct ledger_page rows;
    struct binding_spec spec;
    struct binding found;
    struct ledger_cause cause;
    int orphans, lost;
    bool done;
};

struct listed_page {
    struct list link;
    struct backend_item *items;
    size_t n;
};

enum reconcile_state {
    RECONCILE_START,
    RECONCILE_LISTING,
    RECONCILE_CREATING,
    RECONCILE_BY_REF,
    RECONCILE_BY_ID,
    RECONCILE_REPORTING,
    RECONCILE_ROWS,
    RECONCILE_CONFIRMING,
    RECONCILE_MARKING
};
static const char *const reconcile_states[] = {"start",  "listing",    "creating",
                                               "by_ref", "by_id",      "reporting",
                                               "rows",   "confirming", "marking"};

static struct backend *backend_of(const struct reconciler *r)
{
    return broker_backend(lifecycle_broker(r->lc));
}

static bool can_list(const struct reconciler *r)
{
    struct backend *b = backend_of(r);

    return b != NULL && (b->caps & BACKEND_LISTS) && b->ops->list != NULL;
}

/* ---- the list --------------------------------------------------------------------------------------------- */

static void keep_page(struct reconcile *t)
{
    struct listed_page *page = ARENA_NEW(t->op.arena, struct listed_page);

    *page = (struct listed_page){.items = t->page, .n = t->n_page};
    list_init(&page->link);
    list_push(&t->pages, &page->link);
    for (size_t i = 0; i < t->n_page; i++)
        ref_set_put(t->listed, t->page[i].binding_ref, 0);
}

static struct backend_item *next_item(struct reconcile *t)
{
    while (t->current == NULL || t->at == t->current->n) {
        struct list *node = list_pop(&t->pages);
        if (node == NULL)
            return NULL;
        t->current = container_of(node, struct listed_page, link);
        t->at = 0;
    }
    return &t->current->items[t->at++];
}

static struct backend_item *item_at(const struct reconcile *t)
{
    return &t->current->items[t->at - 1];
}

static bool foretells_refs(const struct reconcile *t)
{
    return backend_of(t->r)->ops->binding_ref_of != NULL;
}

static void creating_start(struct reconcile *t, struct op *op)
{
    struct ledger *ledger = lifecycle_ledger(t->r->lc);

    t->filter = (struct ledger_filter){
        .status = "creating", .cursor = t->rows.next, .limit = ROWS_OF_A_PAGE};
    ledger->ops->list(ledger, op, LEDGER_BINDINGS, &t->filter, &t->rows);
}

static void creating_take(struct reconcile *t)
{
    struct backend *b = backend_of(t->r);

    for (size_t i = 0; i < t->rows.n; i++) {
        const struct ledger_binding *row = t->rows.rows[i];
        const struct binding_spec spec = {.tenant_id = row->tenant_id,
                                          .agent_id = row->agent_id,
                                          .binding_id = row->id,
                                          .workspace_id = row->workspace_id};
        const char *ref = b->ops->binding_ref_of(b, t->op.arena, &spec);
        if (ref != NULL)
            ref_set_put(t->born, ref, 0);
    }
}

static bool is_being_born(const struct reconcile *t, const struct backend_item *item)
{
    int64_t unused;

    return ref_set_get(t->born, item->binding_ref, &unused);
}

/* Old enough, by its own time or by the time we know of it. */
static bool is_old(struct reconcile *t, const struct backend_item *item)
{
    int64_t now = loop_wall_ms(t->r->loop), since = item->created_wall_ms;

    if (since == 0 && !ref_set_get(t->r->seen, item->binding_ref, &since)) {
        since = now;
        ref_set_put(t->r->seen, item->binding_ref, now);
    }
    return now - since >= t->r->options.grace_ms;
}

static void report_start(struct reconcile *t, struct op *op)
{
    struct ledger *ledger = lifecycle_ledger(t->r->lc);
    const struct backend_item *item = item_at(t);

    t->orphan =
        (struct ledger_orphan){.kind = "binding",
                               .backend = backend_of(t->r)->ops->name,
                               .ref = item->binding_ref,
                               .workspace_ref = item->workspace_ref,
                               .binding_id = item->binding_id_is_digest ? NULL : item->binding_id,
                               .reason = "the backend has it, and no row does",
                               .status = t->r->options.destroy ? "retired" : "reported"};
    t->orphans++;
    ledger->ops->report_orphan(ledger, op, &t->orphan);
}

/* ---- the rows --------------------------------------------------------------------------------------------- */

static void rows_start(struct reconcile *t, struct op *op)
{
    struct ledger *ledger = lifecycle_ledger(t->r->lc);

    t->filter =
        (struct ledger_filter){.status = "active", .cursor = t->rows.next, .limit = ROWS_OF_A_PAGE};
    ledger->ops->list(ledger, op, LEDGER_BINDINGS, &t->filter, &t->rows);
}

/* Our backend's, old enough, not known as lost, not in the list. */
static bool is_missing(struct reconcile *t, const struct ledger_binding *row)
{
    int64_t unused;

    return strcmp(row->backend, backend_of(t->r)->ops->name) == 0 && row->lost_at == 0 &&
           loop_wall_ms(t->r->loop) - row->created_at >= t->r->options.grace_ms &&
           !ref_set_get(t->listed, row->binding_ref, &unused);
}

static void confirm_start(struct reconcile *t, struct op *op, const struct ledger_binding *row)
{
    struct backend *b = backend_of(t->r);

    t->found = (struct binding){0};
    t->spec = (struct binding_spec){.tenant_id = row->tenant_id,
                                    .agent_id = row->agent_id,
                                    .binding_id = row->id,
                                    .workspace_id = row->workspace_id};
    b->ops->find(b, op, &t->spec, &t->found);
}

static void mark_start(struct reconcile *t, struct op *op, const struct ledger_binding *row)
{
    struct ledger *ledger = lifecycle_ledger(t->r->lc);

    t->lost++;
    t->cause = (struct ledger_cause){"reconciler", "the backend does not have it any more"};
    ledger->ops->mark_lost(ledger, op, row->id, &t->cause, &t->done);
}

static bool can_confirm(const struct reconcile *t)
{
    struct backend *b = backend_of(t->r);

    return (b->caps & BACKEND_FINDS) && b->ops->find != NULL;
}

static enum op_poll reconcile_step(struct op *op)
{
    struct reconcile *t = container_of(op, struct reconcile, op);
    struct ledger *ledger = lifecycle_ledger(t->r->lc);
    struct backend *b = backend_of(t->r);

    switch ((enum reconcile_state)op->state) {
    case RECONCILE_START:
        do {
            AWAIT(op, RECONCILE_LISTING, b->ops->list(b, op, &t->cursor, &t->page, &t->n_page));
            keep_page(t);
        } while (t->cursor != NULL);
        while (foretells_refs(t)) {
            AWAIT(op, RECONCILE_CREATING, creating_start(t, op));
            creating_take(t);
            if (t->rows.next == NULL)
                break;
        }
        t->rows = (struct ledger_page){0};
        while (next_item(t) != NULL) {
            if (!is_old(t, item_at(t)) || is_being_born(t, item_at(t)))
                continue;
            AWAIT(
                op, RECONCILE_BY_REF,
                ledger->ops->find_ref(ledger, op, b->ops->name, item_at(t)->binding_ref, &t->row));
            if (t->row == NULL && item_at(t)->binding_id != NULL &&
                !item_at(t)->binding_id_is_digest)
                AWAIT(op, RECONCILE_BY_ID,
                      ledger->ops->get(ledger, op, LEDGER_BINDINGS, item_at(t)->binding_id,
                                       (void **)&t->row));
            if (t->row == NULL)
                AWAIT(op, RECONCILE_REPORTING, report_start(t, op));
        }
        do {
            AWAIT(op, RECONCILE_ROWS, rows_start(t, op));
            for (t->at = 0; can_confirm(t) && t->at < t->rows.n; t->at++) {
                if (!is_missing(t, t->rows.rows[t->at]))
                    continue;
                AWAIT(op, RECONCILE_CONFIRMING, confirm_start(t, op, t->rows.rows[t->at]));
                if (t->found.binding_ref == NULL)
                    AWAIT(op, RECONCILE_MARKING, mark_start(t, op, t->rows.rows[t->at]));
            }
        } while (t->rows.next != NULL);
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static void reconcile_fini(struct op *op)
{
    struct reconcile *t = container_of(op, struct reconcile, op);

    ref_set_free(t->listed);
    ref_set_free(t->born);
}

static const struct op_type reconcile_type = {"reconcile", reconcile_states, 9, reconcile_step,
                                              reconcile_fini};

/* ---- when ---------------------------------------------------------------------------------------------------- */

static void count_finding(const char *finding, int n)
{
    if (n > 0)
        metric_add(METRIC_RECONCILED, LABELS(finding), n);
}

static void on_reconciled(struct op *op, void *ctx)
{
    struct reconciler *r = ctx;
    struct reconcile *t = container_of(op, struct reconcile, op);

    r->run = NULL;
    r->status.runs++;
    r->status.orphans += t->orphans;
    r->status.lost += t->lost;
    r->status.last_run_wall_ms = loop_wall_ms(r->loop);
    count_finding("orphan", t->orphans);
    count_finding("lost", t->lost);
    if (error_is(op_error(op))) {
        r->status.incomplete++;
        count_finding("incomplete", 1);
        LOG_WITH(LOG_WARN, "reconciliation incomplete", {"state", op_state_name(op)},
                 {"error", op_error(op)->message});
    } else if (t->orphans > 0 || t->lost > 0) {
        log_warn("reconciled: %d orphans, %d lost", t->orphans, t->lost);
    }
    if (t->orphans > 0 && r->options.destroy)
        collector_poke(r->collector);
    ref_set_forget_before(r->seen,
                          loop_wall_ms(r->loop) - r->options.grace_ms - 4 * r->options.interval_ms);
    if (r->stopping) {
        if (r->stopped != NULL)
            loop_post(r->loop, r->stopped);
        r->stopped = NULL;
    } else {
        timer_set_ms(r->loop, &r->timer, r->options.interval_ms);
    }
}

static void on_due(void *ctx)
{
    struct reconciler *r = ctx;
    struct reconcile *t;

    if (!can_list(r) || r->run != NULL)
        return;
    t = OP_ROOT(r->loop, &reconcile_type, reconcile, NULL);
    t->r = r;
    t->listed = ref_set_new();
    t->born = ref_set_new();
    list_init(&t->pages);
    r->run = &t->op;
    op_start(&t->op, on_reconciled, r);
}

struct reconciler *reconciler_new(struct loop *loop, struct lifecycle *lc,
                                  struct collector *collector,
                                  const struct reconciler_options *options)
{
    struct reconciler *r = xcalloc(1, sizeof(*r));

    r->loop = loop;
    r->lc = lc;
    r->collector = collector;
    r->options = *options;
    r->seen = ref_set_new();
    timer_init(&r->timer, on_due, r);
    r->status.supported = can_list(r);
    timer_set_ms(loop, &r->timer,
                 options->interval_ms < FIRST_RUN_MS ? options->interval_ms : FIRST_RUN_MS);
    return r;
}

void reconciler_stop(struct reconciler *r, struct task *task)
{
    r->stopping = true;
    timer_cancel(r->loop, &r->timer);
    if (r->run != NULL) {
        r->stopped = task;
        op_abort(r->run, ERR_DRAINING, "the server stops");
    } else if (task != NULL) {
        loop_post(r->loop, task);
    }
}

void reconciler_free(struct reconciler *r)
{
    if (r == NULL)
        return;
    PRE(r->run == NULL);
    timer_cancel(r->loop, &r->timer);
    ref_set_free(r->seen);
    free(r);
}

void reconciler_status(const struct reconciler *r, struct reconciler_status *ret)
{
    *ret = r->status;
}
