/* What is remembered, and until when. */
#include "gc/free_refs.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

TestSuite(free_refs, .timeout = 30);

Test(free_refs, remembers_for_one_generation_and_one_backend)
{
    struct free_refs *refs = free_refs_new();

    cr_assert(not(free_refs_has(refs, "local", "a", 1)));
    free_refs_note(refs, "local", "a", 1);
    cr_assert(free_refs_has(refs, "local", "a", 1));
    cr_assert(not(free_refs_has(refs, "local", "a", 2)));
    cr_assert(not(free_refs_has(refs, "e2b", "a", 1)));
    cr_assert(not(free_refs_has(refs, "local", "b", 1)));
    free_refs_note(refs, "local", "a", 2);
    cr_assert(free_refs_has(refs, "local", "a", 2));
    cr_assert(not(free_refs_has(refs, "local", "a", 1)));
    free_refs_free(refs);
}

Test(free_refs, generation_zero_and_long_refs_are_not_remembered)
{
    struct free_refs *refs = free_refs_new();
    char lengthy[400];

    memset(lengthy, 'x', sizeof(lengthy) - 1);
    lengthy[sizeof(lengthy) - 1] = '\0';
    free_refs_note(refs, "local", "a", 0);
    free_refs_note(refs, "local", lengthy, 1);
    cr_assert(not(free_refs_has(refs, "local", "a", 0)));
    cr_assert(not(free_refs_has(refs, "local", lengthy, 1)));
    free_refs_free(refs);
}

/* Many more than there is room for: what is said to be free was noted. */
Test(free_refs, newer_refs_take_the_place_of_older_ones)
{
    struct free_refs *refs = free_refs_new();
    char ref[32];
    int kept = 0;

    for (int i = 0; i < 100000; i++) {
        snprintf(ref, sizeof(ref), "ref-%d", i);
        cr_assert(not(free_refs_has(refs, "local", ref, 1)), "%s was never noted", ref);
        free_refs_note(refs, "local", ref, 1);
        cr_assert(free_refs_has(refs, "local", ref, 1));
    }
    for (int i = 0; i < 100000; i++) {
        snprintf(ref, sizeof(ref), "ref-%d", i);
        kept += free_refs_has(refs, "local", ref, 1);
    }
    cr_assert(kept > 1000 && kept <= 4096);
    free_refs_free(refs);
}
