/* The life of bindings with a ledger: every create is recorded before it happens, every end is
 * marked before it is carried out, and whatever stops in between is found again by its row.
 *
 * Between the HTTP handlers and the broker: same form, each function starts one wait of `op`. */
#pragma once

#include "core/domain/broker.h"
#include "core/domain/ledger.h"

struct lifecycle;

struct lifecycle_options {
    int64_t claim_ms;        /* how long a dead creator's claim holds; 0 = 60,000 */
    int64_t retire_grace_ms; /* that a leased binding gets after its retirement */
    int64_t tenant_max_bindings, tenant_max_creates; /* 0 = no limit */
    /** Something was retired: the collector may start. Called after the commit. */
    void (*retired)(void *ctx);
    void *ctx;
};

/** Takes the places of the broker's observer and revocations, and of the backend's orphan sink.
 * All are borrowed and must outlive it. */
struct lifecycle *lifecycle_new(struct loop *loop, struct broker *broker, struct ledger *ledger,
                                const struct lifecycle_options *options);
/** Every op must have ended. Writes out what is still batched with lifecycle_flush first. */
void lifecycle_free(struct lifecycle *lc);

struct ledger *lifecycle_ledger(struct lifecycle *lc);
struct broker *lifecycle_broker(struct lifecycle *lc);

/** Write out what is batched: last use, revocations, orphans. `task` (may be NULL) is posted when
 * nothing is left to write or it could not be written. */
void lifecycle_flush(struct lifecycle *lc, struct task *task);

/* ---- an owner's binding ------------------------------------------------------------------------- */

/** PUT …/binding. Strings are borrowed until the op's end. */
struct owner_request {
    struct owner_key owner;
    const char *app_id;
    struct generation generation;
    bool replace_lost; /* a binding marked lost is retired, and a new one made */
};

struct owner_binding {
    struct ledger_binding *row; /* active */
    bool created;               /* by this call; false: it was there, or another call made it */
};

/** Load the owner's binding or make it, once, whoever else asks at the same time and where. */
void lifecycle_load_or_create(struct lifecycle *lc, struct op *op,
                              const struct owner_request *request, struct owner_binding *ret);

/* ---- through Dify's routes ------------------------------------------------------------------------- */

/** broker_create_binding, recorded; binding_id is the idempotency key: the same spec again gives
 * the same refs, another spec is ERR_CONFLICT. */
void lifecycle_create_binding(struct lifecycle *lc, struct op *op, const struct binding_spec *spec,
                              struct binding *ret);
/** broker_destroy_binding; the row is retired first and goes afterwards. */
void lifecycle_destroy_binding(struct lifecycle *lc, struct op *op,
                               const struct destroy_spec *spec);
/** Likewise for home snapshots. */
void lifecycle_create_snapshot(struct lifecycle *lc, struct op *op,
                               const struct snapshot_spec *spec, const char *binding_ref,
                               const char **ret_ref);
void lifecycle_delete_snapshot(struct lifecycle *lc, struct op *op, const char *snapshot_ref);

/** broker_acquire, unless the binding is retired. */
void lifecycle_acquire(struct lifecycle *lc, struct op *op, const char *binding_ref, int64_t ttl_ms,
                       struct lease_grant *ret);

/* ---- ends ------------------------------------------------------------------------------------------------ */

/** Phase 1 of an end: mark, in one transaction. The grace is filled in. Then the collector is told. */
void lifecycle_retire(struct lifecycle *lc, struct op *op, const struct ledger_retire *what,
                      struct ledger_retired *ret);

/** Make an orphan the active binding of an owner that has none. */
struct orphan_adoption {
    const char *orphan_id;
    struct owner_request request;
};
void lifecycle_adopt_orphan(struct lifecycle *lc, struct op *op,
                            const struct orphan_adoption *adoption, struct owner_binding *ret);
