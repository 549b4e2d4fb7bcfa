#include "core/runtime/quote.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

static struct arena *arena;

static void set_up(void)
{
    arena = arena_new();
}

static void tear_down(void)
{
    arena_free(arena);
}

TestSuite(quote, .init = set_up, .fini = tear_down, .timeout = 10);

Test(quote, shell_words)
{
    cr_assert_str_eq(quote_shell(arena, ""), "''");
    cr_assert_str_eq(quote_shell(arena, "a b"), "'a b'");
    cr_assert_str_eq(quote_shell(arena, "it's $(x) \"y\" \\ `z`"), "'it'\\''s $(x) \"y\" \\ `z`'");
    cr_assert_str_eq(quote_shell(arena, "''"), "''\\'''\\'''");
}

/* A real shell must give every byte back. */
Test(quote, a_shell_reads_the_word_back)
{
    char text[256], back[300];
    FILE *pipe;
    size_t n = 0;

    for (int c = 1; c < 256; c++)
        text[n++] = (char)c;
    text[n] = '\0';
    pipe = popen(arena_printf(arena, "printf %%s %s", quote_shell(arena, text)), "r");
    cr_assert_not_null(pipe);
    n = fread(back, 1, sizeof(back), pipe);
    cr_assert(eq(int, pclose(pipe), 0));
    cr_assert(eq(sz, n, 255));
    cr_assert(memcmp(back, text, 255) == 0);
}

Test(quote, url_segments)
{
    cr_assert_str_eq(quote_url_segment(arena, "aZ09-._~", false), "aZ09-._~");
    cr_assert_str_eq(quote_url_segment(arena, "a/b c%ä?#\r\n", false),
                     "a%2Fb%20c%25%C3%A4%3F%23%0D%0A");
    cr_assert_str_eq(quote_url_segment(arena, "a/b+", true), "a/b%2B");
    cr_assert_str_eq(quote_url_segment(arena, "", false), "");
}

static const char *decoded(const char *text, size_t len)
{
    char *plain;

    return quote_url_decode(arena, text, len, &plain) ? plain : "refused";
}

Test(quote, url_decoding)
{
    cr_assert_str_eq(decoded("a%2fb%2F+%C3%a4", 15), "a/b/+ä");
    cr_assert_str_eq(decoded("abcdef", 3), "abc");
    cr_assert_str_eq(decoded("%41", 3), "A");
    cr_assert_str_eq(decoded("%4", 2), "refused");
    cr_assert_str_eq(decoded("%41", 2), "refused", "digits behind the length do not count");
    cr_assert_str_eq(decoded("%", 1), "refused");
    cr_assert_str_eq(decoded("%zz", 3), "refused");
    cr_assert_str_eq(decoded("%00", 3), "refused");
    cr_assert_str_eq(decoded("a\0b", 3), "refused");
    cr_assert_str_eq(decoded("", 0), "");
}

Test(quote, header_values)
{
    cr_assert(quote_is_header_safe("plain: value ä"));
    cr_assert(quote_is_header_safe(""));
    cr_assert(not(quote_is_header_safe("a\r\nb")));
    cr_assert(not(quote_is_header_safe("a\nb")));
    cr_assert(not(quote_is_header_safe("a\tb")));
    cr_assert(not(quote_is_header_safe("a\x7F")));
}

Test(quote, safe_parts)
{
    char long_part[257];

    memset(long_part, 'a', sizeof(long_part));
    long_part[256] = '\0';
    cr_assert(not(quote_is_safe_part(long_part)));
    long_part[255] = '\0';
    cr_assert(quote_is_safe_part(long_part));
    cr_assert(quote_is_safe_part("A-z_0.9"));
    cr_assert(quote_is_safe_part("..."));
    cr_assert(not(quote_is_safe_part("")));
    cr_assert(not(quote_is_safe_part(".")));
    cr_assert(not(quote_is_safe_part("..")));
    cr_assert(not(quote_is_safe_part("a/b")));
    cr_assert(not(quote_is_safe_part("a:b")));
    cr_assert(not(quote_is_safe_part("a b")));
    cr_assert(not(quote_is_safe_part("a\n")));
    cr_assert(not(quote_is_safe_part("\xEF\xBC\x8E\xEF\xBC\x8E")), "full-width dots");
}

Test(quote, utf8)
{
    cr_assert(quote_is_utf8("", 0));
    cr_assert(quote_is_utf8("aä€😀", 10));
    cr_assert(not(quote_is_utf8("a\0b", 3)));
    cr_assert(not(quote_is_utf8("\xC3", 1)));
    cr_assert(not(quote_is_utf8("\xC3\x28", 2)));
    cr_assert(not(quote_is_utf8("\xED\xBF\xBF", 3)));
    cr_assert(not(quote_is_utf8("\xF5\x80\x80\x80", 4)));
}

Test(quote, hex)
{
    cr_assert_str_eq(quote_hex(arena, "\x00\x0f\xff", 3), "000fff");
    cr_assert_str_eq(quote_hex(arena, "", 0), "");
}
