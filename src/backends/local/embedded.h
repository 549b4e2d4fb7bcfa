/* The embedded sandbox: `bindery shellctl serve` as a supervised child of the server.
 *
 * The child listens on a unix socket in a folder that only our user can enter, so it needs no
 * token. It is told its settings by the environment, of which nothing else of ours is passed on,
 * and it is ready when it says so on a descriptor of its own. When it ends it is started again,
 * after a growing pause. It ends with this process, however that ends; the jobs do not, and the
 * next child takes them over. Its log goes to our stderr. */
#pragma once

#include "core/runtime/error.h"
#include "core/runtime/loop.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct config;
struct embedded;
struct json_writer;

/** Borrowed for the life of the child's supervisor, except texts: those are copied. */
struct embedded_options {
    const struct config *config; /* isolation, limits and log settings of the child */
    const char *data_dir; /* absolute; state goes to `sandbox/` in it, the socket to `run/` */
    const char *home_root, *workspace_root; /* parents of Homes and Workspaces; absolute */
    const char *program;                    /* NULL: this executable */
    /** Called from the loop at each change of embedded_ready; may be NULL. */
    void (*on_change)(void *ctx, bool ready);
    void *ctx;
};

/** Make the folders and start the first child; readiness comes later. NULL with ERR_INTERNAL when
 * a folder cannot be made. A child that cannot be started is no error here: it is tried again. */
struct embedded *embedded_start(struct loop *loop, const struct embedded_options *options,
                                struct error *err) MUST_CHECK;

/** Whether the child listens; else `err` (may be NULL) gets ERR_BACKEND_UNAVAILABLE with the
 * reason. */
bool embedded_ready(const struct embedded *embedded, struct error *err);

/** Is this the process of the child that runs now? Its status is this module's to take. */
bool embedded_is_child(const struct embedded *embedded, pid_t pid);

/** Path of its socket, the same over restarts. Valid until embedded_free. */
const char *embedded_socket(const struct embedded *embedded);

/** One JSON object for /readyz: ready, pid, restarts, and what the child said of its isolation. */
void embedded_describe(const struct embedded *embedded, struct json_writer *w);

/** End the child: SIGTERM, after some seconds SIGKILL. `on_stopped` (may be NULL) is called from
 * the loop when it has gone, at once when there is none. Nothing is started any more. */
void embedded_stop(struct embedded *embedded, void (*on_stopped)(void *ctx), void *ctx);

/** Kills a child that still runs, and frees. NULL is allowed. */
void embedded_free(struct embedded *embedded);
