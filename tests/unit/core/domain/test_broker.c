/* The broker's use cases over bindings, snapshots and commands. */
#include "broker_fixture.h"

TestSuite(broker, .init = set_up, .fini = tear_down, .timeout = 30);

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
