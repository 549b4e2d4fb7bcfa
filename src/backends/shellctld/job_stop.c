/* Tells the runner to end the job within the grace (it interrupts, terminates, then kills), waits
 * for the job's end, and returns.
 *
 * The runner does not take the command: asked again, for a while.
 * The runner does not end the job in the grace and some seconds: it is killed itself, and what it
 * leaves is cleaned up by job_process.
 * Even that does not end it: STOP_FAILED; the job stays what it is.
 * Cancelled (the caller has gone): the command stands, the job ends all the same. */
#include "backends/shellctld/job_stop.h"

#include "backends/shellctld/fault.h"
#include "backends/shellctld/job_process.h"
#include "backends/shellctld/job_runner.h"
#include "core/runtime/log.h"

enum {
    ASK_PAUSE_MS = 20,
    ASK_MS = 2000,      /* a runner that takes no command for this long is killed */
    OVERDUE_MS = 3000,  /* beyond the grace: the runner's own clean-up */
    GIVE_UP_MS = 10000, /* after its SIGKILL: clean-up of what it left */
};

enum stop_state { STOP_START, STOP_ASKING, STOP_ENDING, STOP_KILLING };
static const char *const stop_states[] = {"start", "asking", "ending", "killing"};

/* The job while it is live; NULL when the stop is over: ended, or gone (which fails the op). */
static struct job *live_job(struct job_stop *s)
{
    struct error err = {0};
    struct job *job = job_find_in(s->jobs, s->job_id, &s->scope, &err);

    if (job == NULL)
        op_fail_with(&s->op, &err);
    return job != NULL && !job_status_is_terminal(job->status) ? job : NULL;
}

/* True when the command was taken, or will never be: then the runner has ended, or is killed. */
static bool ask(struct job_stop *s, struct job *job)
{
    struct error err = {0};

    job->stopping = true;
    if (job_runner_terminate(job->dir, s->grace_ms, &err) || err.code == ERR_CONFLICT)
        return true;
    if (err.code == ERR_OVERLOADED && loop_now_ms(s->op.loop) < s->ask_until_ms)
        return false;
    LOG_WITH(LOG_WARN, err.message, {"job", job->id});
    s->give_up_ms = loop_now_ms(s->op.loop); /* nothing to wait for */
    return true;
}

static void kill_runner(struct job_stop *s, struct job *job)
{
    LOG_WITH(LOG_WARN, "the runner did not end its job in time and is killed", {"job", job->id});
    job_process_kill(job);
    s->give_up_ms = loop_now_ms(s->op.loop) + GIVE_UP_MS;
}

static int64_t left_ms(const struct job_stop *s)
{
    return s->give_up_ms - loop_now_ms(s->op.loop);
}

static enum op_poll stop_step(struct op *op)
{
    struct job_stop *s = container_of(op, struct job_stop, op);
    struct job *job;

    switch ((enum stop_state)op->state) {
    case STOP_START:
        s->ask_until_ms = loop_now_ms(op->loop) + ASK_MS;
        s->give_up_ms = loop_now_ms(op->loop) + s->grace_ms + OVERDUE_MS;
        while ((job = live_job(s)) != NULL && !ask(s, job))
            AWAIT(op, STOP_ASKING, job_watch(job, &s->watcher, op, ASK_PAUSE_MS));
        while ((job = live_job(s)) != NULL && left_ms(s) > 0)
            AWAIT(op, STOP_ENDING, job_watch(job, &s->watcher, op, left_ms(s)));
        if ((job = live_job(s)) != NULL)
            kill_runner(s, job);
        while ((job = live_job(s)) != NULL && left_ms(s) > 0)
            AWAIT(op, STOP_KILLING, job_watch(job, &s->watcher, op, left_ms(s)));
        if (live_job(s) != NULL) {
            struct error err;
            fault_set(&err, FAULT_STOP_FAILED, "the job's processes did not end");
            op_fail_with(op, &err);
        }
        return OP_DONE;

    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type stop_type = {"shellctl_stop", stop_states, 4, stop_step, NULL};

struct job_stop *job_stop_new(struct loop *loop, struct arena *arena, struct op *parent,
                              struct job_table *jobs, const char *job_id, const struct scope *scope,
                              int64_t grace_ms)
{
    struct job_stop *s = parent != NULL ? OP_CHILD(parent, &stop_type, job_stop)
                                        : OP_ROOT(loop, &stop_type, job_stop, arena);

    s->jobs = jobs;
    s->job_id = job_id;
    s->scope = *scope;
    s->grace_ms = grace_ms;
    return s;
}
