/* A pseudo-terminal pair. */
#pragma once

#include "core/runtime/error.h"

#include <stdbool.h>

/** Both ends close-on-exec, neither anybody's controlling terminal; the master non-blocking. */
bool pty_open(int cols, int rows, int *ret_master, int *ret_slave, struct error *err) MUST_CHECK;

bool pty_resize(int master, int cols, int rows);
