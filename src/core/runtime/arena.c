#include "core/runtime/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN 1
#endif
#ifdef HAVE_ASAN
#include <sanitizer/asan_interface.h>
#define RED_ZONE 16 /* poisoned bytes behind each allocation: an overrun is seen */
#else
#define RED_ZONE                          0
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

enum {
    CHUNK_BYTES = 4096,   /* one page, header included */
    CACHED_CHUNKS = 1024, /* 4 MiB kept for reuse at most */
    ALIGNMENT = alignof(max_align_t),
};

struct chunk {
    struct chunk *next;
    size_t size; /* payload bytes */
    size_t used;
    alignas(max_align_t) char data[];
};

struct cleanup {
    struct cleanup *next;
    void (*run)(void *ctx);
    void *ctx;
};

/* Lives in its own first chunk. */
struct arena {
    struct chunk *chunks; /* newest first; standard-size chunks go back to the cache */
    struct cleanup *cleanups;
    size_t footprint;
};

enum { STANDARD_BYTES = CHUNK_BYTES - sizeof(struct chunk) };

/* Of the thread: an arena may be filled on one and freed on another. */
static _Thread_local struct chunk *cache;
static _Thread_local size_t cached;

static struct chunk *chunk_take(size_t payload)
{
    size_t size = payload <= STANDARD_BYTES ? STANDARD_BYTES : payload;
    struct chunk *c = NULL;

    if (size == STANDARD_BYTES && cache != NULL) {
        c = cache;
        cache = c->next;
        cached--;
    } else {
        c = xmalloc(sizeof(*c) + size);
        c->size = size;
        ASAN_POISON_MEMORY_REGION(c->data, size);
    }
    c->next = NULL;
    c->used = 0;
    return c;
}

static void chunk_give(struct chunk *c)
{
    ASAN_POISON_MEMORY_REGION(c->data, c->size);
    if (c->size == STANDARD_BYTES && cached < CACHED_CHUNKS) {
        c->next = cache;
        cache = c;
        cached++;
        return;
    }
    free(c);
}

/* What an allocation takes of its chunk. */
static size_t rounded(size_t size)
{
    return (size + RED_ZONE + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

static void *chunk_carve(struct chunk *c, size_t size)
{
    void *p = c->data + c->used;

    c->used += rounded(size);
    ASAN_UNPOISON_MEMORY_REGION(p, size);
    memset(p, 0, size);
    return p;
}

struct arena *arena_new(void)
{
    struct chunk *c = chunk_take(rounded(sizeof(struct arena)));
    struct arena *arena = chunk_carve(c, sizeof(struct arena));

    arena->chunks = c;
    arena->footprint = sizeof(*c) + c->size;
    return arena;
}

void arena_free(struct arena *arena)
{
    if (arena == NULL)
        return;
    while (arena->cleanups != NULL) {
        struct cleanup *cleanup = arena->cleanups;
        arena->cleanups = cleanup->next;
        cleanup->run(cleanup->ctx);
    }
    for (struct chunk *c = arena->chunks, *next; c != NULL; c = next) {
        next = c->next;
        chunk_give(c);
    }
}

void *arena_alloc(struct arena *arena, size_t size)
{
    struct chunk *c = arena->chunks;

    PRE(size < SIZE_MAX / 2);
    size = size == 0 ? 1 : size;
    if (c->size - c->used < rounded(size)) {
        c = chunk_take(rounded(size));
        arena->footprint += sizeof(*c) + c->size;
        if (c->size > STANDARD_BYTES) { /* goes behind: the current chunk still has room */
            c->next = arena->chunks->next;
            arena->chunks->next = c;
        } else {
            c->next = arena->chunks;
            arena->chunks = c;
        }
    }
    return chunk_carve(c, size);
}

char *arena_memdup(struct arena *arena, const void *bytes, size_t len)
{
    char *copy = arena_alloc(arena, len + 1);

    if (len != 0)
        memcpy(copy, bytes, len);
    return copy;
}

char *arena_strdup(struct arena *arena, const char *text)
{
    return text == NULL ? NULL : arena_memdup(arena, text, strlen(text));
}

char *arena_vprintf(struct arena *arena, const char *format, va_list args)
{
    char small[256]; /* most texts fit, and are then formatted once only */
    va_list again;
    char *text;
    int len;

    va_copy(again, args);
    len = vsnprintf(small, sizeof(small), format, again);
    va_end(again);
    PRE(len >= 0);
    if ((size_t)len < sizeof(small))
        return arena_memdup(arena, small, (size_t)len);
    text = arena_alloc(arena, (size_t)len + 1);
    vsnprintf(text, (size_t)len + 1, format, args);
    return text;
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
    va_list args;
    char *text;

    va_start(args, format);
    text = arena_vprintf(arena, format, args);
    va_end(args);
    return text;
}

char *arena_concat(struct arena *arena, const char *const *parts)
{
    size_t len = 0;
    char *text, *to;

    for (const char *const *part = parts; *part != NULL; part++)
        len += strlen(*part);
    text = to = arena_alloc(arena, len + 1);
    for (; *parts != NULL; parts++)
        to = stpcpy(to, *parts);
    return text;
}

void arena_on_free(struct arena *arena, void (*run)(void *ctx), void *ctx)
{
    struct cleanup *cleanup = ARENA_NEW(arena, struct cleanup);

    cleanup->run = run;
    cleanup->ctx = ctx;
    cleanup->next = arena->cleanups;
    arena->cleanups = cleanup;
}

size_t arena_footprint(const struct arena *arena)
{
    return arena->footprint;
}
