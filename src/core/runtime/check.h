/* Assertions and allocation that cannot fail.
 *
 * PRE states what a caller must guarantee, POST what a function promises. Both stay on in release
 * builds and guard against our own mistakes only, never against input. */
#pragma once

#include <stddef.h>

/** Print `what`, file and line to stderr and abort. */
_Noreturn void check_failed(const char *kind, const char *what, const char *file, int line);

#define PRE(cond)         ((cond) ? (void)0 : check_failed("precondition", #cond, __FILE__, __LINE__))
#define POST(cond)        ((cond) ? (void)0 : check_failed("postcondition", #cond, __FILE__, __LINE__))
#define UNREACHABLE(what) check_failed("unreachable", (what), __FILE__, __LINE__)

/** The result of this function must be looked at. */
#define MUST_CHECK __attribute__((warn_unused_result))
/** printf-style checking; `f` and `a` are the one-based positions of format and first argument. */
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

/** Heap allocation that aborts the process, with a message, when memory is exhausted: the one
 * place that decides what out-of-memory means (docs/adr/0002). xcalloc zeroes. Free with free(). */
void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *old, size_t size);
char *xstrdup(const char *text);
char *xstrndup(const char *text, size_t len);
