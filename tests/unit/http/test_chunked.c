#include "http/chunked.h"

#include "core/runtime/buf.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(chunked, .timeout = 10);

/* Decode `text` in reads that end at `split` and at the end; `ret_used` counts consumed bytes. */
static enum chunked_result decode(const char *text, size_t len, size_t split, struct buf *out,
                                  size_t *ret_used)
{
    struct chunked c = {0};
    enum chunked_result result = CHUNKED_MORE;
    size_t at = 0;

    for (int read = 0; read < 2; read++) {
        size_t end = read == 0 ? split : len;
        while (at < end) {
            const char *data = NULL;
            size_t used = 0, data_len = 0;
            result = chunked_next(&c, text + at, end - at, &used, &data, &data_len);
            at += used;
            if (result == CHUNKED_DATA)
                buf_add(out, data, data_len);
            if (result == CHUNKED_END || result == CHUNKED_BAD) {
                *ret_used = at;
                return result;
            }
        }
    }
    *ret_used = at;
    return result;
}

Test(chunked, decodes_at_every_split)
{
    const char *texts[] = {
        "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
        "5;a=b;c=\"d e\"\r\nhello\r\n006;x\r\n world\r\n0;last\r\n\r\n",
        "5 \r\nhello\r\n6\t;x\r\n world\r\n0\r\nTrailer: x\r\nOther: y\r\n\r\n",
        "1\r\nh\r\n1\r\ne\r\n1\r\nl\r\n1\r\nl\r\n1\r\no\r\n6\r\n world\r\n00000\r\n\r\n",
        "b\r\nhello world\r\n0\r\n\r\n",
        "B\r\nhello world\r\n0\r\n\r\n",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char text[200];
        size_t len = strlen(texts[i]);
        memcpy(text, texts[i], len);
        memcpy(text + len, "GET /", 5); /* the next request is left alone */
        for (size_t split = 0; split <= len + 5; split++) {
            struct buf out = {0};
            size_t used = 0;
            enum chunked_result result = decode(text, len + 5, split, &out, &used);
            cr_assert_eq(result, CHUNKED_END, "text %zu, split %zu", i, split);
            cr_assert_eq(used, len, "text %zu, split %zu", i, split);
            cr_assert_str_eq(buf_text(&out), "hello world");
            buf_fini(&out);
        }
    }
}

Test(chunked, refuses_malformed_sizes_and_ends)
{
    const char *texts[] = {
        "\r\n",
        ";a\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "-1\r\n",
        "+5\r\n",
        "0x10\r\n",
        "5 5\r\n",
        "g\r\n",
        "FFFFFFFFFFFFFFFF\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\rXhello\r\n0\r\n\r\n",
        "5;a\x01\r\nhello\r\n0\r\n\r\n",
        "0\r\n\rX",
        "0\r\nTrailer: x\n\r\n",
        "0\r\n: x\r\n\r\n",
        "0\r\n folded\r\n\r\n",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        for (size_t split = 0; split <= strlen(texts[i]); split++) {
            struct buf out = {0};
            size_t used = 0;
            cr_assert_eq(decode(texts[i], strlen(texts[i]), split, &out, &used), CHUNKED_BAD,
                         "%zu, split %zu", i, split);
            buf_fini(&out);
        }
    }
}

Test(chunked, bounds_extensions_and_trailers)
{
    static char text[CHUNK_TRAILERS_MAX + 100];
    struct buf out = {0};
    size_t used = 0;

    memset(text, 'a', sizeof(text));
    memcpy(text, "5;", 2);
    cr_assert_eq(decode(text, CHUNK_LINE_MAX + 10, 0, &out, &used), CHUNKED_BAD);
    memcpy(text, "0\r\n", 3);
    cr_assert_eq(decode(text, sizeof(text), 0, &out, &used), CHUNKED_BAD);
    buf_fini(&out);
}
