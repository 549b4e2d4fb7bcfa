#include "core/domain/lifecycle_internal.h"

#include "core/runtime/log.h"

#include <stdlib.h>

/* ---- claims of this process ---------------------------------------------------------------------- */

/* One call renews them all. A row whose create ended meanwhile has no claim to renew. */
struct claim_renewal {
    struct op op;
    struct lifecycle *lc;
    const char **ids;
    size_t n;
};

enum renewal_state { RENEWAL_START, RENEWAL_WRITING };
static const char *const renewal_states[] = {"start", "writing"};

static enum op_poll renewal_step(struct op *op)
{
    struct claim_renewal *t = container_of(op, struct claim_renewal, op);
    struct ledger *ledger = t->lc->ledger;

    switch ((enum renewal_state)op->state) {
    case RENEWAL_START:
        AWAIT(op, RENEWAL_WRITING,
              ledger->ops->renew_claims(ledger, op, t->ids, t->n, t->lc->options.claim_ms));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type renewal_type = {"claim_renewal", renewal_states, 2, renewal_step, NULL};

static void on_renewed(struct op *op, void *ctx)
{
    struct lifecycle *lc = ctx;

    lc->renewing = false;
    if (error_is(op_error(op)))
        LOG_WITH(LOG_WARN, "claims could not be renewed", {"error", op_error(op)->message});
}

static void on_renewal_due(void *ctx)
{
    struct lifecycle *lc = ctx;
    struct claim_renewal *t;

    if (list_empty(&lc->claims))
        return;
    timer_set_ms(lc->loop, &lc->renewal, lc->options.claim_ms / 3);
    if (lc->renewing)
        return;
    t = OP_ROOT(lc->loop, &renewal_type, claim_renewal, NULL);
    t->lc = lc;
    LIST_FOREACH_SAFE (it, next, &lc->claims)
        t->n++;
    t->ids = arena_alloc(t->op.arena, t->n * sizeof(*t->ids));
    t->n = 0;
    LIST_FOREACH_SAFE (it, next, &lc->claims)
        t->ids[t->n++] =
            arena_strdup(t->op.arena, container_of(it, struct live_claim, link)->binding_id);
    lc->renewing = true;
    op_start(&t->op, on_renewed, lc);
}

void live_claim_begin(struct lifecycle *lc, struct live_claim *claim, const char *binding_id)
{
    claim->binding_id = binding_id;
    list_init(&claim->link);
    list_push(&lc->claims, &claim->link);
    if (!timer_armed(&lc->renewal))
        timer_set_ms(lc->loop, &lc->renewal, lc->options.claim_ms / 3);
}

void live_claim_end(struct live_claim *claim)
{
    if (claim->link.next != NULL)
        list_remove(&claim->link);
}

void claim_refusal(const struct lifecycle *lc, enum claim_outcome outcome,
                   const struct ledger_binding *asked, struct error *ret)
{
    if (outcome == CLAIM_OVER_QUOTA) {
        error_set(ret, ERR_RATE_LIMITED,
                  "tenant %s has %lld bindings, as many as BINDERY_TENANT_MAX_BINDINGS allows: "
                  "retire some",
                  asked->tenant_id, (long long)lc->options.tenant_max_bindings);
        ret->retry_after_ms = 10000;
    } else if (outcome == CLAIM_OVER_CREATING) {
        error_set(ret, ERR_RATE_LIMITED,
                  "tenant %s is creating %lld bindings, as many as "
                  "BINDERY_TENANT_MAX_CREATES_IN_FLIGHT allows",
                  asked->tenant_id, (long long)lc->options.tenant_max_creates);
        ret->retry_after_ms = 1000;
    } else {
        error_set(ret, ERR_CONFLICT,
                  "binding %s or its workspace %s is retired and waits for its destruction: use "
                  "new ids, or wait until it is gone",
                  asked->id, asked->workspace_id);
    }
}

/* ---- making ------------------------------------------------------------------------------------------ */

struct lifecycle *lifecycle_new(struct loop *loop, struct broker *broker, struct ledger *ledger,
                                const struct lifecycle_options *options)
{
    struct lifecycle *lc = xcalloc(1, sizeof(*lc));

    lc->loop = loop;
    lc->broker = broker;
    lc->ledger = ledger;
    lc->options = *options;
    if (lc->options.claim_ms == 0)
        lc->options.claim_ms = LIFECYCLE_CLAIM_MS;
    list_init(&lc->claims);
    timer_init(&lc->renewal, on_renewal_due, lc);
    lc->behind = write_behind_new(loop, broker, ledger);
    return lc;
}

void lifecycle_free(struct lifecycle *lc)
{
    if (lc == NULL)
        return;
    PRE(list_empty(&lc->claims) && !lc->renewing);
    timer_cancel(lc->loop, &lc->renewal);
    write_behind_free(lc->behind);
    free(lc);
}

struct ledger *lifecycle_ledger(struct lifecycle *lc)
{
    return lc->ledger;
}

struct broker *lifecycle_broker(struct lifecycle *lc)
{
    return lc->broker;
}

void lifecycle_flush(struct lifecycle *lc, struct task *task)
{
    write_behind_flush(lc->behind, task);
}
