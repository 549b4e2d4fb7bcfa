/* What the Local backend promises beyond the contract: the traps of its protocol, the cost of an
 * acquire, scope headers, who is lost and who is not, and its scripts against each other. */
#include "backends/local/local_scripts.h"
#include "backends/shellctl/job_delete.h"
#include "support/fake_shellctl.h"
#include "support/local_world.h"

#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool scoped; /* what set_up makes */

static void set_up(struct conformance_world *world)
{
    struct local_world *l = local_world_new(world);

    l->fake = fake_shellctl_new(world->loop, scoped ? l->socket : NULL);
    local_world_backend(world, scoped ? "http://shellctl" : fake_shellctl_url(l->fake), scoped);
}

static void tear_down(struct conformance_world *world)
{
    struct local_world *l = world->ctx;

    fake_shellctl_free(l->fake);
    local_world_remove(world);
}

static const struct conformance_target target = {.set_up = set_up, .tear_down = tear_down};

static struct conformance_world *world;
static struct local_world *local;
static struct arena *arena;

static void open_world(bool with_scope)
{
    scoped = with_scope;
    world = conformance_open(&target);
    local = world->ctx;
    arena = arena_new();
}

static void settle(void)
{
    while (job_deletes_running() > 0)
        loop_turn(world->loop, true);
}

static void close_world(void)
{
    settle();
    conformance_close(world);
    arena_free(arena);
}

TestSuite(local, .timeout = 30);

/* ---- helpers -------------------------------------------------------------------------------- */

static struct binding_spec spec_of(const char *binding_id, const char *workspace_id)
{
    return (struct binding_spec){"t", "a", binding_id, workspace_id, NULL, NULL};
}

static struct error create(struct binding_spec spec)
{
    struct conformance_call call = {.spec = spec};

    return conformance_do(world, arena, CALL_CREATE, &call);
}

static struct error acquire(const char *ref, struct plane **ret)
{
    struct conformance_call call = {.ref = ref};
    struct error error = conformance_do(world, arena, CALL_ACQUIRE, &call);

    *ret = call.plane;
    return error;
}

static struct error acquire_release(const char *ref)
{
    struct conformance_call call = {0};
    struct error error = acquire(ref, &call.plane);

    if (call.plane != NULL)
        conformance_do(world, arena, CALL_RELEASE, &call);
    return error;
}

static struct error destroy(const char *ref, const char *workspace)
{
    struct conformance_call call = {.destroy = {ref, workspace, workspace != NULL}};

    return conformance_do(world, arena, CALL_DESTROY, &call);
}

static int sh(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int sh(const char *format, ...)
{
    char command[512];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    return WEXITSTATUS(system(command));
}

static void reply(enum fake_route route, int times, int status, const char *body)
{
    fake_shellctl_fail(
        local->fake, route, FAULT_REPLY, times,
        arena_printf(arena, "HTTP/1.1 %d x\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
                     status, strlen(body), body));
}

/* ---- acquire -------------------------------------------------------------------------------- */

Test(local, an_acquire_is_one_run_and_one_delete_behind_it)
{
    for (int with_scope = 0; with_scope < 2; with_scope++) {
        struct conformance_call call = {0};
        struct error error;
        open_world(with_scope != 0);
        create(spec_of("b", "w"));
        settle();
        fake_shellctl_reset_calls(local->fake);
        error = acquire("b:w", &call.plane);
        cr_assert(eq(int, error.code, ERR_NONE), "%s", error.message);
        cr_assert(eq(int, local->fake->calls[FAKE_RUN_JOB], 1));
        cr_assert(eq(int, local->fake->calls[FAKE_WAIT_JOB], 0));
        cr_assert(eq(int, local->fake->calls[FAKE_DELETE_JOB], 0), "not awaited");
        conformance_do(world, arena, CALL_RELEASE, &call);
        settle();
        cr_assert(eq(int, local->fake->calls[FAKE_DELETE_JOB], 1));
        cr_assert(eq(int, local->fake->live_jobs, 0));
        close_world();
    }
}

Test(local, leases_of_the_embedded_daemon_carry_the_scope_and_maintenance_does_not)
{
    struct conformance_call call = {0};

    open_world(true);
    create(spec_of("b", "w"));
    cr_assert(eq(ptr, strstr(local->fake->last_head, "X-Bindery"), NULL));
    acquire("b:w", &call.plane);
    cr_assert_str_eq(local->fake->last_cwd, arena_printf(arena, "%s/w", local->workspace_root));
    cr_assert(ne(ptr,
                 strstr(local->fake->last_head,
                        arena_printf(arena, "X-Bindery-Home: %s/b\r\n", local->home_root)),
                 NULL));
    cr_assert(ne(ptr,
                 strstr(local->fake->last_head, arena_printf(arena, "X-Bindery-Workspace: %s/w\r\n",
                                                             local->workspace_root)),
                 NULL));
    cr_assert(eq(sz, call.plane->endpoint.n_headers, 2));
    conformance_do(world, arena, CALL_RELEASE, &call);
    close_world();
}

Test(local, an_external_shellctl_gets_no_scope)
{
    struct conformance_call call = {0};

    open_world(false);
    create(spec_of("b", "w"));
    acquire("b:w", &call.plane);
    cr_assert(eq(ptr, strstr(local->fake->last_head, "X-Bindery"), NULL));
    cr_assert(eq(sz, call.plane->endpoint.n_headers, 0));
    cr_assert_str_eq(local->fake->last_cwd, local->dir, "not in a folder that may be gone");
    conformance_do(world, arena, CALL_RELEASE, &call);
    close_world();
}

/* A17: who is called lost. */
Test(local, only_proof_makes_a_binding_lost)
{
    static const struct {
        int status;
        const char *body;
        enum err_code code;
    } cases[] = {
        {404, "{\"error\":{\"code\":\"sandbox_not_found\",\"message\":\"\"}}", ERR_BINDING_LOST},
        {400, "{\"error\":{\"code\":\"Sandbox_Expired\",\"message\":\"\"}}", ERR_BINDING_LOST},
        {500, "{\"error\":{\"code\":\"NOT_FOUND\",\"message\":\"\"}}", ERR_BINDING_LOST},
        {404, "404 page not found\n", ERR_BINDING_ACQUIRE},
        {404, "{\"error\":{\"code\":\"job_not_found\",\"message\":\"\"}}", ERR_BINDING_ACQUIRE},
        {400, "{\"error\":{\"code\":\"invalid_cwd\",\"message\":\"\"}}", ERR_BINDING_ACQUIRE},
        {410, "", ERR_BINDING_ACQUIRE},
        {502, "", ERR_BINDING_ACQUIRE},
        {502, "<html>", ERR_BINDING_ACQUIRE},
        {503, "{}", ERR_BINDING_ACQUIRE},
        {429, "{}", ERR_RATE_LIMITED},
        {401, "{\"error\":{\"code\":\"unauthorized\",\"message\":\"\"}}", ERR_BACKEND_AUTH},
        {200, "{\"job_id\":7}", ERR_BINDING_ACQUIRE},
        {200, "not json", ERR_BINDING_ACQUIRE},
    };

    open_world(true);
    create(spec_of("b", "w"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error error;
        reply(FAKE_RUN_JOB, 1, cases[i].status, cases[i].body);
        error = acquire_release("b:w");
        cr_assert(eq(int, error.code, cases[i].code), "%d %s: %s", cases[i].status, cases[i].body,
                  error.message);
        error = acquire_release("b:w");
        cr_assert(eq(int, error.code, ERR_NONE), "and the binding is as it was");
    }
    fake_shellctl_fail(local->fake, FAKE_RUN_JOB, FAULT_LOSE, -1, NULL);
    cr_assert(eq(int, acquire_release("b:w").code, ERR_BINDING_ACQUIRE));
    close_world();
}

Test(local, only_one_folder_missing_is_lost_too)
{
    for (int with_scope = 0; with_scope < 2; with_scope++) {
        open_world(with_scope != 0);
        create(spec_of("b", "w"));
        sh("rm -rf %s/w", local->workspace_root);
        cr_assert(eq(int, acquire_release("b:w").code, ERR_BINDING_LOST));
        sh("mkdir %s/w; rm -rf %s/b; touch %s/b", local->workspace_root, local->home_root,
           local->home_root);
        cr_assert(eq(int, acquire_release("b:w").code, ERR_BINDING_LOST), "a file is no Home");
        close_world();
    }
}

/* ---- create --------------------------------------------------------------------------------- */

Test(local, refs_and_ids_are_checked_before_anything_is_sent)
{
    struct binding_spec spec;
    char long_id[300];

    open_world(false);
    memset(long_id, 'x', sizeof(long_id));
    long_id[200] = '\0';
    cr_assert(eq(int, create(spec_of("../b", "w")).code, ERR_INVALID_REF));
    cr_assert(eq(int, create(spec_of(".hidden", "w")).code, ERR_INVALID_REF));
    cr_assert(eq(int, create(spec_of("b", "w:x")).code, ERR_INVALID_REF));
    cr_assert(eq(int, create(spec_of("", "w")).code, ERR_INVALID_REF));
    cr_assert(eq(int, create(spec_of(long_id, long_id)).code, ERR_INVALID_REF), "refs keep to 255");
    spec = spec_of("b", "w");
    spec.existing_workspace_ref = "other";
    cr_assert(eq(int, create(spec).code, ERR_INVALID_REF));
    spec.existing_workspace_ref = "";
    cr_assert(eq(int, create(spec).code, ERR_INVALID_REF), "\"\" is not nothing");
    spec = spec_of("b", "w");
    spec.home_snapshot_ref = "home-../x";
    cr_assert(eq(int, create(spec).code, ERR_INVALID_REF));
    spec.home_snapshot_ref = "elsewhere";
    cr_assert(eq(int, create(spec).code, ERR_INVALID_REF));
    cr_assert(eq(int, destroy("b:w", "other").code, ERR_INVALID_REF));
    cr_assert(eq(int, local->fake->calls[FAKE_RUN_JOB], 0));
    close_world();
}

Test(local, a_workspace_that_exists_is_neither_taken_nor_removed)
{
    struct error error;

    open_world(false);
    sh("mkdir -p %s/w; echo precious >%s/w/f", local->workspace_root, local->workspace_root);
    error = create(spec_of("b", "w"));
    cr_assert(eq(int, error.code, ERR_CONFLICT), "%s", error.message);
    cr_assert(eq(int, sh("grep -q precious %s/w/f", local->workspace_root), 0));
    cr_assert(eq(int, local_world_count("%s", local->home_root), 0));
    cr_assert(eq(int, local_world_count("%s/.bindery/records", local->home_root), 0));
    close_world();
}

Test(local, a_failing_copy_removes_home_and_workspace_and_tells_why)
{
    struct binding_spec spec = spec_of("b", "w");
    struct error error;

    open_world(false);
    sh("mkdir -p %s/home-s; ln -s /dev/full %s/homes-full", local->snapshot_root, local->dir);
    sh("mkfifo %s/home-s/x; mkdir %s/home-s/y", local->snapshot_root, local->snapshot_root);
    /* A file where the root must be a folder makes the script fail half-way. */
    sh("touch %s", local->workspace_root);
    spec.home_snapshot_ref = "home-s";
    error = create(spec);
    cr_assert(eq(int, error.code, ERR_BINDING_CREATE));
    cr_assert(ne(ptr, strstr(error.message, "workspaces"), NULL), "%s", error.message);
    cr_assert(eq(int, local_world_count("%s", local->home_root), 0));
    cr_assert(eq(int, local_world_count("%s/.bindery/records", local->home_root), 0));
    cr_assert(eq(int, local_world_count("%s/.bindery/staging", local->home_root), 0));
    close_world();
}

Test(local, a_lost_answer_is_undone_and_says_that_nothing_is_left)
{
    struct error error;

    open_world(false);
    fake_shellctl_fail(local->fake, FAKE_RUN_JOB, FAULT_LOSE, 1, NULL);
    error = create(spec_of("b", "w"));
    cr_assert(eq(int, error.code, ERR_BINDING_CREATE), "%s", error.message);
    cr_assert(eq(int, error.admitted, ADMITTED_NO));
    usleep(300000); /* the first script has had its time */
    cr_assert(eq(int, local_world_count("%s", local->home_root), 0));
    cr_assert(eq(int, local_world_count("%s", local->workspace_root), 0));
    cr_assert(eq(int, world->orphans, 0));
    error = create(spec_of("b", "w"));
    cr_assert(eq(int, error.code, ERR_NONE), "the id is free: %s", error.message);
    close_world();
}

Test(local, what_cannot_be_undone_is_reported)
{
    struct error error;

    open_world(false);
    fake_shellctl_fail(local->fake, FAKE_RUN_JOB, FAULT_LOSE, 2, NULL);
    error = create(spec_of("b", "w"));
    cr_assert(eq(int, error.admitted, ADMITTED_UNKNOWN));
    cr_assert(eq(int, world->orphans, 1));
    close_world();
}

Test(local, a_shellctl_that_is_down_costs_no_orphan)
{
    struct error error;

    open_world(false);
    script_server_deafen(local->fake->server);
    error = create(spec_of("b", "w"));
    cr_assert(eq(int, error.code, ERR_BINDING_CREATE), "%s", error.message);
    cr_assert(eq(int, error.admitted, ADMITTED_NO));
    cr_assert(eq(int, world->orphans, 0));
    close_world();
}

/* ---- destroy (A28) ---------------------------------------------------------------------------- */

Test(local, a_destroy_that_is_not_confirmed_is_an_error_and_may_be_repeated)
{
    static const int statuses[] = {401, 403, 404, 409, 429, 500, 502};

    open_world(false);
    create(spec_of("b", "w"));
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        struct error error;
        reply(FAKE_RUN_JOB, 1, statuses[i], "{\"error\":{\"code\":\"x\",\"message\":\"\"}}");
        error = destroy("b:w", "w");
        cr_assert_not(error.code == ERR_NONE, "%d", statuses[i]);
        cr_assert(eq(int, local_world_count("%s", local->home_root), 1));
    }
    fake_shellctl_fail(local->fake, FAKE_RUN_JOB, FAULT_RESET, 1, NULL);
    cr_assert(eq(int, destroy("b:w", "w").code, ERR_BINDING_DESTROY));
    cr_assert(eq(int, destroy("b:w", "w").code, ERR_NONE));
    cr_assert(eq(int, local_world_count("%s", local->home_root), 0));
    cr_assert(eq(int, destroy("b:w", "w").code, ERR_NONE));
    close_world();
}

Test(local, folders_without_write_permission_go_too)
{
    open_world(false);
    create(spec_of("b", "w"));
    sh("mkdir -p %s/b/x/y; chmod 500 %s/b/x; ln -s / %s/b/root", local->home_root, local->home_root,
       local->home_root);
    cr_assert(eq(int, destroy("b:w", "w").code, ERR_NONE));
    cr_assert(eq(int, local_world_count("%s", local->home_root), 0));
    close_world();
}

/* ---- snapshots -------------------------------------------------------------------------------- */

Test(local, a_link_in_the_home_leads_the_copy_nowhere)
{
    struct conformance_call call = {.snapshot = {"t", "a", "s"}};
    struct error error;

    open_world(false);
    create(spec_of("victim", "wv"));
    create(spec_of("b", "w"));
    sh("mkdir -p %s/victim/share/shellctl; touch %s/victim/share/shellctl/keep; ln -s %s/victim "
       "%s/b/.local",
       local->home_root, local->home_root, local->home_root, local->home_root);
    acquire("b:w", &call.plane);
    error = conformance_do(world, arena, CALL_SNAPSHOT_CREATE, &call);
    cr_assert(eq(int, error.code, ERR_NONE), "%s", error.message);
    conformance_do(world, arena, CALL_RELEASE, &call);
    cr_assert(eq(int, sh("test -e %s/victim/share/shellctl/keep", local->home_root), 0));
    cr_assert(eq(int, sh("test -L %s/home-s/.local", local->snapshot_root), 0));
    close_world();
}

Test(local, a_snapshot_is_never_overwritten_and_of_a_lost_home_there_is_none)
{
    struct conformance_call call = {.snapshot = {"t", "a", "s"}};

    open_world(false);
    create(spec_of("b", "w"));
    acquire("b:w", &call.plane);
    cr_assert(eq(int, conformance_do(world, arena, CALL_SNAPSHOT_CREATE, &call).code, ERR_NONE));
    cr_assert(
        eq(int, conformance_do(world, arena, CALL_SNAPSHOT_CREATE, &call).code, ERR_CONFLICT));
    sh("rm -rf %s/b", local->home_root);
    call.snapshot.home_snapshot_id = "s2";
    cr_assert(
        eq(int, conformance_do(world, arena, CALL_SNAPSHOT_CREATE, &call).code, ERR_BINDING_LOST));
    call.snapshot.home_snapshot_id = "../s3";
    cr_assert(
        eq(int, conformance_do(world, arena, CALL_SNAPSHOT_CREATE, &call).code, ERR_INVALID_REF));
    conformance_do(world, arena, CALL_RELEASE, &call);
    cr_assert(eq(int, local_world_count("%s", local->snapshot_root), 1));
    close_world();
}

/* ---- list ------------------------------------------------------------------------------------- */

Test(local, lists_page_by_page_and_leave_out_what_is_not_ours)
{
    struct conformance_call call = {0};
    size_t seen = 0, pages = 0;

    open_world(false);
    sh("mkdir -p %s/.bindery/records; cd %s/.bindery/records; i=0; while [ $i -lt 700 ]; do "
       "echo \"w$i tok bindery 1700000000\" >b$i; i=$((i+1)); done; "
       "echo 'w tok other 1700000000' >foreign; echo junk >junk; mkdir %s/nobodys",
       local->home_root, local->home_root, local->home_root);
    do {
        struct error error = conformance_do(world, arena, CALL_LIST, &call);
        cr_assert(eq(int, error.code, ERR_NONE), "%s", error.message);
        seen += call.n_items;
        pages++;
        cr_assert(eq(i64, call.items[0].created_wall_ms, 1700000000000));
    } while (call.cursor != NULL);
    cr_assert(eq(sz, seen, 700));
    cr_assert(eq(sz, pages, 3));
    close_world();
}

Test(local, a_page_that_fails_is_an_error_not_an_empty_list)
{
    struct conformance_call call = {0};

    open_world(false);
    reply(FAKE_RUN_JOB, 1, 500, "");
    cr_assert_not(conformance_do(world, arena, CALL_LIST, &call).code == ERR_NONE);
    reply(FAKE_RUN_JOB, 1, 500, "");
    call.spec = spec_of("b", "w");
    cr_assert_not(conformance_do(world, arena, CALL_FIND, &call).code == ERR_NONE);
    close_world();
}

/* ---- scripts against each other --------------------------------------------------------------- */

static int run_script(const char *script)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", script, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static struct local_make make_of(const char *token)
{
    return (struct local_make){.root = local->home_root,
                               .id = "b",
                               .token = token,
                               .workspace_root = local->workspace_root,
                               .workspace_id = "w",
                               .instance_id = "bindery"};
}

Test(local, an_attempt_that_was_given_up_never_begins)
{
    struct local_make mine, other;

    open_world(false);
    mine = make_of("t1");
    other = make_of("t2");
    cr_assert(eq(int, run_script(local_script_unmake(arena, &mine)), 0));
    cr_assert(eq(int, run_script(local_script_make(arena, &mine)), LOCAL_EXIT_GIVEN_UP));
    cr_assert(eq(int, local_world_count("%s", local->home_root), 0));
    cr_assert(eq(int, local_world_count("%s", local->workspace_root), 0));
    cr_assert(eq(int, run_script(local_script_make(arena, &other)), 0), "others do");
    cr_assert(eq(int, run_script(local_script_unmake(arena, &mine)), 0));
    cr_assert(eq(int, local_world_count("%s", local->home_root), 1), "not its own");
    cr_assert(eq(int, run_script(local_script_unmake(arena, &other)), 0));
    cr_assert(eq(int, local_world_count("%s", local->home_root), 0));
    cr_assert(eq(int, local_world_count("%s", local->workspace_root), 0));
    close_world();
}

Test(local, of_many_attempts_at_once_exactly_one_succeeds)
{
    enum { N = 12 };
    pid_t pids[N];
    int made = 0;

    open_world(false);
    for (int i = 0; i < N; i++) {
        struct local_make make = make_of(arena_printf(arena, "t%d", i));
        const char *script = local_script_make(arena, &make);
        pids[i] = fork();
        if (pids[i] == 0) {
            execl("/bin/sh", "sh", "-c", script, (char *)NULL);
            _exit(127);
        }
    }
    for (int i = 0; i < N; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        made += WEXITSTATUS(status) == 0;
    }
    cr_assert(eq(int, made, 1));
    cr_assert(eq(int, local_world_count("%s", local->home_root), 1));
    cr_assert(eq(int, local_world_count("%s", local->workspace_root), 1));
    cr_assert(eq(int, local_world_count("%s/.bindery/staging", local->home_root), 0));
    close_world();
}

Test(local, what_a_crash_left_does_not_hold_the_id)
{
    struct local_make make;

    open_world(false);
    make = make_of("t1");
    sh("mkdir -p %s/.bindery/records %s/.bindery/staging/b/half %s/w; "
       "echo 'w t0 bindery 1' >%s/.bindery/records/b",
       local->home_root, local->home_root, local->workspace_root, local->home_root);
    cr_assert(eq(int, run_script(local_script_make(arena, &make)), 0));
    cr_assert(eq(int, local_world_count("%s/b", local->home_root), 0));
    cr_assert(eq(int, local_world_count("%s/.bindery/staging", local->home_root), 0));
    close_world();
}

/* The two scripts of one attempt, started together: nothing may be left whichever is first. */
Test(local, an_attempt_and_its_undoing_at_once_leave_nothing)
{
    open_world(false);
    for (int i = 0; i < 40; i++) {
        struct local_make make = make_of(arena_printf(arena, "t%d", i));
        const char *scripts[2] = {local_script_make(arena, &make),
                                  local_script_unmake(arena, &make)};
        pid_t pids[2];
        for (int k = 0; k < 2; k++) {
            pids[k] = fork();
            if (pids[k] == 0) {
                usleep((useconds_t)(k * i * 400));
                execl("/bin/sh", "sh", "-c", scripts[k], (char *)NULL);
                _exit(127);
            }
        }
        for (int k = 0; k < 2; k++) {
            int status;
            waitpid(pids[k], &status, 0);
            if (k == 1)
                cr_assert(eq(int, WEXITSTATUS(status), 0));
        }
        cr_assert(eq(int, local_world_count("%s", local->home_root), 0), "round %d", i);
        cr_assert(eq(int, local_world_count("%s", local->workspace_root), 0), "round %d", i);
        cr_assert(eq(int, local_world_count("%s/.bindery/records", local->home_root), 0));
        cr_assert(eq(int, local_world_count("%s/.bindery/staging", local->home_root), 0));
    }
    close_world();
}

/* ---- roots ------------------------------------------------------------------------------------ */

static bool roots_work(const char *home, const char *workspace, const char *snapshot)
{
    struct local_options options = {.base_url = "http://x",
                                    .home_root = home,
                                    .workspace_root = workspace,
                                    .snapshot_root = snapshot};
    struct loop *loop = loop_new(NULL);
    struct error error;
    struct backend *b = local_backend_new(loop, NULL, &options, &error);

    if (b != NULL)
        b->ops->free(b);
    else
        cr_assert(eq(int, error.code, ERR_BAD_REQUEST));
    loop_free(loop);
    return b != NULL;
}

Test(local, roots)
{
    cr_assert(roots_work("/home/dify", "/workspace", "/home/dify/.snapshots"));
    cr_assert(roots_work("/a/", "/b", "/c"));
    cr_assert_not(roots_work("/a", "/a", "/c"));
    cr_assert_not(roots_work("/a", "/b", "/a/"));
    cr_assert_not(roots_work("/", "/b", "/c"));
    cr_assert_not(roots_work("a", "/b", "/c"));
    cr_assert_not(roots_work("/a/../b", "/c", "/d"));
    cr_assert_not(roots_work("/a\n", "/b", "/c"));
}

Test(local, an_id_cannot_name_a_folder_that_holds_a_root)
{
    struct local_options options = {.base_url = "http://x",
                                    .home_root = "/r",
                                    .workspace_root = "/r/spaces/w",
                                    .snapshot_root = "/r/snaps"};
    struct loop *loop = loop_new(NULL);
    struct error error;
    struct backend *b = local_backend_new(loop, NULL, &options, &error);

    cr_assert_not(b->ops->check_binding_ref(b, "spaces:w", &error));
    cr_assert_not(b->ops->check_binding_ref(b, "snaps:w", &error));
    cr_assert(b->ops->check_binding_ref(b, "space:w", &error));
    b->ops->free(b);
    loop_free(loop);
}

/* ---- readiness and answers ---------------------------------------------------------------------- */

Test(local, readiness_is_what_the_supervisor_says)
{
    struct error down, got;

    open_world(true);
    error_set(&down, ERR_BACKEND_UNAVAILABLE, "the sandbox is starting");
    cr_assert(world->backend->ops->ready(world->backend, &got));
    local_backend_set_ready(world->backend, &down);
    cr_assert_not(world->backend->ops->ready(world->backend, &got));
    cr_assert_str_eq(got.message, down.message);
    local_backend_set_ready(world->backend, NULL);
    cr_assert(world->backend->ops->ready(world->backend, &got));
    close_world();
}

Test(local, data_plane_answers_that_mean_lost)
{
    static const char gone[] = "{\"error\":{\"code\":\"sandbox_not_found\",\"message\":\"x\"}}";
    static const char job[] = "{\"error\":{\"code\":\"job_not_found\",\"message\":\"x\"}}";
    struct backend *b;

    open_world(true);
    b = world->backend;
    cr_assert(b->ops->answer_means_lost(b, 404, gone, strlen(gone)));
    cr_assert_not(b->ops->answer_means_lost(b, 404, job, strlen(job)));
    cr_assert_not(b->ops->answer_means_lost(b, 404, "404 page not found", 18));
    close_world();
}
