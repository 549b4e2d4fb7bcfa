/* Which bindings were used since the last look, and which the ledger believes to be leased here.
 * A binding stays in the table until the ledger has been told that its last lease has ended. */
#pragma once

#include "core/domain/lease.h"
#include "core/domain/ledger.h"

struct use_table;

enum { LEASED_AHEAD_MS = 30000 }; /* how far ahead the ledger is told that a binding is leased */

struct use_table *use_table_new(struct lease_table *leases);
void use_table_free(struct use_table *table);

void use_table_note(struct use_table *table, const char *binding_ref, int64_t now_ms);
/** What there is to tell, at most `max`, with texts in `arena`; it counts as told. */
size_t use_table_take(struct use_table *table, struct arena *arena, const char *backend,
                      int64_t now_ms, struct ledger_use *ret, size_t max);
size_t use_table_count(const struct use_table *table);
