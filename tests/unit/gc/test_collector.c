/* The collector and the reconciler over the fake backend: what is retired goes, for as long as it
 * takes, and nothing else does. */
#include "core/runtime/metrics.h"
#include "gc/collector.h"
#include "gc/reconcile.h"
#include "support/lifecycle_world.h"
#include "support/op_torture.h"

#include <stdlib.h>
#include <string.h>

TestSuite(collector, .timeout = 60);
TestSuite(reconciler, .timeout = 60);

static struct collector *collect(struct world *w)
{
    return collector_new(
        w->loop, w->lc,
        &(struct collector_options){
            .interval_ms = 10000, .claim_ms = 60000, .retention_ms = 3600000, .concurrency = 4});
}

static void stop(struct world *w, struct collector *collector)
{
    collector_stop(collector, NULL);
    loop_advance_ms(w->loop, 60000);
    collector_free(collector);
}

static void make(struct world *w, int n)
{
    for (int i = 0; i < n; i++)
        loader(w, arena_printf(w->arena, "c-%d", i));
    loop_advance_ms(w->loop, 3000);
    cr_assert(eq(int, w->fake->live_bindings, n));
}

/* A32 */
Test(collector, retired_bindings_and_their_rows_go)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct collector *collector = collect(w);
    struct collector_status status;

    make(w, 10);
    for (int i = 0; i < 7; i++)
        retire_owner(w, arena_printf(w->arena, "c-%d", i));
    collector_poke(collector);
    loop_advance_ms(loop, 1000);
    cr_assert(eq(int, w->fake->live_bindings, 3));
    cr_assert(eq(sz, rows(w, LEDGER_BINDINGS).n, 3));
    cr_assert(eq(sz, rows(w, LEDGER_WORKSPACES).n, 3));
    collector_status(collector, &status);
    cr_assert(eq(i64, status.done, 7));
    stop(w, collector);
    world_free(w);
    loop_free(loop);
}

/* A32, A33 */
Test(collector, work_of_an_earlier_process_is_found_at_the_start)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct collector *collector;

    make(w, 3);
    retire_owner(w, "c-1");
    world_restart(w);
    collector = collect(w);
    loop_advance_ms(loop, 1000);
    cr_assert(eq(int, w->fake->live_bindings, 2));
    stop(w, collector);
    world_free(w);
    loop_free(loop);
}

/* A03, A28 */
Test(collector, every_failure_keeps_the_row_and_is_tried_again_with_growing_gaps)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct collector *collector = collect(w);
    struct ledger_workspace *row;

    make(w, 1);
    fake_backend_fail(w->fake, FAKE_DESTROY, 6, ERR_BINDING_DESTROY);
    retire_owner(w, "c-0");
    collector_poke(collector);
    loop_advance_ms(loop, 5000);
    cr_assert(eq(int, w->fake->live_bindings, 1));
    row = rows(w, LEDGER_WORKSPACES).rows[0];
    cr_assert(eq(str, (char *)row->status, "retired"));
    cr_assert(ge(i64, row->attempts, 2));
    cr_assert(strstr(row->last_error, "scripted failure") != NULL);
    cr_assert(gt(i64, row->next_attempt_at, loop_wall_ms(loop) - 1000));
    loop_advance_ms(loop, 600000);
    cr_assert(eq(int, w->fake->live_bindings, 0));
    cr_assert(eq(int, w->fake->script[FAKE_DESTROY].calls, 7));
    cr_assert(eq(sz, rows(w, LEDGER_WORKSPACES).n, 0));
    stop(w, collector);
    world_free(w);
    loop_free(loop);
}

Test(collector, poisoned_row_does_not_hold_up_the_others)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct collector *collector;

    make(w, 20);
    w->fake->script[FAKE_DESTROY].delay_ms = 100;
    fake_backend_fail(w->fake, FAKE_DESTROY, 4, ERR_BINDING_DESTROY); /* a whole round of it */
    for (int i = 0; i < 20; i++)
        retire_owner(w, arena_printf(w->arena, "c-%d", i));
    collector = collect(w);
    loop_advance_ms(loop, 1500);
    cr_assert(le(int, w->fake->live_bindings, 4));
    loop_advance_ms(loop, 60000);
    cr_assert(eq(int, w->fake->live_bindings, 0));
    stop(w, collector);
    world_free(w);
    loop_free(loop);
}

/* A29 */
Test(collector, backend_that_is_down_for_hours_is_outlasted)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct collector *collector = collect(w);

    make(w, 3);
    fake_backend_fail(w->fake, FAKE_DESTROY, 1000000, ERR_BINDING_DESTROY);
    for (int i = 0; i < 3; i++)
        retire_owner(w, arena_printf(w->arena, "c-%d", i));
    loop_advance_ms(loop, 4 * 3600000);
    cr_assert(eq(int, w->fake->live_bindings, 3));
    cr_assert(lt(int, w->fake->script[FAKE_DESTROY].calls, 3 * 150), "it does not hammer");
    w->fake->script[FAKE_DESTROY].fail_times = 0;
    loop_advance_ms(loop, 600000);
    cr_assert(eq(int, w->fake->live_bindings, 0));
    stop(w, collector);
    world_free(w);
    loop_free(loop);
}

Test(collector, retired_while_being_created_is_destroyed_when_it_exists)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct collector *collector = collect(w);
    struct caller *c = loader(w, "c-0");

    loop_advance_ms(loop, 500);
    cr_assert(eq(sz, retire_owner(w, "c-0")->retired.n_bindings, 1));
    loop_advance_ms(loop, 20000);
    cr_assert(c->over);
    cr_assert(eq(int, c->error.code, ERR_CONFLICT));
    cr_assert(eq(int, w->fake->script[FAKE_CREATE].calls, 1));
    cr_assert(eq(int, w->fake->live_bindings, 0));
    cr_assert(eq(sz, rows(w, LEDGER_BINDINGS).n, 0));
    stop(w, collector);
    world_free(w);
    loop_free(loop);
}

Test(collector, create_that_nobody_asks_for_again_is_settled)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, BACKEND_FINDS, NULL);
    struct collector *collector = collect(w);

    w->fake->script[FAKE_CREATE].answer_lost = true;
    fake_backend_fail(w->fake, FAKE_CREATE, 1, ERR_BACKEND_OUTCOME_UNKNOWN);
    loader(w, "c-0");
    loop_advance_ms(loop, 2000);
    cr_assert(eq(int, w->fake->live_bindings, 1));
    loop_advance_ms(loop, 200000);
    cr_assert(eq(int, w->fake->live_bindings, 0));
    cr_assert(eq(sz, rows(w, LEDGER_BINDINGS).n, 0));
    stop(w, collector);
    world_free(w);
    loop_free(loop);
}

/* Last use is written in batches: what decides about a lease must not look at an older one. */
/* A21 */
Test(collector, lease_that_is_not_written_yet_has_its_grace)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, &(struct lifecycle_options){.retire_grace_ms = 30000});
    struct collector *collector = collect(w);
    struct ledger_binding *row;
    struct caller *lease;

    make(w, 2);
    row = rows(w, LEDGER_BINDINGS).rows[0];
    lease = caller_new(w);
    lease->destroy.binding_ref = row->binding_ref;
    lease->start = call_acquire;
    caller_start(lease);
    while (!lease->over)
        loop_advance_ms(loop, 1);
    cr_assert(eq(int, lease->error.code, ERR_NONE), "%s", lease->error.message);
    row = rows(w, LEDGER_BINDINGS).rows[0];
    cr_assert(eq(i64, row->leased_until, 0), "it is not written yet");
    retire_owner(w, row->owner_id);
    collector_poke(collector);
    loop_advance_ms(loop, 25000);
    cr_assert(eq(int, w->fake->live_bindings, 2), "the lease has its grace");
    loop_advance_ms(loop, 30000);
    cr_assert(eq(int, w->fake->live_bindings, 1));
    stop(w, collector);
    world_free(w);
    loop_free(loop);
}

static void call_claim_copy(struct caller *c)
{
    static const struct ledger_snapshot row = {
        .id = "h-1", .tenant_id = "t-1", .agent_id = "agent-1", .backend = "fake"};
    static bool done;

    c->w->ledger->ops->claim_snapshot(c->w->ledger, &c->op, &row, 20000, &done);
}

/* A snapshot whose copy was made, and whose process died before it could say so; collected. */
static struct collector *cut_a_copy_short(struct world *w)
{
    struct collector *collector = collect(w);
    struct caller *c = caller_new(w);

    c->start = call_claim_copy;
    caller_start(c);
    fake_backend_add_snapshot(w->fake, "s-h-1");
    loop_advance_ms(w->loop, 15000);
    cr_assert(eq(int, w->fake->live_snapshots, 1), "its process may still be at work");
    cr_assert(eq(sz, rows(w, LEDGER_SNAPSHOTS).n, 1));
    loop_advance_ms(w->loop, 30000);
    cr_assert(eq(sz, rows(w, LEDGER_SNAPSHOTS).n, 0));
    return collector;
}

Test(collector, copy_that_was_cut_short_is_deleted_by_its_name)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, BACKEND_SNAPSHOTS, NULL);
    struct collector *collector;

    w->fake->names_snapshots = true;
    collector = cut_a_copy_short(w);
    cr_assert(eq(int, w->fake->live_snapshots, 0));
    cr_assert(eq(sz, rows(w, LEDGER_ORPHANS).n, 0));
    stop(w, collector);
    world_free(w);
    loop_free(loop);
}

Test(collector, copy_that_was_cut_short_is_recorded_where_its_name_is_not_known)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, BACKEND_SNAPSHOTS, NULL);
    struct collector *collector = cut_a_copy_short(w);
    struct ledger_page orphans = rows(w, LEDGER_ORPHANS);
    const struct ledger_orphan *orphan;

    cr_assert(eq(sz, orphans.n, 1));
    orphan = orphans.rows[0];
    cr_assert(eq(str, (char *)orphan->kind, "unknown"));
    cr_assert(strstr(orphan->reason, "h-1") != NULL, "%s", orphan->reason);
    cr_assert(eq(str, (char *)orphan->tenant_id, "t-1"));
    stop(w, collector);
    world_free(w);
    loop_free(loop);
}

Test(collector, poisoned_row_stays_for_ever_and_the_others_go)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct collector *collector;
    struct ledger_workspace *row;

    make(w, 40);
    w->fake->poisoned = "b7";
    for (int i = 0; i < 40; i++)
        retire_owner(w, arena_printf(w->arena, "c-%d", i));
    collector = collect(w);
    loop_advance_ms(loop, 5000);
    cr_assert(eq(int, w->fake->live_bindings, 1));
    loop_advance_ms(loop, 3600000);
    cr_assert(eq(int, w->fake->live_bindings, 1));
    cr_assert(eq(sz, rows(w, LEDGER_WORKSPACES).n, 1));
    row = rows(w, LEDGER_WORKSPACES).rows[0];
    cr_assert(gt(i64, row->attempts, 5));
    cr_assert(strstr(row->last_error, "b7 is poisoned") != NULL, "%s", row->last_error);
    cr_assert(gt(i64, row->retired_at, 0), "its age shows");
    stop(w, collector);
    world_free(w);
    loop_free(loop);
}

/* A01, A32 */
Test(collector, destroy_that_succeeded_without_an_answer_is_repeated_without_harm)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct collector *collector = collect(w);

    make(w, 1);
    w->fake->script[FAKE_DESTROY].answer_lost = true;
    fake_backend_fail(w->fake, FAKE_DESTROY, 2, ERR_DEADLINE);
    retire_owner(w, "c-0");
    collector_poke(collector);
    loop_advance_ms(loop, 500);
    cr_assert(eq(int, w->fake->live_bindings, 0));
    cr_assert(eq(sz, rows(w, LEDGER_WORKSPACES).n, 1), "nobody has confirmed it yet");
    loop_advance_ms(loop, 60000);
    cr_assert(eq(sz, rows(w, LEDGER_WORKSPACES).n, 0));
    cr_assert(eq(int, w->fake->script[FAKE_DESTROY].calls, 3));
    stop(w, collector);
    world_free(w);
    loop_free(loop);
}

Test(collector, row_retired_twice_is_destroyed_once)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct collector *collector = collect(w);

    make(w, 1);
    cr_assert(eq(sz, retire_owner(w, "c-0")->retired.n_bindings, 1));
    cr_assert(eq(sz, retire_owner(w, "c-0")->retired.n_bindings, 1));
    collector_poke(collector);
    collector_poke(collector);
    loop_advance_ms(loop, 30000);
    cr_assert(eq(sz, retire_owner(w, "c-0")->retired.n_bindings, 0));
    loop_advance_ms(loop, 30000);
    cr_assert(eq(int, w->fake->script[FAKE_DESTROY].calls, 1));
    cr_assert(eq(int, w->fake->live_bindings, 0));
    stop(w, collector);
    world_free(w);
    loop_free(loop);
}

Test(collector, clock_that_jumps_destroys_nothing_live_and_forgets_nothing)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct collector *collector = collect(w);

    make(w, 2);
    loop_jump_wall_ms(loop, 10 * 86400000LL);
    loop_advance_ms(loop, 30000);
    cr_assert(eq(int, w->fake->live_bindings, 2));
    retire_owner(w, "c-0");
    loop_jump_wall_ms(loop, -20 * 86400000LL);
    loop_advance_ms(loop, 30000);
    cr_assert(eq(int, w->fake->live_bindings, 1));
    stop(w, collector);
    world_free(w);
    loop_free(loop);
}

/* ---- torture ---------------------------------------------------------------------------------------- */

struct collected {
    struct world *w;
    struct collector *collector;
};

static void torture_start(struct torture_run *run)
{
    struct collected *t = xcalloc(1, sizeof(*t));
    struct caller *c;

    run->ctx = t;
    t->w = world_new(run->loop, BACKEND_FINDS, NULL);
    t->w->fake->script[FAKE_CREATE].delay_ms = 1;
    c = loader(t->w, "c-0");
    (void)c;
    loop_advance_ms(run->loop, 20);
    t->collector = collector_new(
        run->loop, t->w->lc,
        &(struct collector_options){
            .interval_ms = 5000, .claim_ms = 12000, .retention_ms = 3600000, .concurrency = 4});
    c = caller_new(t->w);
    c->retire = (struct ledger_retire){
        .tenant_id = "t-1", .app_id = "app-1", .owner_type = "conversation", .owner_id = "c-0"};
    c->start = call_retire;
    op_start(&c->op, torture_done, run);
}

/* Whatever went wrong on the way: in the end everything retired is gone, and its row with it. */
static void torture_check(struct torture_run *run)
{
    struct collected *t = run->ctx;
    struct ledger_page bindings;

    loop_advance_ms(run->loop, 40000);
    bindings = rows(t->w, LEDGER_BINDINGS);
    cr_assert(eq(sz, bindings.n, (size_t)t->w->fake->live_bindings), "%s", run->what_happened);
    for (size_t i = 0; i < bindings.n; i++)
        cr_assert(eq(str, (char *)((struct ledger_binding *)bindings.rows[i])->status, "active"),
                  "%s", run->what_happened);
    stop(t->w, t->collector);
    world_free(t->w);
    free(t);
}

Test(collector, torture)
{
    op_torture_run(&(struct torture_scenario){
        .start = torture_start, .check = torture_check, .settle_ms = 4000});
}

/* ---- reconciler ----------------------------------------------------------------------------------------- */

static struct reconciler *reconcile(struct world *w, struct collector *collector, bool destroy)
{
    return reconciler_new(
        w->loop, w->lc, collector,
        &(struct reconciler_options){.interval_ms = 10000, .grace_ms = 60000, .destroy = destroy});
}

static void stop_both(struct world *w, struct reconciler *r, struct collector *collector)
{
    reconciler_stop(r, NULL);
    stop(w, collector);
    reconciler_free(r);
}

Test(reconciler, strays_are_recorded_after_the_grace_and_destroyed_only_when_told)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, BACKEND_LISTS | BACKEND_FINDS, NULL);
    struct collector *collector = collect(w);
    struct reconciler *r = reconcile(w, collector, false);

    make(w, 10);
    for (int i = 0; i < 5; i++)
        fake_backend_add(w->fake);
    loop_advance_ms(loop, 30000);
    cr_assert(eq(sz, rows(w, LEDGER_ORPHANS).n, 0), "too young");
    loop_advance_ms(loop, 60000);
    cr_assert(eq(sz, rows(w, LEDGER_ORPHANS).n, 5));
    cr_assert(eq(int, w->fake->live_bindings, 15));
    stop_both(w, r, collector);
    collector = collect(w);
    r = reconcile(w, collector, true);
    loop_advance_ms(loop, 120000);
    cr_assert(eq(int, w->fake->live_bindings, 10), "exactly those with rows live");
    cr_assert(eq(sz, rows(w, LEDGER_ORPHANS).n, 0));
    stop_both(w, r, collector);
    world_free(w);
    loop_free(loop);
}

/* A34 */
Test(reconciler, what_is_being_born_is_no_orphan)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, BACKEND_LISTS | BACKEND_FINDS, NULL);
    struct collector *collector = collect(w);
    struct reconciler *r = reconciler_new(
        loop, w->lc, collector,
        &(struct reconciler_options){.interval_ms = 200, .grace_ms = 500, .destroy = true});
    struct caller *c;

    /* the backend has it at once, and answers late */
    w->fake->script[FAKE_CREATE].answer_lost = true;
    fake_backend_fail(w->fake, FAKE_CREATE, 1, ERR_BACKEND_OUTCOME_UNKNOWN);
    c = loader(w, "c-0");
    loop_advance_ms(loop, 8000);
    cr_assert(eq(int, w->fake->live_bindings, 1));
    c = loader(w, "c-0");
    loop_advance_ms(loop, 8000);
    cr_assert(c->found.row != NULL, "%s", c->error.message);
    cr_assert(eq(int, w->fake->live_bindings, 1));
    stop_both(w, r, collector);
    world_free(w);
    loop_free(loop);
}

/* A34 */
Test(reconciler, what_is_being_born_is_no_orphan_where_lists_have_digests)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, BACKEND_LISTS | BACKEND_FINDS, NULL);
    struct collector *collector = collect(w);
    struct reconciler *r = reconciler_new(
        loop, w->lc, collector,
        &(struct reconciler_options){.interval_ms = 200, .grace_ms = 500, .destroy = true});
    struct caller *c;

    /* the backend has it at once, and its answer is lost: the row stays in creation */
    w->fake->names_bindings = true;
    w->fake->script[FAKE_CREATE].answer_lost = true;
    fake_backend_fail(w->fake, FAKE_CREATE, 1, ERR_BACKEND_OUTCOME_UNKNOWN);
    fake_backend_fail(w->fake, FAKE_FIND, 20, ERR_UPSTREAM_STATUS);
    loader(w, "c-0");
    loop_advance_ms(loop, 20000);
    cr_assert(eq(int, w->fake->live_bindings, 1), "older than the grace, and not settled yet");
    cr_assert(eq(sz, rows(w, LEDGER_ORPHANS).n, 0));
    w->fake->script[FAKE_FIND].fail_times = 0;
    c = loader(w, "c-0");
    loop_advance_ms(loop, 8000);
    cr_assert(c->found.row != NULL, "%s", c->error.message);
    cr_assert(eq(int, w->fake->live_bindings, 1));
    fake_backend_add(w->fake);
    loop_advance_ms(loop, 8000);
    cr_assert(eq(int, w->fake->live_bindings, 1), "a stray is one still");
    stop_both(w, r, collector);
    world_free(w);
    loop_free(loop);
}

/* A36 */
Test(reconciler, absence_is_confirmed_before_a_row_is_lost)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, BACKEND_LISTS | BACKEND_FINDS, NULL);
    struct collector *collector = collect(w);
    struct reconciler *r = reconcile(w, collector, true);
    struct ledger_page page;
    int lost = 0;

    make(w, 5);
    page = rows(w, LEDGER_BINDINGS);
    fake_backend_lose(w->fake, ((struct ledger_binding *)page.rows[0])->binding_ref);
    fake_backend_hide(w->fake, ((struct ledger_binding *)page.rows[1])->binding_ref);
    loop_advance_ms(loop, 120000);
    page = rows(w, LEDGER_BINDINGS);
    cr_assert(eq(sz, page.n, 5));
    for (size_t i = 0; i < page.n; i++)
        lost += ((struct ledger_binding *)page.rows[i])->lost_at > 0;
    cr_assert(eq(int, lost, 1), "the one that is only not listed is not lost");
    cr_assert(eq(int, w->fake->live_bindings, 4));
    stop_both(w, r, collector);
    world_free(w);
    loop_free(loop);
}

/* A36 */
Test(reconciler, incomplete_list_concludes_nothing)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, BACKEND_LISTS | BACKEND_FINDS, NULL);
    struct collector *collector = collect(w);
    struct reconciler *r;
    struct reconciler_status status;

    make(w, 2);
    fake_backend_add(w->fake);
    fake_backend_fail(w->fake, FAKE_LIST, 1000, ERR_UPSTREAM_STATUS);
    r = reconcile(w, collector, true);
    loop_advance_ms(loop, 300000);
    cr_assert(eq(int, w->fake->live_bindings, 3));
    cr_assert(eq(sz, rows(w, LEDGER_ORPHANS).n, 0));
    reconciler_status(r, &status);
    cr_assert(gt(i64, status.incomplete, 10));
    stop_both(w, r, collector);
    world_free(w);
    loop_free(loop);
}
