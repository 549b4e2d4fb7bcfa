#include "http/router.h"

#include "core/runtime/buf.h"
#include "core/runtime/check.h"

#include <stdlib.h>
#include <string.h>

struct segment {
    const char *at; /* of the template, or of a path; a parameter's name without braces */
    size_t len;
    bool param;
};

struct compiled {
    const struct route *route;
    struct segment segments[ROUTE_SEGMENTS_MAX];
    int n_segments;
    bool fixed; /* neither parameters nor a rest */
    bool rest;
    uint32_t hash;
    size_t next; /* 1-based: next fixed row in the same bucket */
};

struct router {
    struct compiled *rows;
    size_t n_rows;
    size_t *buckets; /* 1-based first fixed row; n_buckets is a power of two */
    size_t n_buckets;
};

/* FNV-1a */
static uint32_t path_hash(const char *path, size_t len)
{
    uint32_t h = 2166136261U;

    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)path[i]) * 16777619U;
    return h;
}

/* ---- compiling -------------------------------------------------------------------------------- */

static void compile_segment(struct compiled *row, const char *at, size_t len)
{
    struct segment *s;

    PRE(row->n_segments < ROUTE_SEGMENTS_MAX);
    if (len == 1 && at[0] == '*') {
        row->rest = true;
        row->fixed = false;
        return;
    }
    s = &row->segments[row->n_segments++];
    *s = (struct segment){.at = at, .len = len};
    if (len > 2 && at[0] == '{' && at[len - 1] == '}') {
        *s = (struct segment){.at = xstrndup(at + 1, len - 2), .len = len - 2, .param = true};
        row->fixed = false;
    }
}

static void compile(struct compiled *row, const struct route *route)
{
    const char *at = route->path;

    PRE(at[0] == '/' && route->handle != NULL);
    PRE(route->method != NULL || (route->flags & ROUTE_ANY_METHOD) != 0);
    *row = (struct compiled){.route = route, .fixed = true};
    row->hash = path_hash(route->path, strlen(route->path));
    while (*at == '/') {
        size_t len = strcspn(at + 1, "/");
        PRE(!row->rest);
        compile_segment(row, at + 1, len);
        at += len + 1;
    }
}

struct router *router_new(const struct route_set *routes)
{
    struct router *router = xcalloc(1, sizeof(*router));

    for (size_t t = 0; t < routes->n_tables; t++) {
        for (const struct route *r = routes->tables[t]; r->path != NULL; r++)
            router->n_rows++;
    }
    router->rows = xcalloc(router->n_rows + 1, sizeof(*router->rows));
    router->n_buckets = 64;
    while (router->n_buckets < router->n_rows * 2)
        router->n_buckets *= 2;
    router->buckets = xcalloc(router->n_buckets, sizeof(*router->buckets));
    for (size_t t = 0, i = 0; t < routes->n_tables; t++) {
        for (const struct route *r = routes->tables[t]; r->path != NULL; r++, i++) {
            struct compiled *row = &router->rows[i];
            size_t *bucket;
            compile(row, r);
            if (!row->fixed)
                continue;
            bucket = &router->buckets[row->hash & (router->n_buckets - 1)];
            row->next = *bucket;
            *bucket = i + 1;
        }
    }
    return router;
}

void router_free(struct router *router)
{
    if (router == NULL)
        return;
    for (size_t i = 0; i < router->n_rows; i++) {
        for (int s = 0; s < router->rows[i].n_segments; s++) {
            if (router->rows[i].segments[s].param)
                free((char *)router->rows[i].segments[s].at);
        }
    }
    free(router->rows);
    free(router->buckets);
    free(router);
}

size_t router_count(const struct router *router)
{
    return router->n_rows;
}

const struct route *router_at(const struct router *router, size_t index)
{
    PRE(index < router->n_rows);
    return router->rows[index].route;
}

/* ---- paths ------------------------------------------------------------------------------------ */

/* `.`, `..` and their percent-encoded spellings: no encoding makes them safe to pass on. */
static bool is_dot_segment(const char *at, size_t len)
{
    size_t dots = 0;

    while (len > 0) {
        if (at[0] == '.') {
            at++;
            len--;
        } else if (len >= 3 && at[0] == '%' && at[1] == '2' && (at[2] | 0x20) == 'e') {
            at += 3;
            len -= 3;
        } else {
            return false;
        }
        dots++;
    }
    return dots == 1 || dots == 2;
}

/* The same behind an encoded slash or backslash, for whoever decodes before splitting. */
static bool has_dot_segment(const char *at, size_t len)
{
    size_t from = 0;

    for (size_t i = 0; i < len; i++) {
        bool sep = i + 2 < len && at[i] == '%' &&
                   ((at[i + 1] == '2' && (at[i + 2] | 0x20) == 'f') ||
                    (at[i + 1] == '5' && (at[i + 2] | 0x20) == 'c'));
        if (!sep)
            continue;
        if (is_dot_segment(at + from, i - from))
            return true;
        from = i + 3;
    }
    return is_dot_segment(at + from, len - from);
}

struct split {
    struct segment segments[ROUTE_SEGMENTS_MAX];
    int n; /* all of them, also beyond ROUTE_SEGMENTS_MAX */
    bool dots;
};

static void split_path(const char *path, struct split *ret)
{
    const char *at = path;

    ret->n = 0;
    ret->dots = false;
    while (*at == '/') {
        size_t len = strcspn(at + 1, "/");
        if (ret->n < ROUTE_SEGMENTS_MAX)
            ret->segments[ret->n] = (struct segment){.at = at + 1, .len = len};
        ret->n++;
        ret->dots = ret->dots || has_dot_segment(at + 1, len);
        at += len + 1;
    }
}

/* ---- matching --------------------------------------------------------------------------------- */

static bool row_matches(const struct compiled *row, const struct split *path)
{
    if (row->rest ? path->n <= row->n_segments : path->n != row->n_segments)
        return false;
    for (int i = 0; i < row->n_segments; i++) {
        const struct segment *want = &row->segments[i], *got = &path->segments[i];
        if (want->param ? got->len == 0
                        : got->len != want->len || memcmp(got->at, want->at, got->len) != 0)
            return false;
    }
    return true;
}

static void take_match(const struct router *router, const struct compiled *row,
                       const struct split *path, struct route_match *ret)
{
    *ret = (struct route_match){.route = row->route, .index = (size_t)(row - router->rows)};
    for (int i = 0; i < row->n_segments; i++) {
        if (!row->segments[i].param)
            continue;
        PRE(ret->n_params < ROUTE_PARAMS_MAX);
        ret->names[ret->n_params] = row->segments[i].at;
        ret->values[ret->n_params] = path->segments[i].at;
        ret->lengths[ret->n_params++] = path->segments[i].len;
    }
    if (row->rest)
        ret->rest = path->segments[row->n_segments].at;
}

static bool method_matches(const struct route *route, const char *method)
{
    return (route->flags & ROUTE_ANY_METHOD) != 0 || strcmp(route->method, method) == 0;
}

/* The next row that has this path: fixed rows of its bucket first, then the rest in order of the
 * tables, so that a literal segment wins over a parameter in the same place. */
struct walk {
    const char *path;
    uint32_t hash;
    size_t fixed, at;
    struct split split;
    bool is_split;
};

static const struct compiled *walk_next(const struct router *router, struct walk *w)
{
    while (w->fixed != 0) {
        const struct compiled *row = &router->rows[w->fixed - 1];
        w->fixed = row->next;
        if (row->hash == w->hash && strcmp(row->route->path, w->path) == 0)
            return row;
    }
    if (!w->is_split) {
        split_path(w->path, &w->split);
        w->is_split = true;
    }
    while (w->at < router->n_rows) {
        const struct compiled *row = &router->rows[w->at++];
        if (!row->fixed && row_matches(row, &w->split))
            return row;
    }
    return NULL;
}

/* Leaves `split` alone: most walks end before it is needed. */
static void walk_begin(struct walk *w, const struct router *router, const char *path)
{
    w->path = path;
    w->hash = path_hash(path, strlen(path));
    w->fixed = router->buckets[w->hash & (router->n_buckets - 1)];
    w->at = 0;
    w->is_split = false;
}

static bool matches_without_slash(const struct router *router, const char *path)
{
    size_t len = strlen(path);
    char shorter[512];
    struct walk w;

    if (len < 2 || len > sizeof(shorter) || path[len - 1] != '/')
        return false;
    memcpy(shorter, path, len - 1);
    shorter[len - 1] = '\0';
    walk_begin(&w, router, shorter);
    return walk_next(router, &w) != NULL;
}

enum route_outcome router_find(const struct router *router, const char *method, const char *path,
                               struct route_match *ret)
{
    const struct compiled *row, *other = NULL, *get = NULL;
    struct walk w;

    walk_begin(&w, router, path);
    *ret = (struct route_match){0};
    while ((row = walk_next(router, &w)) != NULL) {
        if (method_matches(row->route, method))
            break;
        if (get == NULL && strcmp(row->route->method, "GET") == 0)
            get = row;
        other = other != NULL ? other : row;
    }
    if (row == NULL && strcmp(method, "HEAD") == 0)
        row = get;
    if (w.is_split && w.split.dots)
        return ROUTE_BAD_PATH;
    if (row != NULL) {
        take_match(router, row, &w.split, ret);
        return ROUTE_FOUND;
    }
    if (other != NULL) {
        take_match(router, other, &w.split, ret);
        return ROUTE_WRONG_METHOD;
    }
    return matches_without_slash(router, path) ? ROUTE_SLASH : ROUTE_UNKNOWN;
}

void router_allow(const struct router *router, const char *path, struct buf *out)
{
    const struct compiled *row;
    struct walk w;

    walk_begin(&w, router, path);
    while ((row = walk_next(router, &w)) != NULL) {
        if (row->route->method == NULL)
            continue;
        if (out->len > 0)
            buf_adds(out, ", ");
        buf_adds(out, row->route->method);
        if (strcmp(row->route->method, "GET") == 0)
            buf_adds(out, ", HEAD");
    }
}
