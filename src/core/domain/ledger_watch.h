/* Waiting for a change of a row that another operation, or another replica, works on.
 *
 * Order of use: watch_begin, then read the row, then watch_wait, then read again. Because the watch
 * stands before the row is read, no change can fall between the two. A change may also be told
 * without one (a reconnected listener wakes everybody): always read again. */
#pragma once

#include "core/runtime/op.h"

/** All watches of one ledger; embedded in it. */
struct ledger_watches {
    struct list *buckets;
    size_t n_buckets;
    size_t count;
};

/** One watch, embedded in the op that waits. End it in the op's fini: watch_end. */
struct ledger_watch {
    struct list link;
    struct ledger_watches *watches;
    const char *key;   /* of the op's arena */
    struct op *waiter; /* NULL while nobody waits */
    struct timer timer;
    bool fired;
    struct error error; /* the creator's failure, when that is what happened */
};

void ledger_watches_init(struct ledger_watches *watches);
/** All watches must have ended. */
void ledger_watches_fini(struct ledger_watches *watches);

/** Start to look out for `key` (owner_watch_key, binding_watch_key), which must outlive the watch.
 */
void watch_begin(struct ledger_watches *watches, struct ledger_watch *watch, const char *key);
/** Safe on an all-zero watch and after an earlier end. */
void watch_end(struct ledger_watch *watch);

/** Wait of `op`: over when the key was told of since watch_begin or the last wait, or after
 * `at_most_ms`; never fails by itself. watch->error then tells a creator's failure. */
void watch_wait(struct ledger_watch *watch, struct op *op, int64_t at_most_ms);

/** Tell all watches of `key`; with an `error` that is the reason. */
void watches_tell(struct ledger_watches *watches, const char *key, const struct error *error);
/** Tell every watch, without an error: something may have been missed. */
void watches_tell_all(struct ledger_watches *watches);

/** A notice as text, for carrying it between processes; the reverse returns the key (in `arena`) or
 * NULL when the text is not ours. */
char *notice_encode(struct arena *arena, const char *key, const struct error *error);
const char *notice_decode(struct arena *arena, const char *text, struct error *ret_error);
