/* Open a validated plane of a binding.
 *
 * Happy path: nobody validates this binding now: validate it (ops->acquire) under one total
 *   deadline. Somebody does: wait for that result, then open a plane of our own without a second
 *   probe (ops->reopen).
 * Failures: the one who validates fails: all who joined get the same error, except that its own
 *   cancellation or deadline is no answer for them, so the first of them validates anew in the
 *   time it has left. Anything after the plane exists gives it back. */
#include "core/domain/broker_internal.h"

struct plane_open {
    struct op op;
    struct broker *broker;
    const char *binding_ref;
    struct plane **ret;
    struct plane *plane;
    struct flight flight;
};

enum plane_open_state {
    PLANE_START,
    PLANE_JOINING,
    PLANE_REOPENING,
    PLANE_VALIDATING,
};
static const char *const plane_open_states[] = {"start", "joining", "reopening", "validating"};

static bool speaks_for_others(const struct error *error)
{
    return error->code != ERR_CANCELLED && error->code != ERR_DEADLINE;
}

static void join(struct plane_open *t, struct op *op)
{
    op_waitlist_wait(&flight_find(&t->broker->validating, t->binding_ref)->waiters, op);
}

static enum op_poll plane_open_step(struct op *op)
{
    struct plane_open *t = container_of(op, struct plane_open, op);
    struct backend *backend = t->broker->backend;

    switch ((enum plane_open_state)op->state) {
    case PLANE_START:
        if (!(backend->caps & BACKEND_COLD_START))
            op_set_deadline_ms(op, t->broker->options.acquire_timeout_ms,
                               "the validation of the binding");
        while (flight_find(&t->broker->validating, t->binding_ref) != NULL) {
            AWAIT_ANY(op, PLANE_JOINING, join(t, op));
            if (op_failed(op))
                goto undo;
            if (!op_last_failed(op)) {
                AWAIT(op, PLANE_REOPENING,
                      backend->ops->reopen(backend, op, t->binding_ref, &t->plane));
                goto opened;
            }
            if (speaks_for_others(op_last(op))) {
                op_fail_with(op, op_last(op));
                goto undo;
            }
        }
        flight_begin(&t->broker->validating, &t->flight, t->binding_ref);
        AWAIT(op, PLANE_VALIDATING, backend->ops->acquire(backend, op, t->binding_ref, &t->plane));
    opened:
        flight_end(&t->flight, NULL);
        *t->ret = t->plane;
        return OP_DONE;

    undo:
        broker_wrap_error(op_error_edit(op), ERR_BINDING_ACQUIRE);
        if (op_error(op)->code == ERR_BINDING_LOST && t->flight.key != NULL)
            broker_binding_lost(t->broker, t->binding_ref, op_error(op));
        flight_end(&t->flight, op_error(op));
        if (t->plane != NULL)
            lease_give_back(t->broker->leases, t->plane);
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type plane_open_type = {"plane_open", plane_open_states, 4, plane_open_step,
                                               NULL};

void broker_plane_open(struct broker *broker, struct op *op, const char *binding_ref,
                       struct plane **ret)
{
    struct plane_open *t = OP_CHILD(op, &plane_open_type, plane_open);

    t->broker = broker;
    t->binding_ref = arena_strdup(op->arena, binding_ref);
    t->ret = ret;
    op_await_child(op, &t->op);
}

void broker_plane_detach(struct broker *broker, const char *binding_ref)
{
    struct flight *flight = flight_find(&broker->validating, binding_ref);

    if (flight != NULL)
        flight_detach(flight);
}
