/* Acquire a lease.
 *
 * Happy path: check the ref and that there is room; open a validated plane; put a lease over it
 *   into the table.
 * Failures: as broker_plane.c; a plane that comes too late for its caller is given back. */
#include "core/domain/broker_internal.h"

struct lease_acquire {
    struct op op;
    struct broker *broker;
    const char *binding_ref;
    int64_t ttl_ms;
    struct lease_grant *ret;
    struct plane *plane;
};

enum acquire_state { ACQUIRE_START, ACQUIRE_OPENING };
static const char *const acquire_states[] = {"start", "opening"};

void broker_describe_lease(struct broker *b, struct arena *arena, const struct lease *lease,
                           struct lease_grant *ret)
{
    struct lease_claims claims = {
        .backend = lease->plane->backend->ops->name,
        .binding_ref = lease->plane->binding_ref,
        .acquired_wall_ms = lease->acquired_wall_ms,
        .expires_wall_ms = lease->expires_wall_ms,
        .hard_end_wall_ms = lease->hard_end_wall_ms,
    };

    *ret = (struct lease_grant){
        .binding_ref = arena_strdup(arena, claims.binding_ref),
        .backend = claims.backend,
        .layout.home_dir = arena_strdup(arena, lease->plane->layout.home_dir),
        .layout.workspace_dir = arena_strdup(arena, lease->plane->layout.workspace_dir),
        .acquired_wall_ms = lease->acquired_wall_ms,
        .expires_wall_ms = lease->expires_wall_ms,
        .fence = lease->fence,
    };
    for (size_t i = 0; i < sizeof(claims.id); i++)
        ret->id[i] = claims.id[i] = lease->id[i];
    ret->token = lease_token_mint(arena, &b->key, &claims);
}

static enum op_poll acquire_step(struct op *op)
{
    struct lease_acquire *t = container_of(op, struct lease_acquire, op);
    struct broker *b = t->broker;

    switch ((enum acquire_state)op->state) {
    case ACQUIRE_START:
        AWAIT(op, ACQUIRE_OPENING, broker_plane_open(b, op, t->binding_ref, &t->plane));
        if (!broker_has_room(b, op))
            goto undo;
        broker_describe_lease(b, op->arena, lease_add(b->leases, t->plane, t->ttl_ms), t->ret);
        if (b->observer.binding_used != NULL)
            b->observer.binding_used(b->observer.ctx, t->binding_ref);
        return OP_DONE;

    undo:
        if (t->plane != NULL)
            lease_give_back(b->leases, t->plane);
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type acquire_type = {"lease_acquire", acquire_states, 2, acquire_step, NULL};

void broker_acquire(struct broker *broker, struct op *op, const char *binding_ref, int64_t ttl_ms,
                    struct lease_grant *ret)
{
    struct error err = {0};
    struct lease_acquire *t;

    if (!broker_check_backend(broker, &err) ||
        !broker_check_binding_ref(broker, binding_ref, &err) ||
        !lease_table_check_room(broker->leases, &err)) {
        op_complete(op, &err);
        return;
    }
    t = OP_CHILD(op, &acquire_type, lease_acquire);
    t->broker = broker;
    t->binding_ref = binding_ref;
    t->ttl_ms = ttl_ms;
    t->ret = ret;
    op_await_child(op, &t->op);
}
