/* Acquire: prove within one total deadline (5 s) that the sandbox answers and still has its Home
 * and Workspace. One request when the probe's job is done in the first answer; the job is deleted
 * behind the caller's back. Nothing is ever created.
 *
 * Lost is only what the gateway calls gone (HTTP 404 or its codes) and a probe that finds a
 * directory missing. shellctl's own `job_not_found`, and a 404 that is no JSON (a proxy that is
 * still starting), are tried once more and are no proof of loss. */
#include "backends/enterprise/backend.h"
#include "backends/shellctl/control_command.h"
#include "backends/shellctl/scripts.h"

#include <string.h>

struct enterprise_acquire {
    struct op op;
    struct enterprise_backend *backend;
    struct plane *plane;
    struct plane **ret;
    struct control_command command;
    struct control_result probe;
};

enum { ROUTE_PAUSE_MS = 250 };

enum acquire_state { ACQUIRE_START, ACQUIRE_PROBING, ACQUIRE_PAUSING, ACQUIRE_PROBING_AGAIN };
static const char *const acquire_states[] = {"start", "probing", "pausing", "probing_again"};

/* A proxy that is still starting answers its own pages. */
static bool says_no_route(const struct error *err)
{
    return err->upstream_status == 404 && strcmp(err->upstream_code, "invalid_json") == 0;
}

/* What a failed probe is to the caller. */
static void acquire_judge(struct enterprise_acquire *a, const char *binding_ref)
{
    struct error err = *op_error(&a->op);
    enum err_code code = ERR_BINDING_ACQUIRE;

    if (enterprise_says_gone(err.upstream_status, err.upstream_code))
        code = ERR_BINDING_LOST;
    else if (err.code == ERR_CANCELLED || err.code == ERR_DEADLINE || err.code == ERR_OVERLOADED ||
             err.code == ERR_RATE_LIMITED)
        code = err.code;
    else if (err.upstream_status == 429)
        code = ERR_RATE_LIMITED;
    else if (err.upstream_status == 503)
        code = ERR_OVERLOADED;
    else if (err.upstream_status == 401 || err.upstream_status == 403)
        code = ERR_BACKEND_AUTH;
    error_wrap(&err, code, "sandbox %s", binding_ref);
    *op_error_edit(&a->op) = err;
}

static void acquire_probe(struct enterprise_acquire *a)
{
    control_command_run(&a->backend->base, &a->op, &a->plane->endpoint, &a->command, &a->probe);
}

static enum op_poll acquire_step(struct op *op)
{
    struct enterprise_acquire *a = container_of(op, struct enterprise_acquire, op);

    switch ((enum acquire_state)op->state) {
    case ACQUIRE_START:
        AWAIT_ANY(op, ACQUIRE_PROBING, acquire_probe(a));
        if (op_last_failed(op) && says_no_route(op_last(op))) {
            AWAIT(op, ACQUIRE_PAUSING, op_sleep(op, ROUTE_PAUSE_MS));
            AWAIT_ANY(op, ACQUIRE_PROBING_AGAIN, acquire_probe(a));
        }
        if (op_last_failed(op)) {
            op_fail_with(op, op_last(op));
            goto undo;
        }
        if (a->probe.exit_code != 0) {
            op_fail(op, ERR_BINDING_LOST, "sandbox %s no longer holds its Home or Workspace",
                    a->plane->binding_ref);
            return OP_DONE;
        }
        *a->ret = a->plane;
        a->plane = NULL;
        return OP_DONE;

    undo:
        acquire_judge(a, a->plane->binding_ref);
        return OP_DONE;
    }
    unreachable_state(op);
}

static void acquire_fini(struct op *op)
{
    struct enterprise_acquire *a = container_of(op, struct enterprise_acquire, op);

    enterprise_plane_free(a->plane);
}

static const struct op_type acquire_type = {"enterprise_acquire", acquire_states, 4, acquire_step,
                                            acquire_fini};

void enterprise_acquire(struct backend *b, struct op *op, const char *binding_ref,
                        struct plane **ret)
{
    struct enterprise_acquire *a;
    struct error err;

    if (!b->ops->check_binding_ref(b, binding_ref, &err)) {
        op_complete(op, &err);
        return;
    }
    a = OP_CHILD(op, &acquire_type, enterprise_acquire);
    a->backend = container_of(b, struct enterprise_backend, base);
    a->plane = enterprise_plane_new(a->backend, binding_ref);
    a->ret = ret;
    a->command = (struct control_command){
        .script = a->backend->probe_script,
        .deadline_ms = a->backend->validation_timeout_ms,
        .phase = "the validation probe",
        .repeatable = true,
    };
    op_await_child(op, &a->op);
}
