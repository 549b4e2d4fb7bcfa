/* The set of finished ids: remembers until its time, forgets afterwards, stays small. */
#include "core/domain/tombs.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>

TestSuite(tombs, .timeout = 20);

static const char *id_of(uint64_t n)
{
    static char id[33];
    uint64_t x = n * 0x9e3779b97f4a7c15ULL + 1;

    snprintf(id, sizeof(id), "%016lx%016lx", (unsigned long)(x ^ x >> 29), (unsigned long)n);
    return id;
}

Test(tombs, remembers_the_first_reason_until_the_latest_moment)
{
    struct tombs *t = tombs_new();

    cr_assert(eq(u8, tombs_find(t, id_of(1), 0), 0));
    tombs_put(t, id_of(1), 3, 5000, 0);
    tombs_put(t, id_of(1), 4, 9000, 1000);
    tombs_put(t, id_of(1), 5, 2000, 1000);
    cr_assert(eq(u8, tombs_find(t, id_of(1), 8999), 3));
    cr_assert(eq(u8, tombs_find(t, id_of(1), 9000), 0));
    tombs_put(t, id_of(1), 6, 20000, 10000);
    cr_assert(eq(u8, tombs_find(t, id_of(1), 10000), 6));
    cr_assert(eq(u8, tombs_find(t, id_of(2), 10000), 0));
    tombs_free(t);
}

Test(tombs, holds_many_and_lets_go_of_the_due)
{
    struct tombs *t = tombs_new();

    for (uint64_t n = 0; n < 100000; n++)
        tombs_put(t, id_of(n), 1, 60000, 0);
    for (uint64_t n = 0; n < 100000; n++)
        cr_assert(eq(u8, tombs_find(t, id_of(n), 59000), 1));
    for (uint64_t n = 100000; n < 1000000; n++)
        tombs_put(t, id_of(n), 1, (int64_t)n + 1000, (int64_t)n);
    cr_assert(lt(sz, tombs_count(t), (size_t)150000));
    tombs_free(t);
}
