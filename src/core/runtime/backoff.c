#include "core/runtime/backoff.h"

#include "core/runtime/check.h"

#include <stdbool.h>
#include <sys/random.h>

static uint64_t state;
static bool seeded;

void backoff_seed(uint64_t seed)
{
    state = seed;
    seeded = true;
}

/* splitmix64: one addition and a finaliser; plenty for jitter. */
static uint64_t next_random(void)
{
    uint64_t z;

    if (!seeded) {
        uint64_t seed = 0;
        if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed))
            seed = (uint64_t)(uintptr_t)&seed; /* early boot: the stack's address must do */
        backoff_seed(seed);
    }
    z = (state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

int64_t backoff_next_ms(struct backoff *backoff)
{
    int64_t full_ms = backoff->base_ms;
    int64_t half_ms;

    PRE(backoff->base_ms > 0 && backoff->cap_ms >= backoff->base_ms);
    for (int i = 0; i < backoff->attempts && full_ms < backoff->cap_ms; i++)
        full_ms = full_ms > backoff->cap_ms / 2 ? backoff->cap_ms : full_ms * 2;
    if (full_ms < backoff->cap_ms) /* else further attempts change nothing */
        backoff->attempts++;
    half_ms = full_ms / 2;
    return half_ms + (int64_t)(next_random() % (uint64_t)(full_ms - half_ms + 1));
}
