/* Create: claim the name, wait until the sandbox is READY (one that was adopted may have to be started),
 * lay out Home and Workspace, stop it.
 *
 * Any failure, deadline or cancellation after the claim deletes the sandbox again, unless it was
 * adopted: then it was there before and stays. A deletion that fails is recorded as an orphan. */
#include "backends/openshell/claim.h"
#include "backends/openshell/names.h"

#include <string.h>

enum { UNDO_BUDGET_MS = 60000 };

struct openshell_create {
    struct op op;
    struct openshell_backend *backend;
    const struct binding_spec *spec;
    struct binding *ret;
    struct claim claim;
    char digest[NAME_DIGEST_CHARS + 1];
    const char *tenant_root, *snapshot_dir;
    struct sandbox_view view;
    struct wake wake;
    struct exec_result exec;
};

enum create_state {
    CREATE_START,
    CREATE_CLAIMING,
    CREATE_WAITING,
    CREATE_WAKING,
    CREATE_LAYING_OUT,
    CREATE_STOPPING,
    CREATE_DELETING,
};
static const char *const create_states[] = {"start",      "claiming", "waiting", "waking",
                                            "laying_out", "stopping", "deleting"};

static bool create_check(struct openshell_create *c)
{
    const struct binding_spec *s = c->spec;
    struct error err;
    const char *root;

    if (!name_check_id(s->binding_id, "binding_id", ERR_INVALID_REF, &err) ||
        !name_check_id(s->tenant_id, "tenant_id", ERR_INVALID_REF, &err) ||
        !name_check_id(s->agent_id, "agent_id", ERR_INVALID_REF, &err) ||
        !name_check_id(s->workspace_id, "workspace_id", ERR_INVALID_REF, &err)) {
        op_fail_with(&c->op, &err);
        return false;
    }
    c->tenant_root = name_tenant_root(c->op.arena, c->backend->shared_mount_path, s->tenant_id);
    if (s->home_snapshot_ref == NULL)
        return true;
    c->snapshot_dir = name_snapshot_dir(c->op.arena, c->backend->shared_mount_path,
                                        s->home_snapshot_ref, &root, &err);
    if (c->snapshot_dir == NULL)
        op_fail_with(&c->op, &err);
    else if (strcmp(root, c->tenant_root) != 0)
        op_fail(&c->op, ERR_BINDING_CREATE, "the home snapshot belongs to another tenant");
    return !op_failed(&c->op);
}

static void create_claim(struct openshell_create *c)
{
    const struct binding_spec *s = c->spec;
    struct arena *arena = c->op.arena;
    char tenant[NAME_DIGEST_CHARS + 1], agent[NAME_DIGEST_CHARS + 1];
    char workspace[NAME_DIGEST_CHARS + 1];

    name_digest(s->binding_id, c->digest);
    name_digest(s->tenant_id, tenant);
    name_digest(s->agent_id, agent);
    name_digest(s->workspace_id, workspace);
    c->claim = (struct claim){
        .name = name_sandbox(arena, s->binding_id),
        .marker = name_maintenance(arena) + strlen("gc-"),
        .binding_digest = c->digest,
        .spec = s,
    };
    c->claim.request = openshell_create_request(
        c->backend, arena, c->claim.name,
        (const char *const[]){"dify.resource", "runtime-sandbox", "dify.binding", c->digest,
                              "dify.workspace", workspace, "dify.tenant", tenant, "dify.agent",
                              agent, "bindery.instance", c->backend->instance_digest, NULL},
        c->claim.marker, c->tenant_root);
    openshell_claim(c->backend, &c->op, &c->claim);
}

static enum op_poll create_step(struct op *op)
{
    struct openshell_create *c = container_of(op, struct openshell_create, op);
    struct openshell_backend *b = c->backend;
    struct error err;

    switch ((enum create_state)op->state) {
    case CREATE_START:
        if (!create_check(c))
            return OP_DONE;
        AWAIT(op, CREATE_CLAIMING, create_claim(c));
        AWAIT(op, CREATE_WAITING,
              openshell_wait_ready(b, op, c->claim.name, ERR_BINDING_CREATE, &c->view));
        if (c->view.phase != OPENSHELL__SANDBOX_PHASE__PHASE_READY) { /* adopted, and stopped */
            AWAIT(op, CREATE_WAKING,
                  openshell_wake(b, op, c->claim.name, ERR_BINDING_CREATE, &c->wake));
            c->view = c->wake.view;
        }
        AWAIT(op, CREATE_LAYING_OUT,
              rpc_exec(
                  &b->rpc, op, c->view.id,
                  openshell_script_init(op->arena, &b->layout, c->snapshot_dir, c->claim.adopted),
                  b->exec_timeout_s, &c->exec));
        if (c->exec.exit_code != 0) {
            op_fail(op, ERR_BINDING_CREATE, "laying out the sandbox: %s",
                    c->exec.exit_code == 124 ? "the script did not end in time" : c->exec.output);
            goto undo;
        }
        AWAIT(op, CREATE_STOPPING, rpc_stop(&b->rpc, op, c->claim.name, &c->view));
        c->ret->binding_ref = c->claim.name;
        c->ret->workspace_ref = c->claim.name;
        return OP_DONE;

    undo:
        err = *op_error(op);
        rpc_judge(&err, ERR_BINDING_CREATE, ERR_BINDING_CREATE);
        *op_error_edit(op) = err;
        if (!c->claim.won || c->claim.adopted)
            return OP_DONE;
        op_begin_undo(op, UNDO_BUDGET_MS);
        AWAIT_ANY(op, CREATE_DELETING, rpc_delete(&b->rpc, op, c->claim.name));
        if (op_last_failed(op))
            backend_report_orphan(&b->base, ORPHAN_BINDING, c->claim.name, c->spec, op_last(op));
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type create_type = {"openshell_create", create_states, 7, create_step, NULL};

void openshell_create_binding(struct backend *b, struct op *op, const struct binding_spec *spec,
                              struct binding *ret)
{
    struct openshell_create *c = OP_CHILD(op, &create_type, openshell_create);

    c->backend = openshell_of(b);
    c->spec = spec;
    c->ret = ret;
    op_await_child(op, &c->op);
}
