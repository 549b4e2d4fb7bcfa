/* The contract of a backend (core/domain/backend.h), once, for every driver.
 *
 * A driver's test program says how to make its world (the far end, real or fake, and the backend
 * over it) and what is true in that world, and lists itself:
 *
 *     static const struct conformance_target target = {
 *         .set_up = …, .tear_down = …, .live = …, .lose = …, .runs_scripts = true,
 *     };
 *     CONFORMANCE(local_fake, target)
 *
 * What the backend's capabilities leave open is tested either way: offered and working, or refused
 * before anything happens. Every operation then goes through the torture harness. */
#pragma once

#include "core/domain/backend.h"

#include <criterion/criterion.h>

struct conformance_world {
    const struct conformance_target *target;
    struct loop *loop;
    struct http_client *http;
    struct backend *backend; /* made by set_up, freed by the suite */
    void *ctx;               /* set_up's own */
    int orphans;             /* reported so far */
    bool tortured;           /* answers were thrown away: jobs may exist that nobody knows of */
};

struct conformance_target {
    /** Make the far end and `world->backend` on `world->loop` (real clock) and `world->http`. */
    void (*set_up)(struct conformance_world *world);
    /** The backend has been freed already. */
    void (*tear_down)(struct conformance_world *world);
    /** How many sandboxes exist, half-made ones included. */
    int (*live)(struct conformance_world *world);
    /** Make one vanish without a word to the backend. */
    void (*lose)(struct conformance_world *world, const char *binding_ref);
    /** Nothing is left of what never was a sandbox (stray workspaces, copies, claims, jobs). With a
     * message through cr_assert. NULL = nothing to look at. */
    void (*check_clean)(struct conformance_world *world);
    /** Refs that no caller can have got from this backend. NULL-terminated. */
    const char *const *bad_refs;
    /** A ref of good form that nothing has been created for. */
    const char *unknown_ref;
    bool runs_scripts;      /* run_command really runs a shell in the binding */
    bool names_are_kept;    /* a binding_id that exists is refused (else: it makes another) */
    bool names_are_adopted; /* … or gives what exists, as it is */
};

#define CONFORMANCE_TEST(suite, target_, what)                                                     \
    Test(suite, what)                                                                              \
    {                                                                                              \
        conformance_##what(&(target_));                                                            \
    }

#define CONFORMANCE(suite, target_) CONFORMANCE_IN(suite, target_, .init = NULL)

/** The same with fields of Criterion's suite. */
#define CONFORMANCE_IN(suite, target_, ...)                                                        \
    TestSuite(suite, .timeout = 110, __VA_ARGS__);                                                 \
    CONFORMANCE_TEST(suite, target_, life_of_a_binding)                                            \
    CONFORMANCE_TEST(suite, target_, work_survives_between_leases)                                 \
    CONFORMANCE_TEST(suite, target_, leases_do_not_disturb_each_other)                             \
    CONFORMANCE_TEST(suite, target_, commands)                                                     \
    CONFORMANCE_TEST(suite, target_, bad_refs)                                                     \
    CONFORMANCE_TEST(suite, target_, a_lost_binding_stays_lost)                                    \
    CONFORMANCE_TEST(suite, target_, destroy_is_idempotent)                                        \
    CONFORMANCE_TEST(suite, target_, a_repeated_binding_id)                                        \
    CONFORMANCE_TEST(suite, target_, create_again_right_after_destroy)                             \
    CONFORMANCE_TEST(suite, target_, shared_workspaces)                                            \
    CONFORMANCE_TEST(suite, target_, preserved_workspaces)                                         \
    CONFORMANCE_TEST(suite, target_, snapshots)                                                    \
    CONFORMANCE_TEST(suite, target_, a_create_from_a_missing_snapshot_leaves_nothing)              \
    CONFORMANCE_TEST(suite, target_, list_and_find)                                                \
    CONFORMANCE_TEST(suite, target_, torture_create)                                               \
    CONFORMANCE_TEST(suite, target_, torture_acquire)                                              \
    CONFORMANCE_TEST(suite, target_, torture_destroy)                                              \
    CONFORMANCE_TEST(suite, target_, torture_snapshot)                                             \
    CONFORMANCE_TEST(suite, target_, torture_command)

void conformance_life_of_a_binding(const struct conformance_target *target);
void conformance_work_survives_between_leases(const struct conformance_target *target);
void conformance_leases_do_not_disturb_each_other(const struct conformance_target *target);
void conformance_commands(const struct conformance_target *target);
void conformance_bad_refs(const struct conformance_target *target);
void conformance_a_lost_binding_stays_lost(const struct conformance_target *target);
void conformance_destroy_is_idempotent(const struct conformance_target *target);
void conformance_a_repeated_binding_id(const struct conformance_target *target);
void conformance_create_again_right_after_destroy(const struct conformance_target *target);
void conformance_shared_workspaces(const struct conformance_target *target);
void conformance_preserved_workspaces(const struct conformance_target *target);
void conformance_snapshots(const struct conformance_target *target);
void conformance_a_create_from_a_missing_snapshot_leaves_nothing(
    const struct conformance_target *target);
void conformance_list_and_find(const struct conformance_target *target);
void conformance_torture_create(const struct conformance_target *target);
void conformance_torture_acquire(const struct conformance_target *target);
void conformance_torture_destroy(const struct conformance_target *target);
void conformance_torture_snapshot(const struct conformance_target *target);
void conformance_torture_command(const struct conformance_target *target);

/* ---- for tests beside the contract -------------------------------------------------------------- */

struct conformance_world *conformance_open(const struct conformance_target *target);
void conformance_close(struct conformance_world *world);
/** The same on a loop of the caller's. */
struct conformance_world *conformance_open_on(const struct conformance_target *target,
                                              struct loop *loop);
void conformance_close_on(struct conformance_world *world);

/** One backend call as a root op, run to its end. Results live in `arena`. */
struct conformance_call {
    struct conformance_world *world;
    struct binding_spec spec;
    struct binding binding;
    struct destroy_spec destroy;
    struct snapshot_spec snapshot;
    struct command_spec command;
    struct command_result result;
    const char *ref; /* of acquire, snapshot_delete */
    struct plane *plane;
    const char *snapshot_ref;
    const char *cursor;
    struct backend_item *items;
    size_t n_items;
};

enum conformance_kind {
    CALL_CREATE,
    CALL_ACQUIRE,
    CALL_REOPEN,
    CALL_RELEASE,
    CALL_DESTROY,
    CALL_SNAPSHOT_CREATE,
    CALL_SNAPSHOT_DELETE,
    CALL_RUN,
    CALL_LIST,
    CALL_FIND,
};

/** A root op that makes the call; start it with op_start. */
struct op *conformance_op(struct conformance_world *world, struct arena *arena,
                          enum conformance_kind kind, struct conformance_call *call);

/** Runs `call` (zeroed but for its inputs) and returns its error. */
struct error conformance_do(struct conformance_world *world, struct arena *arena,
                            enum conformance_kind kind, struct conformance_call *call);
