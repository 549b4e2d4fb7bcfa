#include "http/proxy_head.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- path ------------------------------------------------------------------------------------ */

static bool is_encoded(const char *at, char low, char high)
{
    return at[0] == '%' && at[1] == low && (at[2] == high || at[2] == (high | 0x20));
}

/* How many characters a dot takes here: 1, 3 for %2e, 0 when there is none. */
static size_t dot_at(const char *at)
{
    if (*at == '.')
        return 1;
    return is_encoded(at, '2', 'E') ? 3 : 0;
}

static bool is_dot_segment(const char *at)
{
    size_t first = dot_at(at);
    size_t second = first > 0 ? dot_at(at + first) : 0;
    const char *end = at + first + second;

    return first > 0 && (*end == '/' || *end == '\0');
}

bool proxy_check_path(const char *rest, struct error *err)
{
    bool at_start = true;

    for (const char *at = rest; *at != '\0'; at++) {
        if ((unsigned char)*at <= ' ' || *at == 0x7f || *at == '\\' || is_encoded(at, '2', 'F') ||
            is_encoded(at, '5', 'C') || is_encoded(at, '0', '0') ||
            (at_start && is_dot_segment(at))) {
            error_set(err, ERR_BAD_REQUEST,
                      "the path behind /shellctl/ has a dot segment, an encoded slash, a backslash "
                      "or a control character");
            return false;
        }
        at_start = *at == '/';
    }
    return true;
}

bool proxy_may_wait(const char *rest)
{
    static const char *const ends[] = {"/run", "/wait", "/input", "/terminate"};
    size_t len = strlen(rest);

    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        size_t n = strlen(ends[i]);
        if (len >= n && strcmp(rest + len - n, ends[i]) == 0)
            return true;
    }
    return false;
}

const char *proxy_url(struct arena *arena, const struct endpoint *endpoint, const char *rest,
                      const char *query)
{
    return arena_printf(arena, "%s/%s%s%s", endpoint->base_url, rest[0] == '/' ? rest + 1 : rest,
                        query[0] != '\0' ? "?" : "", query);
}

/* ---- request --------------------------------------------------------------------------------- */

enum { HEADERS_MAX = 128 };

struct header_list {
    const struct exchange *x;
    const struct endpoint *endpoint;
    const char *connection; /* value of Connection: names of further hop-by-hop headers */
    struct http_header *headers;
    size_t n;
};

static bool is_hop_by_hop(const char *name)
{
    static const char *const names[] = {"connection",       "keep-alive", "proxy-authenticate",
                                        "proxy-connection", "te",         "proxy-authorization",
                                        "trailer",          "upgrade",    "transfer-encoding"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (strcasecmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

static bool is_of_the_hop(const char *name)
{
    static const char *const names[] = {"host",          "content-length", "expect",
                                        "authorization", "x-request-id",   "x-inner-api-key",
                                        "x-sandbox-id"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (strcasecmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

/* Is `name` a member of the comma-separated `list`? */
static bool list_has(const char *list, const char *name)
{
    size_t len = strlen(name);

    while (list != NULL && *list != '\0') {
        list += strspn(list, ", \t");
        if (strncasecmp(list, name, len) == 0 && strchr(", \t", list[len]) != NULL)
            return true; /* strchr also finds the NUL */
        list += strcspn(list, ",");
    }
    return false;
}

static void take_request_header(void *ctx, const char *name, const char *value)
{
    struct header_list *list = ctx;

    if (list->n == HEADERS_MAX || is_hop_by_hop(name) || is_of_the_hop(name) ||
        list_has(list->connection, name))
        return;
    for (size_t i = 0; i < list->endpoint->n_headers; i++) {
        if (strcasecmp(name, list->endpoint->headers[i].name) == 0)
            return;
    }
    list->headers[list->n++] = (struct http_header){arena_strdup(list->x->arena, name),
                                                    arena_strdup(list->x->arena, value)};
}

void proxy_request_headers(const struct exchange *x, const struct endpoint *endpoint,
                           const struct http_header **ret, size_t *ret_n)
{
    struct header_list list = {
        .x = x,
        .endpoint = endpoint,
        .connection = exchange_header(x, "connection"),
        .headers = arena_alloc(x->arena, (HEADERS_MAX + 6) * sizeof(*list.headers)),
    };

    exchange_each_header(x, take_request_header, &list);
    for (size_t i = 0; i < endpoint->n_headers; i++)
        list.headers[list.n++] = endpoint->headers[i];
    if (endpoint->token != NULL && endpoint->token[0] != '\0')
        list.headers[list.n++] = (struct http_header){
            "Authorization", arena_printf(x->arena, "Bearer %s", endpoint->token)};
    list.headers[list.n++] = (struct http_header){"X-Request-Id", x->request_id};
    *ret = list.headers;
    *ret_n = list.n;
}

/* ---- reply ----------------------------------------------------------------------------------- */

void proxy_reply_headers(struct arena *arena, const struct http_response *head,
                         const struct http_header **ret, size_t *ret_n, int64_t *ret_length)
{
    const char *connection = http_response_header(head, "connection");
    const char *length = http_response_header(head, "content-length");
    struct http_header *headers = arena_alloc(arena, (head->n_headers + 1) * sizeof(*headers));
    size_t n = 0;

    for (size_t i = 0; i < head->n_headers; i++) {
        const struct http_header *h = &head->headers[i];

        if (is_hop_by_hop(h->name) || strcasecmp(h->name, "content-length") == 0 ||
            strcasecmp(h->name, "set-cookie") == 0 || list_has(connection, h->name))
            continue;
        headers[n++] =
            (struct http_header){arena_strdup(arena, h->name), arena_strdup(arena, h->value)};
    }
    *ret = headers;
    *ret_n = n;
    *ret_length = length != NULL ? strtoll(length, NULL, 10) : -1;
}
