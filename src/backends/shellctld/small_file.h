/* Small files of a job folder: written whole or not at all, read whole. */
#pragma once

#include "core/runtime/arena.h"
#include "core/runtime/error.h"

#include <stdbool.h>
#include <stddef.h>

/** Write `<folder>/<name>` (0600) by way of `<name>.new` and a rename. */
bool small_file_write(const char *folder, const char *name, const char *bytes, size_t len,
                      struct error *err) MUST_CHECK;

/** Read it whole; a file of more than `max` bytes is an error. The text is followed by a NUL.
 * ERR_NOT_FOUND when there is none. */
bool small_file_read(const char *folder, const char *name, size_t max, struct arena *arena,
                     const char **ret, size_t *ret_len, struct error *err) MUST_CHECK;

/** Write all of it, repeating after interruptions; the number of bytes written (errno says why
 * not all). */
size_t write_all(int fd, const char *bytes, size_t len);
