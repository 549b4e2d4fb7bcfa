/* Home snapshots: an immutable copy beside the Homes, made and removed by maintenance scripts, not
 * through the lease that it is taken from.
 *
 * Happy path and failures of a create: local_make.c. A removal that is not confirmed fails and may
 * be repeated. */
#include "backends/local/local_internal.h"

const char *local_snapshot_ref_of(struct backend *b, struct arena *arena,
                                  const struct snapshot_spec *spec)
{
    (void)b;
    return arena_printf(arena, "home-%s", spec->home_snapshot_id);
}

static const struct op_type create_type = {"local_snapshot_create", local_make_states,
                                           LOCAL_MAKE_STATES, local_make_step, NULL};

void local_snapshot_create(struct backend *b, struct op *op, const struct snapshot_spec *spec,
                           struct plane *plane, const char **ret_ref)
{
    struct local_backend *l = local_of(b);
    struct local_making making = {
        .type = &create_type,
        .make = {.root = l->snapshot_root, .source = plane->layout.home_dir},
        .code = ERR_SNAPSHOT_CREATE,
        .what = "home snapshot",
        .orphan = ORPHAN_SNAPSHOT,
        .ref = local_snapshot_ref_of(b, op->arena, spec),
        .ret_ref = ret_ref,
    };
    struct error error;

    PRE(plane->backend == b);
    making.make.id = making.ref;
    if (!local_check_snapshot_ref(b, making.ref, &error)) {
        error_set(&error, ERR_INVALID_REF,
                  "home_snapshot_id takes letters, digits, `.`, `_` and `-`, at most 250 bytes");
        op_complete(op, &error);
        return;
    }
    local_make_folder(l, op, &making);
}

struct snapshot_delete {
    struct op op;
    struct local_backend *l;
    const char *ref;
    struct control_result result;
};

enum delete_state { DELETE_START, DELETE_REMOVING };
static const char *const delete_states[] = {"start", "removing"};

static enum op_poll delete_step(struct op *op)
{
    struct snapshot_delete *d = container_of(op, struct snapshot_delete, op);
    const char *script;

    switch ((enum delete_state)op->state) {
    case DELETE_START:
        script = local_script_remove(op->arena, d->l->snapshot_root, d->ref, NULL);
        AWAIT(op, DELETE_REMOVING,
              local_run_script(d->l, op, script, "removing the snapshot", &d->result));
        if (d->result.exit_code != 0)
            op_fail(op, ERR_SNAPSHOT_DELETE, "removing the snapshot failed (exit code %d): %.300s",
                    d->result.exit_code, d->result.output);
    undo:
        shellctl_wrap_error(op_error_edit(op), ERR_SNAPSHOT_DELETE);
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type delete_type = {"local_snapshot_delete", delete_states, 2, delete_step,
                                           NULL};

void local_snapshot_delete(struct backend *b, struct op *op, const char *ref)
{
    struct snapshot_delete *d = OP_CHILD(op, &delete_type, snapshot_delete);
    struct error error;

    d->l = local_of(b);
    d->ref = ref;
    if (!local_check_snapshot_ref(b, ref, &error)) {
        op_complete(op, &error);
        return;
    }
    op_await_child(op, &d->op);
}
