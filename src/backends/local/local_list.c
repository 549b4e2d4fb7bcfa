/* What exists, from the records beside the Homes. Records of another instance are not ours and are
 * left out; a record whose Home is missing is listed: it is what a crash left of a create. */
#include "backends/local/local_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAGE = 300
}; /* records of at most about 600 bytes: well within a control command's output */

/* ---- list ----------------------------------------------------------------------------------- */

struct list_page {
    struct op op;
    struct local_backend *l;
    const char **cursor;
    struct backend_item **ret;
    size_t *ret_n;
    struct control_result result;
};

enum list_state { LIST_START, LIST_READING };
static const char *const list_states[] = {"start", "reading"};

/* One line; false when it is not a record of ours. `*ret_id` is set for every record. */
static bool read_record(struct list_page *p, char *line, const char **ret_id,
                        struct backend_item *ret)
{
    char *fields[5] = {0}, *save = NULL;
    struct local_ref ref;
    struct error error;

    for (int i = 0; i < 5; i++)
        fields[i] = strtok_r(i == 0 ? line : NULL, " \r", &save);
    *ret_id = fields[0];
    if (fields[4] == NULL || strcmp(fields[3], p->l->instance_id) != 0 ||
        !local_make_ref(p->l, p->op.arena, fields[0], fields[1], &ref, &error))
        return false;
    *ret = (struct backend_item){
        .binding_ref = arena_printf(p->op.arena, "%s:%s", fields[0], fields[1]),
        .workspace_ref = fields[1],
        .binding_id = fields[0],
        .created_wall_ms = strtoll(fields[4], NULL, 10) * 1000,
    };
    return true;
}

static void read_page(struct list_page *p)
{
    char *text = arena_memdup(p->op.arena, p->result.output, p->result.output_len);
    const char *last = NULL, *id;
    size_t lines = 0;
    char *save = NULL;

    *p->ret = arena_alloc(p->op.arena, (PAGE + 1) * sizeof(**p->ret));
    *p->ret_n = 0;
    for (char *line = strtok_r(text, "\n", &save); line != NULL && lines < PAGE;
         line = strtok_r(NULL, "\n", &save)) {
        if (read_record(p, line, &id, &(*p->ret)[*p->ret_n]))
            (*p->ret_n)++;
        last = id != NULL ? id : last;
        lines++;
    }
    *p->cursor = lines == PAGE ? last : NULL;
}

static enum op_poll list_step(struct op *op)
{
    struct list_page *p = container_of(op, struct list_page, op);
    const char *script;

    switch ((enum list_state)op->state) {
    case LIST_START:
        script = local_script_list(op->arena, p->l->home_root, *p->cursor != NULL ? *p->cursor : "",
                                   PAGE);
        AWAIT(op, LIST_READING,
              local_run_script(p->l, op, script, "listing the bindings", &p->result));
        if (p->result.exit_code != 0)
            op_fail(op, ERR_BACKEND_UNAVAILABLE,
                    "listing the bindings failed (exit code %d): %.300s", p->result.exit_code,
                    p->result.output);
        else
            read_page(p);
    undo:
        shellctl_wrap_error(op_error_edit(op), ERR_BACKEND_UNAVAILABLE);
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type list_type = {"local_list", list_states, 2, list_step, NULL};

void local_list(struct backend *b, struct op *op, const char **cursor, struct backend_item **ret,
                size_t *ret_n)
{
    struct list_page *p = OP_CHILD(op, &list_type, list_page);

    p->l = local_of(b);
    p->cursor = cursor;
    p->ret = ret;
    p->ret_n = ret_n;
    op_await_child(op, &p->op);
}

/* ---- find ----------------------------------------------------------------------------------- */

struct find {
    struct op op;
    struct local_backend *l;
    struct local_ref ref;
    struct binding *ret;
    struct control_result result;
};

enum find_state { FIND_START, FIND_LOOKING };
static const char *const find_states[] = {"start", "looking"};

static enum op_poll find_step(struct op *op)
{
    struct find *f = container_of(op, struct find, op);
    const char *script;

    switch ((enum find_state)op->state) {
    case FIND_START:
        script =
            local_script_find(op->arena, f->l->home_root, f->ref.binding_id, f->ref.workspace_id);
        AWAIT(op, FIND_LOOKING,
              local_run_script(f->l, op, script, "looking for the binding", &f->result));
        *f->ret = (struct binding){0};
        if (f->result.exit_code == 0) {
            f->ret->binding_ref =
                arena_printf(op->arena, "%s:%s", f->ref.binding_id, f->ref.workspace_id);
            f->ret->workspace_ref = arena_strdup(op->arena, f->ref.workspace_id);
        } else if (f->result.exit_code != LOCAL_EXIT_ABSENT) {
            op_fail(op, ERR_BACKEND_UNAVAILABLE,
                    "looking for the binding failed (exit code %d): %.300s", f->result.exit_code,
                    f->result.output);
        }
    undo:
        shellctl_wrap_error(op_error_edit(op), ERR_BACKEND_UNAVAILABLE);
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type find_type = {"local_find", find_states, 2, find_step, NULL};

void local_find(struct backend *b, struct op *op, const struct binding_spec *spec,
                struct binding *ret)
{
    struct find *f = OP_CHILD(op, &find_type, find);
    struct error error;

    f->l = local_of(b);
    f->ret = ret;
    if (!local_make_ref(f->l, op->arena, spec->binding_id, spec->workspace_id, &f->ref, &error)) {
        *ret = (struct binding){0}; /* nothing can have been made of it */
        op_complete(op, NULL);
        return;
    }
    op_await_child(op, &f->op);
}
