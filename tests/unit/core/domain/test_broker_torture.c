/* Every use case of the broker with trouble at every wait. */
#include "broker_fixture.h"

TestSuite(broker_torture, .init = set_up, .fini = tear_down, .timeout = 30);

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

Test(broker_torture, torture_run)
{
    torture(make_run, 1, 1);
}

Test(broker_torture, torture_renew)
{
    torture(make_renew, 1, 1);
}

Test(broker_torture, torture_create)
{
    torture(create_call, 0, 1);
}

Test(broker_torture, torture_destroy)
{
    torture(make_destroy, 1, 0);
}

Test(broker_torture, torture_acquire)
{
    torture(make_acquire, 1, 1);
}

Test(broker_torture, torture_reopen)
{
    torture(make_reopen, 1, 1);
}

Test(broker_torture, torture_snapshot)
{
    torture(make_snapshot, 1, 1);
}

Test(broker_torture, torture_snapshot_delete)
{
    torture(make_snapshot_delete, 0, 0);
}

Test(broker_torture, torture_run_on_binding)
{
    torture(make_run_on_binding, 1, 1);
}
