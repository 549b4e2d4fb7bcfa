/* Wake: see what phase the sandbox is in, start it when it is down, wait until it is READY; and again
 * when it is stopped meanwhile, by another replica's idle stop or by an operator. */
#include "backends/openshell/backend.h"

enum { RETRY_MS = 500 };

struct openshell_wake {
    struct op op;
    struct openshell_backend *backend;
    const char *name;
    enum err_code code;
    struct wake *ret;
};

enum wake_state { WAKE_START, WAKE_GETTING, WAKE_STARTING, WAKE_PAUSING, WAKE_WAITING };
static const char *const wake_states[] = {"start", "getting", "starting", "pausing", "waiting"};

static bool phase_is_down(int phase)
{
    return phase == OPENSHELL__SANDBOX_PHASE__PHASE_STOPPED ||
           phase == OPENSHELL__SANDBOX_PHASE__PHASE_STOPPING;
}

static enum op_poll wake_step(struct op *op)
{
    struct openshell_wake *w = container_of(op, struct openshell_wake, op);
    struct rpc *rpc = &w->backend->rpc;
    struct wake *ret = w->ret;

    switch ((enum wake_state)op->state) {
    case WAKE_START:
        AWAIT(op, WAKE_GETTING, rpc_get(rpc, op, w->name, &ret->view));
        while (ret->view.phase != OPENSHELL__SANDBOX_PHASE__PHASE_READY) {
            ret->waited = true;
            while (phase_is_down(ret->view.phase)) {
                AWAIT_ANY(op, WAKE_STARTING, rpc_start(rpc, op, w->name, &ret->view));
                ret->started |= !op_last_failed(op) || op_last(op)->admitted == ADMITTED_UNKNOWN;
                if (op_last_failed(op) && !rpc_is(op_last(op), GRPC_FAILED_PRECONDITION) &&
                    !rpc_is(op_last(op), GRPC_ABORTED)) {
                    op_fail_with(op, op_last(op));
                    return OP_DONE;
                }
                if (op_last_failed(op)) /* still stopping, or somebody else was quicker */
                    AWAIT(op, WAKE_PAUSING, op_sleep(op, RETRY_MS));
            }
            AWAIT(op, WAKE_WAITING,
                  openshell_wait_ready(w->backend, op, w->name, w->code, &ret->view));
        }
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type wake_type = {"openshell_wake", wake_states, 5, wake_step, NULL};

void openshell_wake(struct openshell_backend *b, struct op *op, const char *name,
                    enum err_code code, struct wake *ret)
{
    struct openshell_wake *w = OP_CHILD(op, &wake_type, openshell_wake);

    w->backend = b;
    w->name = name;
    w->code = code;
    w->ret = ret;
    op_set_deadline_ms(&w->op, b->ready_timeout_ms, "waiting for the sandbox to become READY");
    op_await_child(op, &w->op);
}
