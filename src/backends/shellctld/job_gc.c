#include "backends/shellctld/job_gc.h"

#include "backends/shellctld/job_store.h"

enum {
    BATCH = 20,         /* folders removed in one turn: each is some ten system calls */
    BATCH_PAUSE_MS = 2, /* the turns of others go in between */
};

static bool is_due(const struct job_gc *gc, const struct job *job)
{
    return job_status_is_terminal(job->status) &&
           loop_now_ms(job_table_loop(gc->jobs)) - job->ended_ms >= gc->retention_ms;
}

static void collect(void *ctx)
{
    struct job_gc *gc = ctx;
    int64_t pause_ms = gc->interval_ms;
    int removed = 0;

    for (struct job *job = job_first(gc->jobs), *next; job != NULL; job = next) {
        next = job_next(job);
        if (!is_due(gc, job))
            continue;
        if (removed++ == BATCH) {
            pause_ms = BATCH_PAUSE_MS;
            break;
        }
        job_store_delete(job);
    }
    timer_set_ms(job_table_loop(gc->jobs), &gc->timer, pause_ms);
}

void job_gc_start(struct job_gc *gc, struct job_table *jobs, int64_t interval_ms,
                  int64_t retention_ms)
{
    *gc = (struct job_gc){.jobs = jobs, .interval_ms = interval_ms, .retention_ms = retention_ms};
    timer_init(&gc->timer, collect, gc);
    timer_set_ms(job_table_loop(jobs), &gc->timer, 0);
}

void job_gc_stop(struct job_gc *gc)
{
    timer_cancel(job_table_loop(gc->jobs), &gc->timer);
}
