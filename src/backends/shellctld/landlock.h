/* Landlock: what a process and its descendants may do with files, sockets and signals. Raw system
 * calls; the constants are those of the kernel's documentation (userspace-api/landlock), since the
 * headers of the build machine may be older than the kernel that runs. */
#pragma once

#include "core/runtime/error.h"

#include <stdbool.h>
#include <stddef.h>

enum landlock_access {
    LANDLOCK_LIST,   /* list folders */
    LANDLOCK_READ,   /* read, execute, list */
    LANDLOCK_WRITE,  /* everything */
    LANDLOCK_DEVICE, /* read, write and ioctl existing device nodes */
};

/** Access to one path and everything beneath. A path that does not exist is skipped, unless
 * `required`. */
struct landlock_rule {
    const char *path;
    enum landlock_access access;
    bool required;
};

/** Version of the kernel's Landlock; 0 = none (errno says why). */
int landlock_abi(void);

/** Restrict the calling thread for good to what the rules allow, plus reading and writing what its
 * descriptors 0-2 refer to. Needs no_new_privs. With `no_tcp` (ABI 4) neither connect nor bind.
 * From ABI 6 signals and abstract sockets reach only what is restricted alike. */
bool landlock_restrict(int abi, const struct landlock_rule *rules, size_t n, bool no_tcp,
                       struct error *err) MUST_CHECK;
