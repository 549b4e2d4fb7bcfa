/* The operation engine at its edges: trouble at awkward moments. What goes well and the ordinary
 * failures are in test_op.c. */
#include "core/runtime/op.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

static struct loop *loop;
static char trace[200];

static void set_up(void)
{
    loop = loop_new(&(struct loop_options){.virtual_clock = true});
    trace[0] = '\0';
}

static void tear_down(void)
{
    loop_free(loop);
}

TestSuite(op_edges, .init = set_up, .fini = tear_down, .timeout = 10);

static void note(const char *text)
{
    strncat(trace, text, sizeof(trace) - strlen(trace) - 1);
}

/* ---- an op whose waits are told by a script --------------------------------------------------- */

struct scripted;
typedef void (*start_fn)(struct scripted *s);

/* One wait in each mode, then undo with two waits. What happens is noted: Y, A, B or y, a, b when a
 * wait ended well or not; D at the regular end, U at undo, x when a leaf is cancelled, F when the
 * op is released, at the end of the turn. */
struct scripted {
    struct op op;
    start_fn held, plain, any, undo_a, undo_b; /* NULL: the wait is left out */
    void (*in_step)(struct scripted *s);       /* called in the step behind the last wait */
    int64_t undo_budget_ms;
    struct scripted *child;
    bool look; /* behind the AWAIT_ANY, ask op_failed */
};

enum scripted_state {
    SCRIPTED_START,
    SCRIPTED_HELD,
    SCRIPTED_PLAIN,
    SCRIPTED_ANY,
    SCRIPTED_UNDO_A,
    SCRIPTED_UNDO_B,
};

static const char *const scripted_states[] = {"start", "held", "plain", "any", "undo_a", "undo_b"};

static enum op_poll scripted_step(struct op *op)
{
    struct scripted *s = container_of(op, struct scripted, op);

    switch ((enum scripted_state)op->state) {
    case SCRIPTED_START:
        if (s->held != NULL)
            AWAIT_HELD(op, SCRIPTED_HELD, s->held(s));
        if (s->plain != NULL)
            AWAIT(op, SCRIPTED_PLAIN, s->plain(s));
        if (s->any != NULL) {
            AWAIT_ANY(op, SCRIPTED_ANY, s->any(s));
            note(op_last_failed(op) ? "y" : "Y");
            if (s->look && op_failed(op))
                goto undo;
        }
        if (s->in_step != NULL)
            s->in_step(s);
        note("D");
        return OP_DONE;

    undo:
        note("U");
        op_begin_undo(op, s->undo_budget_ms);
        if (s->undo_a != NULL) {
            AWAIT_ANY(op, SCRIPTED_UNDO_A, s->undo_a(s));
            note(op_last_failed(op) ? "a" : "A");
        }
        if (s->undo_b != NULL) {
            AWAIT_ANY(op, SCRIPTED_UNDO_B, s->undo_b(s));
            note(op_last_failed(op) ? "b" : "B");
        }
        return OP_DONE;
    }
    unreachable_state(op);
}

static void scripted_fini(struct op *op)
{
    (void)op;
    note("F");
}

static const struct op_type scripted_type = {"scripted", scripted_states, 6, scripted_step,
                                             scripted_fini};

static void nap(struct scripted *s)
{
    op_sleep(&s->op, 100);
}

static void fail_at_once(struct scripted *s)
{
    struct error error;

    error_set(&error, ERR_CONFLICT, "refused");
    op_complete(&s->op, &error);
}

static void never_waker(void *ctx)
{
    (void)ctx;
    note("x");
}

/* A leaf that never ends by itself and notes its cancellation. */
static void hang(struct scripted *s)
{
    op_wait_begin(&s->op, never_waker, s);
}

static void run_child(struct scripted *s)
{
    op_await_child(&s->op, &s->child->op);
}

struct outcome {
    int ends;
    struct error error;
};

static void ended(struct op *op, void *ctx)
{
    struct outcome *o = ctx;

    o->ends++;
    o->error = *op_error(op);
}

static struct scripted *make(struct outcome *o)
{
    struct scripted *s = OP_ROOT(loop, &scripted_type, scripted, NULL);

    s->undo_budget_ms = 1000;
    op_start(&s->op, ended, o);
    return s;
}

static struct scripted *make_child(struct scripted *parent)
{
    struct scripted *s = OP_CHILD(&parent->op, &scripted_type, scripted);

    s->undo_budget_ms = 1000;
    parent->child = s;
    return s;
}

/* ---- cancellation ----------------------------------------------------------------------------- */

Test(op_edges, cancel_while_queued_keeps_the_result_and_undoes)
{
    struct outcome o = {0};
    struct scripted *s = make(&o);

    s->plain = hang;
    s->undo_a = nap;
    loop_turn(loop, false);
    op_wake(&s->op, NULL); /* the answer is here, the step has not run yet */
    op_cancel(&s->op, "too late");
    cr_assert_str_eq(trace, "", "a leaf that has ended is not cancelled");
    cr_assert(not(op_last_failed(&s->op)));
    loop_advance_ms(loop, 200);
    cr_assert(eq(int, o.ends, 1));
    cr_assert(eq(int, o.error.code, ERR_CANCELLED));
    cr_assert_str_eq(trace, "UAF");
}

Test(op_edges, cancel_twice_is_cancel_once)
{
    struct outcome o = {0};
    struct scripted *s = make(&o);

    s->plain = hang;
    s->undo_a = nap;
    loop_turn(loop, false);
    op_cancel(&s->op, "first");
    op_abort(&s->op, ERR_DRAINING, "second");
    loop_turn(loop, false);
    op_cancel(&s->op, "in undo");
    loop_advance_ms(loop, 200);
    cr_assert_str_eq(o.error.message, "first");
    cr_assert_str_eq(trace, "xUAF");
}

Test(op_edges, a_cancellation_during_a_last_any_wait_is_too_late)
{
    struct outcome o = {0};
    struct scripted *s = make(&o);

    s->any = hang;
    s->undo_a = nap;
    loop_turn(loop, false);
    op_cancel(&s->op, "gone");
    loop_advance_ms(loop, 200);
    cr_assert(eq(int, o.ends, 1));
    cr_assert(eq(int, o.error.code, ERR_NONE), "all was done, nothing undone");
    cr_assert_str_eq(trace, "xyDF");
}

Test(op_edges, unless_the_step_looks)
{
    struct outcome o = {0};
    struct scripted *s = make(&o);

    s->any = hang;
    s->look = true;
    s->undo_a = nap;
    loop_turn(loop, false);
    op_cancel(&s->op, "gone");
    loop_advance_ms(loop, 200);
    cr_assert(eq(int, o.error.code, ERR_CANCELLED));
    cr_assert_str_eq(trace, "xyUAF");
}

static void cancel_self(struct scripted *s)
{
    op_cancel(&s->op, "by its own step");
}

static void cancel_self_and_nap(struct scripted *s)
{
    cancel_self(s);
    op_sleep(&s->op, 100);
}

static void cancel_self_and_complete(struct scripted *s)
{
    cancel_self(s);
    op_complete(&s->op, NULL);
}

Test(op_edges, an_abort_from_the_own_step_is_met_at_the_next_wait)
{
    struct outcome o = {0};
    struct scripted *s = make(&o);

    s->in_step = cancel_self;
    loop_turn(loop, false);
    cr_assert(eq(int, o.ends, 1));
    cr_assert(eq(int, o.error.code, ERR_NONE), "there was no next wait");
    cr_assert_str_eq(trace, "DF");
}

Test(op_edges, an_abort_from_the_start_expression_cuts_the_wait)
{
    struct outcome o = {0};
    struct scripted *s = make(&o);

    s->plain = cancel_self_and_nap;
    s->undo_a = nap;
    loop_turn(loop, false);
    cr_assert_str_eq(op_state_name(&s->op), "undo_a");
    loop_advance_ms(loop, 100);
    cr_assert(eq(int, o.error.code, ERR_CANCELLED));
    cr_assert_str_eq(trace, "UAF");
}

Test(op_edges, an_abort_from_the_start_of_a_held_wait_lets_it_end)
{
    struct outcome o = {0};
    struct scripted *s = make(&o);

    s->held = cancel_self_and_nap;
    loop_advance_ms(loop, 99);
    cr_assert(eq(int, o.ends, 0));
    loop_advance_ms(loop, 1);
    cr_assert(eq(int, o.error.code, ERR_CANCELLED));
    cr_assert_str_eq(trace, "UF");
}

Test(op_edges, an_abort_from_a_start_that_completes_at_once)
{
    struct outcome o = {0};
    struct scripted *s = make(&o);

    s->plain = cancel_self_and_complete;
    loop_turn(loop, false);
    cr_assert(eq(int, o.error.code, ERR_CANCELLED));
    cr_assert_str_eq(trace, "UF");
}

Test(op_edges, a_child_that_cancels_itself_fails_its_parent)
{
    struct outcome o = {0};
    struct scripted *root = make(&o), *child = make_child(root);

    root->plain = run_child;
    root->undo_a = nap;
    child->plain = cancel_self_and_nap; /* only itself: the parent learns of it by its error */
    loop_advance_ms(loop, 300);
    cr_assert(eq(int, o.error.code, ERR_CANCELLED));
    cr_assert_str_eq(trace, "UUFAF");
}

Test(op_edges, cancel_before_the_first_step_of_a_child)
{
    struct outcome o = {0};
    struct scripted *root = make(&o), *child = make_child(root);

    root->held = nap;
    root->plain = run_child;
    child->plain = nap;
    loop_advance_ms(loop, 99);
    op_torture_arm(OP_TORTURE_CANCEL, 1); /* right after the wait for the child began */
    loop_advance_ms(loop, 300);
    op_torture_arm(OP_TORTURE_NONE, 0);
    cr_assert(eq(int, o.error.code, ERR_CANCELLED));
    cr_assert_str_eq(trace, "UFF", "the child did nothing, not even undo");
}

/* ---- held waits ------------------------------------------------------------------------------- */

Test(op_edges, a_held_child_goes_on_when_the_parent_is_cancelled)
{
    struct outcome o = {0};
    struct scripted *root = make(&o), *child = make_child(root);

    root->held = run_child;
    root->undo_a = nap;
    child->plain = nap;
    loop_advance_ms(loop, 50);
    op_cancel(&root->op, "gone");
    loop_advance_ms(loop, 49);
    cr_assert_str_eq(trace, "");
    loop_advance_ms(loop, 200);
    cr_assert_str_eq(trace, "DUFAF", "the child succeeded, the parent undid");
    cr_assert(eq(int, o.error.code, ERR_CANCELLED));
}

Test(op_edges, the_first_error_stays_when_the_held_child_fails_later)
{
    struct outcome o = {0};
    struct scripted *root = make(&o), *child = make_child(root);

    root->held = run_child;
    child->held = nap;
    child->plain = fail_at_once;
    child->undo_a = nap;
    loop_advance_ms(loop, 50);
    op_cancel(&root->op, "gone");
    loop_advance_ms(loop, 500);
    cr_assert(eq(int, o.ends, 1));
    cr_assert(eq(int, o.error.code, ERR_CANCELLED));
    cr_assert_str_eq(trace, "UAUFF");
}

Test(op_edges, a_deadline_reaches_a_held_wait_only_after_its_end)
{
    struct outcome o = {0};
    struct scripted *s = make(&o);

    s->held = nap;
    op_set_deadline_ms(&s->op, 40, "making it");
    loop_advance_ms(loop, 99);
    cr_assert(eq(int, o.ends, 0));
    loop_advance_ms(loop, 1);
    cr_assert(eq(int, o.error.code, ERR_DEADLINE));
    cr_assert_str_eq(o.error.message, "making it was not over in time (scripted, state held)");
}

/* ---- undo ------------------------------------------------------------------------------------- */

Test(op_edges, the_undo_budget_cuts_a_leaf_and_the_rest_gets_its_grace)
{
    struct outcome o = {0};
    struct scripted *s = make(&o);

    s->plain = fail_at_once;
    s->undo_a = hang;
    s->undo_b = nap;
    loop_advance_ms(loop, 999);
    cr_assert_str_eq(trace, "U");
    loop_advance_ms(loop, 1);
    cr_assert_str_eq(trace, "Uxa");
    cr_assert(eq(i64, op_remaining_ms(&s->op, -1), OP_UNDO_GRACE_MS));
    loop_advance_ms(loop, 100);
    cr_assert_str_eq(trace, "UxaBF");
    cr_assert(eq(int, o.error.code, ERR_CONFLICT));
}

Test(op_edges, nothing_in_undo_hangs_for_ever)
{
    struct outcome o = {0};
    struct scripted *s = make(&o);

    s->plain = fail_at_once;
    s->undo_a = hang;
    s->undo_b = hang;
    loop_advance_ms(loop, 1000 + OP_UNDO_GRACE_MS);
    cr_assert(eq(int, o.ends, 1));
    cr_assert_str_eq(trace, "UxaxbF");
}

Test(op_edges, the_undo_budget_stops_a_child_which_undoes_itself)
{
    struct outcome o = {0};
    struct scripted *root = make(&o), *child = make_child(root);

    root->plain = fail_at_once;
    root->undo_a = run_child;
    child->plain = hang;
    child->undo_a = nap;
    loop_advance_ms(loop, 1000);
    cr_assert_str_eq(trace, "UxU");
    loop_advance_ms(loop, 100);
    cr_assert_str_eq(trace, "UxUAaFF");
    cr_assert(eq(int, o.error.code, ERR_CONFLICT));
}

Test(op_edges, undo_is_deaf_and_so_is_the_child_that_undoes)
{
    struct outcome o = {0};
    struct scripted *root = make(&o), *child = make_child(root);

    root->plain = run_child;
    root->undo_a = nap;
    child->plain = fail_at_once;
    child->undo_a = nap;
    loop_advance_ms(loop, 50);
    op_cancel(&root->op, "gone"); /* the child is undoing */
    op_cancel(&child->op, "gone");
    loop_advance_ms(loop, 100);
    op_cancel(&root->op, "gone"); /* the root is undoing */
    loop_advance_ms(loop, 200);
    cr_assert_str_eq(trace, "UAUFAF");
    cr_assert(eq(int, o.error.code, ERR_CANCELLED), "the root was cancelled before it failed");
}

Test(op_edges, a_deadline_that_passes_while_a_child_undoes_waits_for_it)
{
    struct outcome o = {0};
    struct scripted *root = make(&o), *child = make_child(root);

    root->plain = run_child;
    child->plain = fail_at_once;
    child->undo_a = nap;
    op_set_deadline_ms(&root->op, 50, "it");
    loop_advance_ms(loop, 99);
    cr_assert(eq(int, o.ends, 0));
    loop_advance_ms(loop, 1);
    cr_assert(eq(int, o.error.code, ERR_DEADLINE));
    cr_assert_str_eq(trace, "UAUFF");
}

/* ---- ends ------------------------------------------------------------------------------------- */

static void free_arena(void *ptr)
{
    note("E");
    arena_free(ptr);
}

static void end_arena(struct op *op, void *ctx)
{
    (void)ctx;
    loop_defer_free(op->loop, free_arena, op->arena);
}

Test(op_edges, an_arena_of_the_owner_ends_after_the_ops_in_it)
{
    struct arena *arena = arena_new();
    struct scripted *root = OP_ROOT(loop, &scripted_type, scripted, arena);
    struct scripted *child = make_child(root);

    root->plain = run_child;
    child->plain = nap;
    op_start(&root->op, end_arena, NULL);
    loop_advance_ms(loop, 200);
    cr_assert_str_eq(trace, "DDFFE");
}

static void start_another(struct op *op, void *ctx)
{
    (void)op;
    make(ctx)->in_step = NULL;
}

Test(op_edges, on_done_may_start_the_next_operation)
{
    struct outcome o = {0};
    struct scripted *s = OP_ROOT(loop, &scripted_type, scripted, NULL);

    op_start(&s->op, start_another, &o);
    loop_turn(loop, false);
    cr_assert(eq(int, o.ends, 1), "in the same turn");
    cr_assert_str_eq(trace, "DDFF");
}

Test(op_edges, long_messages_stay_well_formed)
{
    struct outcome o = {0};
    struct scripted *s = make(&o);
    char text[1000] = "";

    while (strlen(text) < 900)
        strcat(text, "€");
    op_fail(&s->op, ERR_CONFLICT, "%s", text);
    op_fail(&s->op, ERR_INTERNAL, "second");
    loop_turn(loop, false);
    cr_assert(eq(int, o.error.code, ERR_CONFLICT));
    cr_assert_str_eq(o.error.message + strlen(o.error.message) - 3, "...");
}

/* ---- observation ------------------------------------------------------------------------------ */

static void observe(void *ctx, const struct op *op)
{
    (void)ctx;
    note(op->parent != NULL ? "c" : "r");
    note(error_is(op_error(op)) ? "-" : "+");
}

Test(op_edges, the_observer_sees_children_and_roots_with_their_outcome)
{
    struct outcome o = {0};
    struct scripted *root = make(&o), *child = make_child(root);

    root->any = run_child;
    child->plain = fail_at_once;
    op_set_observer(observe, NULL);
    loop_turn(loop, false);
    op_set_observer(NULL, NULL);
    cr_assert_str_eq(trace, "Uc-yDr+FF");
}
