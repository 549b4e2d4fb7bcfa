/* Make a folder so that an attempt that does not end well leaves nothing.
 *
 * Happy path: the script ends with 0.
 * Failures:
 *   - the script says no: it has removed what it made itself
 *   - the answer is lost, the time is over, or the caller goes away: a second script removes what
 *     the first made, and forbids it to begin if it has not; the wait is held so that the first has
 *     ended, as far as can be known
 *   - that fails too: an orphan is reported */
#include "backends/local/local_internal.h"

#include "core/runtime/quote.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

struct make_folder {
    struct op op;
    struct local_backend *l;
    struct local_making making;
    struct control_result result;
    bool clean; /* the script removed its own */
};

enum make_state { MAKE_START, MAKE_MAKING, MAKE_UNMAKING };
const char *const local_make_states[LOCAL_MAKE_STATES] = {"start", "making", "unmaking"};

static void judge(struct make_folder *m)
{
    const struct local_making *making = &m->making;
    struct op *op = &m->op;

    m->clean = m->result.exit_code != 0;
    switch (m->result.exit_code) {
    case 0:
        break;
    case LOCAL_EXIT_EXISTS:
        op_fail(op, ERR_CONFLICT, "%s \"%s\" exists already", making->what, making->make.id);
        break;
    case LOCAL_EXIT_WORKSPACE_EXISTS:
        op_fail(op, ERR_CONFLICT,
                "workspace \"%s\" exists already; send existing_workspace_ref to attach to it",
                making->make.workspace_id);
        break;
    case LOCAL_EXIT_NO_SOURCE:
        if (making->orphan == ORPHAN_SNAPSHOT)
            op_fail(op, ERR_BINDING_LOST, "the binding's Home no longer exists");
        else
            op_fail(op, making->code, "the home snapshot does not exist");
        break;
    case LOCAL_EXIT_NO_WORKSPACE:
        op_fail(op, making->code, "the existing workspace \"%s\" does not exist",
                making->make.workspace_id);
        break;
    case LOCAL_EXIT_BUSY:
        op_fail(op, ERR_CONFLICT, "%s \"%s\" is being worked on", making->what, making->make.id);
        break;
    default:
        op_fail(op, making->code, "making %s failed (exit code %d): %.300s", making->what,
                m->result.exit_code, m->result.output);
        break;
    }
}

static void make(struct make_folder *m)
{
    local_run_script(m->l, &m->op, local_script_make(m->op.arena, &m->making.make),
                     "making the folders", &m->result);
}

static void unmake(struct make_folder *m)
{
    local_run_script(m->l, &m->op, local_script_unmake(m->op.arena, &m->making.make),
                     "removing the folders again", &m->result);
}

static void give(const struct local_making *making)
{
    if (making->ret_binding != NULL)
        *making->ret_binding = (struct binding){making->ref, making->make.workspace_id};
    if (making->ret_ref != NULL)
        *making->ret_ref = making->ref;
}

/* Nothing can be there: the script never left, or has cleaned up after itself. */
static bool is_clean(const struct make_folder *m)
{
    return m->clean || (op_last(&m->op)->code == ERR_UPSTREAM_CONNECT &&
                        op_last(&m->op)->admitted == ADMITTED_NO);
}

enum op_poll local_make_step(struct op *op)
{
    struct make_folder *m = container_of(op, struct make_folder, op);
    const struct local_making *making = &m->making;

    switch ((enum make_state)op->state) {
    case MAKE_START:
        AWAIT_HELD(op, MAKE_MAKING, make(m));
        judge(m);
        if (!op_failed(op)) {
            give(making);
            return OP_DONE;
        }
    undo:
        shellctl_wrap_error(op_error_edit(op), making->code);
        if (is_clean(m))
            return OP_DONE;
        op_begin_undo(op, LOCAL_UNDO_MS);
        AWAIT_ANY(op, MAKE_UNMAKING, unmake(m));
        if (!op_last_failed(op) && m->result.exit_code == 0) {
            op_error_edit(op)->admitted = ADMITTED_NO;
        } else {
            op_error_edit(op)->admitted = ADMITTED_UNKNOWN;
            backend_report_orphan(&m->l->backend, making->orphan, making->ref, making->spec,
                                  op_error(op));
        }
        return OP_DONE;
    }
    unreachable_state(op);
}

static const char *token_new(struct arena *arena)
{
    unsigned char random[16];

    PRE(getrandom(random, sizeof(random), 0) == (ssize_t)sizeof(random));
    return quote_hex(arena, random, sizeof(random));
}

void local_make_folder(struct local_backend *l, struct op *op, const struct local_making *making)
{
    struct make_folder *m = OP_CHILD(op, making->type, make_folder);

    m->l = l;
    m->making = *making;
    m->making.make.token = token_new(op->arena);
    m->making.make.instance_id = l->instance_id;
    op_await_child(op, &m->op);
}
