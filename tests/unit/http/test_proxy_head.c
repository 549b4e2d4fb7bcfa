/* What the data plane passes on: paths byte for byte or not at all, headers without the hop's. */
#include "http/proxy_head.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

TestSuite(proxy_head, .timeout = 10);

Test(proxy_head, plain_paths_pass)
{
    static const char *const good[] = {"",       "healthz",          "v1/jobs/run",
                                       "v1/a.b", "v1/..a/b..",       "v1//x",
                                       "v1/%C3", "v1/%20x/%41?x=..", "v1/.hidden/..."};
    struct error err;

    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
        cr_assert(proxy_check_path(good[i], &err), "%s", good[i]);
}

Test(proxy_head, tricks_do_not)
{
    static const char *const bad[] = {
        "..",        ".",         "../x",   "v1/../admin", "v1/..",         "v1/./x", "%2e%2e/x",
        "v1/%2E%2E", "v1/.%2e/x", "v1/%2e", "a%2fb",       "a%2Fb",         "a%5cb",  "a\\b",
        "a%00b",     "a b",       "a\nb",   "a\x7f",       "v1/%2e%2e%2fx", "..%2f",
    };
    struct error err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        cr_assert(not(proxy_check_path(bad[i], &err)), "%s", bad[i]);
}

Test(proxy_head, the_path_is_appended_to_the_base)
{
    struct arena *arena = arena_new();
    struct endpoint endpoint = {.base_url = "http://gateway/base/proxy"};

    cr_assert_str_eq(proxy_url(arena, &endpoint, "v1/jobs/run", ""),
                     "http://gateway/base/proxy/v1/jobs/run");
    cr_assert_str_eq(proxy_url(arena, &endpoint, "/v1/jobs", "status=x&limit=%31"),
                     "http://gateway/base/proxy/v1/jobs?status=x&limit=%31");
    arena_free(arena);
}

Test(proxy_head, reply_headers_of_the_hop_are_dropped)
{
    struct arena *arena = arena_new();
    const struct http_header in[] = {
        {"content-type", "application/json"},
        {"content-length", "12"},
        {"connection", "keep-alive, X-Hop"},
        {"x-hop", "1"},
        {"keep-alive", "timeout=5"},
        {"transfer-encoding", "chunked"},
        {"x-other", "stays"},
        {"trailer", "x"},
    };
    struct http_response head = {.status = 200, .headers = in, .n_headers = 8};
    const struct http_header *out;
    size_t n;
    int64_t length;

    proxy_reply_headers(arena, &head, &out, &n, &length);
    cr_assert(eq(sz, n, (size_t)2));
    cr_assert_str_eq(out[0].name, "content-type");
    cr_assert_str_eq(out[1].name, "x-other");
    cr_assert(eq(i64, length, 12));
    arena_free(arena);
}
