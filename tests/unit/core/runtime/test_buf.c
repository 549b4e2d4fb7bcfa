#include "core/runtime/buf.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

TestSuite(buf, .timeout = 10);

Test(buf, grows_and_stays_terminated)
{
    struct buf b = {0};

    cr_assert_str_eq(buf_text(&b), "");
    buf_add(&b, NULL, 0);
    cr_assert_null(b.data);
    for (int i = 0; i < 1000; i++) {
        buf_addc(&b, 'x');
        cr_assert(eq(sz, strlen(buf_text(&b)), (size_t)i + 1));
    }
    buf_adds(&b, "end");
    buf_addf(&b, "-%d-%s", 42, "y");
    cr_assert_str_eq(b.data + 1000, "end-42-y");
    buf_fini(&b);
    cr_assert_null(b.data);
}

Test(buf, holds_bytes)
{
    struct buf b = {0};

    buf_add(&b, "a\0b", 3);
    cr_assert(eq(sz, b.len, 3));
    cr_assert(eq(int, memcmp(b.data, "a\0b", 4), 0));
    buf_fini(&b);
}

Test(buf, clearing_keeps_the_memory)
{
    struct buf b = {0};
    size_t cap;

    buf_clear(&b);
    buf_reserve(&b, 500);
    cap = b.cap;
    cr_assert_str_eq(buf_text(&b), "");
    buf_adds(&b, "text");
    buf_clear(&b);
    cr_assert_str_eq(buf_text(&b), "");
    cr_assert(eq(sz, b.cap, cap));
    buf_fini(&b);
}

Test(buf, draining)
{
    struct buf b = {0};

    buf_drain(&b, 0);
    buf_adds(&b, "abcdef");
    buf_drain(&b, 2);
    cr_assert_str_eq(buf_text(&b), "cdef");
    buf_drain(&b, 4);
    cr_assert_str_eq(buf_text(&b), "");
    buf_fini(&b);
}
