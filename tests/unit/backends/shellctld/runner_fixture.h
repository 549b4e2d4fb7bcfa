/* Real jobs for the tests of the runner: a state folder, bindings in it, and the runner program that
 * was built. Include once per test program. */
#pragma once

#include "backends/shellctld/isolation.h"
#include "backends/shellctld/job_runner.h"
#include "backends/shellctld/program.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct place {
    char state[64];
    struct isolation iso;
    int jobs;
};

/* One job: its folder and its runner. */
struct test_job {
    char dir[128];
    struct job_runner runner;
};

__attribute__((unused)) static void put_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    cr_assert_geq(fd, 0, "%s", path);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

/* The whole file with a NUL behind; free it. NULL when there is none. */
__attribute__((unused)) static char *get_file(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;

    if (file == NULL)
        return NULL;
    if (getdelim(&text, &size, '\0', file) < 0) {
        free(text);
        text = strdup("");
    }
    fclose(file);
    return text;
}

__attribute__((unused)) static void find_program(void)
{
    char path[PATH_MAX];
    const char *bindery = getenv("BINDERY_BIN");

    cr_assert_not_null(bindery, "BINDERY_BIN is not set");
    snprintf(path, sizeof path, "%.*s/bindery-runner", (int)(strrchr(bindery, '/') - bindery),
             bindery);
    cr_assert_eq(access(path, X_OK), 0, "%s", path);
    runner_program_set(path);
    signal(SIGPIPE, SIG_IGN);
}

__attribute__((unused)) static void place_make(struct place *p)
{
    char path[128];

    *p = (struct place){.state = "/tmp/bindery-runner-XXXXXX"};
    find_program();
    cr_assert_not_null(mkdtemp(p->state));
    static const char *const folders[] = {"jobs", "homes", "workspaces", "control"};
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", p->state, folders[i]);
        cr_assert_eq(mkdir(path, 0700), 0);
        cr_assert_eq(chmod(path, i == 0 ? 0700 : 0711), 0);
    }
}

__attribute__((unused)) static void place_binding(const struct place *p, const char *name)
{
    char path[128];

    snprintf(path, sizeof path, "%s/homes/%s", p->state, name);
    cr_assert_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/workspaces/%s", p->state, name);
    cr_assert_eq(mkdir(path, 0700), 0);
}

__attribute__((unused)) static void place_remove(struct place *p)
{
    char *const roots[] = {p->state, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    FTSENT *entry;

    while ((entry = fts_read(walk)) != NULL) {
        if (entry->fts_info != FTS_D)
            remove(entry->fts_accpath);
    }
    fts_close(walk);
}

/* Probe with `policy`; false (with the reason in the log) when it does not work here. */
__attribute__((unused)) static bool place_isolate(struct place *p, enum isolation_policy policy)
{
    const struct isolation_options options = {.policy = policy, .state_dir = p->state};
    struct error err = {0};
    bool ok = isolation_probe(&options, &p->iso, &err);

    if (!ok)
        fprintf(stderr, "no isolation: %s\n",
                err.message); /* a cr_log_warn would fail the program */
    return ok;
}

/* Start a script. `binding` NULL is a control job. */
__attribute__((unused)) static struct test_job job_start(struct place *p, const char *binding,
                                                         enum runner_mode mode,
                                                         const struct runner_spec *base,
                                                         const char *script)
{
    char path[160], home[128], workspace[128];
    struct test_job job = {0};
    struct error err = {0};
    struct runner_spec spec = base != NULL ? *base : (struct runner_spec){0};

    snprintf(job.dir, sizeof job.dir, "%s/jobs/t%d-%d", p->state, (int)getpid(), ++p->jobs);
    cr_assert_eq(mkdir(job.dir, 0700), 0);
    snprintf(home, sizeof home, "%s/%s%s", p->state, binding ? "homes/" : "control",
             binding ? binding : "");
    snprintf(workspace, sizeof workspace, "%s/workspaces/%s", p->state, binding ? binding : "");
    spec.mode = mode;
    spec.scope = binding ? RUNNER_SCOPED : RUNNER_CONTROL;
    spec.cols = spec.cols ? spec.cols : 80;
    spec.rows = spec.rows ? spec.rows : 24;
    spec.home = home;
    spec.workspace = binding ? workspace : NULL;
    if (spec.cwd == NULL)
        spec.cwd = binding ? workspace : home;
    snprintf(path, sizeof path, "%s/script", job.dir);
    put_file(path, script);
    cr_assert(runner_spec_write(job.dir, &spec, &p->iso, &err), "%s", err.message);
    cr_assert(job_runner_spawn(job.dir, &job.runner, &err), "%s", err.message);
    return job;
}

/* Wait for exit.json, at most `tries` times 5 ms. */
__attribute__((unused)) static bool job_ended(const struct test_job *job, int tries,
                                              struct runner_exit *ret)
{
    for (int i = 0; i < tries; i++) {
        if (job_runner_read_exit(job->dir, ret))
            return true;
        usleep(5000);
    }
    return false;
}

/* … and for the runner itself, which must have ended well. */
__attribute__((unused)) static struct runner_exit job_end(struct test_job *job)
{
    struct runner_exit end = {0};
    siginfo_t info = {0};
    char path[160];

    cr_assert(job_ended(job, 2000, &end), "%s: no exit.json", job->dir);
    cr_assert_eq(waitid(P_PIDFD, (id_t)job->runner.pidfd, &info, WEXITED), 0);
    snprintf(path, sizeof path, "%s/runner.log", job->dir);
    char *log = get_file(path);
    cr_assert(info.si_code == CLD_EXITED && info.si_status == 0, "runner: %d/%d: %s", info.si_code,
              info.si_status, log ? log : "");
    cr_assert_str_eq(log ? log : "", "");
    free(log);
    close(job->runner.pidfd);
    return end;
}

__attribute__((unused)) static char *job_file(const struct test_job *job, const char *name)
{
    char path[160];

    snprintf(path, sizeof path, "%s/%s", job->dir, name);
    char *text = get_file(path);
    return text ? text : strdup("");
}

/* Wait until the output holds `text`. */
__attribute__((unused)) static void job_says(const struct test_job *job, const char *text)
{
    for (int i = 0; i < 2000; i++, usleep(5000)) {
        char *out = job_file(job, "output.log");
        bool said = strstr(out, text) != NULL;
        free(out);
        if (said)
            return;
    }
    cr_assert_fail("the job never said %s", text);
}

/* Run to the end and compare status, code and output. */
__attribute__((unused)) static void expect_run(struct place *p, const char *binding,
                                               enum runner_mode mode, const char *script, int code,
                                               const char *output)
{
    struct test_job job = job_start(p, binding, mode, NULL, script);
    struct runner_exit end = job_end(&job);
    char *text = job_file(&job, "output.log");

    cr_assert(end.status == RUNNER_EXITED && end.exit_code == code, "%s: status %d code %d: %s; %s",
              script, end.status, end.exit_code, end.message, text);
    if (output != NULL)
        cr_assert_str_eq(text, output, "%s", script);
    free(text);
}
