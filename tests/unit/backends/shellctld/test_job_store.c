/* Jobs on disk: what a folder tells after a restart, who may have the state folder, and what is
 * collected when. Real files, scripted runners, a virtual clock. */
#include "backends/shellctld/job_store.h"

#include "backends/shellctld/fault.h"
#include "backends/shellctld/isolation.h"
#include "backends/shellctld/job_gc.h"
#include "backends/shellctld/runner_spec.h"
#include "unit/backends/shellctld/jobs_fixture.h"

#include <criterion/criterion.h>
#include <sys/wait.h>

static struct job_store *store;

static void set_up(void)
{
    struct error err = {0};

    jobs_set_up();
    store = job_store_open(jobs.dir, 0, &err);
    cr_assert_not_null(store, "%s", err.message);
}

static void tear_down(void)
{
    job_store_close(store);
    jobs_tear_down();
}

TestSuite(job_store, .init = set_up, .fini = tear_down, .timeout = 30);

static const struct scope control = {NULL, NULL};

/* A job as job_launch makes it, up to the start. */
static struct job *create(const struct scope *scope, bool unbound)
{
    struct job_seed seed = {.scope = *scope, .script = "true", .stdio = true, .unbound = unbound};
    struct runner_spec spec = {.mode = RUNNER_STDIO,
                               .scope =
                                   scope->home != NULL || unbound ? RUNNER_SCOPED : RUNNER_CONTROL,
                               .cols = 80,
                               .rows = 24,
                               .cwd = jobs.dir,
                               .home = scope->home != NULL ? scope->home : jobs.dir,
                               .workspace = scope->workspace != NULL ? scope->workspace : jobs.dir};
    struct isolation isolation = {.policy = ISOLATION_NONE};
    struct error err = {0};
    struct job *job = job_store_create(store, jobs.table, &seed, &err);

    cr_assert_not_null(job, "%s", err.message);
    cr_assert(runner_spec_write(job->dir, &spec, &isolation, &err), "%s", err.message);
    return job;
}

/* Forget all jobs, read them again. */
static void reload(void)
{
    struct error err = {0};

    for (struct job *job = job_first(jobs.table), *next; job != NULL; job = next) {
        next = job_next(job);
        job_process_detach(job);
        job_remove(job);
    }
    cr_assert(job_store_load(store, jobs.table, &err), "%s", err.message);
}

static struct job *only_job(void)
{
    cr_assert_eq(job_count(jobs.table), 1);
    return job_first(jobs.table);
}

Test(job_store, a_job_comes_back_as_it_was)
{
    const struct scope scope = {"/homes/a", "/work/a"};
    struct job *job = create(&scope, false);
    char id[JOB_ID_CHARS + 1];

    strcpy(id, job->id);
    cr_assert_eq(strspn(id, "0123456789abcdef"), JOB_ID_CHARS);
    reload();
    job = only_job();
    cr_assert_str_eq(job->id, id);
    cr_assert_eq(job->status, JOB_STARTING);
    cr_assert(job->stdio);
    cr_assert(scope_equal(&job->scope, &scope));
    cr_assert_neq(job->created_wall_ms, 0);
}

Test(job_store, control_and_unbound_jobs_come_back_without_a_scope)
{
    create(&control, false);
    create(&control, true);
    reload();
    cr_assert_eq(job_count(jobs.table), 2);
    for (struct job *job = job_first(jobs.table); job != NULL; job = job_next(job))
        cr_assert_not(scope_is_confined(&job->scope));
}

Test(job_store, an_end_that_no_runner_recorded_is_kept)
{
    static const enum job_status ends[] = {JOB_TERMINATED, JOB_FAILED, JOB_LOST};

    for (int i = 0; i < 3; i++) {
        struct job *job = create(&control, false);
        struct error err = {0};
        job_move(job, JOB_LIVE, ends[i]);
        cr_assert(job_store_record_end(job, "because", "of \"this\"\n", &err));
        reload();
        job = only_job();
        cr_assert_eq(job->status, ends[i]);
        cr_assert_eq(job->ended_wall_ms, loop_wall_ms(jobs.loop));
        job_store_delete(job);
    }
}

Test(job_store, a_damaged_end_is_judged_anew)
{
    struct job *job = create(&control, false);
    char path[300];
    int fd;

    snprintf(path, sizeof(path), "%s/end.json", job->dir);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(write(fd, "{\"status\":\"exi", 14) == 14);
    close(fd);
    reload();
    cr_assert_eq(only_job()->status, JOB_STARTING);
}

Test(job_store, a_folder_without_a_spec_was_never_a_job)
{
    struct job_seed seed = {.script = "true"};
    struct error err = {0};
    struct job *job = job_store_create(store, jobs.table, &seed, &err);
    char dir[256];

    strcpy(dir, job->dir);
    reload();
    cr_assert_eq(job_count(jobs.table), 0);
    cr_assert_neq(access(dir, F_OK), 0);
}

Test(job_store, deleting_takes_everything)
{
    struct job *job = create(&control, false);
    char path[300], dir[256];

    strcpy(dir, job->dir);
    snprintf(path, sizeof(path), "%s/sub", dir);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(symlink("/etc", strcat(path, "/link")), 0);
    job_store_delete(job);
    cr_assert_neq(access(dir, F_OK), 0);
    cr_assert_eq(access("/etc/passwd", F_OK), 0, "a link is not followed");
}

/* The lock belongs to a process: another one is refused, and may have it once we are gone. */
Test(job_store, one_daemon_at_a_time)
{
    struct error err = {0};
    pid_t other = fork();
    int status;

    if (other == 0) {
        struct job_store *second = job_store_open(jobs.dir, 0, &err);
        _exit(second == NULL && err.code == ERR_CONFLICT ? 0 : 1);
    }
    cr_assert_eq(waitpid(other, &status, 0), other);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a second daemon got in");
    job_store_close(store);
    other = fork();
    if (other == 0) {
        store = job_store_open(jobs.dir, 0, &err);
        _exit(store != NULL ? 0 : 1);
    }
    cr_assert_eq(waitpid(other, &status, 0), other);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the lock outlived its owner");
    store = job_store_open(jobs.dir, 0, &err);
    cr_assert_not_null(store);
}

Test(job_store, an_unusable_folder_is_said)
{
    struct error err = {0};

    cr_assert_null(job_store_open("/proc/self/nowhere", 0, &err));
    cr_assert_not_null(strstr(err.message, "/proc/self/nowhere"));
    cr_assert_null(job_store_open("/etc/passwd", 0, &err));
    cr_assert_null(job_store_open("", 0, &err));
}

/* ---- collection ------------------------------------------------------------------------------- */

static struct job *ended_job(void)
{
    struct job *job = create(&control, false);

    job_move(job, JOB_LIVE, JOB_FAILED);
    return job;
}

Test(job_store, collects_what_has_ended_long_enough_ago)
{
    struct job_gc gc;

    job_gc_start(&gc, jobs.table, 60000, 300000);
    ended_job();
    create(&control, false); /* lives */
    loop_advance_ms(jobs.loop, 299000);
    cr_assert_eq(job_count(jobs.table), 2);
    ended_job();
    loop_advance_ms(jobs.loop, 2000);
    cr_assert_eq(job_count(jobs.table), 2, "the first is gone, the third is young");
    loop_advance_ms(jobs.loop, 400000);
    cr_assert_eq(only_job()->status, JOB_CREATED);
    job_gc_stop(&gc);
}

Test(job_store, a_jump_of_the_clock_collects_nothing)
{
    struct job_gc gc;

    job_gc_start(&gc, jobs.table, 1000, 300000);
    ended_job();
    loop_jump_wall_ms(jobs.loop, 3600000);
    loop_advance_ms(jobs.loop, 2000);
    cr_assert_eq(job_count(jobs.table), 1);
    loop_jump_wall_ms(jobs.loop, -7200000);
    loop_advance_ms(jobs.loop, 300000);
    cr_assert_eq(job_count(jobs.table), 0);
    job_gc_stop(&gc);
}

Test(job_store, collects_many_in_several_turns)
{
    struct job_gc gc;

    for (int i = 0; i < 50; i++)
        ended_job();
    loop_advance_ms(jobs.loop, 300001);
    job_gc_start(&gc, jobs.table, 60000, 300000);
    loop_turn(jobs.loop, false);
    cr_assert(job_count(jobs.table) > 0 && job_count(jobs.table) < 50, "a bounded turn");
    loop_advance_ms(jobs.loop, 100);
    cr_assert_eq(job_count(jobs.table), 0);
    job_gc_stop(&gc);
}
