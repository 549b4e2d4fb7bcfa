/* Acquire: let an idle stop of ours in progress end, wake the sandbox (wake.c), make sure in one exec that
 * Home and Workspace are there and that shellctl answers, and reach shellctl through the tunnel once.
 *
 * A sandbox that was READY from the start must prove its life within the validation deadline; one
 * that had to be started has the ready timeout and the exec timeout. READY can fall back to
 * PROVISIONING (its supervisor reconnects): then it is waited for again.
 *
 * Lost is only NOT_FOUND and a missing Home or Workspace. Undo removes what this attempt did, no
 * more: the sandbox is stopped only if this attempt started it and nobody else uses it. */
#include "backends/openshell/backend.h"
#include "backends/openshell/names.h"
#include "backends/shellctl/client.h"

#include <stdlib.h>

enum {
    UNDO_BUDGET_MS = 65000,
    RETRY_MS = 500,
    HEALTH_TRIES = 3,
    EXEC_TRIES = 4,
};

struct openshell_acquire {
    struct op op;
    struct openshell_backend *backend;
    const char *name;
    struct plane **ret;
    struct sandbox_use *use;
    struct openshell_plane *plane;
    struct wake wake;
    struct sandbox_view view; /* of the stop that undoes a start */
    struct exec_result exec;
    int tries;
};

enum acquire_state {
    ACQUIRE_START,
    ACQUIRE_SETTLING,
    ACQUIRE_WAKING,
    ACQUIRE_BOOTSTRAPPING,
    ACQUIRE_RETRYING,
    ACQUIRE_PROBING,
    ACQUIRE_PROBE_PAUSING,
    ACQUIRE_STOPPING,
};
static const char *const acquire_states[] = {"start",         "settling", "waking",
                                             "bootstrapping", "retrying", "probing",
                                             "probe_pausing", "stopping"};

/* The exec was refused because READY did not last, or another gateway replica holds the session:
 * waiting again, on another connection, can help. The command has not run. */
static bool exec_may_repeat(struct openshell_acquire *a)
{
    const struct error *err = op_last(&a->op);

    if (!rpc_is(err, GRPC_FAILED_PRECONDITION) && !rpc_is(err, GRPC_UNAVAILABLE) &&
        !rpc_is(err, GRPC_DEADLINE_EXCEEDED))
        return false;
    if (op_failed(&a->op) || ++a->tries >= EXEC_TRIES)
        return false;
    if (rpc_is(err, GRPC_UNAVAILABLE))
        grpc_channel_renew(a->backend->rpc.channel);
    op_set_deadline_ms(&a->op, a->backend->ready_timeout_ms,
                       "waiting for the sandbox to become READY");
    return true;
}

static void acquire_exec_failed(struct openshell_acquire *a)
{
    if (a->exec.exit_code == OPENSHELL_EXIT_NO_LAYOUT)
        op_fail(&a->op, ERR_BINDING_LOST, "sandbox %s no longer holds its Home or Workspace",
                a->name);
    else
        op_fail(&a->op, ERR_BINDING_ACQUIRE, "shellctl bootstrap in sandbox %s failed: %s", a->name,
                a->exec.exit_code == 124 ? "the script did not end in time" : a->exec.output);
}

/* A plane over the sandbox's tunnel; the tunnel follows the sandbox to its present id. */
static void acquire_open_plane(struct openshell_acquire *a)
{
    struct openshell_backend *b = a->backend;
    struct sandbox_use *use = a->use;
    struct openshell_plane *p = xcalloc(1, sizeof(*p));

    if (use->tunnel == NULL) {
        use->tunnel = tunnel_new(b->base.loop, &b->rpc, a->name, a->wake.view.id, b->shellctl_port);
    } else {
        tunnel_hold(use->tunnel);
        if (a->wake.started)
            tunnel_reset(use->tunnel, a->wake.view.id);
    }
    use->planes++;
    p->use = use;
    p->tunnel = use->tunnel;
    p->plane = (struct plane){
        .backend = &b->base,
        .binding_ref = xstrdup(a->name),
        .layout = b->layout,
        .endpoint = {.base_url = "http://shellctl",
                     .dialer = tunnel_dialer(use->tunnel),
                     .poll_dialer = tunnel_poll_dialer(use->tunnel),
                     .token = b->shellctl_token,
                     .peer = "shellctl"},
    };
    a->plane = p;
}

/* What the failure is to the caller; the tunnel knows why an HTTP exchange through it broke. */
static void acquire_judge(struct openshell_acquire *a)
{
    struct error err = *op_error(&a->op);

    if (a->plane != NULL && error_is(tunnel_last_error(a->plane->tunnel)) &&
        (err.code == ERR_UPSTREAM_LOST || err.code == ERR_UPSTREAM_CONNECT))
        err = *tunnel_last_error(a->plane->tunnel);
    rpc_judge(&err, ERR_BINDING_ACQUIRE, ERR_BINDING_LOST);
    err.admitted = ADMITTED_NO; /* acquiring leaves nothing behind */
    if (err.code == ERR_BACKEND_OUTCOME_UNKNOWN)
        err.code = ERR_BINDING_ACQUIRE;
    *op_error_edit(&a->op) = err;
}

static bool acquire_should_stop(const struct openshell_acquire *a)
{
    return a->wake.started && a->use->planes == 0 && a->use->acquiring == 1;
}

static void acquire_close_plane(struct openshell_acquire *a)
{
    if (a->plane == NULL)
        return;
    openshell_plane_close(a->plane);
    a->plane = NULL;
}

static enum op_poll acquire_step(struct op *op)
{
    struct openshell_acquire *a = container_of(op, struct openshell_acquire, op);
    struct openshell_backend *b = a->backend;

    switch ((enum acquire_state)op->state) {
    case ACQUIRE_START:
        a->use = openshell_use_of(b, a->name);
        a->use->acquiring++;
        if (a->use->stopping != NULL)
            AWAIT(op, ACQUIRE_SETTLING, op_waitlist_wait(&a->use->stop_waiters, op));
        for (;;) {
            AWAIT(op, ACQUIRE_WAKING,
                  openshell_wake(b, op, a->name, ERR_BINDING_ACQUIRE, &a->wake));
            if (!a->wake.waited && a->tries == 0)
                op_set_deadline_ms(op, b->validation_timeout_ms, "validating the sandbox");
            AWAIT_ANY(op, ACQUIRE_BOOTSTRAPPING,
                      rpc_exec(&b->rpc, op, a->wake.view.id,
                               openshell_script_bootstrap(op->arena, &b->layout, b->shellctl_token,
                                                          b->shellctl_port),
                               b->exec_timeout_s, &a->exec));
            if (!op_last_failed(op))
                break;
            if (!exec_may_repeat(a)) {
                op_fail_with(op, op_last(op));
                goto undo;
            }
            AWAIT(op, ACQUIRE_RETRYING, op_sleep(op, RETRY_MS));
        }
        if (a->exec.exit_code != 0) {
            acquire_exec_failed(a);
            goto undo;
        }
        acquire_open_plane(a);
        for (a->tries = 1;; a->tries++) {
            AWAIT_ANY(op, ACQUIRE_PROBING,
                      shellctl_health(&b->base, op, &a->plane->plane.endpoint));
            if (!op_last_failed(op))
                break;
            if (a->tries == HEALTH_TRIES || op_failed(op) ||
                (op_last(op)->upstream_status >= 400 && op_last(op)->upstream_status < 500)) {
                op_fail_with(op, op_last(op));
                goto undo;
            }
            AWAIT(op, ACQUIRE_PROBE_PAUSING, op_sleep(op, RETRY_MS));
        }
        *a->ret = &a->plane->plane;
        a->plane = NULL;
        return OP_DONE;

    undo:
        acquire_judge(a);
        acquire_close_plane(a);
        if (acquire_should_stop(a)) {
            op_begin_undo(op, UNDO_BUDGET_MS);
            AWAIT_ANY(op, ACQUIRE_STOPPING, rpc_stop(&b->rpc, op, a->name, &a->view));
            if (op_last_failed(op))
                openshell_note_left_running(b, a->name, op_last(op));
        }
        return OP_DONE;
    }
    unreachable_state(op);
}

static void acquire_fini(struct op *op)
{
    struct openshell_acquire *a = container_of(op, struct openshell_acquire, op);

    acquire_close_plane(a);
    if (a->use != NULL) {
        a->use->acquiring--;
        openshell_use_settle(a->use);
    }
}

static const struct op_type acquire_type = {"openshell_acquire", acquire_states, 8, acquire_step,
                                            acquire_fini};

void openshell_acquire(struct backend *b, struct op *op, const char *binding_ref,
                       struct plane **ret)
{
    struct openshell_acquire *a;
    struct error err;

    if (!name_check_sandbox(binding_ref, &err)) {
        op_complete(op, &err);
        return;
    }
    a = OP_CHILD(op, &acquire_type, openshell_acquire);
    a->backend = openshell_of(b);
    a->name = arena_strdup(op->arena, binding_ref);
    a->ret = ret;
    op_await_child(op, &a->op);
}
