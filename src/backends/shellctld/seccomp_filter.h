/* The system calls that no job needs and that widen the kernel's surface or reach around the other
 * layers. A deny list: everything else stays allowed, so that ordinary programs run. */
#pragma once

#include "core/runtime/error.h"

#include <stdbool.h>

enum seccomp_filter_flags {
    SECCOMP_NO_INET = 1 << 0, /* no sockets but local ones: there is no network namespace */
    SECCOMP_NO_UNIX = 1 << 1, /* no local sockets either (pairs stay): they are not fenced in */
};

/** Put the filter on the calling thread for good. Needs no_new_privs. */
bool seccomp_filter_load(unsigned flags, struct error *err) MUST_CHECK;

/** False with the reason when the kernel has no seccomp filters. */
bool seccomp_filter_available(struct error *err) MUST_CHECK;
