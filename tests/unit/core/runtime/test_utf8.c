#include "core/runtime/buf.h"
#include "core/runtime/utf8.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

TestSuite(utf8, .timeout = 30);

/* Encode as RFC 3629 section 3 says, without looking at what it is. */
static size_t encode(uint32_t cp, char *to)
{
    if (cp < 0x80) {
        to[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        to[0] = (char)(0xC0 | cp >> 6);
        to[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        to[0] = (char)(0xE0 | cp >> 12);
        to[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        to[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    to[0] = (char)(0xF0 | cp >> 18);
    to[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    to[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    to[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

Test(utf8, every_code_point)
{
    for (uint32_t cp = 0; cp < 0x120000; cp++) {
        bool valid, surrogate = cp >= 0xD800 && cp <= 0xDFFF;
        char text[4];
        size_t len = encode(cp, text);
        size_t n = utf8_next(text, len, &valid);
        cr_assert(valid == (!surrogate && cp <= 0x10FFFF), "U+%X", cp);
        cr_assert(n == (valid ? len : 1), "U+%X", cp);
    }
}

Test(utf8, overlong_forms_are_ill_formed)
{
    static const char *const texts[] = {"\xC0\xAF", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        bool valid;
        cr_assert(eq(sz, utf8_next(texts[i], strlen(texts[i]), &valid), 1));
        cr_assert(not(valid));
    }
}

Test(utf8, a_cut_character_is_one_piece)
{
    bool valid;

    cr_assert(eq(sz, utf8_next("\xF0\x9F\x98\x80", 3, &valid), 3));
    cr_assert(not(valid));
    cr_assert(eq(sz, utf8_next("\xF0\x9F\x98x", 4, &valid), 3));
    cr_assert(eq(sz, utf8_next("\xE2", 1, &valid), 1));
}

Test(utf8, replacement)
{
    struct buf out = {0};

    utf8_add(&out, "", 0);
    utf8_add(&out, "a\xFFö\xE2\x82", 6);
    cr_assert_str_eq(buf_text(&out), "a\xEF\xBF\xBDö\xEF\xBF\xBD");
    buf_fini(&out);
}

Test(utf8, counting)
{
    cr_assert(eq(sz, utf8_count("aä€😀", 10), 4));
    cr_assert(eq(sz, utf8_count("", 0), 0));
}
