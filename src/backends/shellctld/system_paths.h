/* The parts of the machine that every job may read: one list for bubblewrap and for Landlock. */
#pragma once

#include "backends/shellctld/landlock.h"

#include <stdbool.h>
#include <stddef.h>

enum { SYSTEM_PATHS_MAX = 64 };

/** Where a sandbox with a mount namespace finds its script. */
#define SANDBOX_SCRIPT_DIR "/run/bindery"
#define SANDBOX_SCRIPT     SANDBOX_SCRIPT_DIR "/script"

/** Folders of programs, libraries and their data: /usr, /bin, /lib, …; NULL ends the list. */
extern const char *const system_folders[];

/** Files and folders of /etc that programs need and that hold no secret; NULL ends the list. */
extern const char *const system_etc[];

/** Landlock rules for all of it, /proc and the usual device nodes; at most `max`. */
size_t system_paths_rules(struct landlock_rule *rules, size_t max);

/** Lies `path` inside one of the folders that every job may read? State must not. */
bool system_paths_cover(const char *path);
