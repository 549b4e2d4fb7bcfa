/* The ledger over SQL: ledger_ops once, for every engine. Internal to src/gc. */
#pragma once

#include "core/domain/ledger.h"
#include "gc/db.h"
#include "gc/free_refs.h"

/** Time that never comes, for what is not due by itself. */
#define LEDGER_NEVER INT64_C(9000000000000000)

struct ledger_sql {
    struct ledger ledger;
    struct db *db; /* owned */
    char *self;
    struct free_refs *free_refs;
    uint64_t changes; /* change ids handed out */
};

static inline struct ledger_sql *ledger_sql_of(struct ledger *l)
{
    return container_of(l, struct ledger_sql, ledger);
}

static inline struct ledger_sql *ledger_sql_of_db(struct db *db)
{
    return container_of(db->watches, struct ledger_sql, ledger.watches);
}

/** A ledger over an engine, which it takes over. */
struct ledger *ledger_sql_new(struct db *db);

/** A name for one transaction's changes; never used twice. In `arena`. */
char *ledger_change_id(struct ledger_sql *s, struct arena *arena);

/** The n-th row of a result that selected all columns of the kind. */
void *ledger_decode(struct arena *arena, enum ledger_kind kind, const struct db_result *result,
                    size_t n);
/** decode functions of the common forms. `call->number` is the step whose result counts. */
void ledger_decode_done(struct db_call *call);    /* ret: bool *, whether there is a row */
void ledger_decode_binding(struct db_call *call); /* ret: struct ledger_binding ** */

/* ledger_sql_read.c */
void ledger_sql_get(struct ledger *l, struct op *op, enum ledger_kind kind, const char *id,
                    void **ret);
void ledger_sql_list(struct ledger *l, struct op *op, enum ledger_kind kind,
                     const struct ledger_filter *filter, struct ledger_page *ret);
void ledger_sql_find_owner(struct ledger *l, struct op *op, const struct owner_key *owner,
                           struct ledger_binding **ret);
void ledger_sql_find_ref(struct ledger *l, struct op *op, const char *backend,
                         const char *binding_ref, struct ledger_binding **ret);
void ledger_sql_guard_ref(struct ledger *l, struct op *op, const char *backend,
                          const char *binding_ref, struct ledger_guard *ret);
void ledger_sql_count(struct ledger *l, struct op *op, enum ledger_kind kind, const char *status,
                      const char *cursor, struct ledger_count *ret);
void ledger_sql_import(struct ledger *l, struct op *op, enum ledger_kind kind, const void *row);

/* ledger_sql_create.c */
void ledger_sql_claim(struct ledger *l, struct op *op, const struct ledger_claim *claim,
                      struct ledger_claimed *ret);
void ledger_sql_activate(struct ledger *l, struct op *op, const struct ledger_binding *row,
                         const struct binding *refs, const struct ledger_cause *cause,
                         struct ledger_binding **ret);
void ledger_sql_abandon(struct ledger *l, struct op *op, const struct ledger_binding *row,
                        const struct error *why, bool keep, bool *ret_done);
void ledger_sql_renew(struct ledger *l, struct op *op, const char *const *binding_ids, size_t n,
                      int64_t claim_ms);

/* ledger_sql_change.c */
void ledger_sql_mark_lost(struct ledger *l, struct op *op, const char *binding_id,
                          const struct ledger_cause *cause, bool *ret_done);
void ledger_sql_store_session(struct ledger *l, struct op *op, const char *binding_id,
                              const struct ledger_session *session, bool *ret_done);
void ledger_sql_touch(struct ledger *l, struct op *op, const struct ledger_use *uses, size_t n);
void ledger_sql_claim_snapshot(struct ledger *l, struct op *op, const struct ledger_snapshot *row,
                               int64_t claim_ms, bool *ret_done);
void ledger_sql_activate_snapshot(struct ledger *l, struct op *op, const char *id, const char *ref,
                                  bool *ret_done);
void ledger_sql_abandon_snapshot(struct ledger *l, struct op *op, const char *id, bool *ret_done);
void ledger_sql_report_orphan(struct ledger *l, struct op *op, const struct ledger_orphan *orphan);
void ledger_sql_settle_orphan(struct ledger *l, struct op *op, const char *id, bool forget,
                              bool *ret_done);
void ledger_sql_revoke(struct ledger *l, struct op *op, const char *const *lease_ids,
                       const int64_t *until_ms, size_t n);
void ledger_sql_is_revoked(struct ledger *l, struct op *op, const char *lease_id,
                           bool *ret_revoked);
void ledger_sql_add_event(struct ledger *l, struct op *op, const char *binding_id,
                          const char *event, const struct ledger_cause *cause);
void ledger_sql_prune_events(struct ledger *l, struct op *op, int64_t before_ms, int limit,
                             int64_t *ret_n);

/* ledger_sql_retire.c */
void ledger_sql_retire(struct ledger *l, struct op *op, const struct ledger_retire *what,
                       struct ledger_retired *ret);

/* ledger_sql_work.c */
void ledger_sql_claim_work(struct ledger *l, struct op *op, enum work_kind kind, int limit,
                           int64_t claim_ms, int64_t settle_ms, struct ledger_works *ret);
void ledger_sql_finish_work(struct ledger *l, struct op *op, const struct ledger_work *work,
                            const struct ledger_cause *cause, bool *ret_done);
void ledger_sql_retry_work(struct ledger *l, struct op *op, const struct ledger_work *work,
                           const struct error *why, int64_t delay_ms);
