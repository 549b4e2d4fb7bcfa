/* The port to the ledger: the records of workspaces, bindings, home snapshots and orphans, and the
 * moves between their states (core/domain/ledger_rules.h). Drivers live in src/gc.
 *
 * Every function of the vtable starts one wait of `op` and completes it; results are written on
 * success only, into memory of op->arena. Each call is one transaction and one compare-and-set: it
 * either makes its whole move, or none because the row was not in the state (or the claim not held)
 * that the move starts from, and then says so in its result, not by an error.
 *
 * Failures: ERR_LEDGER, retryable, with retry_after_ms. Its `admitted` is ADMITTED_UNKNOWN when the
 * connection broke around the commit: read the row before going on.
 *
 * Cancelling a wait abandons the result only: a change that was handed over may still be made. Ops
 * therefore hold (AWAIT_HELD) the writes whose effect they must know; each is bounded by the
 * driver's own deadline. */
#pragma once

#include "core/domain/ledger_rules.h"
#include "core/domain/ledger_watch.h"
#include "core/runtime/op.h"

struct ledger;

/** Who changes something and why: for the timeline. Both are kept; texts are copied. */
struct ledger_cause {
    const char *actor;  /* `api`, `collector`, `reconciler`, `lease`, … */
    const char *reason; /* for a person; may be NULL */
};

/* ---- reading ----------------------------------------------------------------------------------
 */

/** Which rows to list; NULL or 0 does not restrict. Fields that a table lacks must be NULL. */
struct ledger_filter {
    const char *tenant_id, *app_id, *agent_id, *owner_type, *owner_id, *workspace_id, *status;
    const char *snapshot_ref;
    const char *binding_id; /* events only, and required there */
    const char *cursor;     /* `next` of the page before */
    int limit;              /* 1 … 1000; 0 = 100 */
};

/** Rows in order of id: a row that stays is seen exactly once, whatever else changes meanwhile. */
struct ledger_page {
    void **rows; /* of the struct of the kind */
    size_t n;
    const char *next; /* NULL at the end */
};

/* ---- making a binding ---------------------------------------------------------------------------
 */

/** Load or claim. The row is what will be written if there is none; `status`, times and claim are
 * filled in by the ledger. With an owner it is looked for by owner, otherwise by id. */
struct ledger_claim {
    struct ledger_binding row;
    const char *workspace_ref;   /* of an existing workspace, or NULL */
    int64_t claim_ms;            /* how long the claim holds unless renewed */
    int64_t tenant_max;          /* live bindings that the tenant may have; 0 = no limit */
    int64_t tenant_max_creating; /* of these, being created at once; 0 = no limit */
    struct ledger_cause cause;
};

enum claim_outcome {
    CLAIM_FOUND,      /* there is an active row */
    CLAIM_NEW,        /* the row is ours to create */
    CLAIM_TAKEN_OVER, /* likewise, after a creator whose claim ran out: look before creating */
    CLAIM_BUSY,       /* another creator is at work */
    CLAIM_RETIRED,    /* by id only: the row waits for its destruction */
    CLAIM_OVER_QUOTA,
    CLAIM_OVER_CREATING,
};

struct ledger_claimed {
    enum claim_outcome outcome;
    struct ledger_binding *row; /* NULL when over a limit */
};

/* ---- work
 * ------------------------------------------------------------------------------------------ */

/** What there is to do for the collector, in its order (protocols "ledger" section 7). */
enum work_kind {
    WORK_WORKSPACE, /* retired, with all its bindings */
    WORK_BINDING,   /* retired, in a workspace that stays */
    WORK_SNAPSHOT,  /* retired */
    WORK_ORPHAN,    /* to be destroyed */
    WORK_CREATING,  /* a create whose process died long ago */
    WORK_KINDS
};

/** One claimed piece of work; exactly one of the row pointers is set, by kind. */
struct ledger_work {
    enum work_kind kind;
    const char *id;
    int64_t attempts; /* this one included */
    struct ledger_workspace *workspace;
    struct ledger_binding *binding; /* WORK_BINDING, WORK_CREATING */
    struct ledger_snapshot *snapshot;
    struct ledger_orphan *orphan;
};

struct ledger_works {
    struct ledger_work *items;
    size_t n;
};

/* ---- retiring
 * ----------------------------------------------------------------------------------------- */

/** What to retire: exactly one of the groups. */
struct ledger_retire {
    const char *owner_type, *owner_id; /* with tenant_id and app_id: every scope key of the owner */
    const char *binding_id;
    const char *workspace_id;
    const char *tenant_id, *app_id; /* alone: the whole app */
    const char *agent_id;           /* with tenant_id: the agent's home snapshots */
    const char *snapshot_id;
    bool keep_workspace; /* with binding_id: the workspace stays even without a binding */
    int64_t claim_ms;    /* with binding_id or snapshot_id, > 0: claim what is retired as work of
                            this process, which will destroy it now */
    int64_t grace_ms;    /* how long a leased binding is left alone */
    struct ledger_cause cause;
};

/** Everything that the selection holds in state RETIRED now, just retired or earlier. */
struct ledger_retired {
    const char **binding_ids, **workspace_ids, **snapshot_ids;
    size_t n_bindings, n_workspaces, n_snapshots;
    const char **binding_refs; /* parallel to binding_ids; NULL for one that was never created */
};

/** Last use of one binding, collected off the hot path. */
struct ledger_use {
    const char *backend, *binding_ref;
    int64_t last_used_at, leased_until;
};

struct ledger_session {
    const char *snapshot, *pending_form_id, *pending_tool_call_id;
};

/** How many rows a state has; counted in slices so that no turn gets long. */
struct ledger_count {
    int64_t rows;
    int64_t oldest_at; /* least retired_at (created_at for orphans) of the slice; 0 = none */
    int64_t max_attempts;
    const char *cursor; /* for the next slice; NULL when complete */
};

/** What stands against leasing a binding: nothing, or that it is retired. */
struct ledger_guard {
    bool retired;
    const char *binding_id, *reason; /* when retired; `reason` may be NULL */
};

/** The driver. */
struct ledger_ops {
    /** `sqlite` or `postgres`. */
    const char *(*driver)(const struct ledger *l);

    /** *ret NULL when there is no such row. */
    void (*get)(struct ledger *l, struct op *op, enum ledger_kind kind, const char *id, void **ret);
    void (*list)(struct ledger *l, struct op *op, enum ledger_kind kind,
                 const struct ledger_filter *filter, struct ledger_page *ret);
    /** The owner's live row (creating or active). */
    void (*find_owner)(struct ledger *l, struct op *op, const struct owner_key *owner,
                       struct ledger_binding **ret);
    /** The row with this ref; a live one rather than a retired one. */
    void (*find_ref)(struct ledger *l, struct op *op, const char *backend, const char *binding_ref,
                     struct ledger_binding **ret);
    /** What stands against leasing the binding with this ref: on the path of every lease. A driver that
     * sees all changes may answer from memory. */
    void (*guard_ref)(struct ledger *l, struct op *op, const char *backend, const char *binding_ref,
                      struct ledger_guard *ret);

    void (*claim_binding)(struct ledger *l, struct op *op, const struct ledger_claim *claim,
                          struct ledger_claimed *ret);
    /** creating → active by the claim's holder. A row that was retired meanwhile takes the refs and
     * stays retired. *ret NULL when the claim is no longer held: nothing was written. */
    void (*activate_binding)(struct ledger *l, struct op *op, const struct ledger_binding *row,
                             const struct binding *refs, const struct ledger_cause *cause,
                             struct ledger_binding **ret);
    /** The holder gives up: creating → gone, or with `keep` the row stays, free to be taken over.
     * Those who wait for the row get `why`. */
    void (*abandon_binding)(struct ledger *l, struct op *op, const struct ledger_binding *row,
                            const struct error *why, bool keep, bool *ret_done);
    /** Remember that the sandbox is gone; the state does not change. */
    void (*mark_lost)(struct ledger *l, struct op *op, const char *binding_id,
                      const struct ledger_cause *cause, bool *ret_done);
    /** *ret_done false when the binding is not active. All three fields are overwritten. */
    void (*store_session)(struct ledger *l, struct op *op, const char *binding_id,
                          const struct ledger_session *session, bool *ret_done);
    void (*touch)(struct ledger *l, struct op *op, const struct ledger_use *uses, size_t n);

    void (*retire)(struct ledger *l, struct op *op, const struct ledger_retire *what,
                   struct ledger_retired *ret);

    /** Intent row of a snapshot: (gone) → creating. *ret_done false when the id is taken. */
    void (*claim_snapshot)(struct ledger *l, struct op *op, const struct ledger_snapshot *row,
                           int64_t claim_ms, bool *ret_done);
    void (*activate_snapshot)(struct ledger *l, struct op *op, const char *id, const char *ref,
                              bool *ret_done);
    void (*abandon_snapshot)(struct ledger *l, struct op *op, const char *id, bool *ret_done);

    /** Claim up to `limit` due pieces of one kind that nobody works on; for WORK_CREATING those
     * whose claim ran out at least `settle_ms` ago. */
    void (*claim_work)(struct ledger *l, struct op *op, enum work_kind kind, int limit,
                       int64_t claim_ms, int64_t settle_ms, struct ledger_works *ret);
    /** Done: retired → gone, with the bindings of a workspace. *ret_done false when the claim is no
     * longer held or the row not retired. */
    void (*finish_work)(struct ledger *l, struct op *op, const struct ledger_work *work,
                        const struct ledger_cause *cause, bool *ret_done);
    /** Not done: give the claim back and try again in `delay_ms`. */
    void (*retry_work)(struct ledger *l, struct op *op, const struct ledger_work *work,
                       const struct error *why, int64_t delay_ms);
    /** Move the end of this process's claims on these rows to `claim_ms` from now. */
    void (*renew_claims)(struct ledger *l, struct op *op, const char *const *binding_ids, size_t n,
                         int64_t claim_ms);

    /** Record or see again; one row for each (backend, kind, ref) that has a ref. */
    void (*report_orphan)(struct ledger *l, struct op *op, const struct ledger_orphan *orphan);
    /** reported → retired (WORK_ORPHAN), or, with `forget`, the row goes. */
    void (*settle_orphan)(struct ledger *l, struct op *op, const char *id, bool forget,
                          bool *ret_done);
    /** Leases ended before their time, for every replica to know; kept until `until_ms`. */
    void (*revoke)(struct ledger *l, struct op *op, const char *const *lease_ids,
                   const int64_t *until_ms, size_t n);
    void (*is_revoked)(struct ledger *l, struct op *op, const char *lease_id, bool *ret_revoked);

    void (*add_event)(struct ledger *l, struct op *op, const char *binding_id, const char *event,
                      const struct ledger_cause *cause);
    /** Forget events before `before_ms`, at most `limit` (*ret_n tells how many), and revocations
     * that are over. */
    void (*prune_events)(struct ledger *l, struct op *op, int64_t before_ms, int limit,
                         int64_t *ret_n);
    void (*count)(struct ledger *l, struct op *op, enum ledger_kind kind, const char *status,
                  const char *cursor, struct ledger_count *ret);
    /** Write a row exactly as it is (bindery ledger import); an id that exists is an error. After
     * the last one comes a NULL. */
    void (*import_row)(struct ledger *l, struct op *op, enum ledger_kind kind, const void *row);

    /** Reachable and writable as far as is known; false with the reason. Synchronous. */
    bool (*ready)(struct ledger *l, struct error *err);
    /** Everything waiting must have ended. */
    void (*close)(struct ledger *l);
};

/** Embedded first in each driver's struct. */
struct ledger {
    const struct ledger_ops *ops;
    struct loop *loop;
    const char *self; /* name of this process life in claims; unique */
    struct ledger_watches watches;
};
