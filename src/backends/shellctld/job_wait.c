/* Looks at the job and its output's size, then sleeps until the job changes or a pause of 5 to
 * 50 ms is over, and looks again.
 *
 * Over when: the job has ended; the window is full; there is output and none was added for the
 * idle time; the time is up.
 * Fails when: the job is unknown, or was deleted meanwhile; the offset is beyond the output. */
#include "backends/shellctld/job_wait.h"

#include "backends/shellctld/fault.h"
#include "backends/shellctld/job_process.h"
#include "backends/shellctld/job_store.h"
#include "backends/shellctld/window.h"

#include <fcntl.h>
#include <unistd.h>

enum { NAP_FIRST_MS = 5, NAP_MAX_MS = 50 };

enum wait_state { WAIT_START, WAIT_PAUSING };
static const char *const wait_states[] = {"start", "pausing"};

void job_result_of(struct job_result *ret, struct arena *arena, const struct job *job)
{
    ret->job_id = arena_strdup(arena, job->id);
    ret->output_path = arena_strdup(arena, job->output_path);
    ret->status = job->status;
    ret->exit_code = job->exit_code;
}

/* The window as of now, into the result. */
static bool read_window(struct job_wait *w, const struct job *job, struct error *err)
{
    struct window window;
    int fd = open(job->output_path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool ok;

    buf_clear(&w->result.output);
    w->more_to_come = !job_status_is_terminal(job->status);
    ok = window_read(fd, w->request.offset, w->request.output_limit, w->more_to_come,
                     &w->result.output, &window, err);
    if (fd >= 0)
        close(fd);
    if (!ok)
        return false;
    w->result.offset = window.offset;
    w->result.truncated = window.truncated;
    w->window_size = window.size;
    return true;
}

/* Note growth since the latest look. What was there before the first counts from now. */
static void note_size(struct job_wait *w, const struct job *job, int64_t now_ms)
{
    int64_t size = job_store_output_size(job);

    if (w->size < 0 ? size > w->request.offset : size > w->size)
        w->growth_ms = now_ms;
    w->size = size;
}

/* One look: true when the wait is over, in success or failure. Otherwise *ret_pause_ms. */
static bool look(struct job_wait *w, struct job *job, int64_t *ret_pause_ms)
{
    int64_t now_ms = loop_now_ms(w->op.loop), until_ms = w->deadline_ms;
    struct error err = {0};

    job_process_refresh(job);
    note_size(w, job, now_ms);
    if ((w->size != w->window_size || w->more_to_come == job_status_is_terminal(job->status)) &&
        !read_window(w, job, &err)) {
        op_fail_with(&w->op, &err);
        return true;
    }
    if (job_status_is_terminal(job->status) || w->result.truncated)
        return true;
    if (w->result.output.len > 0) {
        int64_t idle_ms = w->request.idle_flush_ms > 0 ? w->request.idle_flush_ms : 0;
        if (w->growth_ms + idle_ms < until_ms)
            until_ms = w->growth_ms + idle_ms;
    }
    if (now_ms >= until_ms)
        return true;
    *ret_pause_ms = until_ms - now_ms < w->nap_ms ? until_ms - now_ms : w->nap_ms;
    w->nap_ms = w->nap_ms * 2 < NAP_MAX_MS ? w->nap_ms * 2 : NAP_MAX_MS;
    return false;
}

static enum op_poll wait_step(struct op *op)
{
    struct job_wait *w = container_of(op, struct job_wait, op);
    struct job *job;
    struct error err = {0};
    int64_t pause_ms = 0;

    switch ((enum wait_state)op->state) {
    case WAIT_START:
        w->deadline_ms = loop_now_ms(op->loop) + w->request.timeout_ms;
        w->nap_ms = NAP_FIRST_MS;
        w->size = w->window_size = -1;
        for (;;) {
            job = job_find_in(w->jobs, w->job_id, &w->scope, &err);
            if (job == NULL) {
                op_fail_with(op, &err);
                return OP_DONE;
            }
            if (look(w, job, &pause_ms)) {
                job_result_of(&w->result, op->arena, job);
                return OP_DONE;
            }
            AWAIT(op, WAIT_PAUSING, job_watch(job, &w->watcher, op, pause_ms));
        }
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static void release_output(void *ctx)
{
    buf_fini(ctx);
}

static const struct op_type wait_type = {"shellctl_wait", wait_states, 2, wait_step, NULL};

struct job_wait *job_wait_new(struct loop *loop, struct arena *arena, struct op *parent,
                              struct job_table *jobs, const char *job_id, const struct scope *scope,
                              const struct wait_request *request)
{
    struct job_wait *w = parent != NULL ? OP_CHILD(parent, &wait_type, job_wait)
                                        : OP_ROOT(loop, &wait_type, job_wait, arena);

    arena_on_free(w->op.arena, release_output, &w->result.output);
    w->jobs = jobs;
    w->job_id = job_id;
    w->scope = *scope;
    w->request = *request;
    return w;
}
