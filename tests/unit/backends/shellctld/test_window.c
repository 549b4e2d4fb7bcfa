/* Windows over output files at every byte offset and limit: valid text, characters cut by the
 * window, by the file's end and by the caller's offset, and bytes that are no text. Case A50. */
#include "backends/shellctld/window.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(window, .timeout = 30);

static int file_with(const void *bytes, size_t len)
{
    char path[] = "/tmp/bindery-window-XXXXXX";
    int fd = mkstemp(path);

    cr_assert(fd >= 0);
    unlink(path);
    cr_assert(write(fd, bytes, len) == (ssize_t)len);
    return fd;
}

/* Read on until nothing is truncated; every step must advance. */
static void read_all(int fd, int64_t offset, int64_t limit, bool more_to_come, struct buf *text,
                     struct window *ret)
{
    struct error err = {0};

    for (;;) {
        size_t before = text->len;
        cr_assert(window_read(fd, offset, limit, more_to_come, text, ret, &err), "%s", err.message);
        cr_assert(!ret->truncated || ret->offset > offset, "no advance at %lld", (long long)offset);
        cr_assert(text->len - before <= (size_t)limit || text->len - before <= 4,
                  "window of %zu bytes for a limit of %lld", text->len - before, (long long)limit);
        offset = ret->offset;
        if (!ret->truncated)
            return;
    }
}

static const char TEXT[] =
    "caf\xC3\xA9\xE2\x98\x95\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E\xF0\x9F\x98\x80 end";

Test(window, every_limit_gives_the_same_text)
{
    size_t len = sizeof(TEXT) - 1;
    int fd = file_with(TEXT, len);

    for (int64_t limit = 1; limit <= (int64_t)len + 2; limit++) {
        struct buf text = {0};
        struct window w;
        read_all(fd, 0, limit, false, &text, &w);
        cr_assert_str_eq(buf_text(&text), TEXT);
        cr_assert_eq(w.offset, (int64_t)len);
        cr_assert_eq(w.size, (int64_t)len);
        buf_fini(&text);
    }
    close(fd);
}

/* An offset inside a character skips its rest; the bytes skipped count against the limit. */
Test(window, every_offset_begins_at_a_character)
{
    size_t len = sizeof(TEXT) - 1;
    int fd = file_with(TEXT, len);

    for (size_t offset = 0; offset <= len; offset++) {
        size_t start = offset;
        while (start < len && ((unsigned char)TEXT[start] & 0xC0) == 0x80)
            start++;
        for (int64_t limit = 1; limit <= (int64_t)len; limit++) {
            struct buf text = {0};
            struct window w;
            read_all(fd, (int64_t)offset, limit, false, &text, &w);
            cr_assert_str_eq(buf_text(&text), TEXT + start, "offset %zu limit %lld", offset,
                             (long long)limit);
            buf_fini(&text);
        }
    }
    close(fd);
}

/* The oracle of the protocol's own words, for valid text: skip continuation bytes, then the
 * longest valid prefix within what is left of the limit, else one whole character. */
static void expect_window(int fd, const char *bytes, size_t len, size_t offset, int64_t limit)
{
    struct buf text = {0};
    struct window w;
    struct error err = {0};
    size_t start = offset, end;

    while (start < len && ((unsigned char)bytes[start] & 0xC0) == 0x80)
        start++;
    end = start;
    for (;;) {
        size_t next = end + 1;
        while (next < len && ((unsigned char)bytes[next] & 0xC0) == 0x80)
            next++;
        if (end >= len || (end > start && (int64_t)(next - offset) > limit))
            break;
        end = next;
    }
    cr_assert(window_read(fd, (int64_t)offset, limit, false, &text, &w, &err));
    cr_assert_eq(w.offset, (int64_t)end, "offset %zu limit %lld", offset, (long long)limit);
    cr_assert_eq(w.truncated, end < len);
    cr_assert_eq(text.len, end - start);
    cr_assert(memcmp(buf_text(&text), bytes + start, text.len) == 0);
    buf_fini(&text);
}

Test(window, is_exactly_the_protocols_for_valid_text)
{
    size_t len = sizeof(TEXT) - 1;
    int fd = file_with(TEXT, len);

    for (size_t offset = 0; offset <= len; offset++)
        for (int64_t limit = 1; limit <= (int64_t)len + 1; limit++)
            expect_window(fd, TEXT, len, offset, limit);
    close(fd);
}

/* A character that is still being written is neither broken nor called truncated; once the writer
 * has ended, what remains of it is replaced. */
Test(window, a_character_in_writing_is_held_back)
{
    const char cup[] = "ab\xE2\x98\x95";
    struct window w;
    struct error err = {0};

    for (size_t len = 3; len <= 4; len++) {
        int fd = file_with(cup, len);
        struct buf text = {0};
        cr_assert(window_read(fd, 0, 100, true, &text, &w, &err));
        cr_assert_str_eq(buf_text(&text), "ab");
        cr_assert_eq(w.offset, 2);
        cr_assert_eq(w.size, (int64_t)len);
        cr_assert_not(w.truncated);
        cr_assert(write(fd, cup + len, 5 - len) == (ssize_t)(5 - len));
        cr_assert(window_read(fd, 2, 100, true, &text, &w, &err));
        cr_assert_str_eq(buf_text(&text), cup);
        cr_assert_eq(w.offset, 5);
        buf_fini(&text);
        close(fd);
    }
    int fd = file_with(cup, 4);
    struct buf text = {0};
    cr_assert(window_read(fd, 0, 100, false, &text, &w, &err));
    cr_assert_str_eq(buf_text(&text), "ab\xEF\xBF\xBD");
    cr_assert_eq(w.offset, 4);
    cr_assert_not(w.truncated);
    buf_fini(&text);
    close(fd);
}

Test(window, a_held_back_character_does_not_stop_a_full_window)
{
    const char bytes[] = "abcdef\xE2\x98";
    int fd = file_with(bytes, sizeof(bytes) - 1);
    struct buf text = {0};
    struct window w;
    struct error err = {0};

    cr_assert(window_read(fd, 0, 4, true, &text, &w, &err));
    cr_assert_str_eq(buf_text(&text), "abcd");
    cr_assert(w.truncated, "two characters remain");
    buf_fini(&text);
    close(fd);
}

struct replaced {
    const char *bytes;
    size_t len;
    const char *text;
};

#define BAD            "\xEF\xBF\xBD"
#define BYTES(literal) (literal), sizeof(literal) - 1

/* Unicode 15, tables 3-8 to 3-11, and the usual suspects. */
static const struct replaced replaced[] = {
    {BYTES("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), BAD BAD BAD BAD BAD BAD BAD BAD "A"},
    {BYTES("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), BAD BAD BAD BAD BAD BAD BAD BAD "A"},
    {BYTES("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), BAD BAD BAD BAD BAD "A" BAD BAD "B"},
    {BYTES("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), BAD BAD BAD BAD "A"},
    {BYTES("\x80\x80\x80\x80\x80"), BAD BAD BAD BAD BAD},
    {BYTES("\xFF\xFE\xFD"), BAD BAD BAD},
    {BYTES("caf\xE9 latin"), "caf" BAD " latin"},
    {BYTES("\xE2\x98\xE2\x98\x95\x98"), BAD "\xE2\x98\x95" BAD},
    {BYTES("\xF0\x9F\x98"), BAD},
};

Test(window, what_is_no_text_is_replaced_at_every_limit)
{
    for (size_t i = 0; i < sizeof(replaced) / sizeof(*replaced); i++) {
        int fd = file_with(replaced[i].bytes, replaced[i].len);
        for (int64_t limit = 1; limit <= 40; limit++) {
            struct buf text = {0};
            struct window w;
            read_all(fd, 0, limit, false, &text, &w);
            cr_assert_str_eq(buf_text(&text), replaced[i].text, "sample %zu limit %lld", i,
                             (long long)limit);
            cr_assert_eq(w.offset, (int64_t)replaced[i].len);
            buf_fini(&text);
        }
        close(fd);
    }
}

/* Random bytes, rich in pieces of characters: any two ways of cutting give the same text, and
 * every offset advances. */
Test(window, random_bytes_read_the_same_in_any_windows)
{
    static const unsigned char pieces[] = {'a',  0xC3, 0xA9, 0xE2, 0x98, 0x95, 0xF0, 0x9F,
                                           0x98, 0x80, 0xED, 0xA0, 0xFF, 0x0A, 0x00, 0xF4};
    unsigned char bytes[48];
    unsigned seed = 7;

    for (int round = 0; round < 300; round++) {
        struct buf whole = {0}, cut = {0};
        struct window w;
        for (size_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = pieces[(seed = seed * 1103515245u + 12345u) >> 16 & 15];
        int fd = file_with(bytes, sizeof(bytes));
        read_all(fd, 0, 1000, false, &whole, &w);
        for (int64_t limit = 1; limit < 12; limit++) {
            buf_clear(&cut);
            read_all(fd, 0, limit, false, &cut, &w);
            cr_assert(cut.len == whole.len && memcmp(cut.data, whole.data, cut.len) == 0);
        }
        for (int64_t offset = 0; offset < (int64_t)sizeof(bytes); offset++) {
            buf_clear(&cut);
            read_all(fd, offset, 5, false, &cut, &w);
            cr_assert(cut.len <= whole.len &&
                      memcmp(cut.data, whole.data + whole.len - cut.len, cut.len) == 0);
        }
        buf_fini(&whole);
        buf_fini(&cut);
        close(fd);
    }
}

/* A50: 300,000 bytes of a three-byte character, in windows that never divide it. */
Test(window, three_hundred_thousand_bytes_of_coffee)
{
    struct buf file = {0}, text = {0};
    struct window w;

    for (int i = 0; i < 100000; i++)
        buf_add(&file, "\xE2\x98\x95", 3);
    int fd = file_with(file.data, file.len);
    read_all(fd, 0, 8192, false, &text, &w);
    cr_assert(text.len == file.len && memcmp(text.data, file.data, file.len) == 0);
    buf_fini(&file);
    buf_fini(&text);
    close(fd);
}

Test(window, offsets_beyond_the_file_are_refused)
{
    int fd = file_with("abc", 3);
    struct buf text = {0};
    struct window w;
    struct error err = {0};

    cr_assert(window_read(fd, 3, 10, true, &text, &w, &err));
    cr_assert_eq(w.offset, 3);
    cr_assert_not(w.truncated);
    cr_assert_not(window_read(fd, 4, 10, true, &text, &w, &err));
    cr_assert_eq(err.code, ERR_BAD_REQUEST);
    cr_assert_not(window_read(fd, -1, 10, true, &text, &w, &err));
    cr_assert(window_read(-1, 0, 10, true, &text, &w, &err), "a missing file is empty");
    cr_assert_eq(w.offset, 0);
    cr_assert_not(window_read(-1, 1, 10, true, &text, &w, &err));
    cr_assert_eq(text.len, 0);
    close(fd);
}

Test(window, limits_are_clamped)
{
    struct buf file = {0}, text = {0};
    struct window w;
    struct error err = {0};

    buf_reserve(&file, WINDOW_MAX + 10);
    while (file.len < WINDOW_MAX + 10)
        buf_addc(&file, 'x');
    int fd = file_with(file.data, file.len);
    cr_assert(window_read(fd, 0, INT64_MAX, false, &text, &w, &err));
    cr_assert_eq(text.len, WINDOW_MAX);
    cr_assert(w.truncated);
    buf_clear(&text);
    cr_assert(window_read(fd, 0, 0, false, &text, &w, &err));
    cr_assert_eq(text.len, 1);
    buf_clear(&text);
    cr_assert(window_read_tail(fd, INT64_MAX, false, &text, &w, &err));
    cr_assert_eq(text.len, WINDOW_TAIL_MAX);
    cr_assert_eq(w.offset, WINDOW_MAX + 10);
    buf_fini(&file);
    buf_fini(&text);
    close(fd);
}

Test(window, tail_begins_at_a_character_and_ends_with_the_file)
{
    size_t len = sizeof(TEXT) - 1;
    int fd = file_with(TEXT, len);

    for (int64_t limit = 1; limit <= (int64_t)len + 2; limit++) {
        struct buf text = {0};
        struct window w;
        struct error err = {0};
        size_t start = (size_t)limit < len ? len - (size_t)limit : 0;
        while (start < len && ((unsigned char)TEXT[start] & 0xC0) == 0x80)
            start++;
        cr_assert(window_read_tail(fd, limit, false, &text, &w, &err));
        cr_assert_str_eq(buf_text(&text), TEXT + start);
        cr_assert_eq(w.offset, (int64_t)len);
        cr_assert_not(w.truncated);
        buf_fini(&text);
    }
    close(fd);
}

Test(window, tail_of_bytes_that_are_no_text_reaches_the_end)
{
    unsigned char bytes[64];
    struct buf text = {0};
    struct window w;
    struct error err = {0};

    memset(bytes, 0xFF, sizeof(bytes));
    int fd = file_with(bytes, sizeof(bytes));
    cr_assert(window_read_tail(fd, 10, false, &text, &w, &err));
    cr_assert_eq(text.len, 30);
    cr_assert_eq(w.offset, 64);
    buf_fini(&text);
    close(fd);
}
