/* The server's data folder: made when it is missing, owned by one server at a time. */
#pragma once

#include "core/runtime/arena.h"
#include "core/runtime/error.h"

/** A folder that this process owns, until it exits. */
struct data_dir {
    const char *path; /* borrowed */
    int lock_fd;
};

/** Make `path` (0700, parents too), see that it can be written, and lock it. ERR_CONFLICT when
 * another server owns it, ERR_BAD_REQUEST when it cannot be used; the message says what to do. */
bool data_dir_open(struct data_dir *dir, const char *path, struct error *err) MUST_CHECK;
void data_dir_close(struct data_dir *dir);

/** A secret of 64 hex characters that is made once and kept in `<dir>/<name>` (0600). NULL with
 * `err` when it can be neither read nor made. */
const char *data_dir_secret(const struct data_dir *dir, const char *name, struct arena *arena,
                            struct error *err) MUST_CHECK;
