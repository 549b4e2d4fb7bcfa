/* A thread for what blocks: a database file, a sync to the disk. The loop hands it pieces of work; it
 * does them one after the other, in order, and the loop hears of each end.
 *
 * While a piece of work is away, what it refers to belongs to the worker's thread alone: the loop
 * touches it again in `done`. The thread takes no signals. */
#pragma once

#include "core/runtime/list.h"

#include <stdbool.h>

struct loop;
struct worker;

/** A piece of work, embedded in its owner, which must outlive it. */
struct work {
    struct list link;
    void (*run)(void *ctx);  /* on the worker's thread: no loop, op, log, metric or timer in it */
    void (*done)(void *ctx); /* on the loop's thread, in a libevent callback: post, or start anew */
    void *ctx;
    bool away; /* between worker_submit and done */
};

void work_init(struct work *work, void (*run)(void *ctx), void (*done)(void *ctx), void *ctx);

/** Starts the thread, called `name` (at most 15 bytes) in listings. Aborts when the system has no
 * thread or descriptor left: it is made at start-up. End it with worker_free. */
struct worker *worker_new(struct loop *loop, const char *name);

/** Waits until the work that is away has been run (its `done` is not called), then ends the thread.
 * For shutdown only: it blocks. */
void worker_free(struct worker *worker);

/** Hand `work` over. It must not be away. */
void worker_submit(struct worker *worker, struct work *work);
