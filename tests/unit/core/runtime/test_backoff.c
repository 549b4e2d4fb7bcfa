#include "core/runtime/backoff.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

TestSuite(backoff, .timeout = 10);

Test(backoff, doubles_up_to_the_cap_with_jitter_in_the_upper_half)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct backoff b = {.base_ms = 100, .cap_ms = 1500};
        static const int64_t full_ms[] = {100, 200, 400, 800, 1500, 1500, 1500};
        backoff_seed(seed);
        for (int i = 0; i < 7; i++) {
            int64_t ms = backoff_next_ms(&b);
            cr_assert(ms >= full_ms[i] / 2 && ms <= full_ms[i], "attempt %d: %ld ms", i, (long)ms);
        }
    }
}

Test(backoff, the_same_seed_gives_the_same_delays)
{
    struct backoff a = {.base_ms = 1000, .cap_ms = 60000}, b = a;
    int64_t first[10];

    backoff_seed(7);
    for (int i = 0; i < 10; i++)
        first[i] = backoff_next_ms(&a);
    backoff_seed(7);
    for (int i = 0; i < 10; i++)
        cr_assert(eq(i64, backoff_next_ms(&b), first[i]));
}

Test(backoff, both_ends_of_the_range_are_reached)
{
    bool low = false, high = false;

    for (int i = 0; i < 1000; i++) {
        struct backoff b = {.base_ms = 4, .cap_ms = 4};
        int64_t ms = backoff_next_ms(&b);
        low |= ms == 2;
        high |= ms == 4;
    }
    cr_assert(low && high);
}

Test(backoff, huge_caps_do_not_overflow)
{
    struct backoff b = {.base_ms = INT64_MAX / 3, .cap_ms = INT64_MAX};

    for (int i = 0; i < 70; i++)
        cr_assert(backoff_next_ms(&b) > 0);
}
