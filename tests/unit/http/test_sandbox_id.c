/* The facade's sandbox ids: every pair of refs comes back as it was, and nothing else is taken. */
#include "http/sandbox_id.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

TestSuite(sandbox_id, .timeout = 10);

Test(sandbox_id, refs_come_back_as_they_were)
{
    static const struct binding pairs[] = {
        {"sb-1", "sb-1"}, {"b:w", "w"}, {"a~b", "c%d"}, {"%7E", "~"}, {"é☕", "x"},
    };
    struct arena *arena = arena_new();

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        const char *id = sandbox_id_of(arena, &pairs[i]);
        struct binding back;
        cr_assert(sandbox_id_split(arena, id, &back), "%s", id);
        cr_assert_str_eq(back.binding_ref, pairs[i].binding_ref);
        cr_assert_str_eq(back.workspace_ref, pairs[i].workspace_ref);
    }
    cr_assert_str_eq(sandbox_id_of(arena, &pairs[0]), "sb-1", "coupled refs stay readable");
    arena_free(arena);
}

Test(sandbox_id, what_no_facade_issued_is_refused)
{
    static const char *const bad[] = {"", "~", "a~", "~b", "a~b~c", "a%zz", "a%00"};
    struct arena *arena = arena_new();
    struct binding back;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert(not(sandbox_id_split(arena, bad[i], &back)), "%s", bad[i]);
    arena_free(arena);
}
