/* The embedded ledger: one SQLite file, written by a thread of its own (docs/adr/0009). */
#pragma once

#include "core/domain/ledger.h"

/** Open or make the ledger in the file at `path` and bring its schema up to date. Returns NULL with
 * the reason when the file must not be used: another server has it, it is read-only, damaged, not
 * a ledger, or of a newer version. Nothing is written to it then.
 *
 * When the trouble may pass (disk full, I/O error, locked by another program) the ledger is
 * returned all the same: it is not ready, fails every call with ERR_LEDGER, and opens the file as
 * soon as it can. */
struct ledger *ledger_sqlite_open(struct loop *loop, const char *path, struct error *err);
