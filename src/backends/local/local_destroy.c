/* Destroy a binding: end the jobs that still run in it (only the embedded daemon knows whose a job
 * is), then remove Home and, if asked, Workspace.
 *
 * Failures: a job that cannot be ended does not stop the removal; a removal that is not confirmed
 * fails with ERR_BINDING_DESTROY and may be repeated. Refs are checked before anything is sent. */
#include "backends/local/local_internal.h"

#include <string.h>

struct destroy {
    struct op op;
    struct local_backend *l;
    struct local_ref ref;
    const char *workspace_path; /* NULL = kept */
    struct endpoint endpoint;   /* of the binding */
    struct shellctl_list jobs;
    struct shellctl_view view;
    struct control_result result;
    size_t at;
};

enum destroy_state {
    DESTROY_START,
    DESTROY_LISTING,
    DESTROY_STOPPING,
    DESTROY_FORGETTING,
    DESTROY_REMOVING,
};
static const char *const destroy_states[] = {"start", "listing", "stopping", "forgetting",
                                             "removing"};

static void remove_folders(struct destroy *d)
{
    const char *script =
        local_script_remove(d->op.arena, d->l->home_root, d->ref.binding_id, d->workspace_path);

    local_run_script(d->l, &d->op, script, "removing the binding", &d->result);
}

static enum op_poll destroy_step(struct op *op)
{
    struct destroy *d = container_of(op, struct destroy, op);
    struct backend *b = &d->l->backend;

    switch ((enum destroy_state)op->state) {
    case DESTROY_START:
        if (d->l->embedded) {
            AWAIT_ANY(op, DESTROY_LISTING, shellctl_jobs(b, op, &d->endpoint, &d->jobs));
            if (op_failed(op))
                goto undo;
            if (op_last_failed(op))
                d->jobs.n_jobs = 0; /* gone already, or not to be had: the removal shows which */
        }
        for (d->at = 0; d->at < d->jobs.n_jobs; d->at++) {
            AWAIT_ANY(
                op, DESTROY_STOPPING,
                shellctl_terminate(b, op, &d->endpoint, d->jobs.jobs[d->at].job_id, 0, &d->view));
            if (op_failed(op))
                goto undo;
            AWAIT_ANY(op, DESTROY_FORGETTING,
                      shellctl_delete(b, op, &d->endpoint, d->jobs.jobs[d->at].job_id));
            if (op_failed(op))
                goto undo;
        }
        AWAIT(op, DESTROY_REMOVING, remove_folders(d));
        if (d->result.exit_code != 0)
            op_fail(op, ERR_BINDING_DESTROY, "removing the binding failed (exit code %d): %.300s",
                    d->result.exit_code, d->result.output);
    undo:
        shellctl_wrap_error(op_error_edit(op), ERR_BINDING_DESTROY);
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type destroy_type = {"local_destroy", destroy_states, 5, destroy_step, NULL};

void local_destroy(struct backend *b, struct op *op, const struct destroy_spec *spec)
{
    struct destroy *d = OP_CHILD(op, &destroy_type, destroy);
    struct error error;

    d->l = local_of(b);
    if (!local_parse_ref(d->l, op->arena, spec->binding_ref, &d->ref, &error)) {
        op_complete(op, &error);
        return;
    }
    if (spec->destroy_workspace &&
        (spec->workspace_ref == NULL || strcmp(spec->workspace_ref, d->ref.workspace_id) != 0)) {
        error_set(&error, ERR_INVALID_REF,
                  "workspace_ref: is not the ref of this binding's workspace");
        op_complete(op, &error);
        return;
    }
    d->endpoint = local_endpoint(d->l, &d->ref.layout);
    d->workspace_path = spec->destroy_workspace ? d->ref.layout.workspace_dir : NULL;
    op_await_child(op, &d->op);
}
