/* The use cases: what callers may ask for, over one backend and the lease table. docs/protocol.md
 * describes them from outside.
 *
 * Every asynchronous function starts one wait of `op`, as the functions of backend.h do: results
 * are written on success only, into memory of op->arena. Checks that need no network come first,
 * and their failure completes the wait at once. The errors are final: nothing of a backend's inner
 * codes (ERR_UPSTREAM_…) comes out.
 *
 * What a caller no longer waits for is undone: a create whose op is cancelled deletes what it made,
 * however far it got. */
#pragma once

#include "core/domain/lease.h"
#include "core/domain/lease_token.h"

struct broker;

/** Who wants to hear of what the broker finds out; the ledger. Slots may be NULL. */
struct broker_observer {
    /** The backend proved that the binding is gone; once per finding. */
    void (*binding_lost)(void *ctx, const char *binding_ref, const struct error *why);
    /** A lease on the binding was acquired or its data plane used. Called on the hot path: note it
     * and return. */
    void (*binding_used)(void *ctx, const char *binding_ref);
    void *ctx;
};

/** Ended leases shared by all replicas; implemented by the ledger. Without it each replica knows
 * the ends that it saw itself. */
struct lease_revocations {
    /** The lease is over for every replica. Returns at once; must not fail the caller. */
    void (*revoke)(void *ctx, const char *lease_id, int64_t until_wall_ms);
    /** A wait of `op`: was it revoked anywhere? Asked before a token opens a lease here. */
    void (*check)(void *ctx, struct op *op, const char *lease_id, bool *ret_revoked);
    void *ctx;
};

struct broker_options {
    int64_t acquire_timeout_ms; /* one total deadline of an acquire's validation */
    int64_t create_timeout_ms, destroy_timeout_ms, snapshot_timeout_ms; /* safety nets over the
                                                                           driver's own deadlines */
    struct lease_options leases;
    const char *lease_secret; /* copied into a key */
};

/** `backend` NULL: none is configured, every use case is ERR_BACKEND_UNAVAILABLE. Borrowed. */
struct broker *broker_new(struct loop *loop, struct backend *backend,
                          const struct broker_options *options);
/** Every op must be over and the table idle (broker_drain). */
void broker_free(struct broker *broker);

struct backend *broker_backend(struct broker *broker);
struct lease_table *broker_leases(struct broker *broker);
void broker_set_observer(struct broker *broker, const struct broker_observer *observer);
void broker_set_revocations(struct broker *broker, const struct lease_revocations *revocations);

/** A backend is configured and, as far as is known, works. */
bool broker_ready(struct broker *broker, struct error *err);

/** End all leases (they may go on elsewhere by their tokens); `task` is posted when nothing of them
 * is left. */
void broker_drain(struct broker *broker, struct task *task);

/* ---- bindings
 * ------------------------------------------------------------------------------------ */

void broker_create_binding(struct broker *broker, struct op *op, const struct binding_spec *spec,
                           struct binding *ret);
/** The checks that the use cases make before anything happens, for who records before: ids, refs,
 * capabilities, a backend at all. */
bool broker_check_create(struct broker *broker, const struct binding_spec *spec,
                         struct error *err) MUST_CHECK;
bool broker_check_destroy(struct broker *broker, const struct destroy_spec *spec,
                          struct error *err) MUST_CHECK;
bool broker_check_snapshot(struct broker *broker, const struct snapshot_spec *spec,
                           const char *binding_ref, struct error *err) MUST_CHECK;
bool broker_check_snapshot_delete(struct broker *broker, const char *snapshot_ref,
                                  struct error *err) MUST_CHECK;
/** Ends the binding's leases first (LEASE_RETIRED). */
void broker_destroy_binding(struct broker *broker, struct op *op, const struct destroy_spec *spec);

/* ---- snapshots
 * ----------------------------------------------------------------------------------- */

/** Acquires, copies, releases. A release that fails after a good copy is only logged. */
void broker_snapshot_create(struct broker *broker, struct op *op, const struct snapshot_spec *spec,
                            const char *binding_ref, const char **ret_snapshot_ref);
void broker_snapshot_delete(struct broker *broker, struct op *op, const char *snapshot_ref);

/* ---- leases
 * -------------------------------------------------------------------------------------- */

/** What a holder gets. Strings of op->arena. */
struct lease_grant {
    char id[LEASE_ID_CHARS + 1];
    const char *binding_ref, *backend;
    struct layout layout;
    int64_t acquired_wall_ms, expires_wall_ms;
    int64_t fence;
    const char *token;
};

/** Validate the binding and make a lease of `ttl_ms` (0 = default). Concurrent acquires of one
 * binding share one validation in flight. */
void broker_acquire(struct broker *broker, struct op *op, const char *binding_ref, int64_t ttl_ms,
                    struct lease_grant *ret);

/** Somebody at the door of a lease. */
struct lease_caller {
    const char *lease_id;
    const char *bearer; /* what was presented, or NULL */
    bool trusted;       /* the API token was, or authentication is off */
};

enum lease_door {
    DOOR_CLOSED, /* err says why */
    DOOR_OPEN,   /* ret_lease is live */
    DOOR_TOKEN,  /* not in this replica's table, but the token is good: ret_claims */
};

/** May this caller use the lease, and is it here? Synchronous. Claims are of `arena`. */
enum lease_door broker_lease_door(struct broker *broker, struct arena *arena,
                                  const struct lease_caller *caller, struct lease **ret_lease,
                                  struct lease_claims *ret_claims, struct error *err);

/** Open a lease that only its token knows (DOOR_TOKEN), then it is in the table: find it by id. */
void broker_reopen(struct broker *broker, struct op *op, const struct lease_claims *claims);

/** Extend; ret->token is the new token, layout is not filled in. */
void broker_renew(struct broker *broker, struct op *op, const struct lease_caller *caller,
                  int64_t ttl_ms, struct lease_grant *ret);

/** End it. An ended lease, by whatever end, is a success. Synchronous. */
bool broker_release(struct broker *broker, struct arena *arena, const struct lease_caller *caller,
                    struct error *err) MUST_CHECK;

/** The data plane proved that a lease's binding is gone: all its leases are lost from now on. */
void broker_binding_lost(struct broker *broker, const char *binding_ref, const struct error *why);

/** Describe a live lease. Strings are copied into `arena`; the token is minted anew. */
void broker_describe_lease(struct broker *broker, struct arena *arena, const struct lease *lease,
                           struct lease_grant *ret);

/* ---- commands
 * ------------------------------------------------------------------------------------ */

/** Run a script in a live lease (by id: it was found in this turn). */
void broker_run(struct broker *broker, struct op *op, struct lease *lease,
                const struct command_spec *spec, struct command_result *ret);

/** Acquire, run one script made by `make_script` from the layout, release. */
struct binding_command {
    const char *binding_ref;
    /** Fills `spec` in from the layout, with memory of `arena`. */
    void (*prepare)(void *ctx, struct arena *arena, const struct layout *layout,
                    struct command_spec *spec);
    void *ctx;
};
void broker_run_on_binding(struct broker *broker, struct op *op,
                           const struct binding_command *command, struct command_result *ret);
