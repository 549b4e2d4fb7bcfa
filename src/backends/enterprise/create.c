/* Create: allocate a sandbox, lay out Home and Workspace in it.
 *
 * The answer of the allocation is waited for even when the caller has gone: the id in it is the
 * only handle on what was made. Failures:
 *   - nothing was sent, or the gateway said no: nothing to undo;
 *   - the answer was lost or unreadable: a sandbox may exist that nobody can name, so an orphan
 *     without a ref is recorded, and the caller learns that the outcome is unknown;
 *   - the layout fails, or the caller leaves or runs out of time: the sandbox is deleted again; if
 *     that fails too, it is recorded as an orphan with its ref. The first error is reported. */
#include "backends/enterprise/backend.h"
#include "backends/shellctl/control_command.h"
#include "backends/shellctl/scripts.h"

enum { UNDO_BUDGET_MS = 35000, LAYOUT_TIMEOUT_MS = 30000 };

struct enterprise_create {
    struct op op;
    struct enterprise_backend *backend;
    const struct binding_spec *spec;
    struct binding *ret;
    const char *sandbox_id;
    struct plane *plane;
    struct control_command layout_command;
    struct control_result layout;
};

enum create_state { CREATE_START, CREATE_ALLOCATING, CREATE_LAYING_OUT, CREATE_DELETING };
static const char *const create_states[] = {"start", "allocating", "laying_out", "deleting"};

static void create_lay_out(struct enterprise_create *c)
{
    struct enterprise_backend *b = c->backend;

    c->plane = enterprise_plane_new(b, c->sandbox_id);
    c->layout_command = (struct control_command){
        .script = script_layout(c->op.arena, &b->layout, false),
        .deadline_ms = LAYOUT_TIMEOUT_MS,
        .phase = "laying out Home and Workspace",
    };
    control_command_run(&b->base, &c->op, &c->plane->endpoint, &c->layout_command, &c->layout);
}

static enum op_poll create_step(struct op *op)
{
    struct enterprise_create *c = container_of(op, struct enterprise_create, op);
    struct gateway *gw = &c->backend->gateway;

    switch ((enum create_state)op->state) {
    case CREATE_START:
        AWAIT_HELD(op, CREATE_ALLOCATING,
                   gateway_create_sandbox(gw, op, c->spec->tenant_id, c->spec->home_snapshot_ref,
                                          &c->sandbox_id));
        AWAIT(op, CREATE_LAYING_OUT, create_lay_out(c));
        if (c->layout.exit_code != 0) {
            op_fail(op, ERR_BINDING_CREATE, "laying out Home and Workspace: %s", c->layout.output);
            goto undo;
        }
        c->ret->binding_ref = c->sandbox_id;
        c->ret->workspace_ref = c->sandbox_id;
        return OP_DONE;

    undo:
        if (c->sandbox_id != NULL) {
            op_begin_undo(op, UNDO_BUDGET_MS);
            AWAIT_ANY(op, CREATE_DELETING, gateway_delete_sandbox(gw, op, c->sandbox_id));
            if (op_last_failed(op))
                backend_report_orphan(&c->backend->base, ORPHAN_BINDING, c->sandbox_id, c->spec,
                                      op_last(op));
        } else if (op_last(op)->admitted == ADMITTED_UNKNOWN) {
            backend_report_orphan(&c->backend->base, ORPHAN_UNKNOWN, NULL, c->spec, op_last(op));
        }
        return OP_DONE;
    }
    unreachable_state(op);
}

static void create_fini(struct op *op)
{
    struct enterprise_create *c = container_of(op, struct enterprise_create, op);

    enterprise_plane_free(c->plane);
}

static const struct op_type create_type = {"enterprise_create", create_states, 4, create_step,
                                           create_fini};

void enterprise_create_binding(struct backend *b, struct op *op, const struct binding_spec *spec,
                               struct binding *ret)
{
    struct enterprise_create *c = OP_CHILD(op, &create_type, enterprise_create);

    c->backend = container_of(b, struct enterprise_backend, base);
    c->spec = spec;
    c->ret = ret;
    op_await_child(op, &c->op);
}
