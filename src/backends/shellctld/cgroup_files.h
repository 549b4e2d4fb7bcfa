/* What the parts of cgroup.h share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Files of a group's folder. False with errno. */
bool cgroup_write(const char *folder, const char *file, const char *text);
bool cgroup_write_number(const char *folder, const char *file, int64_t value);
bool cgroup_read(const char *folder, const char *file, char *text, size_t size);
bool cgroup_has(const char *folder, const char *file);

/** Limits of a group, of whichever version its folder is. */
bool cgroup_limit_memory(const char *folder, int64_t bytes);
bool cgroup_limit_pids(const char *folder, int64_t count);
