/* Claim: CreateSandbox, and when its answer does not settle it, look at who holds the name.
 *
 * The name is a function of the binding id, so a repeated create meets the sandbox of the first.
 * Every attempt carries a random marker; the holder is judged by it:
 *   - our marker: the create took place, only its answer was lost;
 *   - a record being deleted: waited out, then created;
 *   - one of this binding and deployment in phase ERROR: deleted and made anew, once;
 *   - a healthy one of this binding: what an attempt left whose answer nobody got; adopted;
 *   - any other: a conflict, and not touched.
 * Cancelled or out of time while the create was on its way: settled by looking, and what carries
 * our marker is deleted. What cannot be settled is recorded as an orphan. */
#include "backends/openshell/claim.h"

#include <string.h>

enum { UNDO_BUDGET_MS = 60000, ATTEMPTS_MAX = 3 };

struct openshell_claim {
    struct op op;
    struct openshell_backend *backend;
    struct claim *claim;
    struct error failure; /* of the latest create */
    int attempts;
    bool replaced;
};

enum claim_state {
    CLAIM_START,
    CLAIM_CREATING,
    CLAIM_LOOKING,
    CLAIM_REPLACING,
    CLAIM_VANISHING,
    CLAIM_SETTLING,
    CLAIM_UNMAKING,
};
static const char *const claim_states[] = {"start",     "creating", "looking", "replacing",
                                           "vanishing", "settling", "unmaking"};

enum verdict { VERDICT_OURS, VERDICT_AGAIN, VERDICT_REPLACE, VERDICT_FAILED };

/* Does the answer of the create leave open whether the name is taken, and by whom? */
static bool failure_is_open(const struct error *err)
{
    return rpc_is(err, GRPC_ALREADY_EXISTS) || rpc_is(err, GRPC_UNAVAILABLE) ||
           err->admitted == ADMITTED_UNKNOWN;
}

static enum verdict fail_with_create_error(struct openshell_claim *c)
{
    struct error err = c->failure;

    rpc_judge(&err, ERR_BINDING_CREATE, ERR_BINDING_CREATE);
    op_fail_with(&c->op, &err);
    return VERDICT_FAILED;
}

/* GetSandbox has answered: who holds the name? */
static enum verdict claim_judge(struct openshell_claim *c)
{
    struct claim *claim = c->claim;
    const struct sandbox_view *v = &claim->view;
    bool of_binding, broken;

    if (op_last_failed(&c->op)) {
        if (rpc_is(op_last(&c->op), GRPC_NOT_FOUND))
            return c->attempts < ATTEMPTS_MAX ? VERDICT_AGAIN : fail_with_create_error(c);
        if (c->failure.admitted == ADMITTED_UNKNOWN)
            backend_report_orphan(&c->backend->base, ORPHAN_BINDING, claim->name, claim->spec,
                                  &c->failure);
        return fail_with_create_error(c);
    }
    of_binding = strcmp(v->binding_digest, claim->binding_digest) == 0 &&
                 strcmp(v->instance_label, c->backend->instance_digest) == 0;
    broken = v->phase == OPENSHELL__SANDBOX_PHASE__PHASE_ERROR;
    if (strcmp(v->marker, claim->marker) == 0)
        return VERDICT_OURS;
    if (v->phase == OPENSHELL__SANDBOX_PHASE__PHASE_DELETING && c->attempts < ATTEMPTS_MAX)
        return VERDICT_AGAIN;
    if (of_binding && broken && !c->replaced) {
        c->replaced = true;
        return VERDICT_REPLACE;
    }
    if (of_binding && !broken) {
        claim->adopted = true;
        return VERDICT_OURS;
    }
    op_fail(&c->op, ERR_CONFLICT,
            "the sandbox name %s is held by another sandbox, which was not touched", claim->name);
    return VERDICT_FAILED;
}

static bool settle_found_ours(const struct openshell_claim *c)
{
    return !op_last_failed(&c->op) && strcmp(c->claim->view.marker, c->claim->marker) == 0;
}

static enum op_poll claim_step(struct op *op)
{
    struct openshell_claim *c = container_of(op, struct openshell_claim, op);
    struct rpc *rpc = &c->backend->rpc;
    struct claim *claim = c->claim;
    enum verdict verdict;

    switch ((enum claim_state)op->state) {
    case CLAIM_START:
        for (;;) {
            c->attempts++;
            AWAIT_ANY(op, CLAIM_CREATING, rpc_create(rpc, op, claim->request, &claim->view));
            c->failure = *op_last(op);
            if (op_failed(op))
                goto undo;
            if (!error_is(&c->failure)) {
                claim->won = true;
                return OP_DONE;
            }
            if (!failure_is_open(&c->failure)) {
                fail_with_create_error(c);
                return OP_DONE;
            }
            AWAIT_ANY(op, CLAIM_LOOKING, rpc_get(rpc, op, claim->name, &claim->view));
            if (op_failed(op))
                goto undo;
            verdict = claim_judge(c);
            claim->won = verdict == VERDICT_OURS;
            if (verdict == VERDICT_OURS || verdict == VERDICT_FAILED)
                return OP_DONE;
            if (verdict == VERDICT_REPLACE)
                AWAIT(op, CLAIM_REPLACING, rpc_delete(rpc, op, claim->name));
            AWAIT(op, CLAIM_VANISHING, openshell_wait_gone(c->backend, op, claim->name));
        }

    undo:
        if (error_is(&c->failure) && c->failure.admitted == ADMITTED_NO)
            return OP_DONE;
        op_begin_undo(op, UNDO_BUDGET_MS);
        AWAIT_ANY(op, CLAIM_SETTLING, rpc_get(rpc, op, claim->name, &claim->view));
        if (settle_found_ours(c))
            AWAIT_ANY(op, CLAIM_UNMAKING, rpc_delete(rpc, op, claim->name));
        if (op_last_failed(op) && !rpc_is(op_last(op), GRPC_NOT_FOUND))
            backend_report_orphan(&c->backend->base, ORPHAN_BINDING, claim->name, claim->spec,
                                  op_last(op));
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type claim_type = {"openshell_claim", claim_states, 7, claim_step, NULL};

void openshell_claim(struct openshell_backend *b, struct op *op, struct claim *claim)
{
    struct openshell_claim *c = OP_CHILD(op, &claim_type, openshell_claim);

    c->backend = b;
    c->claim = claim;
    op_await_child(op, &c->op);
}
