/* The process side of jobs, scripted: defines the functions of backends/shellctld/job_runner.h, so a
 * test program that includes this (once) is linked with it in place of the real one. Job folders are real, for
 * their output files; processes are not: a runner's pidfd is an eventfd. */
#pragma once

#include "backends/shellctld/job_runner.h"
#include "core/runtime/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/** What the runner of one folder was told, and how it will behave. */
struct fake_runner {
    char dir[256];
    bool spawned, alive, started;
    bool has_record; /* runner.pid can be opened */
    int event_fd;    /* written when the runner ends */
    bool has_exit;
    struct runner_exit exit;
    int64_t grace_ms; /* of the latest terminate; -1 = none */
    int terminates, kills, clean_ups, reaps;
    char input[256];      /* all of it, cut to fit */
    bool refuse_spawn;    /* of every folder, when set on fake_runner_default */
    bool deaf;            /* commands: ERR_OVERLOADED */
    bool stubborn;        /* terminate does not end it */
    bool unkillable;      /* nor does the kill */
    int clean_ups_needed; /* before job_runner_clean_up says true */
};

enum { RUNNERS_MAX = 512, FAKE_PID = 4000000 };

static struct fake_runner fake_runner_default = {.grace_ms = -1, .event_fd = -1};
static struct fake_runner runners[RUNNERS_MAX];
static int n_runners;

/** The runner of a folder; made at first mention from a copy of fake_runner_default. */
static struct fake_runner *fake_runner_of(const char *job_dir)
{
    for (int i = 0; i < n_runners; i++)
        if (strcmp(runners[i].dir, job_dir) == 0)
            return &runners[i];
    PRE(n_runners < RUNNERS_MAX && strlen(job_dir) < sizeof(runners->dir));
    runners[n_runners] = fake_runner_default;
    snprintf(runners[n_runners].dir, sizeof(runners->dir), "%s", job_dir);
    return &runners[n_runners++];
}

/** Forget all runners. */
static void fake_runners_reset(void)
{
    for (int i = 0; i < n_runners; i++)
        if (runners[i].event_fd >= 0)
            close(runners[i].event_fd);
    n_runners = 0;
    fake_runner_default = (struct fake_runner){.grace_ms = -1, .event_fd = -1};
}

/** The script has begun. */
static __attribute__((unused)) void fake_runner_begin(const char *job_dir)
{
    fake_runner_of(job_dir)->started = true;
}

/** The job prints. */
static __attribute__((unused)) void fake_runner_write(const char *job_dir, const void *bytes,
                                                      size_t len)
{
    char path[300];
    int fd;

    snprintf(path, sizeof(path), "%s/output.log", job_dir);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    PRE(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    close(fd);
}

/** The runner is gone without a word. */
static void fake_runner_vanish(const char *job_dir)
{
    struct fake_runner *r = fake_runner_of(job_dir);
    uint64_t one = 1;

    PRE(r->alive);
    r->alive = false;
    if (r->event_fd >= 0)
        PRE(write(r->event_fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
}

/** The job has ended, and the runner with it. */
static void fake_runner_end(const char *job_dir, enum runner_status status, int exit_code,
                            int64_t ended_wall_ms)
{
    struct fake_runner *r = fake_runner_of(job_dir);

    r->has_exit = true;
    r->exit = (struct runner_exit){
        .status = status, .exit_code = exit_code, .ended_wall_ms = ended_wall_ms};
    if (r->alive)
        fake_runner_vanish(job_dir);
}

/* ---- job_runner.h ---------------------------------------------------------------------------- */

static struct job_runner handle_of(struct fake_runner *r)
{
    if (r->event_fd < 0)
        r->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return (struct job_runner){FAKE_PID + (pid_t)(r - runners),
                               fcntl(r->event_fd, F_DUPFD_CLOEXEC, 0)};
}

bool job_runner_spawn(const char *job_dir, struct job_runner *ret, struct error *err)
{
    struct fake_runner *r = fake_runner_of(job_dir);

    if (r->refuse_spawn) {
        error_set(err, ERR_OVERLOADED, "no process left");
        return false;
    }
    r->spawned = r->alive = r->has_record = true;
    *ret = handle_of(r);
    return true;
}

bool job_runner_reap(const struct job_runner *runner)
{
    (void)runner;
    return true;
}

bool job_runner_open(const char *job_dir, struct job_runner *ret)
{
    struct fake_runner *r = fake_runner_of(job_dir);

    if (!r->alive || !r->has_record)
        return false;
    *ret = handle_of(r);
    return true;
}

bool job_runner_alive(const char *job_dir)
{
    return fake_runner_of(job_dir)->alive;
}

void job_runner_kill(const struct job_runner *runner)
{
    struct fake_runner *r = &runners[runner->pid - FAKE_PID];

    PRE(runner->pid >= FAKE_PID && runner->pid < FAKE_PID + n_runners);
    r->kills++;
    if (!r->unkillable)
        fake_runner_vanish(r->dir);
}

bool job_runner_clean_up(const char *job_dir)
{
    struct fake_runner *r = fake_runner_of(job_dir);

    return ++r->clean_ups > r->clean_ups_needed;
}

static bool take_command(struct fake_runner *r, struct error *err)
{
    if (!r->alive)
        error_set(err, ERR_CONFLICT, "the runner is gone");
    else if (r->deaf)
        error_set(err, ERR_OVERLOADED, "the runner does not keep up");
    return r->alive && !r->deaf;
}

bool job_runner_input(const char *job_dir, const char *bytes, size_t len, struct error *err)
{
    struct fake_runner *r = fake_runner_of(job_dir);

    if (!take_command(r, err))
        return false;
    snprintf(r->input + strlen(r->input), sizeof(r->input) - strlen(r->input), "%.*s", (int)len,
             bytes);
    return true;
}

bool job_runner_resize(const char *job_dir, int cols, int rows, struct error *err)
{
    (void)cols;
    (void)rows;
    return take_command(fake_runner_of(job_dir), err);
}

bool job_runner_terminate(const char *job_dir, int64_t grace_ms, struct error *err)
{
    struct fake_runner *r = fake_runner_of(job_dir);

    if (!take_command(r, err))
        return false;
    r->grace_ms = grace_ms;
    r->terminates++;
    if (!r->stubborn)
        fake_runner_end(job_dir, RUNNER_TERMINATED, 143, 1);
    return true;
}

bool job_runner_read_exit(const char *job_dir, struct runner_exit *ret)
{
    struct fake_runner *r = fake_runner_of(job_dir);

    *ret = r->exit;
    return r->has_exit;
}

bool job_runner_read_started(const char *job_dir, int64_t *ret_wall_ms)
{
    *ret_wall_ms = 1;
    return fake_runner_of(job_dir)->started;
}
