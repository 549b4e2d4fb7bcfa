#include "core/domain/backend.h"

#include "core/runtime/log.h"
#include "core/runtime/metrics.h"

static const char *orphan_name(enum orphan_kind kind)
{
    static const char *const names[] = {"binding", "unknown", "snapshot"};

    return names[kind];
}

void backend_report_orphan(struct backend *b, enum orphan_kind kind, const char *ref,
                           const struct binding_spec *spec, const struct error *why)
{
    if (kind == ORPHAN_UNKNOWN && (b->caps & (BACKEND_FINDS | BACKEND_LISTS)) == 0)
        metric_add(METRIC_UNACCOUNTED_CREATES, LABELS(b->ops->name), 1);
    else
        metric_add(METRIC_CLEANUP_FAILURES, LABELS(orphan_name(kind)), 1);
    LOG_WITH(LOG_ERROR, "left behind at the backend: to be settled", {"backend", b->ops->name},
             {"kind", orphan_name(kind)}, {"ref", ref},
             {"binding_id", spec != NULL ? spec->binding_id : NULL},
             {"code", why != NULL ? err_wire(why->code) : NULL},
             {"why", why != NULL ? why->message : NULL});
    if (b->orphans.report != NULL)
        b->orphans.report(b->orphans.ctx, b, kind, ref, spec, why);
}

bool backend_check_create(const struct backend *b, const struct binding_spec *spec,
                          struct error *err)
{
    if (spec->existing_workspace_ref != NULL && !(b->caps & BACKEND_SHARED_WORKSPACE)) {
        error_set(err, ERR_SHARED_WORKSPACE_UNSUPPORTED,
                  "the %s backend cannot attach a second binding to a workspace; "
                  "omit existing_workspace_ref",
                  b->ops->name);
        return false;
    }
    if (spec->home_snapshot_ref != NULL && !(b->caps & BACKEND_SNAPSHOTS)) {
        error_set(err, ERR_SNAPSHOT_UNSUPPORTED,
                  "the %s backend cannot start a binding from a home snapshot here; "
                  "omit home_snapshot_ref or switch snapshots on",
                  b->ops->name);
        return false;
    }
    return true;
}

bool backend_check_destroy(const struct backend *b, const struct destroy_spec *spec,
                           struct error *err)
{
    if (!spec->destroy_workspace && !(b->caps & BACKEND_KEEPS_WORKSPACE)) {
        error_set(err, ERR_WORKSPACE_PRESERVATION_UNSUPPORTED,
                  "the %s backend couples binding and workspace; send destroy_workspace=true "
                  "with the workspace_ref",
                  b->ops->name);
        return false;
    }
    return true;
}
