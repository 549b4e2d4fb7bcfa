#include "gc/ledger_open.h"

#include "core/runtime/buf.h"
#include "gc/ledger_postgres.h"
#include "gc/ledger_sqlite.h"

#include <string.h>

struct ledger *ledger_open(struct loop *loop, const struct ledger_open_options *options,
                           struct error *err)
{
    static const char file_scheme[] = "sqlite:";
    struct buf path = {0};
    struct ledger *ledger;

    if (options->url != NULL && strncmp(options->url, file_scheme, strlen(file_scheme)) != 0)
        return ledger_postgres_open(loop,
                                    &(struct ledger_postgres_options){
                                        .url = options->url,
                                        .on_refused = options->on_refused,
                                        .ctx = options->ctx,
                                    },
                                    err);
    if (options->url != NULL)
        buf_adds(&path, options->url + strlen(file_scheme));
    else
        buf_addf(&path, "%s/ledger.db", options->data_dir);
    ledger = ledger_sqlite_open(loop, buf_text(&path), err);
    buf_fini(&path);
    return ledger;
}
