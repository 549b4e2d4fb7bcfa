/* Every operation of a backend with trouble at every wait. Whatever happens, what it leaves is
 * nothing, what was asked for, or reported; and what follows works. */
#include "support/conformance.h"
#include "support/op_torture.h"

#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

/* One run: made by start, taken down by check. */
struct tortured {
    const struct conformance_target *target;
    enum conformance_kind kind;
    struct conformance_world *world;
    struct arena *arena;
    struct conformance_call call;
    struct binding binding; /* made beforehand, unless the call is a create */
    struct plane *plane;    /* likewise, for calls in a lease */
};

static struct error quietly(struct tortured *t, enum conformance_kind kind,
                            struct conformance_call *call)
{
    return conformance_do(t->world, t->arena, kind, call);
}

static void prepare(struct tortured *t)
{
    struct conformance_call create = {.spec = {"tenant-1", "agent-1", "b-1", "w-1", NULL, NULL}};
    struct conformance_call acquire = {0};
    struct error error;

    error = quietly(t, CALL_CREATE, &create);
    cr_assert_not(error_is(&error), "%s", error.message);
    t->binding = create.binding;
    if (t->kind != CALL_SNAPSHOT_CREATE && t->kind != CALL_RUN)
        return;
    acquire.ref = t->binding.binding_ref;
    error = quietly(t, CALL_ACQUIRE, &acquire);
    cr_assert_not(error_is(&error), "%s", error.message);
    t->plane = acquire.plane;
}

static void start(struct torture_run *run)
{
    struct tortured *t = xcalloc(1, sizeof(*t));

    *t = *(struct tortured *)run->ctx;
    run->ctx = t;
    t->arena = arena_new();
    op_torture_suspend(true);
    t->world = conformance_open_on(t->target, run->loop);
    t->world->tortured = true;
    if (t->kind != CALL_CREATE)
        prepare(t);
    t->call.spec = (struct binding_spec){"tenant-1", "agent-1", "b-1", "w-1", NULL, NULL};
    t->call.ref = t->binding.binding_ref;
    t->call.plane = t->plane;
    t->call.destroy = (struct destroy_spec){t->binding.binding_ref, t->binding.workspace_ref, true};
    t->call.snapshot = (struct snapshot_spec){"tenant-1", "agent-1", "snap-1"};
    t->call.command = (struct command_spec){.script = "echo x"};
    op_torture_suspend(false);
    op_start(conformance_op(t->world, t->arena, t->kind, &t->call), torture_done, run);
}

static void must(const struct torture_run *run, const struct error *error, const char *what)
{
    cr_assert_not(error_is(error), "after %s: %s: %s", run->what_happened, what, error->message);
}

/* What the caller of the operation would do now, so that nothing should remain. */
static void put_away(struct torture_run *run, struct tortured *t)
{
    struct binding made = t->kind == CALL_CREATE ? t->call.binding : t->binding;
    struct conformance_call destroy = {.destroy = {made.binding_ref, made.workspace_ref, true}};
    struct conformance_call release = {.plane = t->call.plane};
    struct conformance_call unsnap = {.ref = t->call.snapshot_ref};
    struct error error;

    if (t->call.snapshot_ref != NULL) {
        error = quietly(t, CALL_SNAPSHOT_DELETE, &unsnap);
        must(run, &error, "snapshot_delete");
    }
    if (t->call.plane != NULL) {
        error = quietly(t, CALL_RELEASE, &release);
        must(run, &error, "release");
    }
    if (made.binding_ref != NULL) {
        error = quietly(t, CALL_DESTROY, &destroy);
        must(run, &error, "destroy");
    }
}

static void check(struct torture_run *run)
{
    struct tortured *t = run->ctx;
    struct conformance_world *w = t->world;

    if (run->what == OP_TORTURE_NONE && t->kind == CALL_CREATE)
        cr_assert(t->call.binding.binding_ref != NULL && t->target->live(w) == 1);
    if (t->kind == CALL_ACQUIRE || t->kind == CALL_RUN || t->kind == CALL_SNAPSHOT_CREATE)
        cr_assert(t->target->live(w) == 1, "after %s the binding is gone", run->what_happened);
    put_away(run, t);
    if (w->orphans == 0) {
        cr_assert(t->target->live(w) == 0, "after %s a sandbox is left, unreported",
                  run->what_happened);
        if (t->target->check_clean != NULL)
            t->target->check_clean(w);
    }
    conformance_close_on(w);
    arena_free(t->arena);
    free(t);
}

static void torture(const struct conformance_target *target, enum conformance_kind kind)
{
    struct tortured t = {.target = target, .kind = kind};

    op_torture_run(
        &(struct torture_scenario){.start = start, .check = check, .ctx = &t, .real_clock = true});
}

void conformance_torture_create(const struct conformance_target *target)
{
    torture(target, CALL_CREATE);
}

void conformance_torture_acquire(const struct conformance_target *target)
{
    torture(target, CALL_ACQUIRE);
}

void conformance_torture_destroy(const struct conformance_target *target)
{
    torture(target, CALL_DESTROY);
}

void conformance_torture_snapshot(const struct conformance_target *target)
{
    struct conformance_world *w = conformance_open(target);
    bool offered = (w->backend->caps & BACKEND_SNAPSHOTS) != 0;

    conformance_close(w);
    if (offered)
        torture(target, CALL_SNAPSHOT_CREATE);
}

void conformance_torture_command(const struct conformance_target *target)
{
    if (target->runs_scripts)
        torture(target, CALL_RUN);
}
