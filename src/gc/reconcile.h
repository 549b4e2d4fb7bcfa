/* The reconciler: compares what the backend really has with what the ledger knows. */
#pragma once

#include "core/domain/lifecycle.h"
#include "gc/collector.h"

struct reconciler;

struct reconciler_options {
    int64_t interval_ms;
    int64_t grace_ms; /* nothing younger is an orphan or lost */
    bool destroy;     /* orphans are handed to the collector; otherwise only recorded */
};

/** Runs at the start and periodically, where the backend can list; elsewhere it does nothing. */
struct reconciler *reconciler_new(struct loop *loop, struct lifecycle *lc,
                                  struct collector *collector,
                                  const struct reconciler_options *options);
/** Begin nothing more and cut what runs; `task` is posted when it has ended. */
void reconciler_stop(struct reconciler *r, struct task *task);
void reconciler_free(struct reconciler *r);

struct reconciler_status {
    bool supported;
    int64_t runs, orphans, lost, incomplete; /* since the start */
    int64_t last_run_wall_ms;
};
void reconciler_status(const struct reconciler *r, struct reconciler_status *ret);
