#include "gc/free_refs.h"

#include "core/runtime/check.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 4096, SLOT_BYTES = 120 };

/* One ref for each hash; refs too long for a slot are not remembered. */
struct slot {
    uint64_t generation;              /* 0 = empty */
    char backend_and_ref[SLOT_BYTES]; /* "backend\nref" */
};

struct free_refs {
    struct slot *slots[SLOTS]; /* made when first used */
};

struct free_refs *free_refs_new(void)
{
    return xcalloc(1, sizeof(struct free_refs));
}

void free_refs_free(struct free_refs *refs)
{
    for (int i = 0; i < SLOTS; i++)
        free(refs->slots[i]);
    free(refs);
}

/* The key in `ret`, its hash (FNV-1a); -1 when it is too long. */
static int key_make(const char *backend, const char *ref, char ret[SLOT_BYTES])
{
    uint32_t hash = 2166136261u;

    if (strlen(backend) + 1 + strlen(ref) + 1 > SLOT_BYTES)
        return -1;
    stpcpy(stpcpy(stpcpy(ret, backend), "\n"), ref);
    for (const char *p = ret; *p != '\0'; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    return (int)((hash ^ hash >> 16) % SLOTS);
}

bool free_refs_has(const struct free_refs *refs, const char *backend, const char *binding_ref,
                   uint64_t generation)
{
    char key[SLOT_BYTES];
    int at = generation == 0 ? -1 : key_make(backend, binding_ref, key);
    const struct slot *slot = at < 0 ? NULL : refs->slots[at];

    return slot != NULL && slot->generation == generation &&
           strcmp(slot->backend_and_ref, key) == 0;
}

void free_refs_note(struct free_refs *refs, const char *backend, const char *binding_ref,
                    uint64_t generation)
{
    char key[SLOT_BYTES];
    int at = generation == 0 ? -1 : key_make(backend, binding_ref, key);

    if (at < 0)
        return;
    if (refs->slots[at] == NULL)
        refs->slots[at] = xcalloc(1, sizeof(struct slot));
    refs->slots[at]->generation = generation;
    memcpy(refs->slots[at]->backend_and_ref, key, strlen(key) + 1);
}
