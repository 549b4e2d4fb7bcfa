/* The shared ledger: PostgreSQL, for any number of replicas. */
#pragma once

#include "core/domain/ledger.h"

struct ledger_postgres_options {
    const char *url; /* postgresql://… or keyword=value */
    int connections; /* 0 = default */
    /** The database must not be used by this program (its schema is newer): stop. */
    void (*on_refused)(void *ctx, const struct error *why);
    void *ctx;
};

/** Returns at once; connects by itself, for ever, and brings the schema up to date. Calls wait for
 * a connection within their deadline. NULL with the reason when the connection string is bad. */
struct ledger *ledger_postgres_open(struct loop *loop,
                                    const struct ledger_postgres_options *options,
                                    struct error *err);
