/* What the lifecycle's files share. */
#pragma once

#include "core/domain/lifecycle.h"
#include "core/domain/write_behind.h"

enum {
    LIFECYCLE_CLAIM_MS = 60000,
    LIFECYCLE_UNDO_MS = 60000,
    LIFECYCLE_WAIT_MS = 2000, /* between looks at a row that another replica works on */
};

struct lifecycle {
    struct loop *loop;
    struct broker *broker;
    struct ledger *ledger;
    struct lifecycle_options options;
    struct list claims; /* live_claim.link: rows that this process is creating */
    struct timer renewal;
    bool renewing;
    struct write_behind *behind;
};

/** A row being created by an op of this process, embedded there: its claim is renewed. */
struct live_claim {
    struct list link; /* all-zero before live_claim_begin */
    const char *binding_id;
};

void live_claim_begin(struct lifecycle *lc, struct live_claim *claim, const char *binding_id);
/** Safe on one that never began. */
void live_claim_end(struct live_claim *claim);

/** Create for a claimed row (claimed_create.c): on success *ret is the active row. */
struct claimed_create_spec {
    const struct ledger_claimed *claimed;
    struct binding_spec binding;
    struct ledger_cause cause;
    bool started; /* set by it: from then on the row is its concern */
};
void claimed_create(struct lifecycle *lc, struct op *op, struct claimed_create_spec *spec,
                    struct ledger_binding **ret);

/** The error for a claim's refusal (CLAIM_RETIRED, CLAIM_OVER_…). */
void claim_refusal(const struct lifecycle *lc, enum claim_outcome outcome,
                   const struct ledger_binding *asked, struct error *ret);
