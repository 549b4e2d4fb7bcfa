/* Delays between attempts: exponential with a cap and full jitter. */
#pragma once

#include <stdint.h>

/** All-zero with base and cap set is ready to use. */
struct backoff {
    int64_t base_ms, cap_ms;
    int attempts;
};

/** The next delay: uniformly between half of and the whole of min(cap, base · 2^attempts). */
int64_t backoff_next_ms(struct backoff *backoff);

/** Seed of the jitter, for reproducible tests; by default from the system's random source. */
void backoff_seed(uint64_t seed);
