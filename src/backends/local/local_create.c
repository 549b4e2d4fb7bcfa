/* Create a binding: one script makes Home (from the snapshot, or empty) and Workspace; local_make.c
 * has the happy path and the failures. Refused before anything is sent: ids that are no refs, and a
 * workspace ref that is another's. */
#include "backends/local/local_internal.h"

#include <string.h>

static const struct op_type create_type = {"local_create", local_make_states, LOCAL_MAKE_STATES,
                                           local_make_step, NULL};

static bool check_spec(struct local_backend *l, struct arena *arena,
                       const struct binding_spec *spec, struct error *err)
{
    struct local_ref ref;

    if (!local_make_ref(l, arena, spec->binding_id, spec->workspace_id, &ref, err))
        return false;
    if (spec->existing_workspace_ref != NULL &&
        strcmp(spec->existing_workspace_ref, spec->workspace_id) != 0) {
        error_set(
            err, ERR_INVALID_REF,
            "existing_workspace_ref: must be the ref of the workspace that workspace_id names");
        return false;
    }
    return spec->home_snapshot_ref == NULL ||
           local_check_snapshot_ref(&l->backend, spec->home_snapshot_ref, err);
}

void local_create(struct backend *b, struct op *op, const struct binding_spec *spec,
                  struct binding *ret)
{
    struct local_backend *l = local_of(b);
    struct local_making making = {
        .type = &create_type,
        .make =
            {
                .root = l->home_root,
                .id = spec->binding_id,
                .workspace_root = l->workspace_root,
                .workspace_id = arena_strdup(op->arena, spec->workspace_id),
                .attach = spec->existing_workspace_ref != NULL,
            },
        .code = ERR_BINDING_CREATE,
        .what = "binding",
        .orphan = ORPHAN_BINDING,
        .ref = arena_printf(op->arena, "%s:%s", spec->binding_id, spec->workspace_id),
        .spec = spec,
        .ret_binding = ret,
    };
    struct error error;

    if (!check_spec(l, op->arena, spec, &error)) {
        op_complete(op, &error);
        return;
    }
    if (spec->home_snapshot_ref != NULL)
        making.make.source = local_snapshot_path(l, op->arena, spec->home_snapshot_ref);
    local_make_folder(l, op, &making);
}
