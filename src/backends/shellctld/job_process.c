#include "backends/shellctld/job_process.h"

#include "backends/shellctld/job_runner.h"
#include "backends/shellctld/job_store.h"
#include "core/runtime/log.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SEEK_PAUSE_MS = 50, /* a runner spawned as the last daemon died has yet to write its pid */
    SEEK_MS = 8000,
    CLEAN_PAUSE_MS = 50, /* processes of a lost job are going away */
    CLEAN_MS = 8000,
};

struct job_process {
    struct job *job;
    struct loop *loop;
    struct job_runner runner; /* pidfd -1 while it is sought, and when it has ended */
    struct event *ended;
    bool child; /* ours to reap */
    struct timer timer;
    int64_t until_ms; /* of seeking or cleaning */
};

static struct job_process *process_new(struct job *job)
{
    struct job_process *p = xcalloc(1, sizeof(*p));

    PRE(job->process == NULL);
    p->job = job;
    p->loop = job_loop(job);
    p->runner.pidfd = -1;
    job->process = p;
    return p;
}

static void forget_runner(struct job_process *p)
{
    if (p->ended != NULL)
        event_free(p->ended);
    p->ended = NULL;
    if (p->runner.pidfd >= 0)
        close(p->runner.pidfd);
    p->runner.pidfd = -1;
}

static void process_free(struct job_process *p)
{
    forget_runner(p);
    timer_cancel(p->loop, &p->timer);
    p->job->process = NULL;
    loop_defer_free(p->loop, free, p);
}

static void record_end(const struct job *job, const char *reason, const char *message)
{
    struct error err = {0};

    LOG_WITH(LOG_WARN, message, {"job", job->id}, {"status", job_status_name(job->status)},
             {"reason", reason});
    if (!job_store_record_end(job, reason, message, &err))
        LOG_WITH(LOG_ERROR, err.message, {"job", job->id});
}

/* ---- the end ---------------------------------------------------------------------------------- */

static void settle_by_exit(struct job_process *p, const struct runner_exit *result)
{
    struct job *job = p->job;

    process_free(p);
    if (result->status == RUNNER_EXITED) {
        job_move_exited(job, result->exit_code, result->ended_wall_ms);
        return;
    }
    job->ended_wall_ms = result->ended_wall_ms;
    if (result->status == RUNNER_FAILED)
        LOG_WITH(LOG_WARN, result->message, {"job", job->id}, {"reason", result->reason});
    job_move(job, JOB_LIVE, result->status == RUNNER_TERMINATED ? JOB_TERMINATED : JOB_FAILED);
}

/* The runner is gone and has left no result: what it leaves behind goes first, so that a job that
 * is called ended has no process. */
static void clean_up(void *ctx)
{
    struct job_process *p = ctx;
    struct job *job = p->job;
    bool clean = job_runner_clean_up(job->dir);

    if (!clean && loop_now_ms(p->loop) < p->until_ms) {
        timer_set_ms(p->loop, &p->timer, CLEAN_PAUSE_MS);
        return;
    }
    process_free(p);
    job_move(job, JOB_LIVE, job->stopping ? JOB_TERMINATED : JOB_LOST);
    if (!clean)
        record_end(job, "runner_missing", "the job's runner is gone, processes of it remain");
    else if (job->stopping)
        record_end(job, "terminated", "the job's runner had to be killed");
    else
        record_end(job, "runner_missing", "the job's runner is gone and left no result");
}

static void settle(struct job_process *p)
{
    struct runner_exit result;

    forget_runner(p);
    if (job_runner_read_exit(p->job->dir, &result)) {
        settle_by_exit(p, &result);
        return;
    }
    timer_init(&p->timer, clean_up, p);
    p->until_ms = loop_now_ms(p->loop) + CLEAN_MS;
    clean_up(p);
}

static void on_ended(evutil_socket_t fd, short what, void *ctx)
{
    struct job_process *p = ctx;

    (void)fd;
    (void)what;
    loop_touch(p->loop);
    if (p->child && !job_runner_reap(&p->runner))
        return; /* not yet: the descriptor stays readable */
    settle(p);
}

static void watch_runner(struct job_process *p, const struct job_runner *runner, bool child)
{
    p->runner = *runner;
    p->child = child;
    p->ended = event_new(loop_base(p->loop), runner->pidfd, EV_READ | EV_PERSIST, on_ended, p);
    PRE(p->ended != NULL && event_add(p->ended, NULL) == 0);
}

/* ---- starting --------------------------------------------------------------------------------- */

void job_process_start(struct job *job)
{
    struct job_runner runner;
    struct error err = {0};

    job_move(job, JOB_BIT(JOB_CREATED), JOB_STARTING);
    if (job_runner_spawn(job->dir, &runner, &err)) {
        watch_runner(process_new(job), &runner, true);
        return;
    }
    job_move(job, JOB_LIVE, JOB_FAILED);
    record_end(job, "start_failed", err.message);
}

void job_process_refresh(struct job *job)
{
    int64_t started_wall_ms;

    if (job->status == JOB_STARTING && job_runner_read_started(job->dir, &started_wall_ms))
        job_move(job, JOB_BIT(JOB_STARTING), JOB_RUNNING);
}

/* ---- adopting --------------------------------------------------------------------------------- */

static bool has_runner_record(const struct job *job)
{
    char path[512];
    struct stat st;

    snprintf(path, sizeof(path), "%s/runner.pid", job->dir);
    return stat(path, &st) == 0;
}

static void seek(void *ctx)
{
    struct job_process *p = ctx;
    struct job *job = p->job;
    struct job_runner runner;
    struct runner_exit result;

    if (job_runner_open(job->dir, &runner)) {
        watch_runner(p, &runner, false);
        job_process_refresh(job);
        LOG_WITH(LOG_INFO, "adopted a running job", {"job", job->id});
        return;
    }
    if (job_runner_alive(job->dir) && loop_now_ms(p->loop) < p->until_ms) {
        timer_set_ms(p->loop, &p->timer, SEEK_PAUSE_MS);
        return;
    }
    if (has_runner_record(job) || job_runner_read_exit(job->dir, &result)) {
        settle(p);
        return;
    }
    process_free(p);
    job_move(job, JOB_LIVE, JOB_FAILED);
    record_end(job, "start_failed", "the daemon ended before the job was started");
}

void job_process_adopt(struct job *job)
{
    struct job_process *p = process_new(job);

    timer_init(&p->timer, seek, p);
    p->until_ms = loop_now_ms(p->loop) + SEEK_MS;
    seek(p);
}

void job_process_kill(struct job *job)
{
    if (job->process != NULL && job->process->runner.pidfd >= 0)
        job_runner_kill(&job->process->runner);
}

void job_process_detach(struct job *job)
{
    if (job->process != NULL)
        process_free(job->process);
}
