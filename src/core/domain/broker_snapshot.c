/* Snapshots of a binding's Home.
 *
 * Create, happy path: open a validated plane; let the backend copy; give the plane back.
 * Failures: the backend removes a partial copy itself. A copy that comes too late for its caller is
 *   deleted again. The plane is given back in the background: that it fails after a good
 *   copy is only logged, the caller gets its snapshot. */
#include "core/domain/broker_internal.h"

struct snapshot_create {
    struct op op;
    struct broker *broker;
    const struct snapshot_spec *spec;
    const char *binding_ref;
    const char **ret;
    struct plane *plane;
    const char *ref;
};

enum snapshot_state { SNAPSHOT_START, SNAPSHOT_OPENING, SNAPSHOT_COPYING, SNAPSHOT_DROPPING };
static const char *const snapshot_states[] = {"start", "opening", "copying", "dropping"};

static void snapshot_wrap(struct error *err)
{
    broker_wrap_error(err, ERR_SNAPSHOT_CREATE);
    if (err->code == ERR_BINDING_ACQUIRE)
        err->code = ERR_SNAPSHOT_CREATE;
}

static enum op_poll snapshot_step(struct op *op)
{
    struct snapshot_create *t = container_of(op, struct snapshot_create, op);
    struct backend *backend = t->broker->backend;

    switch ((enum snapshot_state)op->state) {
    case SNAPSHOT_START:
        op_set_deadline_ms(op, t->broker->options.snapshot_timeout_ms, "the snapshot");
        AWAIT(op, SNAPSHOT_OPENING, broker_plane_open(t->broker, op, t->binding_ref, &t->plane));
        AWAIT(op, SNAPSHOT_COPYING,
              backend->ops->snapshot_create(backend, op, t->spec, t->plane, &t->ref));
        lease_give_back(t->broker->leases, t->plane);
        *t->ret = t->ref;
        return OP_DONE;

    undo:
        if (t->plane != NULL)
            lease_give_back(t->broker->leases, t->plane);
        snapshot_wrap(op_error_edit(op));
        if (t->ref != NULL) {
            op_begin_undo(op, BROKER_UNDO_MS);
            AWAIT_ANY(op, SNAPSHOT_DROPPING, backend->ops->snapshot_delete(backend, op, t->ref));
            if (op_last_failed(op))
                backend_report_orphan(backend, ORPHAN_SNAPSHOT, t->ref, NULL, op_last(op));
        }
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type snapshot_type = {"snapshot_create", snapshot_states, 4, snapshot_step,
                                             NULL};

static bool check_snapshots(const struct broker *b, struct error *err)
{
    if (!broker_check_backend(b, err))
        return false;
    if ((b->backend->caps & BACKEND_SNAPSHOTS) && b->backend->ops->snapshot_create != NULL)
        return true;
    error_set(err, ERR_SNAPSHOT_UNSUPPORTED,
              "the %s backend has no home snapshots here, or they are switched off",
              b->backend->ops->name);
    return false;
}

bool broker_check_snapshot(struct broker *b, const struct snapshot_spec *spec,
                           const char *binding_ref, struct error *err)
{
    return check_snapshots(b, err) && broker_check_id("tenant_id", spec->tenant_id, err) &&
           broker_check_id("agent_id", spec->agent_id, err) &&
           broker_check_id("home_snapshot_id", spec->home_snapshot_id, err) &&
           broker_check_binding_ref(b, binding_ref, err);
}

bool broker_check_snapshot_delete(struct broker *b, const char *snapshot_ref, struct error *err)
{
    return check_snapshots(b, err) && broker_check_snapshot_ref(b, snapshot_ref, err);
}

void broker_snapshot_create(struct broker *broker, struct op *op, const struct snapshot_spec *spec,
                            const char *binding_ref, const char **ret_snapshot_ref)
{
    struct error err = {0};
    struct snapshot_create *t;

    if (!broker_check_snapshot(broker, spec, binding_ref, &err)) {
        op_complete(op, &err);
        return;
    }
    t = OP_CHILD(op, &snapshot_type, snapshot_create);
    t->broker = broker;
    t->spec = spec;
    t->binding_ref = binding_ref;
    t->ret = ret_snapshot_ref;
    op_await_child(op, &t->op);
}

/* ---- delete: one wait of the backend, its error in the code of the use case
 * ------------------------ */

struct snapshot_delete {
    struct op op;
    struct broker *broker;
    const char *ref;
};

enum drop_state { DROP_START, DROP_DELETING };
static const char *const drop_states[] = {"start", "deleting"};

static enum op_poll drop_step(struct op *op)
{
    struct snapshot_delete *t = container_of(op, struct snapshot_delete, op);
    struct backend *backend = t->broker->backend;

    switch ((enum drop_state)op->state) {
    case DROP_START:
        op_set_deadline_ms(op, t->broker->options.snapshot_timeout_ms, "deleting the snapshot");
        AWAIT(op, DROP_DELETING, backend->ops->snapshot_delete(backend, op, t->ref));
    undo:
        broker_wrap_error(op_error_edit(op), ERR_SNAPSHOT_DELETE);
        if (op_error(op)->code == ERR_BINDING_DESTROY)
            op_error_edit(op)->code = ERR_SNAPSHOT_DELETE;
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type drop_type = {"snapshot_delete", drop_states, 2, drop_step, NULL};

void broker_snapshot_delete(struct broker *broker, struct op *op, const char *snapshot_ref)
{
    struct error err = {0};
    struct snapshot_delete *t;

    if (!broker_check_snapshot_delete(broker, snapshot_ref, &err)) {
        op_complete(op, &err);
        return;
    }
    t = OP_CHILD(op, &drop_type, snapshot_delete);
    t->broker = broker;
    t->ref = snapshot_ref;
    op_await_child(op, &t->op);
}
