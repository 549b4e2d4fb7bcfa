/* Hands the text to the runner, whole, then waits as `wait` does.
 *
 * The job has ended, also while the text was on its way: JOB_NOT_RUNNING.
 * The job has no terminal: INPUT_UNSUPPORTED.
 * The runner takes no more for now: again a little later; OVERLOADED when that goes on. */
#include "backends/shellctld/job_input.h"

#include "backends/shellctld/fault.h"
#include "backends/shellctld/job_runner.h"

enum { RETRY_PAUSE_MS = 20, RETRY_MS = 5000 };

enum input_state { INPUT_START, INPUT_RETRYING, INPUT_WAITING };
static const char *const input_states[] = {"start", "retrying", "waiting"};

/* The job if it can be typed to; else NULL and the op has failed. */
static struct job *typing_job(struct job_input *in)
{
    struct error err = {0};
    struct job *job = job_find_in(in->jobs, in->job_id, &in->scope, &err);

    if (job != NULL && job_status_is_terminal(job->status))
        fault_set(&err, FAULT_JOB_NOT_RUNNING, "the job has ended");
    else if (job != NULL && job->stdio)
        fault_set(&err, FAULT_INPUT_UNSUPPORTED, "a stdio job takes no input");
    if (!error_is(&err))
        return job;
    op_fail_with(&in->op, &err);
    return NULL;
}

/* False: to be tried again. */
static bool deliver(struct job_input *in, struct job *job)
{
    struct error err = {0};

    if (job_runner_input(job->dir, in->request.text, in->request.text_len, &err))
        return true;
    if (err.code == ERR_OVERLOADED && loop_now_ms(in->op.loop) < in->give_up_ms)
        return false;
    if (err.code == ERR_CONFLICT)
        fault_set(&err, FAULT_JOB_NOT_RUNNING, "the job has ended");
    op_fail_with(&in->op, &err);
    return true;
}

static enum op_poll input_step(struct op *op)
{
    struct job_input *in = container_of(op, struct job_input, op);
    struct job *job;

    switch ((enum input_state)op->state) {
    case INPUT_START:
        in->give_up_ms = loop_now_ms(op->loop) + RETRY_MS;
        while ((job = typing_job(in)) != NULL && !deliver(in, job))
            AWAIT(op, INPUT_RETRYING, job_watch(job, &in->watcher, op, RETRY_PAUSE_MS));
        if (op_failed(op))
            return OP_DONE;
        in->wait = job_wait_new(op->loop, op->arena, op, in->jobs, in->job_id, &in->scope,
                                &in->request.wait);
        AWAIT(op, INPUT_WAITING, op_await_child(op, &in->wait->op));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type input_type = {"shellctl_input", input_states, 3, input_step, NULL};

struct job_input *job_input_new(struct loop *loop, struct arena *arena, struct job_table *jobs,
                                const char *job_id, const struct scope *scope,
                                const struct input_request *request)
{
    struct job_input *in = OP_ROOT(loop, &input_type, job_input, arena);

    in->jobs = jobs;
    in->job_id = job_id;
    in->scope = *scope;
    in->request = *request;
    return in;
}
