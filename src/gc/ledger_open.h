/* Which ledger the settings name. */
#pragma once

#include "core/domain/ledger.h"

struct ledger_open_options {
    const char *url;      /* BINDERY_LEDGER_URL, or NULL */
    const char *data_dir; /* for the default file */
    /** As in ledger_postgres.h; may be called after the open. */
    void (*on_refused)(void *ctx, const struct error *why);
    void *ctx;
};

/** NULL with the reason when it must not be used. */
struct ledger *ledger_open(struct loop *loop, const struct ledger_open_options *options,
                           struct error *err);
