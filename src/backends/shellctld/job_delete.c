/* Stops the job if it runs, then removes it.
 *
 * It runs and no force was given: JOB_RUNNING, nothing done.
 * It cannot be stopped: STOP_FAILED, the job stays.
 * The caller goes away while it is being stopped: it is stopped and removed all the same.
 * Somebody else removed it meanwhile: success, it is gone. */
#include "backends/shellctld/job_delete.h"

#include "backends/shellctld/fault.h"
#include "backends/shellctld/job_store.h"

enum delete_state { DELETE_START, DELETE_STOPPING };
static const char *const delete_states[] = {"start", "stopping"};

/* True when the job must be stopped first. */
static bool must_stop(struct job_delete *d)
{
    struct error err = {0};
    struct job *job = job_find_in(d->jobs, d->job_id, &d->scope, &err);

    if (job != NULL && job_status_is_terminal(job->status))
        return false;
    if (job != NULL && d->force)
        return true;
    if (job != NULL)
        fault_set(&err, FAULT_JOB_RUNNING, "the job runs; delete it with force=true");
    op_fail_with(&d->op, &err);
    return false;
}

static enum op_poll delete_step(struct op *op)
{
    struct job_delete *d = container_of(op, struct job_delete, op);
    struct job *job;

    switch ((enum delete_state)op->state) {
    case DELETE_START:
        if (must_stop(d)) {
            d->stop =
                job_stop_new(op->loop, op->arena, op, d->jobs, d->job_id, &d->scope, d->grace_ms);
            AWAIT_HELD(op, DELETE_STOPPING, op_await_child(op, &d->stop->op));
        }

    undo: /* also the way of success: what has ended goes */
        job = job_find(d->jobs, d->job_id);
        if (job != NULL && scope_equal(&job->scope, &d->scope) &&
            job_status_is_terminal(job->status))
            job_store_delete(job);
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type delete_type = {"shellctl_delete", delete_states, 2, delete_step, NULL};

struct job_delete *job_delete_new(struct loop *loop, struct arena *arena, struct job_table *jobs,
                                  const char *job_id, const struct scope *scope, bool force,
                                  int64_t grace_ms)
{
    struct job_delete *d = OP_ROOT(loop, &delete_type, job_delete, arena);

    d->jobs = jobs;
    d->job_id = job_id;
    d->scope = *scope;
    d->force = force;
    d->grace_ms = grace_ms;
    return d;
}
