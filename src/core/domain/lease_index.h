/* Leases by id and by binding: two hash tables over the same leases. Private to lease.c. */
#pragma once

#include "core/domain/lease.h"

/** Owns its buckets, not the leases. */
struct lease_index {
    struct lease **by_id, **by_ref;
    size_t buckets, count;
};

void lease_index_init(struct lease_index *index);
void lease_index_fini(struct lease_index *index);

/** `lease` has its id and its plane, and keeps both while it is in. */
void lease_index_add(struct lease_index *index, struct lease *lease);
void lease_index_remove(struct lease_index *index, const struct lease *lease);

/** NULL when there is none. */
struct lease *lease_index_find(const struct lease_index *index, const char *id);

/** One of a binding's leases, and the next behind it; NULL when there is none. */
struct lease *lease_index_first(const struct lease_index *index, const char *binding_ref);
struct lease *lease_index_next(const struct lease *lease);
