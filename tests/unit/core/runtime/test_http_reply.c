/* Answers that are read, and those that are refused because the next answer on the connection could
 * be misread. Each is given whole and byte by byte. */
#include "core/runtime/http_reply.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

TestSuite(http_reply, .timeout = 20);

struct reading {
    struct transfer transfer;
    struct http_reply reply;
    struct buf body;
    size_t takes; /* bytes of body; more is refused */
};

static bool on_body(void *ctx, const char *bytes, size_t len)
{
    struct reading *r = ctx;

    if (r->body.len + len > r->takes) {
        transfer_refuse(&r->transfer, ERR_UPSTREAM_PROTOCOL, "too much");
        return false;
    }
    buf_add(&r->body, bytes, len);
    return true;
}

static const struct transfer_owner owner = {.body = on_body};

static void reading_begin(struct reading *r)
{
    *r = (struct reading){.takes = SIZE_MAX};
    r->transfer.owner = &owner;
    r->transfer.owner_ctx = r;
    http_reply_begin(&r->reply, &r->transfer);
}

static void reading_fini(struct reading *r)
{
    http_reply_fini(&r->reply);
    buf_fini(&r->transfer.head);
    buf_fini(&r->body);
}

static enum reply_result feed(struct reading *r, const char *text, size_t len, size_t step)
{
    enum reply_result result = REPLY_MORE;

    for (size_t at = 0; at < len && result == REPLY_MORE; at += step) {
        size_t n = len - at < step ? len - at : step;
        char *piece = malloc(n); /* of its own, so that a look beyond it is seen */
        memcpy(piece, text + at, n);
        result = http_reply_feed(&r->reply, piece, n);
        free(piece);
    }
    return result;
}

/* The whole text, then the end of the connection if it goes on. */
static enum reply_result read_answer(struct reading *r, const char *text, size_t step)
{
    enum reply_result result;

    reading_begin(r);
    result = feed(r, text, strlen(text), step);
    return result == REPLY_MORE ? http_reply_eof(&r->reply) : result;
}

static const char *value_of(struct reading *r, const char *name)
{
    const char *at = buf_text(&r->transfer.head);

    for (size_t i = 0; i < r->transfer.n_headers; i++) {
        const char *value = at + strlen(at) + 1;
        if (strcmp(at, name) == 0)
            return value;
        at = value + strlen(value) + 1;
    }
    return "(none)";
}

struct good {
    const char *text;
    int status;
    const char *body;
    bool keep;
};

#define HEAD "HTTP/1.1 200 OK\r\n"

static const struct good good[] = {
    {HEAD "Content-Length: 5\r\n\r\nabcde", 200, "abcde", true},
    {HEAD "Content-Length: 0\r\n\r\n", 200, "", true},
    {HEAD "content-length: 2\r\nConnection: close\r\n\r\nok", 200, "ok", false},
    {HEAD "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 200, "abc", true},
    {HEAD "Transfer-Encoding: Chunked \r\n\r\n3;a=b\r\nabc\r\n00\r\nT: x\r\n\r\n", 200, "abc",
     true},
    {HEAD "Server: x\r\n\r\nuntil the end", 200, "until the end", false},
    {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", false},
    {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", 200, "ok", true},
    {"HTTP/1.1 204 None\r\n\r\n", 204, "", true},
    {"HTTP/1.1 304 Same\r\nContent-Length: 10\r\n\r\n", 304, "", true},
    {"HTTP/1.1 102 Wait\r\nA: b\r\n\r\nHTTP/1.1 103 Hints\r\n\r\n" HEAD
     "Content-Length: 1\r\n\r\nx",
     200, "x", true},
    {"HTTP/1.1 404\r\nContent-Length: 1\r\n\r\nx", 404, "x", true},
    {HEAD "X-Empty:\r\nContent-Length: 1\r\n\r\nx", 200, "x", true},
};

Test(http_reply, is_read_whatever_the_pieces)
{
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        for (size_t step = 1; step < 200; step = step < 8 ? step + 1 : step * 5) {
            struct reading r;
            cr_assert(eq(int, read_answer(&r, good[i].text, step), REPLY_OVER), "%s: %s",
                      good[i].text, r.reply.why);
            cr_assert(eq(int, r.transfer.status, good[i].status));
            cr_assert(eq(str, (char *)buf_text(&r.body), (char *)good[i].body));
            cr_assert(eq(int, r.reply.keep_alive, good[i].keep), "%s", good[i].text);
            reading_fini(&r);
        }
    }
}

Test(http_reply, headers_are_lower_case_and_trimmed)
{
    for (size_t step = 1; step < 100; step += 9) {
        struct reading r;
        read_answer(&r, HEAD "X-Mixed-CASE: \t a b \t\r\nX-Empty:\r\nContent-Length: 0\r\n\r\n",
                    step);
        cr_assert(eq(sz, r.transfer.n_headers, 3));
        cr_assert(eq(str, (char *)value_of(&r, "x-mixed-case"), "a b"));
        cr_assert(eq(str, (char *)value_of(&r, "x-empty"), ""));
        reading_fini(&r);
    }
}

static const char *const refused[] = {
    /* framing that can be read in two ways */
    HEAD "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    HEAD "Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
    HEAD "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    HEAD "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n1\r\na\r\n0\r\n\r\n",
    HEAD "Transfer-Encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    HEAD "Transfer-Encoding: chunked, gzip\r\n\r\n1\r\na\r\n0\r\n\r\n",
    HEAD "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    HEAD "Transfer-Encoding: identity\r\n\r\nabc",
    HEAD "Transfer-Encoding:\r\n\r\nabc",
    "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    HEAD "Content-Length: +5\r\n\r\nabcde",
    HEAD "Content-Length: 5,5\r\n\r\nabcde",
    HEAD "Content-Length: 0x5\r\n\r\nabcde",
    HEAD "Content-Length: -1\r\n\r\n",
    HEAD "Content-Length: 18446744073709551621\r\n\r\nabcde",
    HEAD "Content-Length:\r\n\r\nabcde",
    HEAD "Content-Length : 5\r\n\r\nabcde",
    HEAD "Transfer-Encoding : chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    /* chunks */
    HEAD "Transfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n",
    HEAD "Transfer-Encoding: chunked\r\n\r\n\r\nabc\r\n",
    HEAD "Transfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n",
    HEAD "Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
    HEAD "Transfer-Encoding: chunked\r\n\r\n10000000000000001\r\na\r\n0\r\n\r\n",
    /* heads */
    HEAD "X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    HEAD "X: a\r\n\tb\r\nContent-Length: 0\r\n\r\n",
    HEAD "X\tY: a\r\nContent-Length: 0\r\n\r\n",
    HEAD ": a\r\nContent-Length: 0\r\n\r\n",
    HEAD "no colon\r\nContent-Length: 0\r\n\r\n",
    HEAD "X: a\x01z\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 101 Up\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "HTTP/1.1 101 Up\r\n\r\n",
    "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 abc\r\nContent-Length: 0\r\n\r\n",
    "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n",
    "ICY 200 OK\r\n\r\n",
    "<html>nothing at all</html>\n",
};

Test(http_reply, what_could_be_misread_is_refused)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        for (size_t step = 1; step < 200; step = step < 8 ? step + 1 : step * 5) {
            struct reading r;
            cr_assert(eq(int, read_answer(&r, refused[i], step), REPLY_BAD), "%s", refused[i]);
            cr_assert_not_null(r.reply.why);
            reading_fini(&r);
        }
    }
}

Test(http_reply, a_nul_in_a_head_is_refused)
{
    static const char text[] = HEAD "X: a\0b\r\nContent-Length: 0\r\n\r\n";
    static const char name[] = HEAD "X\0Y: ab\r\nContent-Length: 0\r\n\r\n";

    for (size_t step = 1; step < 60; step += 3) {
        struct reading r;
        reading_begin(&r);
        cr_assert(eq(int, feed(&r, text, sizeof(text) - 1, step), REPLY_BAD));
        reading_fini(&r);
        reading_begin(&r);
        cr_assert(eq(int, feed(&r, name, sizeof(name) - 1, step), REPLY_BAD));
        reading_fini(&r);
    }
}

Test(http_reply, an_end_in_the_middle_is_no_answer)
{
    static const char text[] =
        "HTTP/1.1 102 Wait\r\n\r\n" HEAD "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";

    for (size_t len = 1; len < sizeof(text) - 1; len++) {
        struct reading r;
        reading_begin(&r);
        cr_assert(eq(int, feed(&r, text, len, len), REPLY_MORE), "after %zu bytes", len);
        cr_assert(eq(int, http_reply_eof(&r.reply), REPLY_MORE), "after %zu bytes", len);
        reading_fini(&r);
    }
}

Test(http_reply, a_head_request_has_no_body)
{
    struct reading r;

    reading_begin(&r);
    r.transfer.head_request = true;
    cr_assert(eq(int, feed(&r, HEAD "Content-Length: 9\r\n\r\n", 38, 38), REPLY_OVER));
    cr_assert(r.reply.keep_alive);
    reading_fini(&r);
}

Test(http_reply, bytes_behind_the_end_spend_the_connection)
{
    static const char *const texts[] = {
        HEAD "Content-Length: 2\r\n\r\nok" HEAD "Content-Length: 6\r\n\r\nforged",
        "HTTP/1.1 204 None\r\n\r\n" HEAD "Content-Length: 6\r\n\r\nforged",
        "HTTP/1.1 204 None\r\nContent-Length: 3\r\n\r\nabc",
        HEAD "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n\n",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct reading r;
        cr_assert(eq(int, read_answer(&r, texts[i], strlen(texts[i])), REPLY_OVER));
        cr_assert_not(r.reply.keep_alive, "%s", texts[i]);
        cr_assert_null(strstr(buf_text(&r.body), "forged"));
        reading_fini(&r);
    }
}

/* A header without end, many small ones, one interim answer after another. */
Test(http_reply, heads_are_bounded)
{
    static const char *const parts[] = {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "A: b\r\n",
                                        "X-Value: ", "HTTP/1.1 102 Wait\r\nA: b\r\n\r\n"};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        struct reading r;
        enum reply_result result = REPLY_MORE;
        size_t fed = 0;
        reading_begin(&r);
        if (i != 3)
            feed(&r, HEAD, strlen(HEAD), 100);
        for (; result == REPLY_MORE; fed += strlen(parts[i]))
            result = feed(&r, parts[i], strlen(parts[i]), 100);
        cr_assert(eq(int, result, REPLY_BAD));
        cr_assert(lt(sz, fed, 4 * HEAD_MAX), "part %zu", i);
        cr_assert(lt(sz, r.transfer.head.cap + r.reply.name.cap + r.reply.value.cap, 8 * HEAD_MAX));
        reading_fini(&r);
    }
}

Test(http_reply, what_the_owner_refuses_ends_it)
{
    struct reading r;

    reading_begin(&r);
    r.takes = 3;
    cr_assert(eq(int, feed(&r, HEAD "Content-Length: 5\r\n\r\nabcde", 43, 1), REPLY_BAD));
    cr_assert(eq(int, r.transfer.refused.code, ERR_UPSTREAM_PROTOCOL));
    reading_fini(&r);
}
