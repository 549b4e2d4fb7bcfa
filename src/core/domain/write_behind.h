/* What is written to the ledger off the hot path: last use in batches, ended leases, losses, and
 * orphans. It is the broker's observer and revocations, and the backend's orphan sink.
 *
 * Orphans, losses and revocations are kept until the ledger has taken them; a last use that cannot
 * be written is dropped, the next one replaces it. */
#pragma once

#include "core/domain/broker.h"
#include "core/domain/ledger.h"

struct write_behind;

struct write_behind *write_behind_new(struct loop *loop, struct broker *broker,
                                      struct ledger *ledger);
void write_behind_free(struct write_behind *w);

/** Write now; `task` (may be NULL) is posted when everything is written or an attempt failed. */
void write_behind_flush(struct write_behind *w, struct task *task);

/** A wait: over when every orphan reported so far is in the ledger; fails when an attempt to write
 * them failed (they are kept, and tried again). */
void write_behind_await_orphans(struct write_behind *w, struct op *op);
/** A wait: the last uses known now are written, or could not be. Never fails. */
void write_behind_await_uses(struct write_behind *w, struct op *op);
