/* A control group per job, where the daemon may make one: memory and process limits that hold for
 * the whole tree, and a kill that no fork escapes. Version 1 (one hierarchy per controller), version
 * 2, and both side by side. */
#pragma once

#include "core/runtime/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { CGROUP_PATH_MAX = 256 };

/** The folders in which jobs get their groups; "" = not to be had. */
struct cgroup_roots {
    char memory[CGROUP_PATH_MAX];  /* memory limits work here */
    char pids[CGROUP_PATH_MAX];    /* process limits work here */
    char unified[CGROUP_PATH_MAX]; /* version 2: cgroup.kill works here */
};

/** What the texts of /proc/self/cgroup and /proc/self/mountinfo say of where our own groups are
 * mounted. Pure. `ret` gets the folder of our own group for each, "" where there is none. */
void cgroup_locate(const char *self_cgroup, const char *mountinfo, struct cgroup_roots *ret);

/** Find out where groups can be made, by making and removing one with a limit. On a missing part
 * `note` (of `note_size`) says why. */
void cgroup_probe(struct cgroup_roots *ret, char *note, size_t note_size);

/** Make the groups of job `id` with its limits (0 = none). ERR_INTERNAL when one of the roots that
 * the probe found refuses. */
bool cgroup_create(const struct cgroup_roots *roots, const char *id, int64_t max_memory,
                   int64_t max_processes, struct error *err) MUST_CHECK;

/** fork(), with the child born inside its version 2 group: moving there later makes the kernel wait
 * for every processor, 10 ms here. The rest is done by the child with cgroup_join. -1 with errno. */
pid_t cgroup_fork(const struct cgroup_roots *roots, const char *id);

/** Move the calling process into those groups of `id` that it is not in yet. Between fork and exec. */
bool cgroup_join(const struct cgroup_roots *roots, const char *id, struct error *err) MUST_CHECK;

/** Kill every process of the groups: by cgroup.kill, else one by one. True when none is left. */
bool cgroup_kill(const struct cgroup_roots *roots, const char *id);

/** Processes that the memory limit killed so far; 0 when not known. */
int64_t cgroup_oom_kills(const struct cgroup_roots *roots, const char *id);

/** Remove the groups; false while they have processes. */
bool cgroup_remove(const struct cgroup_roots *roots, const char *id);
