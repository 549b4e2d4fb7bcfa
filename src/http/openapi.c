#include "http/openapi.h"

#include "core/runtime/json.h"

#include <ctype.h>
#include <string.h>

/* The error bodies of `enum route_errors`, as JSON Schema. */
static const char error_schemas[] =
    "{\"ErrorDetail\":{\"type\":\"object\",\"required\":[\"detail\"],\"properties\":{\"detail\":"
    "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"object\",\"required\":[\"code\",\"message\"],"
    "\"properties\":{\"code\":{\"type\":\"string\"},\"message\":{\"type\":\"string\"}}},"
    "{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/Problem\"}}]}}},"
    "\"ErrorV1\":{\"type\":\"object\",\"required\":[\"detail\"],\"properties\":{\"detail\":"
    "{\"type\":\"object\",\"required\":[\"code\",\"message\",\"retryable\",\"admitted\"],"
    "\"properties\":{\"code\":{\"type\":\"string\"},\"message\":{\"type\":\"string\"},"
    "\"retryable\":{\"type\":\"boolean\"},\"admitted\":{\"enum\":[\"yes\",\"no\",\"unknown\"]},"
    "\"problems\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/Problem\"}}}}}},"
    "\"ErrorShellctl\":{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":"
    "{\"type\":\"object\",\"required\":[\"code\",\"message\"],\"properties\":{\"code\":"
    "{\"type\":\"string\"},\"message\":{\"type\":\"string\"}}}}},"
    "\"ErrorGateway\":{\"type\":\"object\",\"required\":[\"reason\",\"message\"],"
    "\"properties\":{\"reason\":{\"type\":\"string\"},\"message\":{\"type\":\"string\"}}},"
    "\"Problem\":{\"type\":\"object\",\"required\":[\"type\",\"loc\",\"msg\"],\"properties\":"
    "{\"type\":{\"type\":\"string\"},\"loc\":{\"type\":\"array\",\"items\":{\"type\":"
    "[\"string\",\"integer\"]}},\"msg\":{\"type\":\"string\"},\"input\":{},\"ctx\":"
    "{\"type\":\"object\"}}}}";

static const char *const any_methods[] = {"GET", "POST", "PUT", "DELETE", "PATCH"};

static const char *error_schema_name(enum route_errors style)
{
    switch (style) {
    case ERRORS_DETAIL:
        return "#/components/schemas/ErrorDetail";
    case ERRORS_V1:
        return "#/components/schemas/ErrorV1";
    case ERRORS_SHELLCTL:
        return "#/components/schemas/ErrorShellctl";
    case ERRORS_GATEWAY:
        return "#/components/schemas/ErrorGateway";
    }
    return "";
}

/* ---- one operation ---------------------------------------------------------------------------- */

static void member_schema(struct json_writer *w, const char *schema)
{
    json_key(w, "content");
    json_object_begin(w);
    json_key(w, "application/json");
    json_object_begin(w);
    json_key(w, "schema");
    json_raw(w, schema, strlen(schema));
    json_object_finish(w);
    json_object_finish(w);
}

static void error_response(struct json_writer *w, const char *range, const char *description,
                           enum route_errors style)
{
    json_key(w, range);
    json_object_begin(w);
    json_member_string(w, "description", description);
    json_key(w, "content");
    json_object_begin(w);
    json_key(w, "application/json");
    json_object_begin(w);
    json_key(w, "schema");
    json_object_begin(w);
    json_member_string(w, "$ref", error_schema_name(style));
    json_object_finish(w);
    json_object_finish(w);
    json_object_finish(w);
    json_object_finish(w);
}

static void responses(struct json_writer *w, const struct route *route)
{
    json_key(w, "responses");
    json_object_begin(w);
    json_key(w, "2XX");
    json_object_begin(w);
    json_member_string(w, "description", "Success");
    if (route->response_schema != NULL)
        member_schema(w, route->response_schema);
    json_object_finish(w);
    error_response(w, "4XX", "The request was refused", route->errors);
    error_response(w, "5XX", "The service or a backend failed", route->errors);
    json_object_finish(w);
}

static void one_parameter(struct json_writer *w, const char *name, size_t len)
{
    json_object_begin(w);
    json_key(w, "name");
    json_string_n(w, name, len);
    json_member_string(w, "in", "path");
    json_member_bool(w, "required", true);
    json_key(w, "schema");
    json_object_begin(w);
    json_member_string(w, "type", "string");
    json_object_finish(w);
    json_object_finish(w);
}

static void parameters(struct json_writer *w, const struct route *route)
{
    const char *at = route->path;

    if (strpbrk(at, "{*") == NULL)
        return;
    json_key(w, "parameters");
    json_array_begin(w);
    while ((at = strpbrk(at, "{*")) != NULL) {
        if (*at == '*') {
            one_parameter(w, "rest", 4);
            break;
        }
        size_t len = strcspn(at + 1, "}");
        one_parameter(w, at + 1, len);
        at += len + 1;
    }
    json_array_finish(w);
}

/* `POST /v1/leases/{id}/renew` becomes `post_v1_leases_id_renew`. */
static void operation_id(struct json_writer *w, const char *method, const char *path)
{
    struct buf id = {0};

    for (const char *m = method; *m != '\0'; m++)
        buf_addc(&id, (char)tolower((unsigned char)*m));
    for (const char *p = path; *p != '\0'; p++) {
        bool word = isalnum((unsigned char)*p) != 0;
        if (word || (id.len > 0 && id.data[id.len - 1] != '_'))
            buf_addc(&id, word ? *p : '_');
    }
    while (id.len > 0 && id.data[id.len - 1] == '_')
        id.len--;
    json_key(w, "operationId");
    json_string_n(w, id.data, id.len);
    buf_fini(&id);
}

static void security(struct json_writer *w, const struct route *route)
{
    json_key(w, "security");
    json_array_begin(w);
    if (route->auth == AUTH_API || route->auth == AUTH_LEASE) {
        json_object_begin(w);
        json_key(w, "bearer");
        json_array_begin(w);
        json_array_finish(w);
        json_object_finish(w);
    }
    json_array_finish(w);
}

static void operation(struct json_writer *w, const struct route *route, const char *method)
{
    char key[16];
    size_t i = 0;

    for (; method[i] != '\0' && i < sizeof(key) - 1; i++)
        key[i] = (char)tolower((unsigned char)method[i]);
    key[i] = '\0';
    json_key(w, key);
    json_object_begin(w);
    if (route->summary != NULL)
        json_member_string(w, "summary", route->summary);
    operation_id(w, method, route->path);
    security(w, route);
    parameters(w, route);
    if (route->request_schema != NULL) {
        json_key(w, "requestBody");
        json_object_begin(w);
        json_member_bool(w, "required", true);
        member_schema(w, route->request_schema);
        json_object_finish(w);
    }
    responses(w, route);
    json_object_finish(w);
}

/* ---- the document ----------------------------------------------------------------------------- */

/* Rows of one path stand in one object; returns the first of them for each. */
static bool is_first_of_path(const struct route_set *routes, size_t table, const struct route *row)
{
    for (size_t t = 0; t <= table; t++) {
        for (const struct route *r = routes->tables[t]; r->path != NULL && r != row; r++) {
            if (strcmp(r->path, row->path) == 0)
                return false;
        }
    }
    return true;
}

static void path_key(struct json_writer *w, const char *path)
{
    struct buf key = {0};
    const char *star = strchr(path, '*');

    if (star == NULL) {
        json_key(w, path);
        return;
    }
    buf_add(&key, path, (size_t)(star - path));
    buf_adds(&key, "{rest}");
    json_key(w, key.data);
    buf_fini(&key);
}

static void path_item(struct json_writer *w, const struct route_set *routes, const char *path)
{
    path_key(w, path);
    json_object_begin(w);
    for (size_t t = 0; t < routes->n_tables; t++) {
        for (const struct route *r = routes->tables[t]; r->path != NULL; r++) {
            if (strcmp(r->path, path) != 0)
                continue;
            if ((r->flags & ROUTE_ANY_METHOD) == 0)
                operation(w, r, r->method);
            for (size_t m = 0; (r->flags & ROUTE_ANY_METHOD) != 0 &&
                               m < sizeof(any_methods) / sizeof(any_methods[0]);
                 m++)
                operation(w, r, any_methods[m]);
        }
    }
    json_object_finish(w);
}

void openapi_write(struct buf *out, const struct route_set *routes, const char *title,
                   const char *version)
{
    static const char bearer[] = "{\"bearer\":{\"type\":\"http\",\"scheme\":\"bearer\"}}";
    struct json_writer w = {.out = out};

    json_object_begin(&w);
    json_member_string(&w, "openapi", "3.1.0");
    json_key(&w, "info");
    json_object_begin(&w);
    json_member_string(&w, "title", title);
    json_member_string(&w, "version", version);
    json_object_finish(&w);
    json_key(&w, "paths");
    json_object_begin(&w);
    for (size_t t = 0; t < routes->n_tables; t++) {
        for (const struct route *r = routes->tables[t]; r->path != NULL; r++) {
            if (is_first_of_path(routes, t, r))
                path_item(&w, routes, r->path);
        }
    }
    json_object_finish(&w);
    json_key(&w, "components");
    json_object_begin(&w);
    json_key(&w, "securitySchemes");
    json_raw(&w, bearer, sizeof(bearer) - 1);
    json_key(&w, "schemas");
    json_raw(&w, error_schemas, sizeof(error_schemas) - 1);
    json_object_finish(&w);
    json_object_finish(&w);
}
