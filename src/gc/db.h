/* What both SQL engines are to the ledger: something that runs a list of statements as one
 * transaction and hands the rows back. The ledger above (ledger_sql*.c) exists once. */
#pragma once

#include "core/domain/ledger.h"
#include "gc/sql.h"

struct db;

enum db_type { DB_NULL, DB_INT, DB_TEXT };

/** A parameter or a cell. Engines may return a number as DB_TEXT: read it with db_int. */
struct db_value {
    enum db_type type;
    int64_t number;
    const char *text;
};

static inline const char *db_text(const struct db_value *v)
{
    return v->type == DB_TEXT ? v->text : NULL;
}
int64_t db_int(const struct db_value *v);

/** Rows of one statement, row by row; NULL when there are none. */
struct db_result {
    size_t n_rows, n_columns;
    struct db_value *cells;
};

/** One statement: of the table (then it is prepared once), or text made for this call. */
struct db_step {
    enum sql sql;
    const char *text; /* not NULL: use it instead */
    struct db_value *params;
    int n_params;
    struct db_result result;
};

/** One transaction: a list of steps, all or none. Owns itself from db_call_submit on; an op that
 * is cancelled leaves it, and the engine finishes or drops it. */
struct db_call {
    const char *name; /* static: for fault points and messages */
    struct db *db;
    struct arena *arena;  /* of parameters, results and of the call itself */
    bool writes, changes; /* as the statements say; see sql_info */
    struct db_step *steps;
    int n_steps, cap_steps;
    const char *notice;                   /* told to all watches, of all replicas, when committed */
    struct op *op;                        /* NULL once abandoned */
    void (*decode)(struct db_call *call); /* from the results to what the caller gets */
    void *ret;                            /* the caller's; decode writes it */
    int64_t number;                       /* for decode */

    /* the engine's */
    struct list link;
    struct timer deadline;
    int tries;
    bool alone;            /* was part of a transaction that failed: runs by itself now */
    bool maybe;            /* postgres: a lost connection may have carried it out */
    void *flight;          /* the group or batch that it is in; NULL while it waits for one */
    struct error *failure; /* sqlite: its own, of a batch that went well; in its arena */
};

/** An engine. */
struct db_ops {
    const char *name;
    void (*submit)(struct db *db, struct db_call *call);
    bool (*ready)(struct db *db, struct error *err);
    void (*close)(struct db *db);
};

/** Embedded first in each engine's struct. */
struct db {
    const struct db_ops *ops;
    struct loop *loop;
    const struct sql_dialect *dialect;
    char **sql;                     /* the table's statements in this dialect */
    uint64_t generation;            /* of what was changed; 0: other programs change things, too */
    struct ledger_watches *watches; /* of the ledger above; NULL until it stands */
};

enum { DB_CALL_DEADLINE_MS = 5000, DB_RETRY_AFTER_MS = 1000 };

/** Set dialect and statements; the reverse. */
void db_init(struct db *db, const struct db_ops *ops, struct loop *loop,
             const struct sql_dialect *dialect);
void db_fini(struct db *db);

/** A call for `op`; `decode` may be NULL. Add steps, then submit it inside an AWAIT. */
struct db_call *db_call_new(struct db *db, struct op *op, const char *name,
                            void (*decode)(struct db_call *call), void *ret);

/** Add a statement. `types` has a letter for each parameter: `t` const char * (may be NULL),
 * `i` int64_t. It must equal the types that the table states. */
void db_add(struct db_call *call, enum sql sql, const char *types, ...);

/** Add a statement made for this call; parameters are copied. */
void db_add_text(struct db_call *call, const char *text, const struct db_value *params,
                 int n_params);

/** Begin the wait of the call's op. */
void db_call_submit(struct db_call *call);

/** For engines: the call is over. Decodes (on success), wakes the op if it still waits, and lets
 * go of the call. */
void db_call_finish(struct db_call *call, const struct error *error);
/** For engines: forget a call whose op was cancelled before it was begun. */
void db_call_drop(struct db_call *call);
