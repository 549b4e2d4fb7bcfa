#include "gc/collect.h"

static const struct collect_kind {
    const struct op_type *type;
    const size_t *size;
    enum ledger_kind row;
} kinds[WORK_KINDS] = {
    [WORK_WORKSPACE] = {&collect_workspace_type, &collect_workspace_size, LEDGER_WORKSPACES},
    [WORK_BINDING] = {&collect_single_type, &collect_single_size, LEDGER_BINDINGS},
    [WORK_SNAPSHOT] = {&collect_single_type, &collect_single_size, LEDGER_SNAPSHOTS},
    [WORK_ORPHAN] = {&collect_single_type, &collect_single_size, LEDGER_ORPHANS},
    [WORK_CREATING] = {&settle_create_type, &settle_create_size, LEDGER_BINDINGS},
};

struct collect *collect_new(struct lifecycle *lc, const struct ledger_work *work,
                            int64_t deadline_ms)
{
    const struct collect_kind *kind = &kinds[work->kind];
    struct op *op = op_root_new(lifecycle_ledger(lc)->loop, kind->type, *kind->size, NULL);
    struct collect *c = container_of(op, struct collect, op);
    struct arena *arena = op->arena;

    c->lc = lc;
    c->work = *work;
    c->work.id = arena_strdup(arena, work->id);
    if (work->workspace != NULL)
        c->work.workspace = ledger_row_copy(arena, kind->row, work->workspace);
    if (work->binding != NULL)
        c->work.binding = ledger_row_copy(arena, kind->row, work->binding);
    if (work->snapshot != NULL)
        c->work.snapshot = ledger_row_copy(arena, kind->row, work->snapshot);
    if (work->orphan != NULL)
        c->work.orphan = ledger_row_copy(arena, kind->row, work->orphan);
    op_set_deadline_ms(op, deadline_ms, "collecting");
    return c;
}

bool collect_can_find(const struct collect *c)
{
    struct backend *backend = collect_backend(c);

    return (backend->caps & BACKEND_FINDS) && backend->ops->find != NULL;
}

void collect_find(struct collect *c, struct op *op, const struct ledger_binding *row,
                  struct binding *ret)
{
    struct backend *backend = collect_backend(c);
    struct binding_spec *spec = ARENA_NEW(op->arena, struct binding_spec);

    *spec = (struct binding_spec){.tenant_id = row->tenant_id,
                                  .agent_id = row->agent_id,
                                  .binding_id = row->id,
                                  .workspace_id = row->workspace_id,
                                  .home_snapshot_ref = row->home_snapshot_ref};
    *ret = (struct binding){0};
    backend->ops->find(backend, op, spec, ret);
}

void collect_record_unknown(struct collect *c, struct op *op, const struct ledger_binding *row)
{
    struct ledger *ledger = lifecycle_ledger(c->lc);
    const struct ledger_orphan orphan = {.kind = "unknown",
                                         .backend = row->backend,
                                         .tenant_id = row->tenant_id,
                                         .agent_id = row->agent_id,
                                         .binding_id = row->id,
                                         .reason = "its create was cut short"};

    ledger->ops->report_orphan(ledger, op, &orphan);
}

const char *collect_snapshot_ref(struct collect *c, const struct ledger_snapshot *row)
{
    struct backend *backend = collect_backend(c);
    const struct snapshot_spec spec = {row->tenant_id, row->agent_id, row->id};
    const char *ref = row->snapshot_ref;
    struct error unused;

    if (ref != NULL || backend->ops->snapshot_ref_of == NULL)
        return ref;
    ref = backend->ops->snapshot_ref_of(backend, c->op.arena, &spec);
    return ref != NULL && broker_check_snapshot_delete(lifecycle_broker(c->lc), ref, &unused)
               ? ref
               : NULL;
}

void collect_record_copy(struct collect *c, struct op *op, const struct ledger_snapshot *row)
{
    struct ledger *ledger = lifecycle_ledger(c->lc);
    const struct ledger_orphan orphan = {
        .kind = "unknown",
        .backend = row->backend,
        .tenant_id = row->tenant_id,
        .agent_id = row->agent_id,
        .reason = arena_printf(op->arena, "the copy for home snapshot %s was cut short", row->id)};

    ledger->ops->report_orphan(ledger, op, &orphan);
}

void collect_finish(struct collect *c, struct op *op)
{
    struct ledger *ledger = lifecycle_ledger(c->lc);

    c->cause = (struct ledger_cause){"collector", "destroyed"};
    ledger->ops->finish_work(ledger, op, &c->work, &c->cause, &c->done);
}

void collect_put_off(struct collect *c, struct op *op)
{
    struct ledger *ledger = lifecycle_ledger(c->lc);

    c->delay_ms = work_retry_delay_ms(c->work.attempts);
    ledger->ops->retry_work(ledger, op, &c->work, op_error(op), c->delay_ms);
}
