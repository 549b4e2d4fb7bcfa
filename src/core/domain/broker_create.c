/* Create a binding.
 *
 * Happy path: check ids, refs and the backend's capabilities; let the backend create.
 * Failures: the backend removes what it made itself. When the caller goes away in the very moment
 *   in which the backend has finished, the finished binding is destroyed here; what cannot be
 *   destroyed is reported as an orphan. */
#include "core/domain/broker_internal.h"

struct binding_create {
    struct op op;
    struct broker *broker;
    const struct binding_spec *spec;
    struct binding *ret;
    struct binding made;
    struct destroy_spec undo;
};

enum create_state { CREATE_START, CREATE_CREATING, CREATE_UNDOING };
static const char *const create_states[] = {"start", "creating", "undoing"};

bool broker_check_create(struct broker *b, const struct binding_spec *spec, struct error *err)
{
    if (!broker_check_backend(b, err) || !broker_check_id("tenant_id", spec->tenant_id, err) ||
        !broker_check_id("agent_id", spec->agent_id, err) ||
        !broker_check_id("binding_id", spec->binding_id, err) ||
        !broker_check_id("workspace_id", spec->workspace_id, err))
        return false;
    if (!backend_check_create(b->backend, spec, err))
        return false;
    if (spec->existing_workspace_ref != NULL &&
        !broker_check_workspace_ref(spec->existing_workspace_ref, err))
        return false;
    return spec->home_snapshot_ref == NULL ||
           broker_check_snapshot_ref(b, spec->home_snapshot_ref, err);
}

static void undo_create(struct binding_create *t, struct op *op)
{
    struct backend *backend = t->broker->backend;

    t->undo.binding_ref = t->made.binding_ref;
    t->undo.workspace_ref = t->made.workspace_ref;
    t->undo.destroy_workspace = t->spec->existing_workspace_ref == NULL;
    backend->ops->destroy_binding(backend, op, &t->undo);
}

static enum op_poll create_step(struct op *op)
{
    struct binding_create *t = container_of(op, struct binding_create, op);
    struct backend *backend = t->broker->backend;

    switch ((enum create_state)op->state) {
    case CREATE_START:
        op_set_deadline_ms(op, t->broker->options.create_timeout_ms, "creating the binding");
        AWAIT(op, CREATE_CREATING, backend->ops->create_binding(backend, op, t->spec, &t->made));
        *t->ret = t->made;
        return OP_DONE;

    undo:
        op_begin_undo(op, BROKER_UNDO_MS);
        if (t->made.binding_ref != NULL) {
            AWAIT_ANY(op, CREATE_UNDOING, undo_create(t, op));
            if (op_last_failed(op))
                backend_report_orphan(backend, ORPHAN_BINDING, t->made.binding_ref, t->spec,
                                      op_last(op));
        }
        broker_wrap_error(op_error_edit(op), ERR_BINDING_CREATE);
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type create_type = {"binding_create", create_states, 3, create_step, NULL};

void broker_create_binding(struct broker *broker, struct op *op, const struct binding_spec *spec,
                           struct binding *ret)
{
    struct error err = {0};
    struct binding_create *t;

    if (!broker_check_create(broker, spec, &err)) {
        op_complete(op, &err);
        return;
    }
    t = OP_CHILD(op, &create_type, binding_create);
    t->broker = broker;
    t->spec = spec;
    t->ret = ret;
    op_await_child(op, &t->op);
}
