/* Collect a retired workspace with its bindings (protocols "ledger" section 7.2).
 *
 * Happy path: the oldest binding is the anchor and is destroyed together with the workspace; the
 *   others are destroyed without it; then all rows go in one transaction. A binding whose create
 *   was cut short has no ref: what it may have made is looked for by its id, or recorded as unknown
 *   where nobody can look.
 * Failures: all bindings are attempted even after one; then no row goes. */
#include "gc/collect.h"

#include <stdlib.h>
#include <string.h>

struct workspace_collect {
    struct collect c;
    struct ledger_filter filter;
    struct ledger_page page; /* bindings, oldest first */
    size_t at;
    bool anchored; /* a destroy took the workspace with it */
    struct binding found;
    struct destroy_spec destroy;
    struct error first;
};

enum workspace_state {
    WORKSPACE_START,
    WORKSPACE_LISTING,
    WORKSPACE_LOOKING,
    WORKSPACE_RECORDING,
    WORKSPACE_DESTROYING,
    WORKSPACE_FINISHING,
    WORKSPACE_PUTTING_OFF
};
static const char *const workspace_states[] = {"start",      "listing",   "looking",    "recording",
                                               "destroying", "finishing", "putting_off"};

static int by_age(const void *a, const void *b)
{
    const struct ledger_binding *x = *(void *const *)a, *y = *(void *const *)b;

    if (x->created_at != y->created_at)
        return x->created_at < y->created_at ? -1 : 1;
    return strcmp(x->id, y->id);
}

static void list_bindings(struct workspace_collect *t, struct op *op)
{
    struct ledger *ledger = lifecycle_ledger(t->c.lc);

    t->filter =
        (struct ledger_filter){.workspace_id = t->c.work.id, .status = "retired", .limit = 1000};
    ledger->ops->list(ledger, op, LEDGER_BINDINGS, &t->filter, &t->page);
}

/* Whether there is something to destroy for the binding at hand; sets t->destroy. */
static bool destroy_next(struct workspace_collect *t)
{
    const struct ledger_binding *row = t->page.rows[t->at];
    const char *ref = row->binding_ref != NULL ? row->binding_ref : t->found.binding_ref;
    const char *workspace_ref = t->c.work.workspace->workspace_ref;

    if (workspace_ref == NULL)
        workspace_ref = t->found.workspace_ref;
    if (ref == NULL)
        return false;
    t->destroy = (struct destroy_spec){.binding_ref = ref};
    if (!t->anchored && workspace_ref != NULL) {
        t->destroy.workspace_ref = workspace_ref;
        t->destroy.destroy_workspace = t->anchored = true;
    }
    return true;
}

static enum op_poll workspace_step(struct op *op)
{
    struct workspace_collect *t = container_of(op, struct workspace_collect, c.op);
    struct ledger_binding *row;

    switch ((enum workspace_state)op->state) {
    case WORKSPACE_START:
        AWAIT(op, WORKSPACE_LISTING, list_bindings(t, op));
        qsort(t->page.rows, t->page.n, sizeof(*t->page.rows), by_age);
        for (t->at = 0; t->at < t->page.n; t->at++) {
            row = t->page.rows[t->at];
            t->found = (struct binding){0};
            if (row->binding_ref == NULL && collect_can_find(&t->c))
                AWAIT(op, WORKSPACE_LOOKING, collect_find(&t->c, op, row, &t->found));
            else if (row->binding_ref == NULL)
                AWAIT(op, WORKSPACE_RECORDING, collect_record_unknown(&t->c, op, row));
            if (!destroy_next(t))
                continue;
            AWAIT_ANY(op, WORKSPACE_DESTROYING,
                      broker_destroy_binding(lifecycle_broker(t->c.lc), op, &t->destroy));
            if (op_last_failed(op) && !error_is(&t->first))
                t->first = *op_last(op);
            if (op_failed(op)) /* out of time */
                goto undo;
        }
        if (t->c.work.workspace->workspace_ref != NULL && !t->anchored)
            op_fail(op, ERR_BINDING_DESTROY, "workspace %s has no binding left to reach it by",
                    t->c.work.id);
        if (error_is(&t->first))
            op_fail_with(op, &t->first);
        if (op_failed(op))
            goto undo;
        AWAIT_HELD(op, WORKSPACE_FINISHING, collect_finish(&t->c, op));
        return OP_DONE;

    undo:
        op_begin_undo(op, COLLECT_UNDO_MS);
        AWAIT_ANY(op, WORKSPACE_PUTTING_OFF, collect_put_off(&t->c, op));
        return OP_DONE;
    }
    unreachable_state(op);
}

const struct op_type collect_workspace_type = {"collect_workspace", workspace_states, 7,
                                               workspace_step, NULL};
const size_t collect_workspace_size = sizeof(struct workspace_collect);
