/* Happy path: one DELETE. Failures: tried again twice, then counted; the shellctl's own collector
 * removes the job some minutes after its end. */
#include "backends/shellctl/job_delete.h"

#include "core/runtime/log.h"
#include "core/runtime/metrics.h"

enum { ATTEMPTS = 3, PAUSE_MS = 250 };

struct job_delete {
    struct op op;
    struct backend *backend;
    const struct endpoint *endpoint;
    const char *job_id;
    int attempts;
    struct list link; /* in `running` */
};

enum delete_state { DELETE_START, DELETE_ASKING, DELETE_PAUSING };
static const char *const delete_states[] = {"start", "asking", "pausing"};

static struct list running = LIST_INIT(running);

int job_deletes_running(void)
{
    int n = 0;

    for (struct list *it = running.next; it != &running; it = it->next)
        n++;
    return n;
}

/* ---- the end of the process ------------------------------------------------------------------ */

static struct {
    bool asked;
    struct timer limit;
    struct task over;
} finish;

static void on_limit(void *ctx)
{
    (void)ctx;
    for (struct list *it = running.next; it != &running; it = it->next)
        op_cancel(&container_of(it, struct job_delete, link)->op, "the process ends");
}

static void check_finish(struct loop *loop)
{
    if (!finish.asked || !list_empty(&running))
        return;
    timer_cancel(loop, &finish.limit);
    loop_post(loop, &finish.over);
}

void job_deletes_finish(struct loop *loop, int64_t limit_ms, void (*done)(void *ctx), void *ctx)
{
    finish.asked = true;
    timer_init(&finish.limit, on_limit, NULL);
    timer_set_ms(loop, &finish.limit, limit_ms);
    task_init(&finish.over, done, ctx);
    check_finish(loop);
}

/* ---- one delete ----------------------------------------------------------------------------- */

void job_delete_failed(struct backend *b, const char *job_id, const struct error *why)
{
    metric_add(METRIC_PROBE_JOBS_LEFT, LABELS(b->ops->name), 1);
    LOG_WITH(LOG_WARN, "a transient job stays behind", {"backend", b->ops->name},
             {"job_id", job_id}, {"code", err_wire(why->code)}, {"why", why->message});
}

static enum op_poll delete_step(struct op *op)
{
    struct job_delete *d = container_of(op, struct job_delete, op);

    switch ((enum delete_state)op->state) {
    case DELETE_START:
        for (;;) {
            AWAIT_ANY(op, DELETE_ASKING, shellctl_delete(d->backend, op, d->endpoint, d->job_id));
            if (op_failed(op) || !op_last_failed(op))
                return OP_DONE;
            if (++d->attempts == ATTEMPTS) {
                op_fail_with(op, op_last(op));
                return OP_DONE;
            }
            AWAIT(op, DELETE_PAUSING, op_sleep(op, PAUSE_MS));
        }
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type delete_type = {"job_delete", delete_states, 3, delete_step, NULL};

static void on_deleted(struct op *op, void *ctx)
{
    struct job_delete *d = ctx;

    list_remove(&d->link);
    if (op_failed(op))
        job_delete_failed(d->backend, d->job_id, op_error(op));
    check_finish(op->loop);
}

void job_delete_later(struct backend *b, const struct endpoint *endpoint, const char *job_id)
{
    struct job_delete *d = OP_ROOT(b->loop, &delete_type, job_delete, NULL);

    PRE(endpoint->dialer == NULL);
    d->backend = b;
    d->endpoint = shellctl_endpoint_copy(d->op.arena, endpoint);
    d->job_id = arena_strdup(d->op.arena, job_id);
    list_init(&d->link);
    list_push(&running, &d->link);
    op_start(&d->op, on_deleted, d);
}
