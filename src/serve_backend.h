/* The backend of `bindery serve`: made as the settings say, with what it needs around it. */
#pragma once

#include "core/domain/backend.h"
#include "core/runtime/config.h"

struct embedded;
struct json_writer;

/** `backend` NULL: none is configured, which is allowed for `local` with an empty endpoint only. */
struct served_backend {
    struct backend *backend;
    struct embedded *embedded; /* the sandbox daemon, or NULL */
};

/** Make and start it. `data_dir` is ours and locked. False with `err` when it cannot be. */
bool served_backend_start(struct served_backend *ret, struct loop *loop, struct http_client *http,
                          const struct config *config, struct error *err) MUST_CHECK;

/** Facts for /readyz: one JSON object. */
void served_backend_describe(const struct served_backend *served, struct json_writer *w);

/** End the sandbox daemon; `done(ctx)` when it has gone, at once when there is none. */
void served_backend_stop(struct served_backend *served, void (*done)(void *ctx), void *ctx);

/** After every operation is over. */
void served_backend_free(struct served_backend *served);
