/* Doing one claimed piece of work, an operation for each kind: destroy, then let the row go. When it
 * fails, the first error is kept in the row and it is tried again later, for ever. Destroying is
 * safe to repeat, so an end that was cut short is simply done again. */
#pragma once

#include "core/domain/lifecycle.h"

enum { COLLECT_UNDO_MS = 10000 };

/** Embedded first in each of the operations. */
struct collect {
    struct op op;
    struct list link; /* among those that run */
    struct lifecycle *lc;
    struct ledger_work work; /* a copy, in the op's arena */
    struct ledger_cause cause;
    bool done;        /* the row is gone (or has moved on) */
    bool more;        /* it became other work that is due */
    int64_t delay_ms; /* until the next attempt, when not done */
};

/** A root operation for a copy of `work`; op_start it. `deadline_ms`, shorter than the claim,
 * bounds it. */
struct collect *collect_new(struct lifecycle *lc, const struct ledger_work *work,
                            int64_t deadline_ms);

/* for the operations */
extern const struct op_type collect_workspace_type, collect_single_type, settle_create_type;
extern const size_t collect_workspace_size, collect_single_size, settle_create_size;

static inline struct backend *collect_backend(const struct collect *c)
{
    return broker_backend(lifecycle_broker(c->lc));
}

bool collect_can_find(const struct collect *c);
/** Waits: look for what a create of this row made; record that nobody can tell what it made. */
void collect_find(struct collect *c, struct op *op, const struct ledger_binding *row,
                  struct binding *ret);
void collect_record_unknown(struct collect *c, struct op *op, const struct ledger_binding *row);
/** The snapshot row's ref, or the one that its copy would have got; NULL when nobody can tell, or
 * when no copy can have that name. */
const char *collect_snapshot_ref(struct collect *c, const struct ledger_snapshot *row);
/** Waits: record that nobody can tell what the copy made. */
void collect_record_copy(struct collect *c, struct op *op, const struct ledger_snapshot *row);
/** Waits: let the row go; put it off with its error. */
void collect_finish(struct collect *c, struct op *op);
void collect_put_off(struct collect *c, struct op *op);
