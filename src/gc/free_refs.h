/* Bindings that nothing stood against leasing, each as of a generation of the ledger's changes. Bounded: a
 * newer ref takes the place of an older one, which is then looked up again. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct free_refs;

struct free_refs *free_refs_new(void);
void free_refs_free(struct free_refs *refs);

/** Was it free at this very generation? Generation 0 is never remembered. */
bool free_refs_has(const struct free_refs *refs, const char *backend, const char *binding_ref,
                   uint64_t generation);
void free_refs_note(struct free_refs *refs, const char *backend, const char *binding_ref,
                    uint64_t generation);
