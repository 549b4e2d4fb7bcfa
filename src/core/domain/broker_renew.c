/* Renew a lease.
 *
 * Happy path: the lease is in the table: move its expiry. It is known by its token only: ask
 * whether it was revoked, then a new token is all there is to it. Failures: ended, revoked, or at
 * the ceiling over all renewals: ERR_LEASE_GONE. */
#include "core/domain/broker_internal.h"

#include <string.h>

struct lease_renew {
    struct op op;
    struct broker *broker;
    struct lease_claims claims;
    int64_t ttl_ms;
    struct lease_grant *ret;
    bool revoked;
};

enum renew_state { RENEW_START, RENEW_CHECKING };
static const char *const renew_states[] = {"start", "checking"};

static void renew_claims(struct lease_renew *t)
{
    struct broker *b = t->broker;
    struct op *op = &t->op;
    struct error err;

    if (!lease_renewed_expiry(b->leases, t->ttl_ms, t->claims.hard_end_wall_ms,
                              &t->claims.expires_wall_ms, &err)) {
        op_fail_with(op, &err);
        return;
    }
    *t->ret = (struct lease_grant){
        .binding_ref = t->claims.binding_ref,
        .backend = b->backend->ops->name,
        .acquired_wall_ms = t->claims.acquired_wall_ms,
        .expires_wall_ms = t->claims.expires_wall_ms,
        .token = lease_token_mint(op->arena, &b->key, &t->claims),
    };
    memcpy(t->ret->id, t->claims.id, sizeof(t->ret->id));
}

static enum op_poll renew_step(struct op *op)
{
    struct lease_renew *t = container_of(op, struct lease_renew, op);
    struct lease_revocations *port = &t->broker->revocations;

    switch ((enum renew_state)op->state) {
    case RENEW_START:
        if (port->check != NULL) {
            AWAIT(op, RENEW_CHECKING, port->check(port->ctx, op, t->claims.id, &t->revoked));
            if (t->revoked) {
                lease_bury(t->broker->leases, t->claims.id, LEASE_RELEASED,
                           t->claims.expires_wall_ms);
                op_fail(op, ERR_LEASE_GONE, "the lease was released: acquire a new one");
                goto undo;
            }
        }
        renew_claims(t);
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type renew_type = {"lease_renew", renew_states, 2, renew_step, NULL};

static void renew_live(struct broker *b, struct op *op, struct lease *lease, int64_t ttl_ms,
                       struct lease_grant *ret)
{
    struct error err = {0};
    int64_t expires_wall_ms;

    if (lease_renewed_expiry(b->leases, ttl_ms, lease->hard_end_wall_ms, &expires_wall_ms, &err)) {
        lease_extend(lease, expires_wall_ms);
        broker_describe_lease(b, op->arena, lease, ret);
    }
    op_complete(op, &err);
}

void broker_renew(struct broker *b, struct op *op, const struct lease_caller *caller,
                  int64_t ttl_ms, struct lease_grant *ret)
{
    struct lease_renew *t;
    struct lease *lease;
    struct lease_claims claims;
    struct error err = {0};

    switch (broker_lease_door(b, op->arena, caller, &lease, &claims, &err)) {
    case DOOR_CLOSED:
        op_complete(op, &err);
        return;
    case DOOR_OPEN:
        renew_live(b, op, lease, ttl_ms, ret);
        return;
    case DOOR_TOKEN:
        t = OP_CHILD(op, &renew_type, lease_renew);
        t->broker = b;
        t->claims = claims;
        t->ttl_ms = ttl_ms;
        t->ret = ret;
        op_await_child(op, &t->op);
        return;
    }
}
