/* Destroy: one call; an absent sandbox is success. The refs were checked against the caps (the
 * workspace cannot be kept) before; that both name the same sandbox is checked here, before
 * anything is deleted. */
#include "backends/enterprise/backend.h"

#include <string.h>

void enterprise_destroy_binding(struct backend *b, struct op *op, const struct destroy_spec *spec)
{
    struct enterprise_backend *e = container_of(b, struct enterprise_backend, base);
    struct error err;

    if (!b->ops->check_binding_ref(b, spec->binding_ref, &err)) {
        op_complete(op, &err);
        return;
    }
    if (strcmp(spec->workspace_ref, spec->binding_ref) != 0) {
        error_set(&err, ERR_BINDING_DESTROY,
                  "an Enterprise workspace_ref equals its binding_ref; nothing was deleted");
        op_complete(op, &err);
        return;
    }
    gateway_delete_sandbox(&e->gateway, op, spec->binding_ref);
}
