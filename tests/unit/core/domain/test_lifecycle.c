/* Bindings with a ledger: made once, recorded before they exist, and never left behind. Over the
 * fake backend and a ledger in a file. */
#include "core/domain/broker_internal.h"
#include "support/lifecycle_world.h"
#include "support/op_torture.h"

#include <stdio.h>
#include <string.h>

TestSuite(lifecycle, .timeout = 60);

/* ---- owners ------------------------------------------------------------------------------------------- */

Test(lifecycle, first_call_creates_and_later_calls_find)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct caller *first = loader(w, "c-1"), *later;

    loop_advance_ms(loop, 2000);
    cr_assert(first->over && first->found.created);
    later = loader(w, "c-1");
    loop_advance_ms(loop, 10);
    cr_assert(later->over);
    cr_assert(not(later->found.created));
    cr_assert(
        eq(str, (char *)later->found.row->binding_ref, (char *)first->found.row->binding_ref));
    cr_assert(eq(int, w->fake->script[FAKE_CREATE].calls, 1));
    world_free(w);
    loop_free(loop);
}

/* A06 */
Test(lifecycle, fifty_first_calls_make_one_sandbox)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct caller *callers[50];
    int created = 0;

    for (int i = 0; i < 50; i++)
        callers[i] = loader(w, "c-1");
    loop_advance_ms(loop, 1200);
    for (int i = 0; i < 50; i++) {
        cr_assert(callers[i]->over, "%d waits still", i);
        cr_assert(eq(int, callers[i]->error.code, ERR_NONE));
        created += callers[i]->found.created;
    }
    cr_assert(eq(int, created, 1));
    cr_assert(eq(int, w->fake->live_bindings, 1));
    world_free(w);
    loop_free(loop);
}

Test(lifecycle, waiters_get_the_creators_error_and_the_next_call_creates)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct caller *a, *b;

    fake_backend_fail(w->fake, FAKE_CREATE, 1, ERR_BINDING_CREATE);
    a = loader(w, "c-1");
    loop_advance_ms(loop, 10);
    b = loader(w, "c-1");
    loop_advance_ms(loop, 1100);
    cr_assert(eq(int, a->error.code, ERR_BINDING_CREATE));
    cr_assert(b->over);
    cr_assert(eq(int, b->error.code, ERR_BINDING_CREATE));
    cr_assert(eq(sz, rows(w, LEDGER_BINDINGS).n, 0));
    cr_assert(eq(sz, rows(w, LEDGER_WORKSPACES).n, 0));
    a = loader(w, "c-1");
    loop_advance_ms(loop, 1100);
    cr_assert(a->found.created);
    world_free(w);
    loop_free(loop);
}

Test(lifecycle, waiter_takes_over_when_the_creators_caller_went_away)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct caller *a = loader(w, "c-1"), *b;

    loop_advance_ms(loop, 10);
    b = loader(w, "c-1");
    loop_advance_ms(loop, 100);
    op_cancel(&a->op, "the client went away");
    loop_advance_ms(loop, 2000);
    cr_assert(a->over && error_is(&a->error));
    cr_assert(b->over && b->found.created, "%s", b->error.message);
    cr_assert(eq(int, w->fake->live_bindings, 1));
    world_free(w);
    loop_free(loop);
}

Test(lifecycle, another_generation_is_refused)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct caller *c = loader(w, "c-1");

    loop_advance_ms(loop, 2000);
    c = loader(w, "c-1");
    c->request.generation.config_version_id = "v-2";
    loop_advance_ms(loop, 10);
    cr_assert(eq(int, c->error.code, ERR_GENERATION_MISMATCH));
    c = loader(w, "c-2");
    c->request.generation.base_home_snapshot_id = "s-unknown";
    loop_advance_ms(loop, 10);
    cr_assert(eq(int, c->error.code, ERR_NOT_FOUND));
    cr_assert(eq(int, w->fake->live_bindings, 1));
    world_free(w);
    loop_free(loop);
}

Test(lifecycle, lost_binding_is_told_and_replaced_only_when_asked)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct caller *c = loader(w, "c-1"), *acquire;

    loop_advance_ms(loop, 2000);
    fake_backend_lose(w->fake, c->found.row->binding_ref);
    acquire = run(w, call_acquire, c->found.row->binding_ref, NULL);
    cr_assert(eq(int, acquire->error.code, ERR_BINDING_LOST));
    c = loader(w, "c-1");
    loop_advance_ms(loop, 100);
    cr_assert(eq(int, c->error.code, ERR_OWNER_BINDING_LOST));
    cr_assert(eq(str, (char *)err_info(c->error.code)->wire, "binding_lost"));
    c = loader(w, "c-1");
    c->request.replace_lost = true;
    loop_advance_ms(loop, 2000);
    cr_assert(c->over && c->found.created, "%s", c->error.message);
    cr_assert(eq(i64, c->found.row->generation, 2));
    cr_assert(gt(int, w->poked, 0), "the old one is the collector's");
    world_free(w);
    loop_free(loop);
}

Test(lifecycle, dead_creators_sandbox_is_found_and_not_made_again)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, BACKEND_FINDS, NULL);
    struct caller *a, *b;

    w->fake->script[FAKE_CREATE].answer_lost = true;
    fake_backend_fail(w->fake, FAKE_CREATE, 1, ERR_BACKEND_OUTCOME_UNKNOWN);
    a = loader(w, "c-1");
    loop_advance_ms(loop, 1100);
    cr_assert(a->over);
    cr_assert(eq(int, w->fake->live_bindings, 1));
    cr_assert(eq(sz, rows(w, LEDGER_BINDINGS).n, 1), "the row tells of it");
    b = loader(w, "c-1");
    loop_advance_ms(loop, 1100);
    cr_assert(b->over && b->found.created, "%s", b->error.message);
    cr_assert(eq(int, w->fake->script[FAKE_CREATE].calls, 1));
    cr_assert(eq(int, w->fake->live_bindings, 1));
    world_free(w);
    loop_free(loop);
}

/* A11 */
Test(lifecycle, limits_of_a_tenant_answer_429)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, &(struct lifecycle_options){.tenant_max_bindings = 5});
    int made = 0, refused = 0;
    struct caller *c[20];

    for (int i = 0; i < 20; i++)
        c[i] = loader(w, arena_printf(w->arena, "c-%d", i));
    loop_advance_ms(loop, 2000);
    for (int i = 0; i < 20; i++) {
        made += c[i]->found.created;
        refused += c[i]->error.code == ERR_RATE_LIMITED;
    }
    cr_assert(eq(int, made, 5));
    cr_assert(eq(int, refused, 15));
    cr_assert(eq(int, w->fake->script[FAKE_CREATE].calls, 5));
    world_free(w);
    loop_free(loop);
}

/* A12 */
Test(lifecycle, quota_is_given_back_by_failed_creates)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, &(struct lifecycle_options){.tenant_max_bindings = 5});
    struct caller *c;

    fake_backend_fail(w->fake, FAKE_CREATE, 20, ERR_BINDING_CREATE);
    for (int i = 0; i < 20; i++) {
        c = loader(w, arena_printf(w->arena, "c-%d", i));
        loop_advance_ms(loop, i % 2 == 0 ? 500 : 2000);
        if (i % 2 == 0) {
            op_cancel(&c->op, "gone");
            loop_advance_ms(loop, 100);
        }
    }
    w->fake->script[FAKE_CREATE].fail_times = 0;
    for (int i = 0; i < 5; i++) {
        c = loader(w, arena_printf(w->arena, "d-%d", i));
        loop_advance_ms(loop, 2000);
        cr_assert(c->found.created, "%s", c->error.message);
    }
    world_free(w);
    loop_free(loop);
}

/* ---- through Dify's routes ---------------------------------------------------------------------------- */

/* A01 */
Test(lifecycle, binding_id_is_an_idempotency_key)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct caller *a = creator(w, "b-1", "agent-1"), *same = creator(w, "b-1", "agent-1");
    struct caller *other = creator(w, "b-1", "agent-2");

    loop_advance_ms(loop, 2000);
    cr_assert(a->made.binding_ref != NULL);
    cr_assert(eq(str, (char *)same->made.binding_ref, (char *)a->made.binding_ref));
    cr_assert(eq(int, other->error.code, ERR_CONFLICT));
    cr_assert(eq(int, w->fake->script[FAKE_CREATE].calls, 1));
    run(w, call_destroy, a->made.binding_ref, a->made.workspace_ref);
    cr_assert(eq(int, w->fake->live_bindings, 0));
    cr_assert(eq(sz, rows(w, LEDGER_BINDINGS).n, 0));
    cr_assert(eq(sz, rows(w, LEDGER_WORKSPACES).n, 0));
    other = creator(w, "b-1", "agent-2"); /* the id is free again */
    loop_advance_ms(loop, 2000);
    cr_assert(other->made.binding_ref != NULL, "%s", other->error.message);
    world_free(w);
    loop_free(loop);
}

Test(lifecycle, failed_destroy_leaves_the_row_to_the_collector)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct caller *c = creator(w, "b-1", "agent-1");
    struct ledger_workspace *row;

    loop_advance_ms(loop, 2000);
    fake_backend_fail(w->fake, FAKE_DESTROY, 1, ERR_BINDING_DESTROY);
    c = run(w, call_destroy, c->made.binding_ref, c->made.workspace_ref);
    cr_assert(eq(int, c->error.code, ERR_BINDING_DESTROY));
    row = rows(w, LEDGER_WORKSPACES).rows[0];
    cr_assert(eq(str, (char *)row->status, "retired"));
    cr_assert(row->claimed_by == NULL);
    cr_assert(strstr(row->last_error, "scripted failure") != NULL);
    world_free(w);
    loop_free(loop);
}

/* A30 */
Test(lifecycle, retired_binding_gives_no_lease)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, &(struct lifecycle_options){.retire_grace_ms = 30000});
    struct caller *c = loader(w, "c-1");
    struct ledger_workspace *row;
    const char *ref;

    loop_advance_ms(loop, 2000);
    ref = c->found.row->binding_ref;
    c = run(w, call_acquire, ref, NULL);
    cr_assert(eq(int, c->error.code, ERR_NONE));
    cr_assert(eq(sz, retire_owner(w, "c-1")->retired.n_bindings, 1));
    c = run(w, call_acquire, ref, NULL);
    cr_assert(eq(int, c->error.code, ERR_BINDING_LOST));
    cr_assert(eq(int, lease_count(broker_leases(w->broker)), 1), "the live one goes on");
    row = rows(w, LEDGER_WORKSPACES).rows[0];
    cr_assert(eq(i64, row->next_attempt_at, row->retired_at + 30000), "until the grace is over");
    world_free(w);
    loop_free(loop);
}

/* ---- what is written behind ------------------------------------------------------------------------- */

/* Leases end as fast as they are written: each op that ends feeds as many again. */
struct feed {
    struct broker *broker;
    int left, writes;
};

static void feed_more(void *ctx, const struct op *op)
{
    struct feed *feed = ctx;
    char id[LEASE_ID_CHARS + 1];

    if (strcmp(op->type->name, "write_behind") == 0)
        feed->writes++;
    for (int i = 0; feed->left > 0 && i < 256; i++, feed->left--) {
        snprintf(id, sizeof(id), "%0*x", LEASE_ID_CHARS, (unsigned)feed->left);
        feed->broker->revocations.revoke(feed->broker->revocations.ctx, id, INT64_MAX / 2);
    }
}

/* One op for all of them would keep all it ever wrote in its arena, and orphans and last uses waiting. */
Test(lifecycle, ended_leases_without_end_do_not_keep_one_write_going)
{
    struct loop *loop = world_loop();
    struct world *w = world_new(loop, 0, NULL);
    struct feed feed = {w->broker, 20000, 0};
    struct caller *other = loader(w, "c-1");

    op_set_observer(feed_more, &feed);
    loop_advance_ms(loop, 10000);
    op_set_observer(NULL, NULL);
    cr_assert(other->over && !error_is(&other->error));
    cr_assert(eq(int, feed.left, 0));
    cr_assert(ge(int, feed.writes, 5));
    world_free(w);
    loop_free(loop);
}

/* ---- torture -------------------------------------------------------------------------------------------- */

static unsigned torture_caps;

static void torture_start(struct torture_run *run)
{
    struct world *w = world_new(run->loop, torture_caps, NULL);
    struct caller *c = caller_new(w);
    bool owner =
        torture_caps & BACKEND_LISTS; /* not used by the lifecycle: tells the routes apart */

    run->ctx = w;
    c->request = (struct owner_request){.owner = {"t-1", "conversation", "c-1", "root"},
                                        .app_id = "app-1",
                                        .generation = {"agent-1", NULL, "v-1", "snapshot"}};
    c->spec = (struct binding_spec){
        .tenant_id = "t-1", .agent_id = "a", .binding_id = "b-1", .workspace_id = "w-1"};
    c->start = owner ? call_load : call_create;
    op_start(&c->op, torture_done, run);
}

/* Every sandbox has a row or an orphan's record; every active row has its sandbox. */
static void torture_check(struct torture_run *run)
{
    struct world *w = run->ctx;
    struct ledger_page bindings, orphans;
    int known = 0;

    world_settle(w);
    bindings = rows(w, LEDGER_BINDINGS);
    orphans = rows(w, LEDGER_ORPHANS);
    for (size_t i = 0; i < bindings.n; i++) {
        struct ledger_binding *row = bindings.rows[i];
        known += row->binding_ref != NULL;
        if (strcmp(row->status, "creating") == 0) /* a look by binding id settles it */
            known += (torture_caps & BACKEND_FINDS) && w->fake->live_bindings > 0;
    }
    known += (int)orphans.n;
    cr_assert(ge(int, known, w->fake->live_bindings), "%s", run->what_happened);
    cr_assert(le(int, w->fake->live_bindings, 1), "%s", run->what_happened);
    if (!error_is(&run->error))
        cr_assert(eq(int, w->fake->live_bindings, 1), "%s", run->what_happened);
    for (size_t i = 0; i < bindings.n; i++) {
        struct ledger_binding *row = bindings.rows[i];
        if (strcmp(row->status, "active") == 0)
            cr_assert(eq(int, w->fake->live_bindings, 1), "%s", run->what_happened);
    }
    world_free(w);
}

static void torture(unsigned caps, bool fail_undo)
{
    torture_caps = caps;
    op_torture_run(&(struct torture_scenario){
        .start = torture_start, .check = torture_check, .fail_undo = fail_undo});
}

Test(lifecycle, torture_of_an_owners_create)
{
    torture(BACKEND_FINDS | BACKEND_LISTS, false);
}

Test(lifecycle, torture_of_an_owners_create_and_its_undo)
{
    torture(BACKEND_FINDS | BACKEND_LISTS, true);
}

Test(lifecycle, torture_of_a_create_by_id)
{
    torture(BACKEND_FINDS, true);
}
