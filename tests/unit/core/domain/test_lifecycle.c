/* Bindings with a ledger: made once, recorded before they exist, and never left behind. Over the
 * fake backend and a ledger in a file. */
#include "core/domain/lifecycle.h"
#include "gc/ledger_sqlite.h"
#include "support/fake_backend.h"
#include "support/op_torture.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(lifecycle, .timeout = 60);

struct world {
    char dir[64];
    struct loop *loop;
    struct arena *arena;
    struct fake_backend *fake;
    struct broker *broker;
    struct ledger *ledger;
    struct lifecycle *lc;
    int poked;
};

static void on_poke(void *ctx)
{
    ((struct world *)ctx)->poked++;
}

static struct world *world_new(struct loop *loop, unsigned caps,
                               const struct lifecycle_options *options)
{
    const struct broker_options broker = {.acquire_timeout_ms = 5000,
                                          .create_timeout_ms = 60000,
                                          .destroy_timeout_ms = 60000,
                                          .snapshot_timeout_ms = 60000,
                                          .leases = {60000, 3600000, 86400000, 0, 0},
                                          .lease_secret = "a secret of some length"};
    struct lifecycle_options mine = options != NULL ? *options : (struct lifecycle_options){0};
    struct world *w = xcalloc(1, sizeof(*w));
    char path[96];
    struct error err;

    snprintf(w->dir, sizeof(w->dir), "/tmp/bindery-lc.XXXXXX");
    cr_assert(mkdtemp(w->dir) != NULL);
    snprintf(path, sizeof(path), "%s/ledger.db", w->dir);
    w->loop = loop;
    w->arena = arena_new();
    w->fake = fake_backend_new(loop, caps);
    w->fake->script[FAKE_CREATE].delay_ms = 1000;
    w->broker = broker_new(loop, &w->fake->backend, &broker);
    w->ledger = ledger_sqlite_open(loop, path, &err);
    cr_assert(w->ledger != NULL, "%s", err.message);
    mine.retired = on_poke;
    mine.ctx = w;
    w->lc = lifecycle_new(loop, w->broker, w->ledger, &mine);
    return w;
}

static void settle(struct world *w)
{
    loop_advance_ms(w->loop, 70000);
}

static void world_free(struct world *w)
{
    char command[128];

    lease_end_all(broker_leases(w->broker), LEASE_DRAINED);
    settle(w);
    lifecycle_free(w->lc);
    w->ledger->ops->close(w->ledger);
    broker_free(w->broker);
    fake_backend_free(w->fake);
    arena_free(w->arena);
    snprintf(command, sizeof(command), "rm -rf '%s'", w->dir);
    cr_assert(eq(int, system(command), 0));
    free(w);
}

/* ---- calls ----------------------------------------------------------------------------------------- */

struct caller {
    struct op op;
    struct world *w;
    struct owner_request request;
    struct owner_binding found;
    struct binding_spec spec;
    struct binding made;
    struct destroy_spec destroy;
    struct ledger_retire retire;
    struct ledger_retired retired;
    struct lease_grant grant;
    void (*start)(struct caller *c);
    bool over;
    struct error error;
};

enum { CALLER_START, CALLER_CALLING };
static const char *const caller_states[] = {"start", "calling"};

static enum op_poll caller_step(struct op *op)
{
    struct caller *c = container_of(op, struct caller, op);

    switch (op->state) {
    case CALLER_START:
        AWAIT(op, CALLER_CALLING, c->start(c));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type caller_type = {"caller", caller_states, 2, caller_step, NULL};

static void note_end(struct op *op, void *ctx)
{
    struct caller *c = ctx;

    c->over = true;
    c->error = op->error;
}

static struct caller *caller_new(struct world *w)
{
    struct caller *c = OP_ROOT(w->loop, &caller_type, caller, w->arena);

    c->w = w;
    return c;
}

static void call_load(struct caller *c)
{
    lifecycle_load_or_create(c->w->lc, &c->op, &c->request, &c->found);
}

static void call_create(struct caller *c)
{
    lifecycle_create_binding(c->w->lc, &c->op, &c->spec, &c->made);
}

static void call_destroy(struct caller *c)
{
    lifecycle_destroy_binding(c->w->lc, &c->op, &c->destroy);
}

static void call_retire(struct caller *c)
{
    lifecycle_retire(c->w->lc, &c->op, &c->retire, &c->retired);
}

static void call_acquire(struct caller *c)
{
    lifecycle_acquire(c->w->lc, &c->op, c->destroy.binding_ref, 0, &c->grant);
}

static struct caller *loader(struct world *w, const char *owner_id)
{
    struct caller *c = caller_new(w);

    c->request = (struct owner_request){.owner = {"t-1", "conversation", owner_id, "root"},
                                        .app_id = "app-1",
                                        .generation = {"agent-1", NULL, "v-1", "snapshot"}};
    c->start = call_load;
    op_start(&c->op, note_end, c);
    return c;
}

static struct caller *creator(struct world *w, const char *id, const char *agent)
{
    struct caller *c = caller_new(w);

    c->spec = (struct binding_spec){.tenant_id = "t-1",
                                    .agent_id = agent,
                                    .binding_id = id,
                                    .workspace_id = arena_printf(w->arena, "w-%s", id)};
    c->start = call_create;
    op_start(&c->op, note_end, c);
    return c;
}

static struct caller *run(struct world *w, void (*start)(struct caller *c), const char *ref,
                          const char *workspace_ref)
{
    struct caller *c = caller_new(w);

    c->destroy = (struct destroy_spec){ref, workspace_ref, workspace_ref != NULL};
    c->start = start;
    op_start(&c->op, note_end, c);
    loop_advance_ms(w->loop, 5000);
    cr_assert(c->over);
    return c;
}

static struct ledger_page rows(struct world *w, enum ledger_kind kind);

struct lister {
    struct op op;
    struct world *w;
    enum ledger_kind kind;
    struct ledger_filter filter;
    struct ledger_page page;
};

static enum op_poll lister_step(struct op *op)
{
    struct lister *l = container_of(op, struct lister, op);

    switch (op->state) {
    case CALLER_START:
        AWAIT(op, CALLER_CALLING,
              l->w->ledger->ops->list(l->w->ledger, op, l->kind, &l->filter, &l->page));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type lister_type = {"lister", caller_states, 2, lister_step, NULL};

static struct ledger_page rows(struct world *w, enum ledger_kind kind)
{
    struct lister *l = OP_ROOT(w->loop, &lister_type, lister, w->arena);

    l->w = w;
    l->kind = kind;
    l->filter.limit = 1000;
    op_start(&l->op, NULL, NULL);
    loop_turn(w->loop, false);
    loop_turn(w->loop, false);
    cr_assert(l->op.done);
    return l->page;
}

static struct loop *new_loop(void)
{
    return loop_new(
        &(struct loop_options){.virtual_clock = true, .virtual_wall_ms = 1700000000000});
}

/* ---- owners ------------------------------------------------------------------------------------------- */

Test(lifecycle, first_call_creates_and_later_calls_find)
{
    struct loop *loop = new_loop();
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

Test(lifecycle, fifty_first_calls_make_one_sandbox)
{
    struct loop *loop = new_loop();
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
    struct loop *loop = new_loop();
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
    struct loop *loop = new_loop();
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
    struct loop *loop = new_loop();
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
    struct loop *loop = new_loop();
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
    struct loop *loop = new_loop();
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

Test(lifecycle, limits_of_a_tenant_answer_429)
{
    struct loop *loop = new_loop();
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

Test(lifecycle, quota_is_given_back_by_failed_creates)
{
    struct loop *loop = new_loop();
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

Test(lifecycle, binding_id_is_an_idempotency_key)
{
    struct loop *loop = new_loop();
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
    struct loop *loop = new_loop();
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

Test(lifecycle, retired_binding_gives_no_lease)
{
    struct loop *loop = new_loop();
    struct world *w = world_new(loop, 0, &(struct lifecycle_options){.retire_grace_ms = 30000});
    struct caller *c = loader(w, "c-1"), *r = caller_new(w);
    struct ledger_workspace *row;
    const char *ref;

    loop_advance_ms(loop, 2000);
    ref = c->found.row->binding_ref;
    c = run(w, call_acquire, ref, NULL);
    cr_assert(eq(int, c->error.code, ERR_NONE));
    r->retire = (struct ledger_retire){
        .tenant_id = "t-1", .app_id = "app-1", .owner_type = "conversation", .owner_id = "c-1"};
    r->start = call_retire;
    op_start(&r->op, note_end, r);
    loop_advance_ms(loop, 100);
    cr_assert(eq(sz, r->retired.n_bindings, 1));
    c = run(w, call_acquire, ref, NULL);
    cr_assert(eq(int, c->error.code, ERR_BINDING_LOST));
    cr_assert(eq(int, lease_count(broker_leases(w->broker)), 1), "the live one goes on");
    row = rows(w, LEDGER_WORKSPACES).rows[0];
    cr_assert(eq(i64, row->next_attempt_at, row->retired_at + 30000), "until the grace is over");
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

    settle(w);
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
