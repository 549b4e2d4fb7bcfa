/* A backend in memory, a broker, a ledger in a file and the lifecycle over them, on a virtual clock;
 * and calls of the lifecycle that note how they ended. */
#pragma once

#include "core/domain/lifecycle.h"
#include "support/fake_backend.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

struct world {
    char dir[64];
    struct loop *loop;
    struct arena *arena;
    struct fake_backend *fake;
    struct broker *broker;
    struct ledger *ledger;
    struct lifecycle *lc;
    int poked;
};

/** A virtual clock that begins at some day of this century. */
struct loop *world_loop(void);
struct world *world_new(struct loop *loop, unsigned caps, const struct lifecycle_options *options);
/** Close the ledger and open it again, as another process would. */
void world_restart(struct world *w);
/** Time enough for everything in the background. */
void world_settle(struct world *w);
/** The world's end; the loop stays. */
void world_free(struct world *w);

struct caller {
    struct op op;
    struct world *w;
    struct owner_request request;
    struct owner_binding found;
    struct binding_spec spec;
    struct binding made;
    struct destroy_spec destroy;
    struct ledger_retire retire;
    struct ledger_retired retired;
    struct lease_grant grant;
    void (*start)(struct caller *c);
    bool over;
    struct error error;
};

/** Not started: set `start`, then caller_start. */
struct caller *caller_new(struct world *w);
void caller_start(struct caller *c);
void call_load(struct caller *c);
void call_create(struct caller *c);
void call_destroy(struct caller *c);
void call_retire(struct caller *c);
void call_acquire(struct caller *c);

/** Started: load or create the binding of a conversation; create by id. */
struct caller *loader(struct world *w, const char *owner_id);
struct caller *creator(struct world *w, const char *id, const char *agent);
/** Started and run to its end: destroy or acquire. */
struct caller *run(struct world *w, void (*start)(struct caller *c), const char *ref,
                   const char *workspace_ref);
/** Retire a conversation, to its end. */
struct caller *retire_owner(struct world *w, const char *owner_id);

/** All rows of a table. */
struct ledger_page rows(struct world *w, enum ledger_kind kind);
