#include "http/request_head.h"

#include <criterion/criterion.h>
#include <evhtp/parser.h>
#include <stdio.h>
#include <string.h>

TestSuite(request_head, .timeout = 10);

/* Search a head given in two reads, then check it. */
static long search_split(const char *bytes, size_t len, size_t split)
{
    struct head_search search = {0};
    long found = split > 0 ? request_head_search(&search, bytes, split) : 0;

    return found != 0 ? found : request_head_search(&search, bytes, len);
}

static bool check(const char *text, struct request_head *head, struct error *err)
{
    long len = search_split(text, strlen(text), 0);

    if (len <= 0) {
        error_set(err, ERR_BAD_REQUEST, "no complete head");
        return false;
    }
    return request_head_check(text, (size_t)len, head, err);
}

static bool slice_equals(struct slice s, const char *text)
{
    return s.len == strlen(text) && (s.len == 0 || memcmp(s.at, text, s.len) == 0);
}

#define LINE "GET /a/b?c=d HTTP/1.1\r\n"
#define HOST "Host: x\r\n"

Test(request_head, takes_a_request_apart)
{
    const char *text =
        "POST /a/b?c=d&e HTTP/1.1\r\nHost: example:80\r\nAuthorization:  Bearer t \r\n"
        "X-Request-Id: r1\r\ntraceparent: tp\r\nContent-Length: 12\r\nX-Empty:\r\n"
        "Expect: 100-Continue\r\n\r\nbody";
    struct request_head head;
    struct error err;

    cr_assert(check(text, &head, &err), "%s", err.message);
    cr_assert(slice_equals(head.method, "POST"));
    cr_assert(slice_equals(head.path, "/a/b"));
    cr_assert(slice_equals(head.query, "c=d&e"));
    cr_assert(slice_equals(head.authorization, "Bearer t"));
    cr_assert(slice_equals(head.request_id, "r1"));
    cr_assert(slice_equals(head.traceparent, "tp"));
    cr_assert(slice_equals(head.host, "example:80"));
    cr_assert_eq(head.content_length, 12);
    cr_assert(head.expect_continue && head.keep_alive && !head.chunked && !head.canonical);
    cr_assert_eq(head.n_left_out, 2);
    cr_assert(slice_equals(head.left_out[0], "Content-Length: 12\r\n"));
    cr_assert_str_eq(text + head.length, "body");
}

Test(request_head, finds_the_end_at_every_split)
{
    const char *text = "\r\nPOST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbodyGET";
    size_t len = strlen(text), want = len - strlen("bodyGET");

    for (size_t split = 0; split <= len; split++)
        cr_assert_eq(search_split(text, len, split), (long)want, "split at %zu", split);
}

Test(request_head, finds_the_end_byte_by_byte)
{
    const char *text = LINE HOST "A: b\r\n\r\n";
    struct head_search search = {0};

    for (size_t len = 1; len < strlen(text); len++)
        cr_assert_eq(request_head_search(&search, text, len), 0);
    cr_assert_eq(request_head_search(&search, text, strlen(text)), (long)strlen(text));
}

Test(request_head, refuses_a_bare_line_feed_at_every_split)
{
    const char *texts[] = {"GET / HTTP/1.1\nHost: x\r\n\r\n", "\nGET / HTTP/1.1\r\n",
                           LINE "Host: x\n\r\n", LINE HOST "\n"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        for (size_t split = 0; split < strlen(texts[i]); split++)
            cr_assert_eq(search_split(texts[i], strlen(texts[i]), split), -1, "%zu, %zu", i, split);
    }
}

Test(request_head, connection_and_version_decide_about_keeping)
{
    const struct {
        const char *text;
        bool keep;
    } cases[] = {
        {LINE HOST "\r\n", true},
        {LINE HOST "Connection: close\r\n\r\n", false},
        {LINE HOST "Connection: foo, Close\r\n\r\n", false},
        {LINE HOST "Connection: keep-alive\r\nConnection: ,close ,\r\n\r\n", false},
        {LINE HOST "Connection: closed\r\n\r\n", true},
        {"GET / HTTP/1.0\r\n\r\n", false},
        {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct request_head head;
        struct error err;
        cr_assert(check(cases[i].text, &head, &err), "%zu: %s", i, err.message);
        cr_assert_eq(head.keep_alive, cases[i].keep, "%zu", i);
    }
}

Test(request_head, takes_an_absolute_target)
{
    struct request_head head;
    struct error err;

    cr_assert(check("GET http://h:1/p?q HTTP/1.1\r\n" HOST "\r\n", &head, &err), "%s", err.message);
    cr_assert(slice_equals(head.path, "/p") && slice_equals(head.query, "q"));
    cr_assert_not(head.canonical);
}

Test(request_head, refuses_what_has_two_readings)
{
    const char *bad[] = {
        /* lengths */
        LINE HOST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        LINE HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
        LINE HOST "Content-Length: 5, 5\r\n\r\n",
        LINE HOST "Content-Length: +5\r\n\r\n",
        LINE HOST "Content-Length: -5\r\n\r\n",
        LINE HOST "Content-Length: 0x5\r\n\r\n",
        LINE HOST "Content-Length:\r\n\r\n",
        LINE HOST "Content-Length: 5 5\r\n\r\n",
        LINE HOST "Content-Length: 99999999999999999999\r\n\r\n",
        LINE HOST "Content-Length : 5\r\n\r\n",
        LINE HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        LINE HOST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        LINE HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        LINE HOST "Transfer-Encoding: gzip, chunked\r\n\r\n",
        LINE HOST "Transfer-Encoding: chunked, identity\r\n\r\n",
        LINE HOST "Transfer-Encoding: xchunked\r\n\r\n",
        LINE HOST "Transfer-Encoding: \x0b"
                  "chunked\r\n\r\n",
        LINE HOST "Transfer-Encoding:\r\n\r\n",
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        /* field lines */
        LINE HOST " Content-Length: 5\r\n\r\n",
        LINE HOST "A: b\r\n folded\r\n\r\n",
        LINE HOST "A\r\n\r\n",
        LINE HOST ": b\r\n\r\n",
        LINE HOST "A b: c\r\n\r\n",
        LINE HOST "A(: c\r\n\r\n",
        LINE HOST "A: b\rc\r\n\r\n",
        LINE HOST "A: b\x7f\r\n\r\n",
        LINE HOST "A: \x01\r\n\r\n",
        /* host */
        "GET / HTTP/1.1\r\n\r\n",
        LINE HOST "Host: y\r\n\r\n",
        LINE "Host: a b\r\n\r\n",
        LINE "Host: a/b\r\n\r\n",
        LINE "Host: a@b\r\n\r\n",
        /* request line */
        "GET / HTTP/9.9\r\n" HOST "\r\n",
        "GET / HTTP/2.0\r\n" HOST "\r\n",
        "GET / HTTP/1.2\r\n" HOST "\r\n",
        "GET / http/1.1\r\n" HOST "\r\n",
        "GET / HTTP/1.1 \r\n" HOST "\r\n",
        "GET  / HTTP/1.1\r\n" HOST "\r\n",
        "GET /  HTTP/1.1\r\n" HOST "\r\n",
        "GET /\r\n" HOST "\r\n",
        "GET\r\n" HOST "\r\n",
        "get / HTTP/1.1\r\n" HOST "\r\n",
        "G=T / HTTP/1.1\r\n" HOST "\r\n",
        "CONNECT /a HTTP/1.1\r\n" HOST "\r\n",
        "CONNECT h:1 HTTP/1.1\r\n" HOST "\r\n",
        "OPTIONS * HTTP/1.1\r\n" HOST "\r\n",
        "GET a HTTP/1.1\r\n" HOST "\r\n",
        "GET ftp://h/a HTTP/1.1\r\n" HOST "\r\n",
        "GET http:///a HTTP/1.1\r\n" HOST "\r\n",
        "GET /a#b HTTP/1.1\r\n" HOST "\r\n",
        "GET /a\\b HTTP/1.1\r\n" HOST "\r\n",
        "GET /a\tb HTTP/1.1\r\n" HOST "\r\n",
        "GET /\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n",
        LINE HOST "Authorization: a\r\nAuthorization: b\r\n\r\n",
        LINE HOST "Content-Length: 1\r\nExpect: 100-continue\r\nExpect: 100-continue\r\n\r\n",
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct request_head head;
        struct error err = {0};
        cr_assert_not(check(bad[i], &head, &err), "accepted %zu: %s", i, bad[i]);
        cr_assert_eq(err.code, ERR_BAD_REQUEST, "%zu: %s", i, bad[i]);
    }
}

Test(request_head, refuses_nul_bytes)
{
    const char text[] = LINE "Host: x\r\nA: b\0c\r\n\r\n";
    struct head_search search = {0};
    struct request_head head;
    struct error err;
    long len = request_head_search(&search, text, sizeof(text) - 1);

    cr_assert_gt(len, 0);
    cr_assert_not(request_head_check(text, (size_t)len, &head, &err));
}

Test(request_head, bounds_fields_and_target)
{
    static char text[HEAD_FIELDS_MAX * 8 + HEAD_TARGET_MAX + 200];
    struct request_head head;
    struct error err;
    int n = snprintf(text, sizeof(text), "%s", LINE HOST);

    for (int i = 0; i < HEAD_FIELDS_MAX; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "A: b\r\n");
    snprintf(text + n, sizeof(text) - (size_t)n, "\r\n");
    cr_assert_not(check(text, &head, &err));
    cr_assert_eq(err.code, ERR_HEADERS_TOO_LARGE);

    snprintf(text, sizeof(text), "GET /%0*d HTTP/1.1\r\nHost: x\r\n\r\n", HEAD_TARGET_MAX, 0);
    cr_assert_not(check(text, &head, &err));
    cr_assert_eq(err.code, ERR_HEADERS_TOO_LARGE);

    snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: x\r\nA: %0*d\r\n\r\n", HEAD_TARGET_MAX,
             0);
    cr_assert_not(check(text, &head, &err));
    cr_assert_eq(err.code, ERR_HEADERS_TOO_LARGE);
}

Test(request_head, other_expectations_fail)
{
    struct request_head head;
    struct error err;

    cr_assert_not(check(LINE HOST "Content-Length: 1\r\nExpect: banana\r\n\r\n", &head, &err));
    cr_assert_eq(err.code, ERR_EXPECTATION_FAILED);
    cr_assert(check(LINE HOST "Expect: 100-continue\r\n\r\n", &head, &err));
    cr_assert_not(head.expect_continue, "without a body there is nothing to wait for");
    cr_assert(
        check("POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n", &head, &err));
    cr_assert_not(head.expect_continue, "HTTP/1.0 knows no 100");
}

/* ---- agreement with the parser behind the gate --------------------------------------------------- */

static bool message_done;

static int on_done(htparser *p)
{
    (void)p;
    message_done = true;
    return 0;
}

/* What the gate accepts, libevhtp must take as one whole message. */
static bool libevhtp_takes(const char *method, const char *path, const char *fields)
{
    static char text[HEAD_TARGET_MAX * 3];
    htparse_hooks hooks = {.on_msg_complete = on_done};
    htparser *p = htparser_new();
    int len = snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\n%s\r\n", method, path, fields);
    size_t used;
    bool ok;

    message_done = false;
    htparser_init(p, htp_type_request);
    used = htparser_run(p, &hooks, text, (size_t)len);
    ok = used == (size_t)len && htparser_get_error(p) == htparse_error_none && message_done;
    free(p);
    return ok;
}

Test(request_head, libevhtp_takes_every_allowed_path_character)
{
    const char *shapes[][2] = {{"/", ""},     {"/a", ""},  {"/a", "b"}, {"/a/", "/b"},
                               {"/%2f", "."}, {"/..", ""}, {"/", "/"},  {"//", ""}};

    for (int c = 1; c < 256; c++) {
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            char path[16], text[64];
            struct request_head head;
            struct error err;
            snprintf(path, sizeof(path), "%s%c%s", shapes[i][0], c, shapes[i][1]);
            snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
            if (c != '?' && check(text, &head, &err))
                cr_assert(libevhtp_takes("GET", path, HOST), "path %s", path);
        }
    }
}

Test(request_head, libevhtp_takes_every_allowed_field)
{
    const char *shapes[][2] = {{HOST "A", "b: v\r\n"}, {HOST "A: ", "\r\n"}, {HOST "A: b", "c\r\n"},
                               {HOST "A:", "\r\n"},    {"Host: h", "\r\n"},  {HOST, ": v\r\n"}};

    for (int c = 1; c < 256; c++) {
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            char fields[96], text[160];
            struct request_head head;
            struct error err;
            snprintf(fields, sizeof(fields), "%s%c%s", shapes[i][0], c, shapes[i][1]);
            snprintf(text, sizeof(text), "GET / HTTP/1.1\r\n%s\r\n", fields);
            if (check(text, &head, &err))
                cr_assert(libevhtp_takes("GET", "/", fields), "shape %zu, character %d", i, c);
        }
    }
    cr_assert(libevhtp_takes("GET", "/", HOST "A:\r\nB: \r\n"));
}

Test(request_head, libevhtp_takes_the_longest_path_and_value)
{
    static char path[HEAD_TARGET_MAX + 1], fields[HEAD_TARGET_MAX + 64];

    memset(path, 'p', HEAD_TARGET_MAX);
    path[0] = '/';
    snprintf(fields, sizeof(fields), "Host: x\r\nA:%0*d\r\n", HEAD_TARGET_MAX, 0);
    cr_assert(libevhtp_takes("GET", path, HOST));
    cr_assert(libevhtp_takes("ABCDEFGHIJKLMNOP", "/", fields));
}
