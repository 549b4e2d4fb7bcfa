/* Destroy a binding.
 *
 * Happy path: check refs and capabilities; end the binding's leases, so that nothing works in what
 *   is being removed; let the backend destroy. Absent is success.
 * Failures: reported; repeating is safe. The leases stay ended. */
#include "core/domain/broker_internal.h"

struct binding_destroy {
    struct op op;
    struct broker *broker;
    const struct destroy_spec *spec;
};

enum destroy_state { DESTROY_START, DESTROY_DESTROYING };
static const char *const destroy_states[] = {"start", "destroying"};

bool broker_check_destroy(struct broker *b, const struct destroy_spec *spec, struct error *err)
{
    if (!broker_check_backend(b, err) || !broker_check_binding_ref(b, spec->binding_ref, err))
        return false;
    if (spec->workspace_ref != NULL && !broker_check_workspace_ref(spec->workspace_ref, err))
        return false;
    return backend_check_destroy(b->backend, spec, err);
}

/* Nobody who asks from here on gets in on a validation from before. */
static void close_doors(struct binding_destroy *t)
{
    broker_plane_detach(t->broker, t->spec->binding_ref);
    lease_end_binding(t->broker->leases, t->spec->binding_ref, LEASE_RETIRED);
}

static enum op_poll destroy_step(struct op *op)
{
    struct binding_destroy *t = container_of(op, struct binding_destroy, op);
    struct backend *backend = t->broker->backend;

    switch ((enum destroy_state)op->state) {
    case DESTROY_START:
        op_set_deadline_ms(op, t->broker->options.destroy_timeout_ms, "destroying the binding");
        close_doors(t);
        AWAIT(op, DESTROY_DESTROYING, backend->ops->destroy_binding(backend, op, t->spec));
        close_doors(t);
        return OP_DONE;

    undo:
        broker_wrap_error(op_error_edit(op), ERR_BINDING_DESTROY);
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type destroy_type = {"binding_destroy", destroy_states, 2, destroy_step,
                                            NULL};

void broker_destroy_binding(struct broker *broker, struct op *op, const struct destroy_spec *spec)
{
    struct error err = {0};
    struct binding_destroy *t;

    if (!broker_check_destroy(broker, spec, &err)) {
        op_complete(op, &err);
        return;
    }
    t = OP_CHILD(op, &destroy_type, binding_destroy);
    t->broker = broker;
    t->spec = spec;
    op_await_child(op, &t->op);
}
