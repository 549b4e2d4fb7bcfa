#include "core/runtime/arena.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

TestSuite(arena, .timeout = 10);

Test(arena, memory_is_zeroed_aligned_and_apart)
{
    for (int round = 0; round < 3; round++) { /* also when it comes from the cache */
        struct arena *arena = arena_new();
        char *last = NULL;
        for (size_t size = 0; size < 300; size++) {
            char *p = arena_alloc(arena, size);
            cr_assert(eq(sz, (uintptr_t)p % alignof(max_align_t), 0));
            for (size_t i = 0; i < size; i++)
                cr_assert(eq(int, p[i], 0));
            memset(p, 0xAB, size);
            cr_assert(ne(ptr, p, last));
            last = p;
        }
        arena_free(arena);
    }
}

Test(arena, sizes_around_a_chunk)
{
    struct arena *arena = arena_new();
    char *small = arena_alloc(arena, 10);

    for (size_t size = 3900; size < 4200; size += 7) {
        char *p = arena_alloc(arena, size);
        memset(p, 1, size);
    }
    memset(arena_alloc(arena, 1000000), 1, 1000000);
    cr_assert(eq(int, small[9], 0));
    arena_free(arena);
}

Test(arena, a_big_piece_leaves_the_current_chunk_in_use)
{
    struct arena *arena = arena_new();
    size_t before;

    arena_alloc(arena, 100);
    arena_alloc(arena, 100000);
    before = arena_footprint(arena);
    arena_alloc(arena, 100);
    cr_assert(eq(sz, arena_footprint(arena), before));
    arena_free(arena);
}

Test(arena, copies)
{
    struct arena *arena = arena_new();
    char *copy;

    cr_assert_null(arena_strdup(arena, NULL));
    cr_assert_str_eq(arena_strdup(arena, "text"), "text");
    copy = arena_memdup(arena, "a\0b", 3);
    cr_assert(eq(int, memcmp(copy, "a\0b", 4), 0), "and a NUL behind");
    cr_assert_str_eq(arena_memdup(arena, NULL, 0), "");
    cr_assert_str_eq(arena_printf(arena, "%d-%s", 7, "x"), "7-x");
    cr_assert(eq(sz, strlen(arena_printf(arena, "%05000d", 1)), 5000));
    arena_free(arena);
}

static char order[10];

static void note(void *ctx)
{
    strcat(order, ctx);
}

static void note_and_add(void *ctx)
{
    note("x");
    arena_on_free(ctx, note, "y");
    arena_alloc(ctx, 10000);
}

Test(arena, cleanups_run_newest_first_and_may_use_the_arena)
{
    struct arena *arena = arena_new();

    arena_on_free(arena, note, "1");
    arena_on_free(arena, note, "2");
    arena_on_free(arena, note_and_add, arena);
    arena_free(arena);
    cr_assert_str_eq(order, "xy21");
    arena_free(NULL);
}

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>

Test(arena, overruns_and_late_uses_are_seen_by_the_sanitizer)
{
    struct arena *arena = arena_new();
    char *p = arena_alloc(arena, 24);
    char *q = arena_alloc(arena, 32);

    cr_assert(not(__asan_address_is_poisoned(p + 23)));
    cr_assert(__asan_address_is_poisoned(p + 24));
    cr_assert(__asan_address_is_poisoned(q + 32));
    arena_free(arena);
    cr_assert(__asan_address_is_poisoned(p));
}
#endif
