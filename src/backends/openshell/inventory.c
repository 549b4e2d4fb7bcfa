/* What exists: our sandboxes by label, page by page, and the one of a binding by its name. */
#include "backends/openshell/backend.h"
#include "backends/openshell/names.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 200 };

struct openshell_listing {
    struct op op;
    struct openshell_backend *backend;
    const char **cursor;
    struct backend_item **ret;
    size_t *ret_n;
    uint32_t offset;
    struct sandbox_view *views;
    size_t n_views;
};

enum listing_state { LISTING_START, LISTING_CALLING };
static const char *const listing_states[] = {"start", "calling"};

static void listing_take(struct openshell_listing *l)
{
    struct backend_item *items = arena_alloc(l->op.arena, l->n_views * sizeof(*items));

    for (size_t i = 0; i < l->n_views; i++) {
        items[i] = (struct backend_item){
            .binding_ref = l->views[i].name,
            .workspace_ref = l->views[i].name,
            .binding_id = l->views[i].binding_digest,
            .binding_id_is_digest = true,
            .created_wall_ms = l->views[i].created_at_ms,
        };
    }
    *l->ret = items;
    *l->ret_n = l->n_views;
    *l->cursor = l->n_views < PAGE ? NULL : arena_printf(l->op.arena, "%u", l->offset + PAGE);
}

static enum op_poll listing_step(struct op *op)
{
    struct openshell_listing *l = container_of(op, struct openshell_listing, op);
    struct openshell_backend *b = l->backend;

    switch ((enum listing_state)op->state) {
    case LISTING_START:
        AWAIT(op, LISTING_CALLING,
              rpc_list(&b->rpc, op,
                       arena_printf(op->arena, "dify.resource=runtime-sandbox,bindery.instance=%s",
                                    b->instance_digest),
                       l->offset, PAGE, &l->views, &l->n_views));
        listing_take(l);
        return OP_DONE;
    undo:
        rpc_judge(op_error_edit(op), ERR_BINDING_ACQUIRE, ERR_BINDING_ACQUIRE);
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type listing_type = {"openshell_list", listing_states, 2, listing_step,
                                            NULL};

void openshell_list(struct backend *b, struct op *op, const char **cursor,
                    struct backend_item **ret, size_t *ret_n)
{
    struct openshell_listing *l = OP_CHILD(op, &listing_type, openshell_listing);

    l->backend = openshell_of(b);
    l->cursor = cursor;
    l->offset = *cursor != NULL ? (uint32_t)strtoul(*cursor, NULL, 10) : 0;
    l->ret = ret;
    l->ret_n = ret_n;
    op_await_child(op, &l->op);
}

const char *openshell_binding_ref_of(struct backend *b, struct arena *arena,
                                     const struct binding_spec *spec)
{
    (void)b;
    return name_sandbox(arena, spec->binding_id);
}

struct openshell_search {
    struct op op;
    struct openshell_backend *backend;
    const struct binding_spec *spec;
    struct binding *ret;
    struct sandbox_view view;
};

enum search_state { SEARCH_START, SEARCH_GETTING };
static const char *const search_states[] = {"start", "getting"};

static void search_judge(struct openshell_search *s)
{
    char digest[NAME_DIGEST_CHARS + 1];
    struct error err = *op_last(&s->op);

    if (op_last_failed(&s->op)) {
        if (rpc_is(&err, GRPC_NOT_FOUND))
            return;
        rpc_judge(&err, ERR_BINDING_ACQUIRE, ERR_BINDING_ACQUIRE);
        op_fail_with(&s->op, &err);
        return;
    }
    name_digest(s->spec->binding_id, digest);
    if (strcmp(s->view.binding_digest, digest) == 0 &&
        strcmp(s->view.instance_label, s->backend->instance_digest) == 0 &&
        s->view.phase != OPENSHELL__SANDBOX_PHASE__PHASE_DELETING) {
        s->ret->binding_ref = s->view.name;
        s->ret->workspace_ref = s->view.name;
    }
}

static enum op_poll search_step(struct op *op)
{
    struct openshell_search *s = container_of(op, struct openshell_search, op);

    switch ((enum search_state)op->state) {
    case SEARCH_START:
        AWAIT_ANY(
            op, SEARCH_GETTING,
            rpc_get(&s->backend->rpc, op, name_sandbox(op->arena, s->spec->binding_id), &s->view));
        search_judge(s);
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type search_type = {"openshell_find", search_states, 2, search_step, NULL};

void openshell_find(struct backend *b, struct op *op, const struct binding_spec *spec,
                    struct binding *ret)
{
    struct openshell_search *s = OP_CHILD(op, &search_type, openshell_search);

    s->backend = openshell_of(b);
    s->spec = spec;
    s->ret = ret;
    *ret = (struct binding){NULL, NULL};
    op_await_child(op, &s->op);
}
