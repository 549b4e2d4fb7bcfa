/* Counts the ledger's rows for the metrics and for GET /v1/gc: in slices, so that no turn gets long,
 * and none of it on the way of a request. */
#pragma once

#include "core/domain/ledger.h"

struct json_writer;
struct ledger_census;

struct ledger_census *ledger_census_new(struct loop *loop, struct ledger *ledger,
                                        int64_t interval_ms);
/** Count no more; `task` is posted when a count under way has ended. */
void ledger_census_stop(struct ledger_census *census, struct task *task);
void ledger_census_free(struct ledger_census *census);

/** Member `rows`: of each table the rows by state, as counted last. */
void ledger_census_describe(const struct ledger_census *census, struct json_writer *w);
