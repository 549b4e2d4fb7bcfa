/* Who may use a lease, and its end: the synchronous part of the lease use cases. */
#include "core/domain/broker_internal.h"

#include <string.h>

/* The claims of the caller's token, if it is one of ours and of this lease. */
static bool read_token(struct broker *b, struct arena *arena, const struct lease_caller *caller,
                       struct lease_claims *ret, struct error *err)
{
    err->code = ERR_NONE;
    if (caller->bearer == NULL || !lease_token_looks_like(caller->bearer) ||
        !lease_token_open(arena, &b->key, caller->bearer, ret)) {
        if (!caller->trusted)
            error_set(err, ERR_UNAUTHORIZED, "this route takes the API token or the lease's own");
        return false;
    }
    if (strcmp(ret->id, caller->lease_id) == 0)
        return true;
    if (!caller->trusted)
        error_set(err, ERR_FORBIDDEN, "this token opens another lease");
    return false;
}

static enum lease_door closed(struct error *err, enum lease_end end)
{
    if (end == LEASE_LOST)
        error_set(err, ERR_BINDING_LOST,
                  "the binding of this lease is gone: retire it and create a new one");
    else
        error_set(err, ERR_LEASE_GONE, "the lease has ended (%s): acquire a new one",
                  lease_end_name(end));
    return DOOR_CLOSED;
}

enum lease_door broker_lease_door(struct broker *b, struct arena *arena,
                                  const struct lease_caller *caller, struct lease **ret_lease,
                                  struct lease_claims *ret_claims, struct error *err)
{
    bool by_token;
    enum lease_end end;

    if (!lease_id_well_formed(caller->lease_id)) {
        error_set(err, ERR_NOT_FOUND, "no lease has an id of this form");
        return DOOR_CLOSED;
    }
    by_token = read_token(b, arena, caller, ret_claims, err);
    if (error_is(err))
        return DOOR_CLOSED;
    *ret_lease = lease_find(b->leases, caller->lease_id);
    if (*ret_lease != NULL) {
        if (by_token) /* it may have been renewed at another replica */
            lease_extend(*ret_lease, ret_claims->expires_wall_ms);
        if (b->observer.binding_used != NULL)
            b->observer.binding_used(b->observer.ctx, (*ret_lease)->plane->binding_ref);
        return DOOR_OPEN;
    }
    end = lease_ended_how(b->leases, caller->lease_id);
    if (end != LEASE_ALIVE && (end != LEASE_EXPIRED || !by_token))
        return closed(err, end);
    if (!by_token) {
        error_set(err, ERR_NOT_FOUND,
                  "this replica does not know the lease; with the lease's own token any does");
        return DOOR_CLOSED;
    }
    if (ret_claims->expires_wall_ms <= loop_wall_ms(b->loop))
        return closed(err, LEASE_EXPIRED);
    if (!broker_check_backend(b, err))
        return DOOR_CLOSED;
    if (strcmp(ret_claims->backend, b->backend->ops->name) != 0) {
        error_set(err, ERR_CONFLICT, "the lease is of the %s backend, this replica serves %s",
                  ret_claims->backend, b->backend->ops->name);
        return DOOR_CLOSED;
    }
    return DOOR_TOKEN;
}

static void revoke(struct broker *b, const char *id, int64_t until_wall_ms)
{
    if (b->revocations.revoke != NULL)
        b->revocations.revoke(b->revocations.ctx, id, until_wall_ms);
}

bool broker_release(struct broker *b, struct arena *arena, const struct lease_caller *caller,
                    struct error *err)
{
    struct lease *lease;
    struct lease_claims claims;
    struct error why = {0};
    int64_t until_wall_ms = loop_wall_ms(b->loop) + b->options.leases.max_ttl_ms;

    switch (broker_lease_door(b, arena, caller, &lease, &claims, &why)) {
    case DOOR_OPEN:
        revoke(b, lease->id, lease->expires_wall_ms);
        lease_end(lease, LEASE_RELEASED);
        return true;
    case DOOR_TOKEN:
        lease_bury(b->leases, claims.id, LEASE_RELEASED, claims.expires_wall_ms);
        revoke(b, claims.id, claims.expires_wall_ms);
        return true;
    case DOOR_CLOSED:
        break;
    }
    if (why.code == ERR_LEASE_GONE || why.code == ERR_BINDING_LOST)
        return true;
    if (why.code == ERR_NOT_FOUND && lease_id_well_formed(caller->lease_id)) {
        /* held by another replica perhaps: its token opens nothing here from now on */
        lease_bury(b->leases, caller->lease_id, LEASE_RELEASED, until_wall_ms);
        revoke(b, caller->lease_id, until_wall_ms);
        return true;
    }
    *err = why;
    return false;
}
