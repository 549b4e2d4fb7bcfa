/* What the handlers of the ledger's routes share. */
#pragma once

#include "core/domain/lifecycle.h"
#include "http/exchange.h"

/** Ids from outside: 1 to 255 bytes without control characters; NULL passes. False after an error
 * reply. */
bool ledger_check_id(struct exchange *x, const char *name, const char *id) MUST_CHECK;
/** A query parameter that must be there. False after an error reply. */
bool ledger_need_query(struct exchange *x, const char *name, const char **ret) MUST_CHECK;
/** Retire, and answer 202 with what is retired. Strings of `what` are of the exchange or static. */
void ledger_retire_run(struct exchange *x, const struct ledger_retire *what);

extern const char ledger_binding_schema[], ledger_retired_schema[];
