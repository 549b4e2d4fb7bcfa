/* A backend in memory, on the loop's (virtual) clock: every call takes its delay, then acts or
 * fails as it was told. For tests of what stands on the port core/domain/backend.h.
 *
 * Refs: binding `b<N>` with workspace `w<N>`, snapshot `s<N>`, N counting creations. */
#pragma once

#include "core/domain/backend.h"

enum fake_call {
    FAKE_CREATE,
    FAKE_ACQUIRE,
    FAKE_REOPEN,
    FAKE_RELEASE,
    FAKE_DESTROY,
    FAKE_SNAPSHOT_CREATE,
    FAKE_SNAPSHOT_DELETE,
    FAKE_RUN,
    FAKE_FIND,
    FAKE_LIST,
    FAKE_CALLS
};

/** What one kind of call does. */
struct fake_script {
    int64_t delay_ms; /* negative: never answers (until its op is cancelled) */
    int fail_times;   /* the next that many fail */
    enum err_code fail_code;
    bool answer_lost; /* a failing create has made its binding all the same */
    int calls;        /* made so far */
};

struct fake_backend {
    struct backend backend; /* first */
    struct fake_script script[FAKE_CALLS];
    struct list bindings, snapshots, planes;
    int live_bindings, live_snapshots, live_planes;
    int made;                  /* bindings and snapshots ever */
    int orphans;               /* reported to our sink */
    int running, most_running; /* acquires in flight */
    struct endpoint endpoint;  /* of the planes; a closed port by default */
    bool names_bindings; /* their refs are `n-<binding_id>`, known beforehand; lists have digests */
    bool names_snapshots; /* their refs are `s-<home_snapshot_id>`, known beforehand */
    const char *poisoned; /* ref whose destroy always fails; NULL = none */
    const char *output;   /* of commands */
    int exit_code;
};

struct fake_backend *fake_backend_new(struct loop *loop, unsigned caps);
void fake_backend_free(struct fake_backend *fake);

/** Make a binding exist, or vanish, without any call. */
const char *fake_backend_add(struct fake_backend *fake);
/** Make a home snapshot exist likewise. */
void fake_backend_add_snapshot(struct fake_backend *fake, const char *ref);
void fake_backend_lose(struct fake_backend *fake, const char *binding_ref);
/** Leave it out of lists; it exists all the same. */
void fake_backend_hide(struct fake_backend *fake, const char *binding_ref);
void fake_backend_fail(struct fake_backend *fake, enum fake_call call, int times,
                       enum err_code code);
