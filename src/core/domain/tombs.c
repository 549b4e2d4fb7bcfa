#include "core/domain/tombs.h"

#include "core/runtime/check.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The last 64 of an id's 80 random bits stand for it: a false hit needs two of 2^32 ids at once.
 */
struct tomb {
    uint64_t key;     /* 0 = free */
    uint32_t until_s; /* of the monotonic clock, rounded up */
    uint8_t reason;
};

/* Open addressing with linear probing; `size` is a power of two or 0. */
struct part {
    struct tomb *slots;
    size_t size, used;
};

enum { PARTS = 256, PART_MIN = 8 };

struct tombs {
    struct part parts[PARTS];
};

struct tombs *tombs_new(void)
{
    return xcalloc(1, sizeof(struct tombs));
}

void tombs_free(struct tombs *tombs)
{
    if (tombs == NULL)
        return;
    for (int i = 0; i < PARTS; i++)
        free(tombs->parts[i].slots);
    free(tombs);
}

static uint64_t key_of(const char *id)
{
    size_t len = strlen(id);
    uint64_t key = 0;

    for (const char *p = len > 16 ? id + len - 16 : id; *p != '\0'; p++)
        key = key << 4 | (uint64_t)(*p <= '9' ? *p - '0' : *p - 'a' + 10);
    return key != 0 ? key : 1;
}

static uint32_t seconds_up(int64_t ms)
{
    return ms <= 0 ? 0 : (uint32_t)((ms + 999) / 1000);
}

static bool is_due(const struct tomb *tomb, int64_t now_ms)
{
    return (int64_t)tomb->until_s * 1000 <= now_ms;
}

/* The slot that holds `key`, or the free one where it belongs. The part is never full. */
static struct tomb *slot_of(const struct part *part, uint64_t key)
{
    size_t i = key & (part->size - 1);

    while (part->slots[i].key != 0 && part->slots[i].key != key)
        i = (i + 1) & (part->size - 1);
    return &part->slots[i];
}

/* Drop what is due, then leave room for as many again. */
static void part_rebuild(struct part *part, int64_t now_ms)
{
    struct part old = *part;
    size_t alive = 0;

    for (size_t i = 0; i < old.size; i++)
        alive += old.slots[i].key != 0 && !is_due(&old.slots[i], now_ms);
    part->size = PART_MIN;
    while (part->size < 2 * (alive + 1))
        part->size *= 2;
    part->slots = xcalloc(part->size, sizeof(struct tomb));
    part->used = alive;
    for (size_t i = 0; i < old.size; i++) {
        if (old.slots[i].key != 0 && !is_due(&old.slots[i], now_ms))
            *slot_of(part, old.slots[i].key) = old.slots[i];
    }
    free(old.slots);
}

void tombs_put(struct tombs *tombs, const char *id, uint8_t reason, int64_t until_ms,
               int64_t now_ms)
{
    uint64_t key = key_of(id);
    struct part *part = &tombs->parts[key >> 56];
    struct tomb *slot;

    PRE(reason != 0);
    if (part->used + 1 > part->size * 3 / 4)
        part_rebuild(part, now_ms);
    slot = slot_of(part, key);
    if (slot->key == 0) {
        part->used++;
        slot->key = key;
        slot->reason = reason;
        slot->until_s = seconds_up(until_ms);
    } else if (is_due(slot, now_ms)) {
        slot->reason = reason;
        slot->until_s = seconds_up(until_ms);
    } else if (slot->until_s < seconds_up(until_ms)) {
        slot->until_s = seconds_up(until_ms);
    }
}

uint8_t tombs_find(const struct tombs *tombs, const char *id, int64_t now_ms)
{
    uint64_t key = key_of(id);
    const struct part *part = &tombs->parts[key >> 56];
    const struct tomb *slot;

    if (part->size == 0)
        return 0;
    slot = slot_of(part, key);
    return slot->key == key && !is_due(slot, now_ms) ? slot->reason : 0;
}

size_t tombs_count(const struct tombs *tombs)
{
    size_t count = 0;

    for (int i = 0; i < PARTS; i++)
        count += tombs->parts[i].used;
    return count;
}
