/* A growable byte string, always followed by a NUL. */
#pragma once

#include "core/runtime/check.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/** All-zero is an empty one. Owns `data`; free with buf_fini. `data` may be NULL while empty:
 * use buf_text for a C string. */
struct buf {
    char *data;
    size_t len, cap;
};

void buf_fini(struct buf *buf);
/** Length 0, memory kept. */
void buf_clear(struct buf *buf);
void buf_reserve(struct buf *buf, size_t more);
void buf_add(struct buf *buf, const void *bytes, size_t len);
void buf_adds(struct buf *buf, const char *text);
void buf_addc(struct buf *buf, char c);
void buf_addf(struct buf *buf, const char *format, ...) PRINTF_LIKE(2, 3);
void buf_vaddf(struct buf *buf, const char *format, va_list args) PRINTF_LIKE(2, 0);
/** Drop the first `len` bytes. */
void buf_drain(struct buf *buf, size_t len);
/** The content as a C string; "" when empty. Valid until the next change. */
const char *buf_text(const struct buf *buf);
