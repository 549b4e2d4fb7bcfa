/* Destroy: one DeleteSandbox; an absent sandbox is success. Bindings' sandboxes, and maintenance
 * sandboxes that were recorded as orphans; no others. That both refs name the same sandbox is
 * checked before anything is deleted. */
#include "backends/openshell/backend.h"
#include "backends/openshell/names.h"

#include <string.h>

struct openshell_destroy {
    struct op op;
    struct openshell_backend *backend;
    const char *name;
};

enum destroy_state { DESTROY_START, DESTROY_DELETING };
static const char *const destroy_states[] = {"start", "deleting"};

static enum op_poll destroy_step(struct op *op)
{
    struct openshell_destroy *d = container_of(op, struct openshell_destroy, op);

    switch ((enum destroy_state)op->state) {
    case DESTROY_START:
        AWAIT(op, DESTROY_DELETING, rpc_delete(&d->backend->rpc, op, d->name));
        return OP_DONE;
    undo:
        rpc_judge(op_error_edit(op), ERR_BINDING_DESTROY, ERR_BINDING_DESTROY);
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type destroy_type = {"openshell_destroy", destroy_states, 2, destroy_step,
                                            NULL};

void openshell_destroy_binding(struct backend *b, struct op *op, const struct destroy_spec *spec)
{
    struct openshell_destroy *d;
    struct error err;

    if (!name_is_maintenance(spec->binding_ref) && !name_check_sandbox(spec->binding_ref, &err)) {
        op_complete(op, &err);
        return;
    }
    if (strcmp(spec->workspace_ref, spec->binding_ref) != 0) {
        error_set(&err, ERR_BINDING_DESTROY,
                  "an OpenShell workspace_ref equals its binding_ref; nothing was deleted");
        op_complete(op, &err);
        return;
    }
    d = OP_CHILD(op, &destroy_type, openshell_destroy);
    d->backend = openshell_of(b);
    d->name = spec->binding_ref;
    op_await_child(op, &d->op);
}
