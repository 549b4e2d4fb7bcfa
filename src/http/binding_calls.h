/* The calls that both front doors make: Dify Agent's control plane and the gateway facade. Each is
 * recorded in the ledger where there is one. Fill a zeroed call (HANDLER_CALL) in, its `map_error`
 * included, then run it: it becomes the exchange's root operation. */
#pragma once

#include "http/handler.h"

struct binding_create_call {
    struct handler_call call;
    struct binding_spec spec;
    struct binding binding; /* for call.reply, which the caller sets */
};

/** Answered with 204. */
struct binding_destroy_call {
    struct handler_call call;
    struct destroy_spec spec;
};

struct snapshot_create_call {
    struct handler_call call;
    struct snapshot_spec spec;
    const char *binding_ref;
    const char *ref; /* for call.reply, which the caller sets */
};

/** Answered with 204. */
struct snapshot_delete_call {
    struct handler_call call;
    const char *ref;
};

void binding_create_run(struct binding_create_call *t);
void binding_destroy_run(struct binding_destroy_call *t);
void snapshot_create_run(struct snapshot_create_call *t);
void snapshot_delete_run(struct snapshot_delete_call *t);
