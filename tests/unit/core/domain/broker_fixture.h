/* A broker over the backend in memory, on a virtual clock, and a root operation for each use case; shared by the
 * broker's test programs. */
#pragma once

#pragma GCC diagnostic ignored "-Wunused-function" /* no program makes every call */

#include "core/domain/broker.h"
#include "support/fake_backend.h"

#include "core/runtime/metrics.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

enum {
    ALL_CAPS = BACKEND_SHARED_WORKSPACE | BACKEND_KEEPS_WORKSPACE | BACKEND_SNAPSHOTS,
    A_MINUTE = 60000,
};

static struct loop *loop;
static struct fake_backend *fake;
static struct broker *broker;
static int lost_seen, failed_releases;

static void watch_releases(void *ctx, const struct op *op)
{
    (void)ctx;
    failed_releases += error_is(op_error(op)) && strcmp(op->type->name, "lease_release") == 0;
}

static void see_lost(void *ctx, const char *binding_ref, const struct error *why)
{
    (void)ctx;
    (void)binding_ref;
    (void)why;
    lost_seen++;
}

static struct broker *new_broker(struct backend *backend)
{
    struct broker *b = broker_new(loop, backend,
                                  &(struct broker_options){
                                      .acquire_timeout_ms = 5000,
                                      .create_timeout_ms = 600000,
                                      .destroy_timeout_ms = 60000,
                                      .snapshot_timeout_ms = 60000,
                                      .leases = {.default_ttl_ms = 300000,
                                                 .max_ttl_ms = 600000,
                                                 .max_total_ms = 86400000,
                                                 .max_leases = 100},
                                      .lease_secret = "the same on every replica",
                                  });

    broker_set_observer(b, &(struct broker_observer){.binding_lost = see_lost});
    return b;
}

static void set_up(void)
{
    loop =
        loop_new(&(struct loop_options){.virtual_clock = true, .virtual_wall_ms = 1700000000000});
    fake = fake_backend_new(loop, ALL_CAPS);
    broker = new_broker(&fake->backend);
    op_set_observer(watch_releases, NULL);
    for (int call = 0; call < FAKE_CALLS; call++)
        fake->script[call].delay_ms = 100;
}

static void tear_down(void)
{
    op_torture_arm(OP_TORTURE_NONE, 0);
    broker_drain(broker, NULL);
    loop_advance_ms(loop, 10 * A_MINUTE);
    broker_free(broker);
    fake_backend_free(fake);
    loop_free(loop);
}

/* ---- a root for any use case ----------------------------------------------------------------- */

struct call {
    struct op op;
    void (*start)(struct call *call);
    struct binding_spec create;
    struct destroy_spec destroy;
    struct snapshot_spec snapshot;
    const char *ref;
    int64_t ttl_ms;
    struct lease_caller caller;
    struct lease_claims claims;
    struct command_spec command;
    struct binding_command on_binding;
    /* results, and what is copied of them when the call ends */
    struct binding binding;
    struct lease_grant grant;
    const char *snapshot_ref;
    struct command_result result;
    struct outcome *outcome;
};

struct outcome {
    int calls;
    struct error error;
    char text[64];
    char token[512];
    char lease_id[LEASE_ID_CHARS + 1];
    int64_t expires_wall_ms;
};

enum call_state { CALL_START, CALL_CALLING };
static const char *const call_states[] = {"start", "calling"};

static enum op_poll call_step(struct op *op)
{
    struct call *call = container_of(op, struct call, op);

    switch ((enum call_state)op->state) {
    case CALL_START:
        AWAIT(op, CALL_CALLING, call->start(call));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type call_type = {"call", call_states, 2, call_step, NULL};

static void note(struct op *op, void *ctx)
{
    struct call *call = container_of(op, struct call, op);
    struct outcome *o = ctx;

    o->calls++;
    o->error = *op_error(op);
    if (op_failed(op))
        return;
    if (call->binding.binding_ref != NULL)
        snprintf(o->text, sizeof(o->text), "%s", call->binding.binding_ref);
    if (call->snapshot_ref != NULL)
        snprintf(o->text, sizeof(o->text), "%s", call->snapshot_ref);
    if (call->result.output != NULL)
        snprintf(o->text, sizeof(o->text), "%s", call->result.output);
    if (call->grant.token != NULL) {
        snprintf(o->token, sizeof(o->token), "%s", call->grant.token);
        memcpy(o->lease_id, call->grant.id, sizeof(o->lease_id));
        o->expires_wall_ms = call->grant.expires_wall_ms;
    }
}

static struct call *new_call(void (*start)(struct call *call))
{
    struct call *call = OP_ROOT(loop, &call_type, call, NULL);

    call->start = start;
    return call;
}

static void begin(struct call *call, struct outcome *outcome)
{
    *outcome = (struct outcome){0};
    op_start(&call->op, note, outcome);
}

static struct outcome finish(struct call *call)
{
    struct outcome outcome;

    begin(call, &outcome);
    for (int i = 0; i < 3000 && outcome.calls == 0; i++)
        loop_advance_ms(loop, 100);
    cr_assert(eq(int, outcome.calls, 1));
    return outcome;
}

static void start_create(struct call *c)
{
    broker_create_binding(broker, &c->op, &c->create, &c->binding);
}

static void start_destroy(struct call *c)
{
    broker_destroy_binding(broker, &c->op, &c->destroy);
}

static void start_acquire(struct call *c)
{
    broker_acquire(broker, &c->op, c->ref, c->ttl_ms, &c->grant);
}

static void start_renew(struct call *c)
{
    broker_renew(broker, &c->op, &c->caller, c->ttl_ms, &c->grant);
}

static void start_reopen(struct call *c)
{
    broker_reopen(broker, &c->op, &c->claims);
}

static void start_snapshot(struct call *c)
{
    broker_snapshot_create(broker, &c->op, &c->snapshot, c->ref, &c->snapshot_ref);
}

static void start_snapshot_delete(struct call *c)
{
    broker_snapshot_delete(broker, &c->op, c->ref);
}

static void start_run(struct call *c)
{
    struct lease *lease = lease_find(broker_leases(broker), c->caller.lease_id);

    broker_run(broker, &c->op, lease, &c->command, &c->result);
}

static void prepare(void *ctx, struct arena *arena, const struct layout *layout,
                    struct command_spec *spec)
{
    (void)ctx;
    (void)arena;
    cr_assert_str_eq(layout->home_dir, "/home/fake");
    spec->script = "true";
}

static void start_run_on_binding(struct call *c)
{
    c->on_binding = (struct binding_command){c->ref, prepare, NULL};
    broker_run_on_binding(broker, &c->op, &c->on_binding, &c->result);
}

static struct call *create_call(void)
{
    struct call *call = new_call(start_create);

    call->create = (struct binding_spec){"tenant", "agent", "binding", "workspace", NULL, NULL};
    return call;
}

static struct call *acquire_call(const char *ref)
{
    struct call *call = new_call(start_acquire);

    call->ref = ref;
    return call;
}

static struct call *destroy_call(const char *ref)
{
    struct call *call = new_call(start_destroy);

    call->destroy = (struct destroy_spec){ref, "w1", true};
    return call;
}

static struct call *snapshot_call(const char *ref)
{
    struct call *call = new_call(start_snapshot);

    call->snapshot = (struct snapshot_spec){"tenant", "agent", "snapshot"};
    call->ref = ref;
    return call;
}

static enum lease_door knock(const char *id, const char *bearer, struct error *ret_err)
{
    struct arena *arena = arena_new();
    struct lease *lease = NULL;
    struct lease_claims claims;
    enum lease_door door;

    *ret_err = (struct error){0};
    door = broker_lease_door(broker, arena, &(struct lease_caller){id, bearer, bearer == NULL},
                             &lease, &claims, ret_err);
    arena_free(arena);
    return door;
}

static bool release(const char *id, const char *bearer, struct error *ret_err)
{
    struct arena *arena = arena_new();
    bool ok;

    *ret_err = (struct error){0};
    ok = broker_release(broker, arena, &(struct lease_caller){id, bearer, bearer == NULL}, ret_err);
    arena_free(arena);
    return ok;
}

static struct call *reopen_call(const struct outcome *o, const char *ref)
{
    struct call *call = new_call(start_reopen);

    memcpy(call->claims.id, o->lease_id, sizeof(call->claims.id));
    call->claims.backend = "fake";
    call->claims.binding_ref = ref;
    call->claims.expires_wall_ms = o->expires_wall_ms;
    call->claims.hard_end_wall_ms = o->expires_wall_ms + 3600000;
    return call;
}

static struct call *run_call(const struct outcome *lease)
{
    struct call *call = new_call(start_run);

    call->caller.lease_id = lease->lease_id;
    return call;
}

struct shared_ends {
    char id[LEASE_ID_CHARS + 1];
};

static void shared_revoke(void *ctx, const char *id, int64_t until_wall_ms)
{
    (void)until_wall_ms;
    snprintf(((struct shared_ends *)ctx)->id, LEASE_ID_CHARS + 1, "%s", id);
}

static void shared_check(void *ctx, struct op *op, const char *id, bool *ret_revoked)
{
    *ret_revoked = strcmp(((struct shared_ends *)ctx)->id, id) == 0;
    op_sleep(op, 5);
}
