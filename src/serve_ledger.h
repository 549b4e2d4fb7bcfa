/* The ledger of `bindery serve` and all that works on it: lifecycle, collector, reconciler, counts. */
#pragma once

#include "core/domain/gc_control.h"
#include "core/domain/lifecycle.h"
#include "core/runtime/config.h"
#include "gc/collector.h"
#include "gc/reconcile.h"

struct json_writer;
struct ledger_census;

struct served_ledger {
    struct loop *loop;
    struct ledger *ledger;
    struct lifecycle *lifecycle;
    struct collector *collector;
    struct reconciler *reconciler;
    struct ledger_census *census;
    struct gc_control control;
    /* while stopping */
    struct task step;
    int stage;
    void (*stopped)(void *ctx);
    void *ctx;
    /** The database must not be used, as found out after the open. Set before it. */
    void (*on_refused)(void *ctx, const struct error *why);
    void *refused_ctx;
};

/** Open the ledger that the settings name. False with `err` when it must not be used: exit 78. */
bool served_ledger_open(struct served_ledger *ret, struct loop *loop, const struct config *config,
                        struct error *err) MUST_CHECK;

/** Put everything on top of it to work. */
void served_ledger_start(struct served_ledger *s, struct broker *broker,
                         const struct config *config);

/** For /readyz. */
bool served_ledger_ready(void *served_ledger, struct error *err);
void served_ledger_describe(void *served_ledger, struct json_writer *w);

/** After the last request: no new work, what runs ends, what is batched is written; `done(ctx)`. */
void served_ledger_stop(struct served_ledger *s, void (*done)(void *ctx), void *ctx);
/** The lifecycle's end, before the broker's. */
void served_ledger_finish(struct served_ledger *s);
/** The ledger's, after it. */
void served_ledger_close(struct served_ledger *s);
