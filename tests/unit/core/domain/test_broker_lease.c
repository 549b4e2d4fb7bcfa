/* The broker's leases: how they are acquired, who may use them, and how they end; here and at another replica. */
#include "broker_fixture.h"

TestSuite(broker_lease, .init = set_up, .fini = tear_down, .timeout = 30);

/* ---- acquire --------------------------------------------------------------------------------- */

Test(broker_lease, acquires_a_lease_that_its_token_opens)
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

Test(broker_lease, a_token_opens_its_own_lease_only)
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
Test(broker_lease, validation_has_one_deadline_and_leaves_no_lease)
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

Test(broker_lease, a_cold_start_is_not_cut_by_the_validation_deadline)
{
    fake->backend.caps |= BACKEND_COLD_START;
    fake->script[FAKE_ACQUIRE].delay_ms = 30000;
    cr_assert(eq(int, finish(acquire_call(fake_backend_add(fake))).error.code, ERR_NONE));
}

Test(broker_lease, concurrent_acquires_share_one_probe)
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

Test(broker_lease, the_leaver_does_not_fail_those_who_joined)
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

Test(broker_lease, a_joined_probe_fails_for_all_with_its_reason)
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
Test(broker_lease, an_acquire_after_a_destroy_does_not_join_a_probe_from_before)
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

Test(broker_lease, beyond_the_limit_acquires_are_refused)
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
Test(broker_lease, leases_of_one_binding_do_not_disturb_each_other)
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

Test(broker_lease, release_is_idempotent_and_final)
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
Test(broker_lease, a_lost_binding_ends_its_leases_as_lost_once)
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

Test(broker_lease, destroy_ends_the_leases_of_the_binding)
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

Test(broker_lease, another_replica_serves_the_lease_by_its_token)
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

Test(broker_lease, a_renewal_elsewhere_is_honoured_here_by_the_new_token)
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

Test(broker_lease, a_released_lease_is_opened_by_no_token_here)
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

Test(broker_lease, an_expired_token_opens_nothing)
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

Test(broker_lease, revocations_reach_other_replicas_through_the_port)
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

Test(broker_lease, a_reopen_that_finds_the_binding_lost_says_so_from_then_on)
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
