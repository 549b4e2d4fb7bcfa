/* Uses: which sandboxes leases of this process are on, and the idle stop of those that none is. */
#include "backends/openshell/backend.h"

#include "core/runtime/log.h"
#include "core/runtime/metrics.h"

#include <stdlib.h>
#include <string.h>

/* ---- idle stop ------------------------------------------------------------------------------- */

struct idle_stop {
    struct op op;
    struct sandbox_use *use;
    struct sandbox_view view;
};

enum idle_state { IDLE_START, IDLE_STOPPING };
static const char *const idle_states[] = {"start", "stopping"};

/* Nothing may have happened since the timer fired: the op's first step runs in the same turn. */
static enum op_poll idle_step(struct op *op)
{
    struct idle_stop *s = container_of(op, struct idle_stop, op);
    struct openshell_backend *b = s->use->backend;

    switch ((enum idle_state)op->state) {
    case IDLE_START:
        if (s->use->planes > 0 || s->use->acquiring > 0)
            return OP_DONE;
        AWAIT_ANY(op, IDLE_STOPPING, rpc_stop(&b->rpc, op, s->use->name, &s->view));
        if (op_last_failed(op) && !rpc_is(op_last(op), GRPC_NOT_FOUND) &&
            !rpc_is(op_last(op), GRPC_FAILED_PRECONDITION))
            openshell_note_left_running(b, s->use->name, op_last(op));
        else
            log_info("sandbox %s was stopped: no lease used it", s->use->name);
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type idle_type = {"openshell_idle_stop", idle_states, 2, idle_step, NULL};

static void use_free(struct sandbox_use *use)
{
    list_remove(&use->link);
    timer_cancel(use->backend->base.loop, &use->idle);
    free(use->name);
    free(use);
}

static void on_stopped(struct op *op, void *ctx)
{
    struct sandbox_use *use = ctx;

    (void)op;
    use->stopping = NULL;
    op_waitlist_wake_all(&use->stop_waiters, NULL);
    if (use->planes == 0 && use->acquiring == 0)
        use_free(use);
}

static void on_idle(void *ctx)
{
    struct sandbox_use *use = ctx;
    struct idle_stop *s = OP_ROOT(use->backend->base.loop, &idle_type, idle_stop, NULL);

    s->use = use;
    use->stopping = &s->op;
    op_start(&s->op, on_stopped, use);
}

void openshell_note_left_running(struct openshell_backend *b, const char *name,
                                 const struct error *why)
{
    (void)b;
    metric_add(METRIC_CLEANUP_FAILURES, LABELS("openshell_stop"), 1);
    log_warn("sandbox %s was left running: %s", name, why->message);
}

/* ---- uses ------------------------------------------------------------------------------------ */

struct sandbox_use *openshell_use_of(struct openshell_backend *b, const char *name)
{
    struct sandbox_use *use;

    LIST_FOREACH_SAFE (node, tmp, &b->uses) {
        use = container_of(node, struct sandbox_use, link);
        if (strcmp(use->name, name) == 0) {
            timer_cancel(b->base.loop, &use->idle);
            return use;
        }
    }
    use = xcalloc(1, sizeof(*use));
    use->backend = b;
    use->name = xstrdup(name);
    timer_init(&use->idle, on_idle, use);
    op_waitlist_init(&use->stop_waiters);
    list_push(&b->uses, &use->link);
    return use;
}

void openshell_use_settle(struct sandbox_use *use)
{
    struct openshell_backend *b = use->backend;

    if (use->planes > 0 || use->acquiring > 0 || use->stopping != NULL)
        return;
    if (b->idle_stop_ms > 0)
        timer_set_ms(b->base.loop, &use->idle, b->idle_stop_ms);
    else
        use_free(use);
}

/* The plane and its hold on the tunnel. */
void openshell_plane_close(struct openshell_plane *p)
{
    struct sandbox_use *use = p->use;

    if (--use->planes == 0)
        use->tunnel = NULL;
    tunnel_release(p->tunnel);
    free(p->plane.binding_ref);
    free(p);
    openshell_use_settle(use);
}

void openshell_release(struct backend *b, struct op *op, struct plane *plane)
{
    PRE(plane->backend == b);
    openshell_plane_close(container_of(plane, struct openshell_plane, plane));
    op_complete(op, NULL);
}
