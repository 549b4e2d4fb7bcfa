/* Bump allocator with a cleanup list. One arena per HTTP exchange and per background operation:
 * what is in it lives exactly as long, and nothing in it is freed alone.
 *
 * Never store a pointer into an arena in an object that outlives it (lease table, ledger, pools):
 * those copy. Allocation never fails (core/runtime/check.h). An arena belongs to one thread at a time; it
 * may be handed to a worker and back. */
#pragma once

#include "core/runtime/check.h"

#include <stdarg.h>
#include <stddef.h>

/** Opaque; created by arena_new. */
struct arena;

/** An empty arena. Costs one small allocation, served from a process-wide cache when possible.
 * The caller owns it; end it with arena_free. */
struct arena *arena_new(void);

/** Run the cleanups, newest first, then release all memory. NULL is allowed. */
void arena_free(struct arena *arena);

/** `size` zeroed bytes, aligned for any type, valid until arena_free. */
void *arena_alloc(struct arena *arena, size_t size);

/** Copies. `text` may be NULL for arena_strdup (then NULL). arena_memdup adds a NUL behind. */
char *arena_strdup(struct arena *arena, const char *text);
char *arena_memdup(struct arena *arena, const void *bytes, size_t len);

/** printf into the arena. */
char *arena_printf(struct arena *arena, const char *format, ...) PRINTF_LIKE(2, 3);
char *arena_vprintf(struct arena *arena, const char *format, va_list args) PRINTF_LIKE(2, 0);

/** The texts of a NULL-terminated array in a row: for hot paths, where printf would be felt. */
char *arena_concat(struct arena *arena, const char *const *parts);
#define ARENA_CONCAT(arena, ...) arena_concat((arena), (const char *const[]){__VA_ARGS__, NULL})

/** Call `run(ctx)` when the arena ends. For what must be released by hand (json-c objects, …). */
void arena_on_free(struct arena *arena, void (*run)(void *ctx), void *ctx);

/** Bytes taken from the heap by this arena, for tests and metrics. */
size_t arena_footprint(const struct arena *arena);

#define ARENA_NEW(arena, type) ((type *)arena_alloc((arena), sizeof(type)))
