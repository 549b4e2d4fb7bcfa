/* How the embedded sandbox's process comes to be: folders, environment, fork and exec. Internal to
 * embedded.c. */
#pragma once

#include "core/runtime/buf.h"
#include "core/runtime/error.h"

#include <sys/types.h>

struct embedded_options;

/** Where it lives. All owned. */
struct embedded_paths {
    char *state_dir; /* <data_dir>/sandbox */
    char *run_dir;   /* holds the socket; 0700 */
    char *socket;
    bool temporary; /* run_dir is ours alone, outside the data folder */
};

/** Make the folders (0700). A socket's path has at most 107 bytes: where the data folder's is too
 * long, the socket goes to a new folder in /tmp. */
bool embedded_paths_make(struct embedded_paths *paths, const char *data_dir,
                         struct error *err) MUST_CHECK;
/** Remove the socket, and the folder if it is a temporary one. */
void embedded_paths_remove(const struct embedded_paths *paths);
void embedded_paths_fini(struct embedded_paths *paths);

/** The child's whole environment as NAME=value strings, each with its NUL: its settings, and of
 * ours only what says nothing of us (PATH, HOME, locale, time zone, sanitizer options). */
void embedded_environment(struct buf *out, const struct embedded_options *options);

struct embedded_child {
    pid_t pid;
    int pidfd;    /* readable when it has ended */
    int ready_fd; /* gets its line of JSON; non-blocking */
};

/** Start it. It dies with the calling thread's process. False with ERR_OVERLOADED when the system
 * has no room for it. */
bool embedded_spawn(const struct embedded_paths *paths, const struct buf *environment,
                    const char *program, struct embedded_child *ret, struct error *err) MUST_CHECK;

void embedded_child_signal(const struct embedded_child *child, int number);
