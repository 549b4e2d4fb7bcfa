/* Creates and destroys that come through Dify's routes, where the caller keeps the owners and gives
 * every binding an id of its own.
 *
 * Create: claim the id; create; activate. The same id with the same spec gives the same refs, while
 *   the first is under way it is waited for; with another spec it is a conflict.
 * Destroy: retire the row and claim its destruction in one transaction; destroy; let the row go. A
 *   binding that no row tells of is destroyed all the same. When destroying fails, the collector
 *   goes on with it. */
#include "core/domain/lifecycle_internal.h"

#include <string.h>

/* ---- create ----------------------------------------------------------------------------------------- */

struct recorded_create {
    struct op op;
    struct lifecycle *lc;
    const struct binding_spec *spec;
    struct binding *ret;
    struct ledger_watch watch;
    struct ledger_claim claim;
    struct ledger_claimed claimed;
    struct claimed_create_spec create;
    struct ledger_binding *row;
    bool claiming, done;
};

enum recorded_state {
    RECORDED_START,
    RECORDED_CLAIMING,
    RECORDED_WAITING,
    RECORDED_CREATING,
    RECORDED_GIVING_UP
};
static const char *const recorded_states[] = {"start", "claiming", "waiting", "creating",
                                              "giving_up"};

static void recorded_claim(struct recorded_create *t, struct op *op)
{
    const struct binding_spec *spec = t->spec;
    struct lifecycle *lc = t->lc;

    t->claiming = true;
    t->claim = (struct ledger_claim){
        .row = {.id = spec->binding_id,
                .tenant_id = spec->tenant_id,
                .agent_id = spec->agent_id,
                .workspace_id = spec->workspace_id,
                .backend = broker_backend(lc->broker)->ops->name,
                .home_snapshot_ref = spec->home_snapshot_ref,
                .spec_digest = spec_digest(op->arena, spec)},
        .workspace_ref = spec->existing_workspace_ref,
        .claim_ms = lc->options.claim_ms,
        .tenant_max = lc->options.tenant_max_bindings,
        .tenant_max_creating = lc->options.tenant_max_creates,
        .cause = {"api", "asked for by its id"},
    };
    lc->ledger->ops->claim_binding(lc->ledger, op, &t->claim, &t->claimed);
}

static bool same_spec(struct recorded_create *t, struct op *op)
{
    const char *digest = t->claimed.row->spec_digest;

    if (digest != NULL && strcmp(digest, t->claim.row.spec_digest) == 0)
        return true;
    op_fail(op, ERR_CONFLICT,
            "binding_id %s was used for another binding: an id stands for one binding only",
            t->spec->binding_id);
    return false;
}

static int64_t recorded_wait_ms(const struct recorded_create *t)
{
    int64_t left = t->claimed.row->claimed_until - loop_wall_ms(t->lc->loop);

    return left < 1 ? 1 : left > LIFECYCLE_WAIT_MS ? LIFECYCLE_WAIT_MS : left;
}

static enum op_poll recorded_step(struct op *op)
{
    struct recorded_create *t = container_of(op, struct recorded_create, op);
    struct ledger *ledger = t->lc->ledger;
    struct error err;

    switch ((enum recorded_state)op->state) {
    case RECORDED_START:
        watch_begin(&ledger->watches, &t->watch, binding_watch_key(op->arena, t->spec->binding_id));
        for (;;) {
            AWAIT_HELD(op, RECORDED_CLAIMING, recorded_claim(t, op));
            t->claiming = t->claimed.outcome == CLAIM_NEW || t->claimed.outcome == CLAIM_TAKEN_OVER;
            if (t->claimed.row != NULL && !same_spec(t, op))
                goto undo;
            if (t->claimed.outcome != CLAIM_BUSY)
                break;
            AWAIT(op, RECORDED_WAITING, watch_wait(&t->watch, op, recorded_wait_ms(t)));
            if (error_is(&t->watch.error)) {
                op_fail_with(op, &t->watch.error);
                return OP_DONE;
            }
        }
        t->row = t->claimed.row;
        if (t->claiming) {
            t->create = (struct claimed_create_spec){
                .claimed = &t->claimed, .binding = *t->spec, .cause = {"api", NULL}};
            AWAIT(op, RECORDED_CREATING, claimed_create(t->lc, op, &t->create, &t->row));
        } else if (t->claimed.outcome != CLAIM_FOUND) {
            claim_refusal(t->lc, t->claimed.outcome, &t->claim.row, &err);
            op_fail_with(op, &err);
            return OP_DONE;
        }
        POST(t->row != NULL); /* found with its row, or made with one */
        *t->ret = (struct binding){t->row->binding_ref, t->row->workspace_ref};
        return OP_DONE;

    undo:
        if (t->claiming && !t->create.started) {
            op_begin_undo(op, LIFECYCLE_UNDO_MS);
            AWAIT_ANY(op, RECORDED_GIVING_UP,
                      ledger->ops->abandon_binding(ledger, op, &t->claim.row, op_error(op),
                                                   t->claimed.outcome == CLAIM_TAKEN_OVER,
                                                   &t->done));
        }
        return OP_DONE;
    }
    unreachable_state(op);
}

static void recorded_fini(struct op *op)
{
    watch_end(&container_of(op, struct recorded_create, op)->watch);
}

static const struct op_type recorded_type = {"recorded_create", recorded_states, 5, recorded_step,
                                             recorded_fini};

void lifecycle_create_binding(struct lifecycle *lc, struct op *op, const struct binding_spec *spec,
                              struct binding *ret)
{
    struct error err = {0};
    struct recorded_create *t;

    if (!broker_check_create(lc->broker, spec, &err)) {
        op_complete(op, &err);
        return;
    }
    t = OP_CHILD(op, &recorded_type, recorded_create);
    t->lc = lc;
    t->spec = spec;
    t->ret = ret;
    op_await_child(op, &t->op);
}

/* ---- destroy -------------------------------------------------------------------------------------------- */

struct recorded_destroy {
    struct op op;
    struct lifecycle *lc;
    const struct destroy_spec *spec;
    struct ledger_binding *row;
    struct ledger_retire retire;
    struct ledger_retired retired;
    struct ledger_work work;
    struct ledger_cause cause;
    bool done;
};

enum destroy_state {
    DESTROY_START,
    DESTROY_FINDING,
    DESTROY_RETIRING,
    DESTROY_DESTROYING,
    DESTROY_FINISHING,
    DESTROY_PUTTING_OFF
};
static const char *const destroy_states[] = {"start",      "finding",   "retiring",
                                             "destroying", "finishing", "putting_off"};

static void destroy_retire(struct recorded_destroy *t, struct op *op)
{
    struct ledger *ledger = t->lc->ledger;

    t->retire = (struct ledger_retire){
        .binding_id = t->row->id,
        .keep_workspace = !t->spec->destroy_workspace,
        .claim_ms = t->lc->options.claim_ms,
        .cause = {"api", "destroyed by its ref"},
    };
    ledger->ops->retire(ledger, op, &t->retire, &t->retired);
}

/* The rows that this call may let go: its own binding's, or with the workspace all of it. */
static void destroy_work(struct recorded_destroy *t)
{
    t->cause = (struct ledger_cause){"api", "destroyed by its ref"};
    if (t->retired.n_workspaces > 0)
        t->work = (struct ledger_work){.kind = WORK_WORKSPACE, .id = t->row->workspace_id};
    else
        t->work = (struct ledger_work){.kind = WORK_BINDING, .id = t->row->id, .binding = t->row};
}

static enum op_poll destroy_step(struct op *op)
{
    struct recorded_destroy *t = container_of(op, struct recorded_destroy, op);
    struct lifecycle *lc = t->lc;
    struct ledger *ledger = lc->ledger;

    switch ((enum destroy_state)op->state) {
    case DESTROY_START:
        AWAIT(op, DESTROY_FINDING,
              ledger->ops->find_ref(ledger, op, broker_backend(lc->broker)->ops->name,
                                    t->spec->binding_ref, &t->row));
        if (t->row != NULL)
            AWAIT(op, DESTROY_RETIRING, destroy_retire(t, op));
        AWAIT(op, DESTROY_DESTROYING, broker_destroy_binding(lc->broker, op, t->spec));
        if (t->row == NULL)
            return OP_DONE;
        destroy_work(t);
        /* That the row stays is no failure of the destruction: the collector finds it. */
        AWAIT_ANY(op, DESTROY_FINISHING,
                  ledger->ops->finish_work(ledger, op, &t->work, &t->cause, &t->done));
        if (!t->done && lc->options.retired != NULL)
            lc->options.retired(lc->options.ctx);
        return OP_DONE;

    undo:
        if (t->row != NULL && t->retired.n_bindings > 0) {
            op_begin_undo(op, LIFECYCLE_UNDO_MS);
            destroy_work(t);
            AWAIT_ANY(op, DESTROY_PUTTING_OFF,
                      ledger->ops->retry_work(ledger, op, &t->work, op_error(op),
                                              work_retry_delay_ms(1)));
        }
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type destroy_type = {"recorded_destroy", destroy_states, 6, destroy_step,
                                            NULL};

void lifecycle_destroy_binding(struct lifecycle *lc, struct op *op, const struct destroy_spec *spec)
{
    struct error err = {0};
    struct recorded_destroy *t;

    if (!broker_check_destroy(lc->broker, spec, &err)) {
        op_complete(op, &err);
        return;
    }
    t = OP_CHILD(op, &destroy_type, recorded_destroy);
    t->lc = lc;
    t->spec = spec;
    op_await_child(op, &t->op);
}
