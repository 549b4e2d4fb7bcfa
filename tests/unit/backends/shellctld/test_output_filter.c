/* The output filter: every split of every sample gives the same text, and the text is valid UTF-8. */
#include "backends/shellctld/output_filter.h"

#include "backends/shellctld/window.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(output_filter, .timeout = 20);

static void run(enum filter_kind kind, const char *in, size_t len, size_t split, struct buf *out)
{
    struct output_filter f;

    output_filter_init(&f, kind);
    output_filter_feed(&f, in, split, out);
    output_filter_feed(&f, in + split, len - split, out);
    output_filter_finish(&f, out);
    output_filter_fini(&f);
}

static void expect(enum filter_kind kind, const char *in, size_t len, const char *want,
                   size_t want_len)
{
    for (size_t split = 0; split <= len; split++) {
        struct buf out = {0};
        run(kind, in, len, split, &out);
        cr_assert(out.len == want_len && memcmp(buf_text(&out), want, want_len) == 0,
                  "split %zu of \"%s\": got \"%s\"", split, in, buf_text(&out));
        buf_fini(&out);
    }
}

static bool is_utf8(const char *text, size_t len)
{
    bool valid = true, partial;

    for (size_t at = 0; at < len && valid;)
        at += utf8_unit((const unsigned char *)text + at, len - at, &valid, &partial);
    return valid;
}

#define TERMINAL(in, want) expect(FILTER_TERMINAL, in, sizeof(in) - 1, want, sizeof(want) - 1)
#define PLAIN(in, want)    expect(FILTER_PLAIN, in, sizeof(in) - 1, want, sizeof(want) - 1)

Test(output_filter, characters_survive_every_split)
{
    TERMINAL("café☕日本語\r\n", "café☕日本語\n");
    PLAIN("café☕日本語\r\n", "café☕日本語\r\n");
    PLAIN("\xf0\x9f\x8e\x89 party", "\xf0\x9f\x8e\x89 party");
}

Test(output_filter, invalid_bytes_are_replaced)
{
    PLAIN("a\xff"
          "b",
          "a\xef\xbf\xbd"
          "b");
    PLAIN("\xe2\x98", "\xef\xbf\xbd");                             /* cut at the end */
    PLAIN("\xe2\x98x", "\xef\xbf\xbdx");                           /* cut by another character */
    PLAIN("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* surrogate */
    PLAIN("\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd");                 /* overlong */
    TERMINAL("\xf0\x9f\x8e\r\n", "\xef\xbf\xbd\n");
}

Test(output_filter, plain_keeps_everything_else)
{
    PLAIN("a\0b\x1b[31mc\r\x7f", "a\0b\x1b[31mc\r\x7f");
}

Test(output_filter, sequences_are_left_out)
{
    TERMINAL("\x1b[31mred\x1b[0m\n", "red\n");
    TERMINAL("\x1b]0;title\avisible\n", "visible\n");
    TERMINAL("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", "link\n");
    TERMINAL("\x1b(Bplain\x1b)0\n", "plain\n");
    TERMINAL("\x1bPq#0;2;0;0;0\x1b\\after\n", "after\n");
    TERMINAL("\302\23331mred\302\2350;t\302\234ok\n", "redok\n");
    TERMINAL("\x1b\x1b[1mbold\n", "bold\n");
    TERMINAL("\x1b[38;5;20", "");
    TERMINAL("a\x1b[\x18z\n", "az\n");
    TERMINAL("\a\0\x7f\vx\n", "x\n");
    TERMINAL("\x1b]0;never ended\nnext\n", "\nnext\n");
}

Test(output_filter, lines_are_overwritten)
{
    TERMINAL("line1\r\nline2\r\n", "line1\nline2\n");
    TERMINAL("50%\r100%\n", "100%\n");
    TERMINAL("50%\r", "50%");
    TERMINAL("a\r\r\n", "a\n");
    TERMINAL("ab\bc\n", "ac\n");
    TERMINAL("caf\xc3\xa9\be\n", "cafe\n");
    TERMINAL("\b\b\n", "\n");
    TERMINAL("\ttab\n", "\ttab\n");
}

Test(output_filter, a_prompt_comes_out_when_idle)
{
    struct output_filter f;
    struct buf out = {0};

    output_filter_init(&f, FILTER_TERMINAL);
    output_filter_feed(&f, "Password: ", 10, &out);
    cr_assert_eq(out.len, 0);
    cr_assert(output_filter_holds(&f));
    output_filter_idle(&f, &out);
    cr_assert_str_eq(buf_text(&out), "Password: ");
    cr_assert_not(output_filter_holds(&f));
    /* what was let out cannot be taken back: starting the line again begins a new one */
    output_filter_feed(&f, "\rPassword again: \r\n", 19, &out);
    cr_assert_str_eq(buf_text(&out), "Password: \nPassword again: \n");
    output_filter_finish(&f, &out);
    output_filter_fini(&f);
    buf_fini(&out);
}

Test(output_filter, a_long_line_is_bounded)
{
    enum { LEN = 3 * FILTER_LINE_MAX + 5 };
    char *text = malloc(LEN);
    struct output_filter f;

    memset(text, 'x', LEN);
    for (size_t step = 1; step <= LEN; step = step * 7 + 1) {
        struct buf out = {0};
        output_filter_init(&f, FILTER_TERMINAL);
        for (size_t at = 0; at < LEN; at += step) {
            output_filter_feed(&f, text + at, at + step <= LEN ? step : LEN - at, &out);
            cr_assert_leq(f.line.len, FILTER_LINE_MAX);
        }
        /* the part that is still held is what a CR can take back */
        output_filter_feed(&f, "\ry\n", 3, &out);
        output_filter_finish(&f, &out);
        cr_assert_eq(out.len, 3 * FILTER_LINE_MAX + 3, "step %zu: %zu", step, out.len);
        output_filter_fini(&f);
        buf_fini(&out);
    }
    free(text);
}

Test(output_filter, an_endless_string_does_not_swallow_the_rest)
{
    struct output_filter f;
    struct buf out = {0};

    output_filter_init(&f, FILTER_TERMINAL);
    output_filter_feed(&f, "\x1bP", 2, &out);
    for (int i = 0; i < FILTER_SEQUENCE_MAX + 10; i++)
        output_filter_feed(&f, "q", 1, &out);
    output_filter_finish(&f, &out);
    cr_assert_gt(out.len, 0);
    cr_assert_lt(out.len, 12);
    output_filter_fini(&f);
    buf_fini(&out);
}

/* Any bytes, cut anywhere: the same text, valid, and bounded by three bytes for each. */
Test(output_filter, random_bytes)
{
    static const char alphabet[] = "\x1b\x1b[];Pm\\\a\r\n\b\t \xc2\x9b\x9d\xe2\x98\x95\xff\xf0"
                                   "abc\x18";
    unsigned seed = 7;

    for (int round = 0; round < 400; round++) {
        char in[64];
        size_t len = (size_t)rand_r(&seed) % sizeof in;
        for (size_t i = 0; i < len; i++)
            in[i] = round % 4 == 0 ? (char)rand_r(&seed)
                                   : alphabet[(size_t)rand_r(&seed) % (sizeof alphabet - 1)];
        for (int kind = FILTER_PLAIN; kind <= FILTER_TERMINAL; kind++) {
            struct buf whole = {0};
            run(kind, in, len, len, &whole);
            cr_assert_leq(whole.len, 3 * len);
            if (kind == FILTER_TERMINAL)
                cr_assert(is_utf8(buf_text(&whole), whole.len));
            for (size_t split = 0; split < len; split++) {
                struct buf out = {0};
                run(kind, in, len, split, &out);
                cr_assert(out.len == whole.len &&
                              memcmp(buf_text(&out), buf_text(&whole), out.len) == 0,
                          "round %d kind %d split %zu", round, kind, split);
                buf_fini(&out);
            }
            buf_fini(&whole);
        }
    }
}
