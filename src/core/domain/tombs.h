/* Ids that must not come alive again: a set of finished leases, each remembered until a moment on
 * the monotonic clock. It answers "released, expired or lost?" for an id that the table no longer
 * has, and keeps a token of a released lease from opening it again on this replica.
 *
 * Sixteen bytes an entry; it grows and purges in 256 small parts, so that no call is ever long. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct tombs;

struct tombs *tombs_new(void);
void tombs_free(struct tombs *tombs);

/** Remember `id` (LEASE_ID_CHARS hex characters, the last 16 of them random) with a reason (1..255) until `until_ms`.
 * An id that is there already keeps its first reason and the later of the two moments. */
void tombs_put(struct tombs *tombs, const char *id, uint8_t reason, int64_t until_ms,
               int64_t now_ms);

/** The reason, or 0 when it is not remembered (any more). */
uint8_t tombs_find(const struct tombs *tombs, const char *id, int64_t now_ms);

/** Entries that take memory now, due ones included; for tests and metrics. */
size_t tombs_count(const struct tombs *tombs);
