#include "support/conformance.h"

#include "backends/shellctl/job_delete.h"
#include "core/runtime/metrics.h"

#include <criterion/new/assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- world ---------------------------------------------------------------------------------- */

static void note_orphan(void *ctx, const struct backend *b, enum orphan_kind kind, const char *ref,
                        const struct binding_spec *spec, const struct error *why)
{
    struct conformance_world *w = ctx;

    (void)b;
    (void)kind;
    (void)ref;
    (void)spec;
    (void)why;
    w->orphans++;
}

struct conformance_world *conformance_open_on(const struct conformance_target *target,
                                              struct loop *loop)
{
    struct conformance_world *w = xcalloc(1, sizeof(*w));

    signal(SIGPIPE, SIG_IGN);
    w->target = target;
    w->loop = loop;
    w->http = http_client_new(loop, NULL);
    target->set_up(w);
    w->backend->orphans = (struct orphan_sink){note_orphan, w};
    return w;
}

/* Deletions of transient jobs go on in the background and hold the client. */
void conformance_close_on(struct conformance_world *w)
{
    while (job_deletes_running() > 0)
        loop_turn(w->loop, true);
    w->backend->ops->free(w->backend);
    w->target->tear_down(w);
    loop_turn(w->loop, false);
    http_client_free(w->http);
    loop_turn(w->loop, false);
    free(w);
}

struct conformance_world *conformance_open(const struct conformance_target *target)
{
    return conformance_open_on(target, loop_new(NULL));
}

void conformance_close(struct conformance_world *world)
{
    struct loop *loop = world->loop;

    conformance_close_on(world);
    loop_free(loop);
    metrics_reset();
}

/* ---- calls ---------------------------------------------------------------------------------- */

struct caller {
    struct op op;
    enum conformance_kind kind;
    struct conformance_call *call;
};

static void begin(struct caller *c, struct op *op)
{
    struct conformance_call *call = c->call;
    struct backend *b = call->world->backend;
    const struct backend_ops *ops = b->ops;

    switch (c->kind) {
    case CALL_CREATE:
        ops->create_binding(b, op, &call->spec, &call->binding);
        break;
    case CALL_ACQUIRE:
        ops->acquire(b, op, call->ref, &call->plane);
        break;
    case CALL_REOPEN:
        ops->reopen(b, op, call->ref, &call->plane);
        break;
    case CALL_RELEASE:
        ops->release(b, op, call->plane);
        break;
    case CALL_DESTROY:
        ops->destroy_binding(b, op, &call->destroy);
        break;
    case CALL_SNAPSHOT_CREATE:
        ops->snapshot_create(b, op, &call->snapshot, call->plane, &call->snapshot_ref);
        break;
    case CALL_SNAPSHOT_DELETE:
        ops->snapshot_delete(b, op, call->ref);
        break;
    case CALL_RUN:
        ops->run_command(b, op, call->plane, &call->command, &call->result);
        break;
    case CALL_LIST:
        ops->list(b, op, &call->cursor, &call->items, &call->n_items);
        break;
    case CALL_FIND:
        ops->find(b, op, &call->spec, &call->binding);
        break;
    }
}

enum caller_state { CALLER_START, CALLER_CALLING };
static const char *const caller_states[] = {"start", "calling"};

static enum op_poll caller_step(struct op *op)
{
    struct caller *c = container_of(op, struct caller, op);

    switch ((enum caller_state)op->state) {
    case CALLER_START:
        AWAIT(op, CALLER_CALLING, begin(c, op));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type caller_type = {"caller", caller_states, 2, caller_step, NULL};

struct op *conformance_op(struct conformance_world *world, struct arena *arena,
                          enum conformance_kind kind, struct conformance_call *call)
{
    struct caller *c = OP_ROOT(world->loop, &caller_type, caller, arena);

    call->world = world;
    c->kind = kind;
    c->call = call;
    return &c->op;
}

struct ending {
    struct error error;
    bool done;
};

static void on_call_done(struct op *op, void *ctx)
{
    struct ending *end = ctx;

    end->error = *op_error(op);
    end->done = true;
}

struct error conformance_do(struct conformance_world *world, struct arena *arena,
                            enum conformance_kind kind, struct conformance_call *call)
{
    struct ending end = {0};

    op_start(conformance_op(world, arena, kind, call), on_call_done, &end);
    while (!end.done)
        loop_turn(world->loop, true);
    return end.error;
}

/* ---- shorthands that must succeed ------------------------------------------------------------ */

static void expect(const struct error *error, enum err_code code, const char *what)
{
    cr_assert(error->code == code, "%s: %s (%s), not %s", what, err_wire(error->code),
              error->message, err_wire(code));
}

static struct binding_spec spec_of(const char *binding_id, const char *workspace_id)
{
    return (struct binding_spec){.tenant_id = "tenant-1",
                                 .agent_id = "agent-1",
                                 .binding_id = binding_id,
                                 .workspace_id = workspace_id};
}

static struct binding create_spec(struct conformance_world *w, struct arena *arena,
                                  struct binding_spec spec)
{
    struct conformance_call call = {.spec = spec};
    struct error error = conformance_do(w, arena, CALL_CREATE, &call);

    expect(&error, ERR_NONE, "create");
    cr_assert(ne(ptr, (void *)call.binding.binding_ref, NULL));
    cr_assert(le(sz, strlen(call.binding.binding_ref), REF_MAX));
    cr_assert(le(sz, strlen(call.binding.workspace_ref), REF_MAX));
    cr_assert(w->backend->ops->check_binding_ref(w->backend, call.binding.binding_ref, &error),
              "%s", error.message);
    return call.binding;
}

static struct binding create(struct conformance_world *w, struct arena *arena,
                             const char *binding_id, const char *workspace_id)
{
    return create_spec(w, arena, spec_of(binding_id, workspace_id));
}

static struct plane *acquire(struct conformance_world *w, struct arena *arena, const char *ref)
{
    struct conformance_call call = {.ref = ref};
    struct error error = conformance_do(w, arena, CALL_ACQUIRE, &call);

    expect(&error, ERR_NONE, "acquire");
    cr_assert(eq(ptr, call.plane->backend, w->backend));
    cr_assert_str_eq(call.plane->binding_ref, ref);
    cr_assert(call.plane->layout.home_dir[0] == '/' && call.plane->layout.workspace_dir[0] == '/');
    return call.plane;
}

static void release(struct conformance_world *w, struct arena *arena, struct plane *plane)
{
    struct conformance_call call = {.plane = plane};
    struct error error = conformance_do(w, arena, CALL_RELEASE, &call);

    expect(&error, ERR_NONE, "release");
}

static struct error acquire_fails(struct conformance_world *w, struct arena *arena, const char *ref)
{
    struct conformance_call call = {.ref = ref};
    struct error error = conformance_do(w, arena, CALL_ACQUIRE, &call);

    cr_assert(eq(ptr, call.plane, NULL));
    return error;
}

static struct error try_destroy(struct conformance_world *w, struct arena *arena,
                                const struct binding *binding, bool with_workspace)
{
    struct conformance_call call = {.destroy = {.binding_ref = binding->binding_ref,
                                                .workspace_ref = binding->workspace_ref,
                                                .destroy_workspace = with_workspace}};

    return conformance_do(w, arena, CALL_DESTROY, &call);
}

static void destroy(struct conformance_world *w, struct arena *arena, const struct binding *binding)
{
    struct error error = try_destroy(w, arena, binding, true);

    expect(&error, ERR_NONE, "destroy");
}

static struct command_result run_spec(struct conformance_world *w, struct arena *arena,
                                      struct plane *plane, struct command_spec spec)
{
    struct conformance_call call = {.plane = plane, .command = spec};
    struct error error = conformance_do(w, arena, CALL_RUN, &call);

    expect(&error, ERR_NONE, "run_command");
    return call.result;
}

/* Run in a lease of its own; returns the output. */
static const char *sh(struct conformance_world *w, struct arena *arena, const char *ref,
                      const char *script)
{
    struct plane *plane = acquire(w, arena, ref);
    struct command_result result =
        run_spec(w, arena, plane, (struct command_spec){.script = script, .stdio = true});

    release(w, arena, plane);
    return arena_printf(arena, "%s:%d:%s", result.status, result.exit_code, result.output);
}

static void expect_clean(struct conformance_world *w)
{
    while (job_deletes_running() > 0)
        loop_turn(w->loop, true);
    cr_assert(eq(int, w->target->live(w), 0));
    cr_assert(eq(int, w->orphans, 0));
    if (w->target->check_clean != NULL)
        w->target->check_clean(w);
}

static void close_clean(struct conformance_world *w, struct arena *arena)
{
    expect_clean(w);
    arena_free(arena);
    conformance_close(w);
}

/* ---- the contract ---------------------------------------------------------------------------- */

void conformance_life_of_a_binding(const struct conformance_target *target)
{
    struct conformance_world *w = conformance_open(target);
    struct arena *arena = arena_new();
    struct binding a = create(w, arena, "b-1", "w-1"), b = create(w, arena, "b-2", "w-2");

    cr_assert(eq(int, target->live(w), 2));
    cr_assert_str_neq(a.binding_ref, b.binding_ref);
    release(w, arena, acquire(w, arena, a.binding_ref));
    release(w, arena, acquire(w, arena, b.binding_ref));
    destroy(w, arena, &a);
    cr_assert(eq(int, target->live(w), 1));
    release(w, arena, acquire(w, arena, b.binding_ref));
    destroy(w, arena, &b);
    close_clean(w, arena);
}

void conformance_work_survives_between_leases(const struct conformance_target *target)
{
    struct conformance_world *w = conformance_open(target);
    struct arena *arena = arena_new();
    struct binding a = create(w, arena, "b-1", "w-1");

    if (target->runs_scripts) {
        cr_assert_str_eq(sh(w, arena, a.binding_ref, "ls -A; echo one >f; echo two >\"$HOME/g\""),
                         "exited:0:", "a new workspace is empty");
        cr_assert_str_eq(sh(w, arena, a.binding_ref, "cat f ~/g"), "exited:0:one\ntwo\n");
    }
    destroy(w, arena, &a);
    close_clean(w, arena);
}

void conformance_leases_do_not_disturb_each_other(const struct conformance_target *target)
{
    struct conformance_world *w = conformance_open(target);
    struct arena *arena = arena_new();
    struct binding a = create(w, arena, "b-1", "w-1");
    struct plane *first = acquire(w, arena, a.binding_ref);
    struct plane *second = acquire(w, arena, a.binding_ref);
    struct conformance_call reopen = {.ref = a.binding_ref};
    struct error error;

    release(w, arena, first);
    if (target->runs_scripts)
        cr_assert_str_eq(
            run_spec(w, arena, second, (struct command_spec){.script = "echo still here"}).output,
            "still here\n");
    release(w, arena, second);
    error = conformance_do(w, arena, CALL_REOPEN, &reopen);
    expect(&error, ERR_NONE, "reopen");
    cr_assert_str_eq(reopen.plane->binding_ref, a.binding_ref);
    release(w, arena, reopen.plane);
    destroy(w, arena, &a);
    close_clean(w, arena);
}

void conformance_commands(const struct conformance_target *target)
{
    struct conformance_world *w = conformance_open(target);
    struct arena *arena = arena_new();
    struct binding a = create(w, arena, "b-1", "w-1");
    struct plane *plane = acquire(w, arena, a.binding_ref);
    struct command_result r;

    if (target->runs_scripts) {
        const char *env[] = {"GREETING", "h'i \"there\"", "HOME", "/nowhere", NULL};
        struct conformance_call outside = {.plane = plane,
                                           .command = {.script = "true", .cwd = "../.."}};
        struct error error;

        r = run_spec(w, arena, plane,
                     (struct command_spec){
                         .script = "echo \"$GREETING\"; pwd; echo \"$HOME\"; exit 7", .env = env});
        cr_assert(eq(int, r.exit_code, 7));
        cr_assert_str_eq(r.status, "exited");
        cr_assert_str_eq(r.output,
                         arena_printf(arena, "h'i \"there\"\n%s\n%s\n", plane->layout.workspace_dir,
                                      plane->layout.home_dir));
        r = run_spec(w, arena, plane,
                     (struct command_spec){.script = "echo begun; sleep 60", .timeout_ms = 700});
        cr_assert_str_eq(r.stop_reason, "timeout");
        cr_assert_str_eq(r.output, "begun\n");
        cr_assert_str_neq(r.status, "exited");
        r = run_spec(w, arena, plane,
                     (struct command_spec){.script = "while :; do echo caf\303\251; done",
                                           .max_output = 1000,
                                           .timeout_ms = 20000});
        cr_assert_str_eq(r.stop_reason, "output_limit");
        cr_assert(r.truncated && r.output_len <= 1000 && r.output_len > 990);
        error = conformance_do(w, arena, CALL_RUN, &outside);
        expect(&error, ERR_BAD_REQUEST, "a cwd outside");
    }
    release(w, arena, plane);
    destroy(w, arena, &a);
    close_clean(w, arena);
}

void conformance_bad_refs(const struct conformance_target *target)
{
    struct conformance_world *w = conformance_open(target);
    struct arena *arena = arena_new();

    for (const char *const *ref = target->bad_refs; *ref != NULL; ref++) {
        struct binding bad = {*ref, *ref};
        struct error error = {0};
        cr_assert_not(w->backend->ops->check_binding_ref(w->backend, *ref, &error), "%s", *ref);
        expect(&error, ERR_INVALID_REF, *ref);
        error = acquire_fails(w, arena, *ref);
        expect(&error, ERR_INVALID_REF, *ref);
        error = try_destroy(w, arena, &bad, true);
        expect(&error, ERR_INVALID_REF, *ref);
    }
    close_clean(w, arena);
}

void conformance_a_lost_binding_stays_lost(const struct conformance_target *target)
{
    struct conformance_world *w = conformance_open(target);
    struct arena *arena = arena_new();
    struct binding a = create(w, arena, "b-1", "w-1");
    struct plane *plane = acquire(w, arena, a.binding_ref);
    struct error error;

    error = acquire_fails(w, arena, target->unknown_ref);
    expect(&error, ERR_BINDING_LOST, "a binding that never was");
    target->lose(w, a.binding_ref);
    for (int i = 0; i < 2; i++) {
        error = acquire_fails(w, arena, a.binding_ref);
        expect(&error, ERR_BINDING_LOST, "a lost binding");
        cr_assert(eq(int, target->live(w), 0), "never re-created");
    }
    release(w, arena, plane);
    destroy(w, arena, &a);
    close_clean(w, arena);
}

void conformance_destroy_is_idempotent(const struct conformance_target *target)
{
    struct conformance_world *w = conformance_open(target);
    struct arena *arena = arena_new();
    struct binding a = create(w, arena, "b-1", "w-1");
    struct plane *plane = acquire(w, arena, a.binding_ref); /* a lease is no obstacle */

    for (int i = 0; i < 3; i++)
        destroy(w, arena, &a);
    release(w, arena, plane);
    close_clean(w, arena);
}

void conformance_a_repeated_binding_id(const struct conformance_target *target)
{
    struct conformance_world *w = conformance_open(target);
    struct arena *arena = arena_new();
    struct binding a = create(w, arena, "b-1", "w-1");
    struct conformance_call again = {.spec = spec_of("b-1", "w-1")};
    struct error error;

    if (target->runs_scripts)
        sh(w, arena, a.binding_ref, "echo kept >f; echo kept >~/g");
    error = conformance_do(w, arena, CALL_CREATE, &again);
    if (target->names_are_kept) {
        expect(&error, ERR_CONFLICT, "a binding_id that exists");
        cr_assert(eq(int, target->live(w), 1));
        again.spec.workspace_id = "w-2";
        error = conformance_do(w, arena, CALL_CREATE, &again);
        expect(&error, ERR_CONFLICT, "a binding_id that exists, with another workspace");
    } else if (target->names_are_adopted) {
        expect(&error, ERR_NONE, "a binding_id that exists");
        cr_assert_str_eq(again.binding.binding_ref, a.binding_ref);
    } else if (!error_is(&error) && strcmp(again.binding.binding_ref, a.binding_ref) != 0) {
        cr_assert(eq(int, target->live(w), 2));
        destroy(w, arena, &again.binding);
    }
    cr_assert(eq(int, target->live(w), 1));
    if (target->runs_scripts)
        cr_assert_str_eq(sh(w, arena, a.binding_ref, "cat f ~/g"), "exited:0:kept\nkept\n");
    destroy(w, arena, &a);
    close_clean(w, arena);
}

void conformance_create_again_right_after_destroy(const struct conformance_target *target)
{
    struct conformance_world *w = conformance_open(target);
    struct arena *arena = arena_new();

    for (int i = 0; i < 10; i++) {
        struct binding a = create(w, arena, "b-1", "w-1");
        if (target->runs_scripts)
            cr_assert_str_eq(sh(w, arena, a.binding_ref, "ls -A . ~ | grep -cx f; touch f ~/f"),
                             "exited:0:0\n", "nothing of the one before");
        destroy(w, arena, &a);
    }
    close_clean(w, arena);
}

void conformance_shared_workspaces(const struct conformance_target *target)
{
    struct conformance_world *w = conformance_open(target);
    struct arena *arena = arena_new();
    struct binding a = create(w, arena, "b-1", "w-1"), b;
    struct binding_spec spec = spec_of("b-2", "w-1");
    struct error error;

    spec.existing_workspace_ref = a.workspace_ref;
    if ((w->backend->caps & BACKEND_SHARED_WORKSPACE) == 0) {
        cr_assert_not(backend_check_create(w->backend, &spec, &error));
        expect(&error, ERR_SHARED_WORKSPACE_UNSUPPORTED, "attaching");
        spec.existing_workspace_ref = "";
        cr_assert_not(backend_check_create(w->backend, &spec, &error), "\"\" is not nothing");
    } else {
        struct conformance_call missing = {.spec = spec_of("b-3", "w-none")};
        if (target->runs_scripts)
            sh(w, arena, a.binding_ref, "echo shared >f; echo mine >~/g");
        b = create_spec(w, arena, spec);
        if (target->runs_scripts)
            cr_assert_str_eq(sh(w, arena, b.binding_ref, "cat f; ls ~"), "exited:0:shared\n");
        missing.spec.existing_workspace_ref = "w-none";
        error = conformance_do(w, arena, CALL_CREATE, &missing);
        expect(&error, ERR_BINDING_CREATE, "attaching to nothing");
        error = try_destroy(w, arena, &a, false);
        expect(&error, ERR_NONE, "destroying the first, keeping the workspace");
        if (target->runs_scripts)
            cr_assert_str_eq(sh(w, arena, b.binding_ref, "cat f"), "exited:0:shared\n");
        destroy(w, arena, &b);
        close_clean(w, arena);
        return;
    }
    destroy(w, arena, &a);
    close_clean(w, arena);
}

void conformance_preserved_workspaces(const struct conformance_target *target)
{
    struct conformance_world *w = conformance_open(target);
    struct arena *arena = arena_new();
    struct binding a = create(w, arena, "b-1", "w-1"), wrong;
    struct error error;

    if (target->runs_scripts)
        sh(w, arena, a.binding_ref, "echo kept >f");
    wrong = (struct binding){a.binding_ref, "w-other"};
    error = try_destroy(w, arena, &wrong, true);
    cr_assert(error_is(&error), "another's workspace");
    cr_assert(eq(int, target->live(w), 1), "refused before anything was removed");
    if ((w->backend->caps & BACKEND_KEEPS_WORKSPACE) == 0) {
        struct destroy_spec keep = {a.binding_ref, a.workspace_ref, false};
        cr_assert_not(backend_check_destroy(w->backend, &keep, &error));
        expect(&error, ERR_WORKSPACE_PRESERVATION_UNSUPPORTED, "keeping the workspace");
        destroy(w, arena, &a);
    } else {
        struct binding_spec spec = spec_of("b-2", "w-1");
        error = try_destroy(w, arena, &a, false);
        expect(&error, ERR_NONE, "keeping the workspace");
        spec.existing_workspace_ref = a.workspace_ref;
        a = create_spec(w, arena, spec);
        if (target->runs_scripts)
            cr_assert_str_eq(sh(w, arena, a.binding_ref, "cat f"), "exited:0:kept\n");
        destroy(w, arena, &a);
    }
    close_clean(w, arena);
}

static const char *take_snapshot(struct conformance_world *w, struct arena *arena, const char *ref,
                                 const char *id)
{
    struct conformance_call call = {.snapshot = {"tenant-1", "agent-1", id}};
    struct error error;

    call.plane = acquire(w, arena, ref);
    error = conformance_do(w, arena, CALL_SNAPSHOT_CREATE, &call);
    expect(&error, ERR_NONE, "snapshot_create");
    release(w, arena, call.plane);
    cr_assert(w->backend->ops->check_snapshot_ref(w->backend, call.snapshot_ref, &error));
    if (w->backend->ops->snapshot_ref_of != NULL) {
        const char *foretold = w->backend->ops->snapshot_ref_of(w->backend, arena, &call.snapshot);
        cr_assert(foretold == NULL || strcmp(foretold, call.snapshot_ref) == 0, "%s", foretold);
    }
    return call.snapshot_ref;
}

static void delete_snapshot(struct conformance_world *w, struct arena *arena, const char *ref)
{
    struct conformance_call call = {.ref = ref};
    struct error error = conformance_do(w, arena, CALL_SNAPSHOT_DELETE, &call);

    expect(&error, ERR_NONE, "snapshot_delete");
}

void conformance_snapshots(const struct conformance_target *target)
{
    struct conformance_world *w = conformance_open(target);
    struct arena *arena = arena_new();
    struct binding a = create(w, arena, "b-1", "w-1"), b;
    struct binding_spec spec = spec_of("b-2", "w-2");
    struct error error;
    const char *ref;

    spec.home_snapshot_ref = "home-x";
    if ((w->backend->caps & BACKEND_SNAPSHOTS) == 0) {
        cr_assert_not(backend_check_create(w->backend, &spec, &error));
        expect(&error, ERR_SNAPSHOT_UNSUPPORTED, "a snapshot");
        destroy(w, arena, &a);
        close_clean(w, arena);
        return;
    }
    if (target->runs_scripts)
        sh(w, arena, a.binding_ref,
           "mkdir -p ~/.config ~/.local/share/shellctl/jobs ~/.local/bin; echo v1 >~/.config/x; "
           "touch ~/.local/share/shellctl/of-a; "
           "chmod 640 ~/.config/x; ln -s x ~/.config/y; touch ~/.local/bin/z; echo no >here");
    ref = take_snapshot(w, arena, a.binding_ref, "snap-1");
    if (target->runs_scripts)
        sh(w, arena, a.binding_ref, "echo v2 >~/.config/x");
    spec.home_snapshot_ref = ref;
    b = create_spec(w, arena, spec);
    if (target->runs_scripts)
        cr_assert_str_eq(sh(w, arena, b.binding_ref,
                            "cat ~/.config/y; stat -c %a ~/.config/x; ls -A ~/.local; ls -A; "
                            "test ! -e ~/.local/share/shellctl/of-a; echo $?"),
                         "exited:0:v1\n640\nbin\nshare\n0\n");
    destroy(w, arena, &a);
    delete_snapshot(w, arena, ref);
    delete_snapshot(w, arena, ref);
    if (target->runs_scripts)
        cr_assert_str_eq(sh(w, arena, b.binding_ref, "cat ~/.config/x"), "exited:0:v1\n");
    destroy(w, arena, &b);
    close_clean(w, arena);
}

void conformance_a_create_from_a_missing_snapshot_leaves_nothing(
    const struct conformance_target *target)
{
    struct conformance_world *w = conformance_open(target);
    struct arena *arena = arena_new();
    struct conformance_call call = {.spec = spec_of("b-1", "w-1")};
    struct error error;

    call.spec.home_snapshot_ref = "home-none";
    if ((w->backend->caps & BACKEND_SNAPSHOTS) != 0) {
        error = conformance_do(w, arena, CALL_CREATE, &call);
        cr_assert(error_is(&error));
    }
    close_clean(w, arena);
}

void conformance_list_and_find(const struct conformance_target *target)
{
    struct conformance_world *w = conformance_open(target);
    struct arena *arena = arena_new();
    struct binding a = create(w, arena, "b-1", "w-1"), b = create(w, arena, "b-2", "w-2");
    struct conformance_call list = {0}, found = {.spec = spec_of("b-1", "w-1")};
    struct conformance_call missing = {.spec = spec_of("b-9", "w-9")};
    struct error error;
    int seen = 0;

    if ((w->backend->caps & BACKEND_LISTS) != 0) {
        do {
            error = conformance_do(w, arena, CALL_LIST, &list);
            expect(&error, ERR_NONE, "list");
            for (size_t i = 0; i < list.n_items; i++) {
                seen += strcmp(list.items[i].binding_ref, a.binding_ref) == 0;
                seen += strcmp(list.items[i].binding_ref, b.binding_ref) == 0;
            }
        } while (list.cursor != NULL);
        cr_assert(eq(int, seen, 2));
    }
    if ((w->backend->caps & BACKEND_FINDS) != 0) {
        error = conformance_do(w, arena, CALL_FIND, &found);
        expect(&error, ERR_NONE, "find");
        cr_assert_str_eq(found.binding.binding_ref, a.binding_ref);
        error = conformance_do(w, arena, CALL_FIND, &missing);
        expect(&error, ERR_NONE, "find nothing");
        cr_assert(eq(ptr, (void *)missing.binding.binding_ref, NULL));
    }
    destroy(w, arena, &a);
    destroy(w, arena, &b);
    close_clean(w, arena);
}
