#include "core/runtime/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void check_failed(const char *kind, const char *what, const char *file, int line)
{
    fprintf(stderr, "bindery: %s failed: %s (%s:%d)\n", kind, what, file, line);
    abort();
}

static void *or_die(void *p, size_t size)
{
    if (p == NULL && size != 0) {
        fprintf(stderr, "bindery: out of memory: %zu bytes\n", size);
        abort();
    }
    return p;
}

void *xmalloc(size_t size)
{
    return or_die(malloc(size), size);
}

void *xcalloc(size_t count, size_t size)
{
    return or_die(calloc(count, size), count * size);
}

void *xrealloc(void *old, size_t size)
{
    return or_die(realloc(old, size), size);
}

char *xstrdup(const char *text)
{
    return xstrndup(text, strlen(text));
}

char *xstrndup(const char *text, size_t len)
{
    char *copy = xmalloc(len + 1);

    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}
