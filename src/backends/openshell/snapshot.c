/* Home snapshots: directories on the shared volume.
 *
 * Create copies through the lease's own shellctl; a failed copy removes its target. Delete needs
 * write access to the tenant's root, which no binding's sandbox that still runs may be asked for: a
 * maintenance sandbox is made for it and always deleted; if that fails it is recorded as an orphan. */
#include "backends/openshell/backend.h"
#include "backends/openshell/names.h"
#include "backends/shellctl/control_command.h"

enum { COPY_TIMEOUT_MS = 300000, UNDO_BUDGET_MS = 60000 };

/* ---- create ---------------------------------------------------------------------------------- */

struct snapshot_make {
    struct op op;
    struct openshell_backend *backend;
    const struct snapshot_spec *spec;
    struct plane *plane;
    const char **ret;
    const char *ref, *dir;
    struct control_command command;
    struct control_result result;
};

enum make_state { MAKE_START, MAKE_COPYING };
static const char *const make_states[] = {"start", "copying"};

const char *openshell_snapshot_ref_of(struct backend *b, struct arena *arena,
                                      const struct snapshot_spec *spec)
{
    (void)b;
    return name_snapshot_ref(arena, spec->tenant_id, spec->home_snapshot_id);
}

static bool make_check(struct snapshot_make *m)
{
    struct error err;
    const char *root;

    if (!name_check_id(m->spec->tenant_id, "tenant_id", ERR_INVALID_REF, &err) ||
        !name_check_id(m->spec->home_snapshot_id, "home_snapshot_id", ERR_INVALID_REF, &err)) {
        op_fail_with(&m->op, &err);
        return false;
    }
    m->ref = name_snapshot_ref(m->op.arena, m->spec->tenant_id, m->spec->home_snapshot_id);
    m->dir = name_snapshot_dir(m->op.arena, m->backend->shared_mount_path, m->ref, &root, &err);
    if (m->dir == NULL)
        op_fail_with(&m->op, &err);
    else
        m->command = (struct control_command){
            .script = openshell_script_snapshot(m->op.arena, &m->backend->layout, m->dir),
            .deadline_ms = COPY_TIMEOUT_MS,
            .phase = "copying the Home",
        };
    return !op_failed(&m->op);
}

static enum op_poll make_step(struct op *op)
{
    struct snapshot_make *m = container_of(op, struct snapshot_make, op);
    struct error err;

    switch ((enum make_state)op->state) {
    case MAKE_START:
        if (!make_check(m))
            return OP_DONE;
        AWAIT(op, MAKE_COPYING,
              control_command_run(&m->backend->base, op, &m->plane->endpoint, &m->command,
                                  &m->result));
        if (m->result.exit_code != 0)
            op_fail(op, ERR_SNAPSHOT_CREATE, "copying the Home: %s", m->result.output);
        else
            *m->ret = m->ref;
        return OP_DONE;
    undo:
        err = *op_error(op);
        if (err.code != ERR_CANCELLED && err.code != ERR_DEADLINE && err.code != ERR_BINDING_LOST)
            error_wrap(&err, ERR_SNAPSHOT_CREATE, "copying the Home");
        *op_error_edit(op) = err;
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type make_type = {"openshell_snapshot_create", make_states, 2, make_step,
                                         NULL};

void openshell_snapshot_create(struct backend *b, struct op *op, const struct snapshot_spec *spec,
                               struct plane *plane, const char **ret_ref)
{
    struct snapshot_make *m = OP_CHILD(op, &make_type, snapshot_make);

    PRE(plane->backend == b);
    m->backend = openshell_of(b);
    m->spec = spec;
    m->plane = plane;
    m->ret = ret_ref;
    op_await_child(op, &m->op);
}

/* ---- delete ---------------------------------------------------------------------------------- */

struct snapshot_drop {
    struct op op;
    struct openshell_backend *backend;
    const char *dir, *root, *name;
    struct sandbox_view view;
    struct exec_result exec;
    bool asked; /* the maintenance sandbox may exist */
};

enum drop_state { DROP_START, DROP_CREATING, DROP_WAITING, DROP_REMOVING, DROP_DELETING };
static const char *const drop_states[] = {"start", "creating", "waiting", "removing", "deleting"};

static void drop_create(struct snapshot_drop *d)
{
    static const char *const labels[] = {"dify.resource", "snapshot-gc", NULL, NULL};

    d->asked = true;
    rpc_create(&d->backend->rpc, &d->op,
               openshell_create_request(d->backend, d->op.arena, d->name, labels, d->name, d->root),
               &d->view);
}

static enum op_poll drop_step(struct op *op)
{
    struct snapshot_drop *d = container_of(op, struct snapshot_drop, op);
    struct openshell_backend *b = d->backend;

    switch ((enum drop_state)op->state) {
    case DROP_START:
        AWAIT(op, DROP_CREATING, drop_create(d));
        AWAIT(op, DROP_WAITING,
              openshell_wait_ready(b, op, d->name, ERR_SNAPSHOT_DELETE, &d->view));
        AWAIT(op, DROP_REMOVING,
              rpc_exec(&b->rpc, op, d->view.id, openshell_script_snapshot_delete(op->arena, d->dir),
                       b->exec_timeout_s, &d->exec));
        if (d->exec.exit_code != 0)
            op_fail(op, ERR_SNAPSHOT_DELETE, "removing the snapshot: %s", d->exec.output);
    undo:
        rpc_judge(op_error_edit(op), ERR_SNAPSHOT_DELETE, ERR_SNAPSHOT_DELETE);
        if (!d->asked)
            return OP_DONE;
        op_begin_undo(op, UNDO_BUDGET_MS);
        AWAIT_ANY(op, DROP_DELETING, rpc_delete(&b->rpc, op, d->name));
        if (op_last_failed(op))
            backend_report_orphan(&b->base, ORPHAN_BINDING, d->name, NULL, op_last(op));
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type drop_type = {"openshell_snapshot_delete", drop_states, 5, drop_step,
                                         NULL};

void openshell_snapshot_delete(struct backend *b, struct op *op, const char *snapshot_ref)
{
    struct openshell_backend *o = openshell_of(b);
    struct snapshot_drop *d = OP_CHILD(op, &drop_type, snapshot_drop);
    struct error err;

    d->backend = o;
    d->dir = name_snapshot_dir(op->arena, o->shared_mount_path, snapshot_ref, &d->root, &err);
    d->name = name_maintenance(op->arena);
    if (d->dir == NULL) { /* before the child was queued: it never runs */
        op_complete(op, &err);
        return;
    }
    op_await_child(op, &d->op);
}
