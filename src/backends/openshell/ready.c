/* Waiting for a phase. Polling GetSandbox: a watch stream per waiting sandbox would use up the 200
 * streams of a connection, has no end of its own on ERROR, says nothing on deletion, and must be
 * backed by a slow poll anyway (protocols "OpenShell gateway" 8.5). Polls start quickly and slow down
 * to two a second: a sandbox is in use well within a second of becoming READY. */
#include "backends/openshell/backend.h"

#include "core/runtime/backoff.h"

#include <string.h>

enum { POLL_FIRST_MS = 200, POLL_MAX_MS = 700, GONE_TIMEOUT_MS = 60000 };

struct wait_phase {
    struct op op;
    struct openshell_backend *backend;
    const char *name;
    bool gone; /* wait for NOT_FOUND in place of READY */
    enum err_code code;
    struct sandbox_view view, *ret;
    struct backoff pause;
    bool settled;
};

enum wait_state { WAIT_START, WAIT_GETTING, WAIT_PAUSING };
static const char *const wait_states[] = {"start", "getting", "pausing"};

/* Look at what GetSandbox said: settle, or go on. */
static void wait_judge(struct wait_phase *w)
{
    struct op *op = &w->op;
    struct error err = *op_last(op);
    bool absent = rpc_is(&err, GRPC_NOT_FOUND);

    if (w->gone) {
        w->settled = absent;
        if (!absent && op_last_failed(op) && !rpc_is(&err, GRPC_UNAVAILABLE)) {
            rpc_judge(&err, w->code, w->code);
            op_fail_with(op, &err);
        }
        return;
    }
    if (op_last_failed(op)) {
        if (rpc_is(&err, GRPC_UNAVAILABLE) || err.code == ERR_UPSTREAM_LOST ||
            err.code == ERR_UPSTREAM_CONNECT)
            return; /* a gateway restart: the deadline bounds it */
        if (absent)
            error_wrap(&err, w->code, "sandbox %s vanished while it was waited for", w->name);
        else
            rpc_judge(&err, w->code, w->code);
        op_fail_with(op, &err);
        return;
    }
    if (w->view.phase == OPENSHELL__SANDBOX_PHASE__PHASE_READY ||
        w->view.phase == OPENSHELL__SANDBOX_PHASE__PHASE_STOPPED) {
        *w->ret = w->view;
        w->settled = true;
    } else if (w->view.phase == OPENSHELL__SANDBOX_PHASE__PHASE_ERROR) {
        op_fail(op, w->code, "sandbox %s failed: %s%s%s", w->name,
                w->view.reason[0] != '\0' ? w->view.reason : "phase ERROR",
                w->view.message[0] != '\0' ? ": " : "", w->view.message);
    }
}

static enum op_poll wait_step(struct op *op)
{
    struct wait_phase *w = container_of(op, struct wait_phase, op);

    switch ((enum wait_state)op->state) {
    case WAIT_START:
        for (;;) {
            AWAIT_ANY(op, WAIT_GETTING, rpc_get(&w->backend->rpc, op, w->name, &w->view));
            wait_judge(w);
            if (w->settled || op_failed(op))
                return OP_DONE;
            AWAIT(op, WAIT_PAUSING, op_sleep(op, backoff_next_ms(&w->pause)));
        }
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type wait_type = {"openshell_wait_phase", wait_states, 3, wait_step, NULL};

static struct wait_phase *wait_new(struct openshell_backend *b, struct op *op, const char *name)
{
    struct wait_phase *w = OP_CHILD(op, &wait_type, wait_phase);

    w->backend = b;
    w->name = name;
    w->pause = (struct backoff){POLL_FIRST_MS, POLL_MAX_MS, 0};
    return w;
}

void openshell_wait_ready(struct openshell_backend *b, struct op *op, const char *name,
                          enum err_code code, struct sandbox_view *ret)
{
    struct wait_phase *w = wait_new(b, op, name);

    w->code = code;
    w->ret = ret;
    op_set_deadline_ms(&w->op, b->ready_timeout_ms, "waiting for the sandbox to become READY");
    op_await_child(op, &w->op);
}

void openshell_wait_gone(struct openshell_backend *b, struct op *op, const char *name)
{
    struct wait_phase *w = wait_new(b, op, name);

    w->gone = true;
    w->code = ERR_BINDING_DESTROY;
    op_set_deadline_ms(&w->op, GONE_TIMEOUT_MS, "waiting for the sandbox to be deleted");
    op_await_child(op, &w->op);
}
