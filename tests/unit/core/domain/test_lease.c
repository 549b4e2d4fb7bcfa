/* The lease table: expiry by timer and on reading, ceilings, ends, users, ids that stay dead. */
#include "core/domain/lease.h"

#include "core/domain/lease_token.h"
#include "core/runtime/metrics.h"
#include "support/fake_backend.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

static struct loop *loop;
static struct fake_backend *fake;
static struct lease_table *table;

static void set_up(void)
{
    loop =
        loop_new(&(struct loop_options){.virtual_clock = true, .virtual_wall_ms = 1700000000000});
    fake = fake_backend_new(loop, 0);
    table = lease_table_new(loop, &(struct lease_options){.default_ttl_ms = 10000,
                                                          .max_ttl_ms = 60000,
                                                          .max_total_ms = 100000,
                                                          .max_leases = 1000});
}

static void tear_down(void)
{
    lease_end_all(table, LEASE_DRAINED);
    loop_advance_ms(loop, 120000);
    cr_assert(lease_table_idle(table, NULL));
    cr_assert(eq(int, fake->live_planes, 0));
    lease_table_free(table);
    fake_backend_free(fake);
    loop_free(loop);
}

TestSuite(lease, .init = set_up, .fini = tear_down, .timeout = 20);

struct opener {
    struct op op;
    struct plane **ret;
    const char *ref;
};
enum opener_state { OPENER_START, OPENER_OPENING };
static const char *const opener_states[] = {"start", "opening"};

static enum op_poll opener_step(struct op *op)
{
    struct opener *o = container_of(op, struct opener, op);

    switch ((enum opener_state)op->state) {
    case OPENER_START:
        AWAIT(op, OPENER_OPENING, fake->backend.ops->acquire(&fake->backend, op, o->ref, o->ret));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type opener_type = {"opener", opener_states, 2, opener_step, NULL};

static struct plane *open_plane(const char *ref)
{
    struct plane *plane = NULL;
    struct opener *o = OP_ROOT(loop, &opener_type, opener, NULL);

    o->ret = &plane;
    o->ref = ref;
    op_start(&o->op, NULL, NULL);
    loop_turn(loop, false);
    loop_advance_ms(loop, 0);
    loop_turn(loop, false);
    cr_assert(plane != NULL);
    return plane;
}

static struct lease *hold(const char *ref, int64_t ttl_ms)
{
    return lease_add(table, open_plane(ref), ttl_ms);
}

static struct lease *take(const char **ret_id, int64_t ttl_ms)
{
    static char ids[64][LEASE_ID_CHARS + 1];
    static int n;
    struct lease *lease = hold(fake_backend_add(fake), ttl_ms);

    memcpy(ids[n], lease->id, sizeof(ids[n]));
    *ret_id = ids[n++];
    return lease;
}

Test(lease, expires_by_itself_and_gives_its_plane_back)
{
    const char *id;

    take(&id, 0);
    loop_advance_ms(loop, 9999);
    cr_assert(lease_find(table, id) != NULL);
    cr_assert(eq(int, fake->live_planes, 1));
    loop_advance_ms(loop, 1);
    loop_turn(loop, false);
    cr_assert(eq(int, fake->live_planes, 0));
    cr_assert(lease_find(table, id) == NULL);
    cr_assert(eq(int, lease_ended_how(table, id), LEASE_EXPIRED));
    cr_assert(eq(int, lease_count(table), 0));
}

Test(lease, ttl_is_bounded_by_maximum_and_renewals_by_the_ceiling)
{
    const char *id;
    struct lease *lease = take(&id, 3600000);
    int64_t until;
    struct error err = {0};

    cr_assert(eq(i64, lease->expires_ms - loop_now_ms(loop), 60000));
    loop_advance_ms(loop, 50000);
    cr_assert(lease_renewed_expiry(table, 60000, lease->hard_end_wall_ms, &until, &err));
    cr_assert(eq(i64, until, lease->hard_end_wall_ms));
    lease_extend(lease, until);
    loop_advance_ms(loop, 49000);
    lease = lease_find(table, id);
    cr_assert(lease != NULL);
    until = lease->hard_end_wall_ms;
    loop_advance_ms(loop, 2000);
    cr_assert(lease_find(table, id) == NULL);
    cr_assert(not(lease_renewed_expiry(table, 60000, until, &until, &err)));
    cr_assert(eq(int, err.code, ERR_LEASE_GONE));
}

Test(lease, renewal_never_shortens)
{
    const char *id;
    struct lease *lease = take(&id, 50000);
    int64_t was = lease->expires_ms;

    lease_extend(lease, loop_wall_ms(loop) + 1000);
    cr_assert(eq(i64, lease->expires_ms, was));
}

/* A21: a renewal in the turn of expiry either moves the time or finds the lease ended. */
Test(lease, renewal_at_the_instant_of_expiry_leaves_no_immortal)
{
    for (int early_ms = -3; early_ms <= 3; early_ms++) {
        const char *id;
        struct lease *lease;

        take(&id, 1000);
        loop_advance_ms(loop, 1000 + early_ms);
        lease = lease_find(table, id);
        if (lease != NULL) {
            lease_extend(lease, loop_wall_ms(loop) + 1000);
            loop_advance_ms(loop, 999);
            cr_assert(lease_find(table, id) != NULL);
            loop_advance_ms(loop, 1);
        }
        cr_assert(lease_find(table, id) == NULL);
        loop_turn(loop, false);
        cr_assert(eq(int, fake->live_planes, 0));
    }
}

Test(lease, wall_clock_jumps_neither_end_nor_prolong)
{
    const char *id;

    take(&id, 10000);
    loop_jump_wall_ms(loop, 86400000);
    loop_advance_ms(loop, 9000);
    cr_assert(lease_find(table, id) != NULL);
    loop_jump_wall_ms(loop, -3 * 86400000LL);
    loop_advance_ms(loop, 1000);
    cr_assert(lease_find(table, id) == NULL);
}

Test(lease, each_end_is_remembered_and_counted_once)
{
    const char *id[3];
    struct lease *lease[3];

    for (int i = 0; i < 3; i++)
        lease[i] = take(&id[i], 0);
    lease_end(lease[0], LEASE_RELEASED);
    lease_end(lease[1], LEASE_LOST);
    lease_end(lease[2], LEASE_RETIRED);
    cr_assert(eq(int, lease_ended_how(table, id[0]), LEASE_RELEASED));
    cr_assert(eq(int, lease_ended_how(table, id[1]), LEASE_LOST));
    cr_assert(eq(int, lease_ended_how(table, id[2]), LEASE_RETIRED));
    cr_assert(eq(dbl, metric_value(METRIC_LEASES_ENDED, LABELS("lost")), 1.0));
    cr_assert(eq(dbl, metric_value(METRIC_LEASES, LABELS("fake")), 0.0));
}

Test(lease, many_leases_of_many_bindings_are_found)
{
    static char ids[500][LEASE_ID_CHARS + 1];
    const char *refs[5];

    for (int i = 0; i < 5; i++)
        refs[i] = fake_backend_add(fake);
    for (int i = 0; i < 500; i++)
        memcpy(ids[i], hold(refs[i % 5], 50000)->id, sizeof(ids[i]));
    for (int i = 0; i < 500; i++)
        cr_assert(lease_find(table, ids[i]) != NULL);
    cr_assert(eq(int, lease_count_binding(table, refs[3]), 100));
    cr_assert(eq(int, lease_end_binding(table, refs[3], LEASE_LOST), 100));
    cr_assert(eq(int, lease_count_binding(table, refs[3]), 0));
    cr_assert(eq(int, lease_count(table), 400));
}

Test(lease, the_table_has_a_limit)
{
    const char *ref = fake_backend_add(fake);
    struct error err = {0};

    for (int i = 0; i < 1000; i++) {
        cr_assert(lease_table_check_room(table, &err));
        hold(ref, 50000);
    }
    cr_assert(not(lease_table_check_room(table, &err)));
    cr_assert(eq(int, err.code, ERR_OVERLOADED));
    cr_assert(gt(i64, err.retry_after_ms, 0));
}

Test(lease, walks_in_order_of_acquisition)
{
    const char *id;
    struct lease *lease;
    int64_t fence = 0;
    int seen = 0;

    for (int i = 0; i < 10; i++)
        take(&id, 0);
    for (lease = lease_first(table, 0); lease != NULL; lease = lease_following(lease)) {
        cr_assert(gt(i64, lease->fence, fence));
        fence = lease->fence;
        seen++;
    }
    cr_assert(eq(int, seen, 10));
    lease = lease_first(table, fence - 1);
    cr_assert(eq(i64, lease->fence, fence));
    cr_assert(lease_first(table, fence) == NULL);
}

/* ---- users ----------------------------------------------------------------------------------- */

static int cuts;

static void cut_and_leave(struct lease_use *use)
{
    cuts++;
    lease_use_end(use);
}

static void cut_and_stay(struct lease_use *use)
{
    (void)use;
    cuts++;
}

Test(lease, the_plane_outlives_its_users)
{
    const char *id;
    struct lease *lease = take(&id, 0);
    struct lease_use quick[3] = {{.lease = NULL}}, slow = {.lease = NULL};

    for (int i = 0; i < 3; i++)
        lease_use_begin(lease, &quick[i], cut_and_leave);
    lease_use_begin(lease, &slow, cut_and_stay);
    lease_end(lease, LEASE_RELEASED);
    cr_assert(eq(int, cuts, 4));
    loop_advance_ms(loop, 1000);
    cr_assert(eq(int, fake->live_planes, 1));
    cr_assert(not(lease_table_idle(table, NULL)));
    lease_use_end(&slow);
    lease_use_end(&slow);
    loop_advance_ms(loop, 1);
    cr_assert(eq(int, fake->live_planes, 0));
}

Test(lease, users_that_all_leave_at_once_free_it_once)
{
    const char *id;
    struct lease *lease = take(&id, 0);
    struct lease_use use[5] = {{.lease = NULL}};

    for (int i = 0; i < 5; i++)
        lease_use_begin(lease, &use[i], cut_and_leave);
    lease_use_end(&use[2]);
    loop_advance_ms(loop, 20000);
    cr_assert(eq(int, cuts, 4));
    cr_assert(eq(int, fake->live_planes, 0));
}

/* ---- leases from tokens ---------------------------------------------------------------------- */

static struct lease_claims claims_for(int64_t lives_ms)
{
    return (struct lease_claims){
        .id = "0123456789abcdef0123456789abcdef",
        .backend = "fake",
        .binding_ref = "b1",
        .acquired_wall_ms = loop_wall_ms(loop) - 5000,
        .expires_wall_ms = loop_wall_ms(loop) + lives_ms,
        .hard_end_wall_ms = loop_wall_ms(loop) + 90000,
    };
}

static struct lease *adopt(int64_t lives_ms)
{
    struct lease_claims claims = claims_for(lives_ms);

    return lease_adopt(table, open_plane(fake_backend_add(fake)), &claims);
}

Test(lease, an_adopted_one_is_dropped_when_idle_but_not_while_used)
{
    struct lease *lease = adopt(80000);
    struct lease_use use = {.lease = NULL};
    const char *id = "0123456789abcdef0123456789abcdef";

    loop_advance_ms(loop, 30000);
    lease = lease_find(table, id);
    cr_assert(lease != NULL);
    lease_use_begin(lease, &use, cut_and_leave);
    loop_advance_ms(loop, 45000);
    cr_assert(lease_find(table, id) != NULL);
    lease_use_end(&use);
    loop_advance_ms(loop, 10000);
    cr_assert(lease_find(table, id) == NULL);
    cr_assert(eq(int, lease_ended_how(table, id), LEASE_EXPIRED));
}

Test(lease, an_idle_adopted_one_leaves_no_grave)
{
    const char *id = "0123456789abcdef0123456789abcdef";

    adopt(89000);
    loop_advance_ms(loop, 60000);
    cr_assert(lease_find(table, id) == NULL);
    cr_assert(eq(int, lease_ended_how(table, id), LEASE_ALIVE));
}
