/* The use cases over a backend in memory: what comes out, what is left behind, and the torture of
 * every operation: whatever happens at any wait, nothing is left but what was reported. */
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

TestSuite(broker, .init = set_up, .fini = tear_down, .timeout = 30);

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

/* ---- bindings -------------------------------------------------------------------------------- */

Test(broker, creates_and_destroys)
{
    struct outcome o = finish(create_call());

    cr_assert(eq(int, o.error.code, ERR_NONE));
    cr_assert_str_eq(o.text, "b1");
    cr_assert(eq(int, finish(destroy_call("b1")).error.code, ERR_NONE));
    cr_assert(eq(int, finish(destroy_call("b1")).error.code, ERR_NONE));
    cr_assert(eq(int, fake->live_bindings, 0));
}

Test(broker, ids_that_cannot_travel_are_refused_before_any_call)
{
    char huge[4097];
    const char *bad[] = {"", "a\r\nX-Inner-Api-Key: x", "a\tb", "a\x7f", huge};

    memset(huge, 'x', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = '\0';
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct call *call = create_call();

        call->create.tenant_id = bad[i];
        cr_assert(eq(int, finish(call).error.code, ERR_BAD_REQUEST), "%zu", i);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        cr_assert(eq(int, finish(acquire_call(bad[i])).error.code, ERR_INVALID_REF), "%zu", i);
    cr_assert(eq(int, finish(acquire_call("..")).error.code, ERR_INVALID_REF));
    cr_assert(eq(int, finish(destroy_call(".")).error.code, ERR_INVALID_REF));
    cr_assert(eq(int, finish(acquire_call("a/../../admin")).error.code, ERR_INVALID_REF));
    for (int call = 0; call < FAKE_CALLS; call++)
        cr_assert(eq(int, fake->script[call].calls, 0));
}

Test(broker, what_the_backend_cannot_do_is_refused_first)
{
    struct call *call = create_call();
    struct call *keep;

    fake->backend.caps = 0;
    call->create.existing_workspace_ref = "";
    cr_assert(eq(int, finish(call).error.code, ERR_SHARED_WORKSPACE_UNSUPPORTED));
    call = create_call();
    call->create.home_snapshot_ref = "s1";
    cr_assert(eq(int, finish(call).error.code, ERR_SNAPSHOT_UNSUPPORTED));
    keep = destroy_call("b1");
    keep->destroy.destroy_workspace = false;
    cr_assert(eq(int, finish(keep).error.code, ERR_WORKSPACE_PRESERVATION_UNSUPPORTED));
    cr_assert(eq(int, finish(snapshot_call("b1")).error.code, ERR_SNAPSHOT_UNSUPPORTED));
    for (int i = 0; i < FAKE_CALLS; i++)
        cr_assert(eq(int, fake->script[i].calls, 0));
}

Test(broker, without_a_backend_everything_is_unavailable)
{
    struct broker *with = broker;
    struct error err = {0};

    broker = new_broker(NULL);
    cr_assert(eq(int, finish(create_call()).error.code, ERR_BACKEND_UNAVAILABLE));
    cr_assert(eq(int, finish(acquire_call("b1")).error.code, ERR_BACKEND_UNAVAILABLE));
    cr_assert(eq(int, finish(destroy_call("b1")).error.code, ERR_BACKEND_UNAVAILABLE));
    cr_assert(eq(int, finish(snapshot_call("b1")).error.code, ERR_BACKEND_UNAVAILABLE));
    cr_assert(not(broker_ready(broker, &err)));
    broker_free(broker);
    broker = with;
}

/* A05: the caller leaves while, or in the moment after, the backend creates. */
Test(broker, an_abandoned_create_leaves_nothing)
{
    for (int at_ms = 0; at_ms <= 100; at_ms += 25) {
        struct outcome o;
        struct call *call = create_call();

        begin(call, &o);
        loop_turn(loop, false);
        if (at_ms < 100)
            loop_advance_ms(loop, at_ms);
        op_cancel(&call->op, "the client left");
        loop_advance_ms(loop, A_MINUTE);
        cr_assert(eq(int, o.calls, 1));
        cr_assert(eq(int, o.error.code, ERR_CANCELLED));
        cr_assert(eq(int, fake->live_bindings, 0));
    }
    cr_assert(eq(int, fake->orphans, 0));
}

Test(broker, inner_codes_of_a_backend_do_not_come_out)
{
    static const struct {
        enum fake_call call;
        enum err_code out;
    } cases[] = {{FAKE_CREATE, ERR_BINDING_CREATE},
                 {FAKE_ACQUIRE, ERR_BINDING_ACQUIRE},
                 {FAKE_DESTROY, ERR_BINDING_DESTROY},
                 {FAKE_SNAPSHOT_CREATE, ERR_SNAPSHOT_CREATE}};
    static const enum err_code inner[] = {ERR_UPSTREAM_STATUS, ERR_UPSTREAM_PROTOCOL,
                                          ERR_UPSTREAM_CONNECT};
    const char *ref = fake_backend_add(fake);

    for (size_t i = 0; i < sizeof(inner) / sizeof(*inner); i++) {
        for (size_t k = 0; k < sizeof(cases) / sizeof(*cases); k++) {
            struct call *calls[] = {create_call(), acquire_call(ref), destroy_call(ref),
                                    snapshot_call(ref)};

            fake_backend_fail(fake, cases[k].call, 1, inner[i]);
            for (size_t n = 0; n < 4; n++) {
                if (n == k)
                    cr_assert(eq(int, finish(calls[n]).error.code, cases[k].out));
                else
                    op_cancel(&calls[n]->op, "not needed"), finish(calls[n]);
            }
        }
    }
}

/* ---- acquire --------------------------------------------------------------------------------- */

Test(broker, acquires_a_lease_that_its_token_opens)
{
    struct outcome o = finish(acquire_call(fake_backend_add(fake)));
    struct error err;

    cr_assert(eq(int, o.error.code, ERR_NONE));
    cr_assert(eq(int, knock(o.lease_id, o.token, &err), DOOR_OPEN));
    cr_assert(eq(int, knock(o.lease_id, NULL, &err), DOOR_OPEN));
    cr_assert(eq(int, knock(o.lease_id, "blt1.AAAA", &err), DOOR_CLOSED));
    cr_assert(eq(int, err.code, ERR_UNAUTHORIZED));
    cr_assert(eq(int, knock("../etc", NULL, &err), DOOR_CLOSED));
    cr_assert(eq(int, err.code, ERR_NOT_FOUND));
}

Test(broker, a_token_opens_its_own_lease_only)
{
    const char *ref = fake_backend_add(fake);
    struct outcome one = finish(acquire_call(ref)), two = finish(acquire_call(ref));
    struct error err;

    cr_assert(eq(int, knock(one.lease_id, two.token, &err), DOOR_CLOSED));
    cr_assert(eq(int, err.code, ERR_FORBIDDEN));
    cr_assert(not(release(one.lease_id, two.token, &err)));
    cr_assert(eq(int, knock(one.lease_id, one.token, &err), DOOR_OPEN));
}

/* A16: a hung probe. */
Test(broker, validation_has_one_deadline_and_leaves_no_lease)
{
    const char *ref = fake_backend_add(fake);
    struct outcome o[100];

    fake->script[FAKE_ACQUIRE].delay_ms = -1;
    for (int i = 0; i < 100; i++)
        begin(acquire_call(ref), &o[i]);
    loop_advance_ms(loop, 4999);
    cr_assert(eq(int, o[0].calls, 0));
    loop_advance_ms(loop, 1);
    for (int i = 0; i < 100; i++) {
        cr_assert(eq(int, o[i].calls, 1));
        cr_assert(eq(int, o[i].error.code, ERR_DEADLINE));
    }
    cr_assert(eq(int, lease_count(broker_leases(broker)), 0));
    cr_assert(eq(int, fake->live_bindings, 1));
    cr_assert(eq(int, fake->most_running, 1));
}

Test(broker, a_cold_start_is_not_cut_by_the_validation_deadline)
{
    fake->backend.caps |= BACKEND_COLD_START;
    fake->script[FAKE_ACQUIRE].delay_ms = 30000;
    cr_assert(eq(int, finish(acquire_call(fake_backend_add(fake))).error.code, ERR_NONE));
}

Test(broker, concurrent_acquires_share_one_probe)
{
    const char *ref = fake_backend_add(fake);
    struct outcome o[50];

    for (int i = 0; i < 50; i++)
        begin(acquire_call(ref), &o[i]);
    loop_advance_ms(loop, 1000);
    for (int i = 0; i < 50; i++)
        cr_assert(eq(int, o[i].error.code, ERR_NONE));
    cr_assert(eq(int, fake->script[FAKE_ACQUIRE].calls, 1));
    cr_assert(eq(int, lease_count(broker_leases(broker)), 50));
    finish(acquire_call(ref));
    cr_assert(eq(int, fake->script[FAKE_ACQUIRE].calls, 2), "a later one probes anew");
}

Test(broker, the_leaver_does_not_fail_those_who_joined)
{
    const char *ref = fake_backend_add(fake);
    struct outcome o[3];
    struct call *first = acquire_call(ref);

    begin(first, &o[0]);
    begin(acquire_call(ref), &o[1]);
    begin(acquire_call(ref), &o[2]);
    loop_advance_ms(loop, 50);
    op_cancel(&first->op, "left");
    loop_advance_ms(loop, 1000);
    cr_assert(eq(int, o[0].error.code, ERR_CANCELLED));
    cr_assert(eq(int, o[1].error.code, ERR_NONE));
    cr_assert(eq(int, o[2].error.code, ERR_NONE));
    cr_assert(eq(int, fake->script[FAKE_ACQUIRE].calls, 2));
    cr_assert(eq(int, fake->most_running, 1));
}

Test(broker, a_joined_probe_fails_for_all_with_its_reason)
{
    struct outcome o[10];

    for (int i = 0; i < 10; i++)
        begin(acquire_call("b9"), &o[i]);
    loop_advance_ms(loop, 1000);
    for (int i = 0; i < 10; i++)
        cr_assert(eq(int, o[i].error.code, ERR_BINDING_LOST));
    cr_assert(eq(int, fake->script[FAKE_ACQUIRE].calls, 1));
    cr_assert(eq(int, lost_seen, 1));
}

/* A30: what was destroyed does not come back, not even through a probe from before. */
Test(broker, an_acquire_after_a_destroy_does_not_join_a_probe_from_before)
{
    const char *ref = fake_backend_add(fake);
    char copy[32];
    struct outcome early, late, gone;

    snprintf(copy, sizeof(copy), "%s", ref);
    fake->script[FAKE_ACQUIRE].delay_ms = 1000;
    begin(acquire_call(copy), &early);
    loop_advance_ms(loop, 10);
    begin(destroy_call(copy), &gone);
    loop_advance_ms(loop, 200);
    begin(acquire_call(copy), &late);
    loop_advance_ms(loop, A_MINUTE);
    cr_assert(eq(int, gone.error.code, ERR_NONE));
    cr_assert(eq(int, late.error.code, ERR_BINDING_LOST));
    cr_assert(eq(int, fake->script[FAKE_ACQUIRE].calls, 2));
    cr_assert(eq(int, fake->made, 1));
}

Test(broker, beyond_the_limit_acquires_are_refused)
{
    const char *ref = fake_backend_add(fake);
    struct outcome o[103];
    int refused = 0;

    for (int i = 0; i < 103; i++)
        begin(acquire_call(ref), &o[i]);
    loop_advance_ms(loop, 1000);
    for (int i = 0; i < 103; i++)
        refused += o[i].error.code == ERR_OVERLOADED && o[i].error.retry_after_ms > 0;
    cr_assert(eq(int, refused, 3));
    cr_assert(eq(int, fake->live_planes, 100));
    cr_assert(eq(int, finish(acquire_call(ref)).error.code, ERR_OVERLOADED));
}

/* A23: the old holder's release does nothing to the new holder. */
Test(broker, leases_of_one_binding_do_not_disturb_each_other)
{
    const char *ref = fake_backend_add(fake);
    struct outcome old = finish(acquire_call(ref));
    struct outcome young;
    struct error err;

    loop_advance_ms(loop, 300000);
    young = finish(acquire_call(ref));
    cr_assert(eq(int, knock(old.lease_id, old.token, &err), DOOR_CLOSED));
    cr_assert(eq(int, err.code, ERR_LEASE_GONE));
    cr_assert(release(old.lease_id, old.token, &err));
    cr_assert(eq(int, knock(young.lease_id, young.token, &err), DOOR_OPEN));
    cr_assert(eq(int, fake->live_planes, 1));
}

/* ---- ends ------------------------------------------------------------------------------------ */

Test(broker, release_is_idempotent_and_final)
{
    struct outcome o = finish(acquire_call(fake_backend_add(fake)));
    struct error err;

    cr_assert(release(o.lease_id, o.token, &err));
    cr_assert(release(o.lease_id, o.token, &err));
    cr_assert(release(o.lease_id, NULL, &err));
    cr_assert(eq(int, knock(o.lease_id, o.token, &err), DOOR_CLOSED));
    cr_assert(eq(int, err.code, ERR_LEASE_GONE));
    loop_advance_ms(loop, 1000);
    cr_assert(eq(int, fake->live_planes, 0));
    cr_assert(eq(int, fake->script[FAKE_RELEASE].calls, 1));
}

/* A18: lost once, counted once; release is still fine. */
Test(broker, a_lost_binding_ends_its_leases_as_lost_once)
{
    const char *ref = fake_backend_add(fake);
    struct outcome one = finish(acquire_call(ref)), two = finish(acquire_call(ref));
    struct error err;
    char copy[32];

    snprintf(copy, sizeof(copy), "%s", ref);
    broker_binding_lost(broker, copy, NULL);
    cr_assert(eq(int, knock(one.lease_id, one.token, &err), DOOR_CLOSED));
    cr_assert(eq(int, err.code, ERR_BINDING_LOST));
    cr_assert(eq(int, knock(two.lease_id, NULL, &err), DOOR_CLOSED));
    cr_assert(eq(int, err.code, ERR_BINDING_LOST));
    cr_assert(release(one.lease_id, one.token, &err));
    cr_assert(release(one.lease_id, one.token, &err));
    cr_assert(eq(int, knock(one.lease_id, one.token, &err), DOOR_CLOSED));
    cr_assert(eq(int, err.code, ERR_BINDING_LOST));
    cr_assert(eq(dbl, metric_value(METRIC_LEASES_ENDED, LABELS("lost")), 2.0));
    cr_assert(eq(int, lost_seen, 1));
}

Test(broker, destroy_ends_the_leases_of_the_binding)
{
    const char *ref = fake_backend_add(fake);
    char copy[32];
    struct outcome o = finish(acquire_call(ref));
    struct error err;

    snprintf(copy, sizeof(copy), "%s", ref);
    finish(destroy_call(copy));
    cr_assert(eq(int, knock(o.lease_id, o.token, &err), DOOR_CLOSED));
    cr_assert(eq(int, err.code, ERR_LEASE_GONE));
    cr_assert(eq(int, finish(acquire_call(copy)).error.code, ERR_BINDING_LOST));
}

/* ---- tokens at another replica --------------------------------------------------------------- */

static struct broker *other_replica(void)
{
    return new_broker(&fake->backend);
}

static void swap(struct broker **other)
{
    struct broker *was = broker;

    broker = *other;
    *other = was;
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

Test(broker, another_replica_serves_the_lease_by_its_token)
{
    const char *ref = fake_backend_add(fake);
    struct outcome o = finish(acquire_call(ref));
    struct broker *other = other_replica();
    struct outcome many[20];
    struct error err;

    swap(&other);
    cr_assert(eq(int, knock(o.lease_id, NULL, &err), DOOR_CLOSED));
    cr_assert(eq(int, err.code, ERR_NOT_FOUND));
    cr_assert(eq(int, knock(o.lease_id, o.token, &err), DOOR_TOKEN));
    for (int i = 0; i < 20; i++)
        begin(reopen_call(&o, ref), &many[i]);
    loop_advance_ms(loop, 1000);
    for (int i = 0; i < 20; i++)
        cr_assert(eq(int, many[i].error.code, ERR_NONE));
    cr_assert(eq(int, fake->script[FAKE_REOPEN].calls, 1));
    cr_assert(eq(int, fake->script[FAKE_ACQUIRE].calls, 1));
    cr_assert(eq(int, knock(o.lease_id, o.token, &err), DOOR_OPEN));
    cr_assert(release(o.lease_id, o.token, &err));
    cr_assert(eq(int, knock(o.lease_id, o.token, &err), DOOR_CLOSED));
    cr_assert(eq(int, err.code, ERR_LEASE_GONE));
    broker_drain(broker, NULL);
    loop_advance_ms(loop, 1000);
    swap(&other);
    broker_free(other);
}

Test(broker, a_renewal_elsewhere_is_honoured_here_by_the_new_token)
{
    const char *ref = fake_backend_add(fake);
    struct outcome o = finish(acquire_call(ref)), renewed;
    struct broker *other = other_replica();
    struct error err;
    struct call *call;

    loop_advance_ms(loop, 60000);
    swap(&other);
    call = new_call(start_renew);
    call->caller = (struct lease_caller){o.lease_id, o.token, false};
    renewed = finish(call);
    swap(&other);
    cr_assert(eq(int, renewed.error.code, ERR_NONE));
    cr_assert(gt(i64, renewed.expires_wall_ms, o.expires_wall_ms));
    loop_advance_ms(loop, 30000);
    cr_assert(eq(int, knock(o.lease_id, renewed.token, &err), DOOR_OPEN));
    loop_advance_ms(loop, 100000);
    cr_assert(eq(int, knock(o.lease_id, o.token, &err), DOOR_OPEN), "it lives as long as renewed");
    broker_drain(other, NULL);
    loop_advance_ms(loop, 1000);
    broker_free(other);
}

Test(broker, a_released_lease_is_opened_by_no_token_here)
{
    const char *ref = fake_backend_add(fake);
    struct outcome o = finish(acquire_call(ref));
    struct broker *other = other_replica();
    struct error err;

    swap(&other);
    cr_assert(release(o.lease_id, o.token, &err));
    cr_assert(eq(int, knock(o.lease_id, o.token, &err), DOOR_CLOSED));
    cr_assert(eq(int, err.code, ERR_LEASE_GONE));
    cr_assert(eq(int, finish(reopen_call(&o, ref)).error.code, ERR_LEASE_GONE));
    swap(&other);
    broker_free(other);
}

Test(broker, an_expired_token_opens_nothing)
{
    struct outcome o = finish(acquire_call(fake_backend_add(fake)));
    struct broker *other = other_replica();
    struct error err;

    swap(&other);
    loop_advance_ms(loop, 300000);
    cr_assert(eq(int, knock(o.lease_id, o.token, &err), DOOR_CLOSED));
    cr_assert(eq(int, err.code, ERR_LEASE_GONE));
    cr_assert(release(o.lease_id, o.token, &err));
    swap(&other);
    broker_free(other);
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

Test(broker, revocations_reach_other_replicas_through_the_port)
{
    const char *ref = fake_backend_add(fake);
    struct outcome o = finish(acquire_call(ref));
    struct broker *other = other_replica();
    struct shared_ends ends = {{0}};
    struct lease_revocations port = {shared_revoke, shared_check, &ends};
    struct error err;
    struct call *call;

    broker_set_revocations(broker, &port);
    broker_set_revocations(other, &port);
    cr_assert(release(o.lease_id, o.token, &err));
    swap(&other);
    cr_assert(eq(int, knock(o.lease_id, o.token, &err), DOOR_TOKEN));
    call = new_call(start_renew);
    call->caller = (struct lease_caller){o.lease_id, o.token, false};
    cr_assert(eq(int, finish(call).error.code, ERR_LEASE_GONE));
    cr_assert(eq(int, finish(reopen_call(&o, ref)).error.code, ERR_LEASE_GONE));
    cr_assert(eq(int, knock(o.lease_id, o.token, &err), DOOR_CLOSED));
    swap(&other);
    broker_free(other);
}

Test(broker, a_reopen_that_finds_the_binding_lost_says_so_from_then_on)
{
    struct outcome o = finish(acquire_call(fake_backend_add(fake)));
    struct broker *other = other_replica();
    struct error err;

    fake_backend_lose(fake, "b1");
    swap(&other);
    cr_assert(eq(int, finish(reopen_call(&o, "b1")).error.code, ERR_BINDING_LOST));
    cr_assert(eq(int, knock(o.lease_id, o.token, &err), DOOR_CLOSED));
    cr_assert(eq(int, err.code, ERR_BINDING_LOST));
    swap(&other);
    broker_free(other);
}

/* ---- snapshots and commands ------------------------------------------------------------------ */

Test(broker, a_good_snapshot_survives_a_failed_release)
{
    struct outcome o;

    fake_backend_fail(fake, FAKE_RELEASE, 1, ERR_UPSTREAM_LOST);
    o = finish(snapshot_call(fake_backend_add(fake)));
    cr_assert(eq(int, o.error.code, ERR_NONE));
    cr_assert_str_eq(o.text, "s2");
    cr_assert(eq(int, fake->live_snapshots, 1));
    loop_advance_ms(loop, 1000);
    cr_assert(eq(int, fake->live_planes, 0));
}

Test(broker, a_snapshot_of_a_lost_binding_is_binding_lost)
{
    cr_assert(eq(int, finish(snapshot_call("b7")).error.code, ERR_BINDING_LOST));
    fake_backend_fail(fake, FAKE_ACQUIRE, 1, ERR_BINDING_ACQUIRE);
    cr_assert(eq(int, finish(snapshot_call("b7")).error.code, ERR_SNAPSHOT_CREATE));
}

static struct call *run_call(const struct outcome *lease)
{
    struct call *call = new_call(start_run);

    call->caller.lease_id = lease->lease_id;
    return call;
}

Test(broker, a_command_ends_with_its_lease)
{
    struct outcome lease = finish(acquire_call(fake_backend_add(fake)));
    struct outcome o;
    struct error err;

    fake->output = "hello";
    o = finish(run_call(&lease));
    cr_assert_str_eq(o.text, "hello");
    lease = finish(acquire_call("b1"));
    fake->script[FAKE_RUN].delay_ms = -1;
    begin(run_call(&lease), &o);
    loop_advance_ms(loop, 1000);
    cr_assert(eq(int, o.calls, 0));
    cr_assert(release(lease.lease_id, lease.token, &err));
    loop_advance_ms(loop, 1000);
    cr_assert(eq(int, o.calls, 1));
    cr_assert(eq(int, o.error.code, ERR_LEASE_GONE));
}

Test(broker, a_command_on_a_binding_leaves_no_plane)
{
    struct call *call = new_call(start_run_on_binding);

    call->ref = fake_backend_add(fake);
    fake->output = "out";
    cr_assert_str_eq(finish(call).text, "out");
    loop_advance_ms(loop, 1000);
    cr_assert(eq(int, fake->live_planes, 0));
}

Test(broker, drain_ends_everything_and_tells_when)
{
    struct outcome lease = finish(acquire_call(fake_backend_add(fake)));
    struct outcome o;
    struct error err;

    fake->script[FAKE_RUN].delay_ms = -1;
    begin(run_call(&lease), &o);
    loop_advance_ms(loop, 10);
    broker_drain(broker, NULL);
    cr_assert(not(lease_table_idle(broker_leases(broker), NULL)));
    loop_advance_ms(loop, 1000);
    cr_assert(lease_table_idle(broker_leases(broker), NULL));
    cr_assert(eq(int, knock(lease.lease_id, lease.token, &err), DOOR_TOKEN),
              "it goes on elsewhere");
}

/* ---- torture --------------------------------------------------------------------------------- */

/* Make one call per k with trouble at the k-th wait. Whatever happens: one answer; on failure no
 * binding, snapshot or plane that was not there before, except reported orphans and planes whose
 * release was what the harness spoiled. */
static void torture(struct call *(*make)(void), int bindings_before, int bindings_on_success)
{
    for (enum op_torture what = OP_TORTURE_FAIL; what <= OP_TORTURE_CANCEL; what++) {
        for (uint32_t k = 1;; k++) {
            struct call *call;
            struct outcome o;
            bool last;

            tear_down();
            set_up();
            for (int i = 0; i < bindings_before; i++)
                fake_backend_add(fake);
            call = make();
            failed_releases = 0;
            begin(call, &o);
            op_torture_arm(what, k);
            loop_advance_ms(loop, 6 * A_MINUTE);
            last = op_torture_waits() < k;
            op_torture_arm(OP_TORTURE_NONE, 0);
            cr_assert(eq(int, o.calls, 1), "torture %d at wait %u", (int)what, k);
            if (o.error.code == ERR_NONE) {
                cr_assert(eq(int, fake->live_bindings, bindings_on_success), "%d, %u", (int)what,
                          k);
            } else {
                cr_assert(le(int, fake->live_bindings, bindings_before + fake->orphans),
                          "torture %d at wait %u left a binding", (int)what, k);
                cr_assert(le(int, fake->live_snapshots, fake->orphans),
                          "torture %d at wait %u left a snapshot", (int)what, k);
            }
            cr_assert(
                le(int, fake->live_planes, lease_count(broker_leases(broker)) + failed_releases),
                "torture %d at wait %u left a plane", (int)what, k);
            if (last)
                break;
        }
    }
}

static struct call *make_acquire(void)
{
    return acquire_call("b1");
}

static struct call *make_destroy(void)
{
    return destroy_call("b1");
}

static struct call *make_snapshot(void)
{
    return snapshot_call("b1");
}

static struct call *make_snapshot_delete(void)
{
    struct call *call = new_call(start_snapshot_delete);

    call->ref = "s9";
    return call;
}

static struct call *make_run_on_binding(void)
{
    struct call *call = new_call(start_run_on_binding);

    call->ref = "b1";
    return call;
}

static struct call *make_reopen(void)
{
    static const struct outcome o = {.lease_id = "0123456789abcdef0123456789abcdef",
                                     .expires_wall_ms = 1700000300000};

    return reopen_call(&o, "b1");
}

static struct call *make_run(void)
{
    static struct outcome lease;

    lease = finish(acquire_call("b1"));
    fake->output = "out";
    return run_call(&lease);
}

static struct call *make_renew(void)
{
    static struct shared_ends ends;
    static struct lease_caller caller;
    static char token[600];
    struct arena *arena = arena_new();
    struct lease_key key;
    struct lease_claims claims = {
        .id = "0123456789abcdef0123456789abcdef",
        .backend = "fake",
        .binding_ref = "b1",
        .acquired_wall_ms = 1700000000000,
        .expires_wall_ms = 1700000300000,
        .hard_end_wall_ms = 1700086400000,
    };
    struct call *call = new_call(start_renew);

    lease_key_derive(&key, "the same on every replica");
    snprintf(token, sizeof(token), "%s", lease_token_mint(arena, &key, &claims));
    lease_key_fini(&key);
    arena_free(arena);
    caller = (struct lease_caller){"0123456789abcdef0123456789abcdef", token, false};
    broker_set_revocations(broker, &(struct lease_revocations){shared_revoke, shared_check, &ends});
    call->caller = caller;
    return call;
}

Test(broker, torture_run)
{
    torture(make_run, 1, 1);
}

Test(broker, torture_renew)
{
    torture(make_renew, 1, 1);
}

Test(broker, torture_create)
{
    torture(create_call, 0, 1);
}

Test(broker, torture_destroy)
{
    torture(make_destroy, 1, 0);
}

Test(broker, torture_acquire)
{
    torture(make_acquire, 1, 1);
}

Test(broker, torture_reopen)
{
    torture(make_reopen, 1, 1);
}

Test(broker, torture_snapshot)
{
    torture(make_snapshot, 1, 1);
}

Test(broker, torture_snapshot_delete)
{
    torture(make_snapshot_delete, 0, 0);
}

Test(broker, torture_run_on_binding)
{
    torture(make_run_on_binding, 1, 1);
}
