/* The backend of `bindery serve`: made as the settings say, with what it needs around it. */
#pragma once

#include "core/domain/backend.h"
#include "core/runtime/config.h"

#include <sys/types.h>

struct embedded;
struct json_writer;

/** `backend` NULL: none is configured, which is allowed for `local` with an empty endpoint only. */
struct served_backend {
    struct backend *backend;
    struct embedded *embedded; /* the sandbox daemon, or NULL */
    void (*stopped)(void *ctx);
    void *stopped_ctx;
};

/** Make and start it. `data_dir` is ours and locked. False with `err` when it cannot be. */
bool served_backend_start(struct served_backend *ret, struct loop *loop, struct http_client *http,
                          const struct config *config, struct error *err) MUST_CHECK;

/** Facts for /readyz: one JSON object. */
void served_backend_describe(const struct served_backend *served, struct json_writer *w);

/** Let what goes on in the background come to an end, then end the sandbox daemon, if any; `done`
 * is called from the loop after that. */
void served_backend_stop(struct served_backend *served, struct loop *loop, void (*done)(void *ctx),
                         void *ctx);

/** Is this a child process that the backend waits for itself? `ctx` is the served_backend. */
bool served_backend_owns(void *ctx, pid_t pid);

/** After every operation is over. */
void served_backend_free(struct served_backend *served);
