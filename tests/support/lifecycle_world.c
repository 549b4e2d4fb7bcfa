#include "support/lifecycle_world.h"

#include "gc/ledger_sqlite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_poke(void *ctx)
{
    ((struct world *)ctx)->poked++;
}

static void open_ledger(struct world *w, const struct lifecycle_options *options)
{
    struct lifecycle_options mine = options != NULL ? *options : (struct lifecycle_options){0};
    char path[96];
    struct error err;

    snprintf(path, sizeof(path), "%s/ledger.db", w->dir);
    w->ledger = ledger_sqlite_open(w->loop, path, &err);
    cr_assert(w->ledger != NULL, "%s", err.message);
    mine.retired = on_poke;
    mine.ctx = w;
    w->lc = lifecycle_new(w->loop, w->broker, w->ledger, &mine);
}

static void close_ledger(struct world *w)
{
    lifecycle_free(w->lc);
    w->ledger->ops->close(w->ledger);
}

struct world *world_new(struct loop *loop, unsigned caps, const struct lifecycle_options *options)
{
    const struct broker_options broker = {.acquire_timeout_ms = 5000,
                                          .create_timeout_ms = 60000,
                                          .destroy_timeout_ms = 60000,
                                          .snapshot_timeout_ms = 60000,
                                          .leases = {60000, 3600000, 86400000, 0, 0},
                                          .lease_secret = "a secret of some length"};
    struct world *w = xcalloc(1, sizeof(*w));

    snprintf(w->dir, sizeof(w->dir), "/tmp/bindery-lc.XXXXXX");
    cr_assert(mkdtemp(w->dir) != NULL);
    w->loop = loop;
    w->arena = arena_new();
    w->fake = fake_backend_new(loop, caps);
    w->fake->script[FAKE_CREATE].delay_ms = 1000;
    w->broker = broker_new(loop, &w->fake->backend, &broker);
    open_ledger(w, options);
    return w;
}

void world_settle(struct world *w)
{
    loop_advance_ms(w->loop, 70000);
}

void world_restart(struct world *w)
{
    close_ledger(w);
    open_ledger(w, NULL);
}

void world_free(struct world *w)
{
    char command[128];

    lease_end_all(broker_leases(w->broker), LEASE_DRAINED);
    world_settle(w);
    close_ledger(w);
    broker_free(w->broker);
    fake_backend_free(w->fake);
    arena_free(w->arena);
    snprintf(command, sizeof(command), "rm -rf '%s'", w->dir);
    cr_assert(eq(int, system(command), 0));
    free(w);
}

/* ---- calls ----------------------------------------------------------------------------------------- */

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
    c->error = *op_error(op);
}

struct caller *caller_new(struct world *w)
{
    struct caller *c = OP_ROOT(w->loop, &caller_type, caller, w->arena);

    c->w = w;
    return c;
}

void call_load(struct caller *c)
{
    lifecycle_load_or_create(c->w->lc, &c->op, &c->request, &c->found);
}

void call_create(struct caller *c)
{
    lifecycle_create_binding(c->w->lc, &c->op, &c->spec, &c->made);
}

void call_destroy(struct caller *c)
{
    lifecycle_destroy_binding(c->w->lc, &c->op, &c->destroy);
}

void call_retire(struct caller *c)
{
    lifecycle_retire(c->w->lc, &c->op, &c->retire, &c->retired);
}

void call_acquire(struct caller *c)
{
    lifecycle_acquire(c->w->lc, &c->op, c->destroy.binding_ref, 0, &c->grant);
}

struct caller *loader(struct world *w, const char *owner_id)
{
    struct caller *c = caller_new(w);

    c->request = (struct owner_request){.owner = {"t-1", "conversation", owner_id, "root"},
                                        .app_id = "app-1",
                                        .generation = {"agent-1", NULL, "v-1", "snapshot"}};
    c->start = call_load;
    op_start(&c->op, note_end, c);
    return c;
}

struct caller *creator(struct world *w, const char *id, const char *agent)
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

struct caller *run(struct world *w, void (*start)(struct caller *c), const char *ref,
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

struct ledger_page rows(struct world *w, enum ledger_kind kind)
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

struct loop *world_loop(void)
{
    return loop_new(
        &(struct loop_options){.virtual_clock = true, .virtual_wall_ms = 1700000000000});
}

void caller_start(struct caller *c)
{
    op_start(&c->op, note_end, c);
}

struct caller *retire_owner(struct world *w, const char *owner_id)
{
    struct caller *c = caller_new(w);

    c->retire = (struct ledger_retire){.tenant_id = "t-1",
                                       .app_id = "app-1",
                                       .owner_type = "conversation",
                                       .owner_id = owner_id,
                                       .cause = {"test", "the owner ended"}};
    c->start = call_retire;
    caller_start(c);
    loop_advance_ms(w->loop, 50);
    cr_assert(c->over);
    return c;
}
