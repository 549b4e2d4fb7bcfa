#include "http/router.h"

#include "core/runtime/buf.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(router, .timeout = 10);

static void handle(struct exchange *x)
{
    (void)x;
}

#define ROW(method, path, flags)                                                                   \
    {                                                                                              \
        method, path, AUTH_NONE, ERRORS_V1, flags, 0, handle, "", 0, 0                             \
    }

static const struct route first[] = {
    ROW("GET", "/healthz", 0),
    ROW("GET", "/v1/leases", 0),
    ROW("POST", "/v1/leases", 0),
    ROW("GET", "/v1/leases/{id}", 0),
    ROW("DELETE", "/v1/leases/{id}", 0),
    ROW(NULL, "/v1/leases/{id}/shellctl/*", ROUTE_ANY_METHOD),
    {0},
};
static const struct route second[] = {
    ROW("PUT", "/v1/owners/{type}/{id}/binding", 0),
    ROW("GET", "/v1/leases/special", 0),
    ROW("HEAD", "/own-head", 0),
    {0},
};
static const struct route *const tables[] = {first, second};
static const struct route_set set = {tables, 2};

static struct router *router;

static void make(void)
{
    router = router_new(&set);
}

static void clear(void)
{
    router_free(router);
}

static struct route_match found(const char *method, const char *path)
{
    struct route_match match;

    cr_assert_eq(router_find(router, method, path, &match), ROUTE_FOUND, "%s %s", method, path);
    return match;
}

static enum route_outcome outcome(const char *method, const char *path)
{
    struct route_match match;

    return router_find(router, method, path, &match);
}

Test(router, finds_fixed_paths, .init = make, .fini = clear)
{
    cr_assert_eq(found("GET", "/healthz").route, &first[0]);
    cr_assert_eq(found("POST", "/v1/leases").route, &first[2]);
    cr_assert_eq(router_at(router, found("POST", "/v1/leases").index), &first[2]);
    cr_assert_eq(router_count(router), 9);
}

Test(router, takes_parameters_undecoded, .init = make, .fini = clear)
{
    struct route_match m = found("PUT", "/v1/owners/con%2Fv/a:b/binding");

    cr_assert_eq(m.n_params, 2);
    cr_assert_str_eq(m.names[0], "type");
    cr_assert_eq(m.lengths[0], strlen("con%2Fv"));
    cr_assert(strncmp(m.values[0], "con%2Fv", m.lengths[0]) == 0);
    cr_assert_str_eq(m.names[1], "id");
    cr_assert(strncmp(m.values[1], "a:b", m.lengths[1]) == 0 && m.lengths[1] == 3);
}

Test(router, a_literal_wins_over_a_parameter, .init = make, .fini = clear)
{
    cr_assert_eq(found("GET", "/v1/leases/special").route, &second[1]);
    cr_assert_eq(found("DELETE", "/v1/leases/special").route, &first[4]);
}

Test(router, hands_the_raw_rest_over, .init = make, .fini = clear)
{
    cr_assert_str_eq(found("PATCH", "/v1/leases/l1/shellctl/v1/jobs//x%20y").rest,
                     "v1/jobs//x%20y");
    cr_assert_str_eq(found("GET", "/v1/leases/l1/shellctl/").rest, "");
    cr_assert_eq(outcome("GET", "/v1/leases/l1/shellctl"), ROUTE_UNKNOWN);
}

Test(router, tells_unknown_wrong_method_and_slash_apart, .init = make, .fini = clear)
{
    struct buf allow = {0};

    cr_assert_eq(outcome("GET", "/nope"), ROUTE_UNKNOWN);
    cr_assert_eq(outcome("GET", "/"), ROUTE_UNKNOWN);
    cr_assert_eq(outcome("GET", "/healthz/x"), ROUTE_UNKNOWN);
    cr_assert_eq(outcome("GET", "/HEALTHZ"), ROUTE_UNKNOWN);
    cr_assert_eq(outcome("GET", "//healthz"), ROUTE_UNKNOWN);
    cr_assert_eq(outcome("GET", "/v1/leases//shellctl/x"), ROUTE_UNKNOWN);
    cr_assert_eq(outcome("POST", "/healthz"), ROUTE_WRONG_METHOD);
    cr_assert_eq(outcome("PATCH", "/v1/leases/x"), ROUTE_WRONG_METHOD);
    cr_assert_eq(outcome("GET", "/healthz/"), ROUTE_SLASH);
    cr_assert_eq(outcome("GET", "/v1/leases/x/"), ROUTE_SLASH);
    router_allow(router, "/v1/leases/x", &allow);
    cr_assert_str_eq(buf_text(&allow), "GET, HEAD, DELETE");
    buf_fini(&allow);
}

Test(router, head_finds_get, .init = make, .fini = clear)
{
    cr_assert_eq(found("HEAD", "/healthz").route, &first[0]);
    cr_assert_eq(found("HEAD", "/v1/leases/x").route, &first[3]);
    cr_assert_eq(found("HEAD", "/own-head").route, &second[2]);
    cr_assert_eq(outcome("HEAD", "/v1/owners/a/b/binding"), ROUTE_WRONG_METHOD);
}

Test(router, refuses_dot_segments_in_every_spelling, .init = make, .fini = clear)
{
    const char *bad[] = {
        "/v1/leases/..",
        "/v1/leases/.",
        "/v1/leases/%2e%2e",
        "/v1/leases/%2E.",
        "/v1/leases/.%2e",
        "/v1/leases/..%2fadmin",
        "/v1/leases/a%2F..%2Fadmin",
        "/v1/leases/a%5c..",
        "/v1/leases/x/shellctl/../../admin",
        "/v1/leases/x/shellctl/a/%2e%2e/b",
        "/v1/leases/x/shellctl/..",
        "/v1/../healthz",
        "/..",
    };
    const char *good[] = {"/v1/leases/...",       "/v1/leases/.a",    "/v1/leases/a..",
                          "/v1/leases/%2e%2e%2e", "/v1/leases/a%2fb", "/v1/leases/%252e%252e"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_eq(outcome("GET", bad[i]), ROUTE_BAD_PATH, "%s", bad[i]);
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        cr_assert_eq(outcome("GET", good[i]), ROUTE_FOUND, "%s", good[i]);
}

Test(router, survives_very_long_paths, .init = make, .fini = clear)
{
    char path[9000];

    memset(path, '/', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    cr_assert_eq(outcome("GET", path), ROUTE_UNKNOWN);
    memset(path + 1, 'a', sizeof(path) - 2);
    cr_assert_eq(outcome("GET", path), ROUTE_UNKNOWN);
    path[sizeof(path) - 2] = '/';
    cr_assert_eq(outcome("GET", path), ROUTE_UNKNOWN);
}
