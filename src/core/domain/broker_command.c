/* Run scripts: in a live lease, or in one made for the occasion.
 *
 * In a lease, happy path: become a user of the lease; let the backend run the script; leave.
 * Failures: the lease ends meanwhile: the command is aborted with what ended it. The backend
 *   deletes its transient job on every path. */
#include "core/domain/broker_internal.h"

#include <string.h>

struct lease_command {
    struct op op;
    struct broker *broker;
    char lease_id[LEASE_ID_CHARS + 1];
    const char *binding_ref;
    const struct command_spec *spec;
    struct command_result *ret;
    struct lease_use use;
};

enum command_state { COMMAND_START, COMMAND_RUNNING };
static const char *const command_states[] = {"start", "running"};

static void on_cut(struct lease_use *use)
{
    struct lease_command *t = container_of(use, struct lease_command, use);

    if (use->lease->end == LEASE_LOST)
        op_abort(&t->op, ERR_BINDING_LOST, "the binding was lost while the command ran");
    else
        op_abort(&t->op, ERR_LEASE_GONE, "the lease ended while the command ran");
}

static enum op_poll command_step(struct op *op)
{
    struct lease_command *t = container_of(op, struct lease_command, op);
    struct backend *backend = t->broker->backend;
    struct lease *lease;

    switch ((enum command_state)op->state) {
    case COMMAND_START:
        lease = lease_find(t->broker->leases, t->lease_id);
        if (lease == NULL) {
            op_fail(op, ERR_LEASE_GONE, "the lease has ended: acquire a new one");
            goto undo;
        }
        t->binding_ref = arena_strdup(op->arena, lease->plane->binding_ref);
        lease_use_begin(lease, &t->use, on_cut);
        AWAIT(op, COMMAND_RUNNING,
              backend->ops->run_command(backend, op, t->use.lease->plane, t->spec, t->ret));
    undo:
        lease_use_end(&t->use);
        broker_wrap_error(op_error_edit(op), ERR_BINDING_UNAVAILABLE);
        if (op_error(op)->code == ERR_BINDING_LOST &&
            lease_ended_how(t->broker->leases, t->lease_id) != LEASE_LOST)
            broker_binding_lost(t->broker, t->binding_ref, op_error(op));
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type command_type = {"lease_command", command_states, 2, command_step, NULL};

void broker_run(struct broker *broker, struct op *op, struct lease *lease,
                const struct command_spec *spec, struct command_result *ret)
{
    struct lease_command *t = OP_CHILD(op, &command_type, lease_command);

    t->broker = broker;
    memcpy(t->lease_id, lease->id, sizeof(t->lease_id));
    t->spec = spec;
    t->ret = ret;
    op_await_child(op, &t->op);
}

/* ---- on a binding: open, run, give back
 * ------------------------------------------------------------ */

struct binding_run {
    struct op op;
    struct broker *broker;
    const struct binding_command *command;
    struct command_spec spec;
    struct command_result *ret;
    struct plane *plane;
};

enum run_state { RUN_START, RUN_OPENING, RUN_RUNNING };
static const char *const run_states[] = {"start", "opening", "running"};

static enum op_poll run_step(struct op *op)
{
    struct binding_run *t = container_of(op, struct binding_run, op);
    struct backend *backend = t->broker->backend;

    switch ((enum run_state)op->state) {
    case RUN_START:
        AWAIT(op, RUN_OPENING,
              broker_plane_open(t->broker, op, t->command->binding_ref, &t->plane));
        t->command->prepare(t->command->ctx, op->arena, &t->plane->layout, &t->spec);
        AWAIT(op, RUN_RUNNING, backend->ops->run_command(backend, op, t->plane, &t->spec, t->ret));
    undo:
        if (t->plane != NULL)
            lease_give_back(t->broker->leases, t->plane);
        broker_wrap_error(op_error_edit(op), ERR_BINDING_UNAVAILABLE);
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type run_type = {"binding_command", run_states, 3, run_step, NULL};

void broker_run_on_binding(struct broker *broker, struct op *op,
                           const struct binding_command *command, struct command_result *ret)
{
    struct error err = {0};
    struct binding_run *t;

    if (!broker_check_backend(broker, &err) ||
        !broker_check_binding_ref(broker, command->binding_ref, &err)) {
        op_complete(op, &err);
        return;
    }
    t = OP_CHILD(op, &run_type, binding_run);
    t->broker = broker;
    t->command = command;
    t->ret = ret;
    op_await_child(op, &t->op);
}
