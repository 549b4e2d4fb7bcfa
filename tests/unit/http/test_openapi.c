#include "http/openapi.h"

#include "core/runtime/json.h"

#include <criterion/criterion.h>
#include <json-c/json.h>
#include <string.h>

TestSuite(openapi, .timeout = 10);

static void handle(struct exchange *x)
{
    (void)x;
}

static const struct route rows[] = {
    {"POST", "/v1/leases", AUTH_API, ERRORS_V1, 0, 0, handle, "Acquire", "{\"type\":\"object\"}",
     "{\"type\":\"array\"}"},
    {"GET", "/v1/leases/{id}", AUTH_LEASE, ERRORS_V1, 0, 0, handle, "One", NULL, NULL},
    {"GET", "/v1/leases", AUTH_API, ERRORS_V1, 0, 0, handle, "List", NULL, NULL},
    {NULL, "/v1/leases/{id}/shellctl/*", AUTH_LEASE, ERRORS_V1, ROUTE_ANY_METHOD, 0, handle,
     "Proxy", NULL, NULL},
    {"GET", "/healthz", AUTH_NONE, ERRORS_DETAIL, 0, 0, handle, "Health", NULL, NULL},
    {0},
};
static const struct route *const tables[] = {rows};

static struct json_object *at(struct json_object *o, const char *key)
{
    struct json_object *value = NULL;

    cr_assert(json_object_object_get_ex(o, key, &value), "no %s in %s", key,
              json_object_to_json_string(o));
    return value;
}

Test(openapi, describes_every_row)
{
    struct arena *arena = arena_new();
    struct json_object *root, *paths, *op;
    struct buf out = {0};

    openapi_write(&out, &(struct route_set){tables, 1}, "T", "1");
    cr_assert(json_parse(arena, out.data, out.len, &root, NULL, NULL));
    cr_assert_str_eq(json_object_get_string(at(root, "openapi")), "3.1.0");
    paths = at(root, "paths");
    cr_assert_eq(json_object_object_length(paths), 4);
    cr_assert_eq(json_object_object_length(at(paths, "/v1/leases")), 2);
    op = at(at(paths, "/v1/leases"), "post");
    cr_assert_str_eq(json_object_get_string(at(op, "operationId")), "post_v1_leases");
    cr_assert_eq(json_object_array_length(at(op, "security")), 1);
    at(at(op, "requestBody"), "content");
    op = at(at(paths, "/v1/leases/{id}/shellctl/{rest}"), "delete");
    cr_assert_eq(json_object_array_length(at(op, "parameters")), 2);
    cr_assert_eq(json_object_array_length(at(at(at(paths, "/healthz"), "get"), "security")), 0);
    at(at(at(root, "components"), "schemas"), "ErrorV1");
    buf_fini(&out);
    arena_free(arena);
}
