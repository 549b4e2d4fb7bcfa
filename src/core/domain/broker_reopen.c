/* Open a lease that this replica knows by its token only.
 *
 * Happy path: nobody opens it now; it was not revoked; the backend opens a plane without a probe;
 *   the lease joins the table, to be dropped when idle. Somebody opens it: wait, and find it.
 * Failures: revoked: buried here too, so the question is asked once. Lost: buried as lost. A
 *   plane that cannot be kept is given back. */
#include "core/domain/broker_internal.h"

struct lease_reopen {
    struct op op;
    struct broker *broker;
    const struct lease_claims *claims;
    struct plane *plane;
    struct flight flight;
    bool revoked;
};

enum reopen_state {
    REOPEN_START,
    REOPEN_JOINING,
    REOPEN_CHECKING,
    REOPEN_OPENING,
};
static const char *const reopen_states[] = {"start", "joining", "checking", "opening"};

static void join(struct lease_reopen *t, struct op *op)
{
    op_waitlist_wait(&flight_find(&t->broker->reopening, t->claims->id)->waiters, op);
}

static void bury(struct lease_reopen *t, enum lease_end why)
{
    lease_bury(t->broker->leases, t->claims->id, why, t->claims->expires_wall_ms);
}

/* Is there nothing left to do, because another has done it or the lease has ended meanwhile? */
static bool settled(struct lease_reopen *t, struct op *op)
{
    enum lease_end end;

    if (lease_find(t->broker->leases, t->claims->id) != NULL)
        return true;
    end = lease_ended_how(t->broker->leases, t->claims->id);
    if (end == LEASE_LOST)
        op_fail(op, ERR_BINDING_LOST, "the binding of this lease is gone");
    else if ((end != LEASE_ALIVE && end != LEASE_EXPIRED) ||
             t->claims->expires_wall_ms <= loop_wall_ms(op->loop))
        op_fail(op, ERR_LEASE_GONE, "the lease has ended: acquire a new one");
    return op_failed(op);
}

static enum op_poll reopen_step(struct op *op)
{
    struct lease_reopen *t = container_of(op, struct lease_reopen, op);
    struct broker *b = t->broker;

    switch ((enum reopen_state)op->state) {
    case REOPEN_START:
        if (!(b->backend->caps & BACKEND_COLD_START))
            op_set_deadline_ms(op, b->options.acquire_timeout_ms, "opening the lease");
        while (flight_find(&b->reopening, t->claims->id) != NULL) {
            AWAIT_ANY(op, REOPEN_JOINING, join(t, op));
            if (op_failed(op))
                goto undo;
        }
        if (settled(t, op))
            goto undo;
        flight_begin(&b->reopening, &t->flight, t->claims->id);
        if (b->revocations.check != NULL) {
            AWAIT(op, REOPEN_CHECKING,
                  b->revocations.check(b->revocations.ctx, op, t->claims->id, &t->revoked));
            if (t->revoked) {
                bury(t, LEASE_RELEASED);
                op_fail(op, ERR_LEASE_GONE, "the lease was released: acquire a new one");
                goto undo;
            }
        }
        AWAIT(op, REOPEN_OPENING,
              b->backend->ops->reopen(b->backend, op, t->claims->binding_ref, &t->plane));
        if (settled(t, op) || !broker_has_room(b, op))
            goto undo;
        lease_adopt(b->leases, t->plane, t->claims);
        t->plane = NULL;

    undo:
        flight_end(&t->flight, NULL);
        if (t->plane != NULL)
            lease_give_back(b->leases, t->plane);
        broker_wrap_error(op_error_edit(op), ERR_BINDING_ACQUIRE);
        if (op_error(op)->code == ERR_BINDING_LOST &&
            lease_ended_how(b->leases, t->claims->id) != LEASE_LOST) {
            bury(t, LEASE_LOST);
            broker_binding_lost(b, t->claims->binding_ref, op_error(op));
        }
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type reopen_type = {"lease_reopen", reopen_states, 4, reopen_step, NULL};

void broker_reopen(struct broker *broker, struct op *op, const struct lease_claims *claims)
{
    struct lease_reopen *t = OP_CHILD(op, &reopen_type, lease_reopen);
    struct error err = {0};

    if (!broker_check_binding_ref(broker, claims->binding_ref, &err)) {
        op_complete(op, &err);
        return;
    }
    t->broker = broker;
    t->claims = claims;
    op_await_child(op, &t->op);
}
