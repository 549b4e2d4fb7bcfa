/* Runs real jobs, unisolated: streams, exit codes, input, the end of a job and of its tree. */
#include "runner_fixture.h"

#include <sys/wait.h>

TestSuite(job_runner, .timeout = 60);

Test(job_runner, output_and_exit_codes)
{
    struct place p;

    place_make(&p);
    expect_run(&p, NULL, RUNNER_STDIO, "echo hi; exit 3", 3, "hi\n");
    expect_run(&p, NULL, RUNNER_PTY, "echo hi; exit 3", 3, "hi\n");
    expect_run(&p, NULL, RUNNER_PTY, "printf 'no newline'", 0, "no newline");
    expect_run(&p, NULL, RUNNER_STDIO, "kill -9 $$", 128 + 9, "");
    expect_run(&p, NULL, RUNNER_PTY, "kill -15 $$", 128 + 15, "");
    expect_run(&p, NULL, RUNNER_STDIO, "no-such-command", 127, "");
    expect_run(&p, NULL, RUNNER_STDIO, "#!/bin/cat\nself\n", 0, "#!/bin/cat\nself\n");
    expect_run(&p, NULL, RUNNER_STDIO, "#!/no/such/interpreter\n", 127, "");
    expect_run(&p, NULL, RUNNER_STDIO, "echo one >&2; echo two", 0, "two\n");
    expect_run(&p, NULL, RUNNER_PTY, "echo one >&2; echo two", 0, "one\ntwo\n");
    expect_run(&p, NULL, RUNNER_STDIO, "printf 'a\\377b'", 0,
               "a\xef\xbf\xbd"
               "b");
    expect_run(&p, NULL, RUNNER_STDIO, "cat; echo end", 0, "end\n");
    expect_run(&p, NULL, RUNNER_PTY, "stty size; test -t 0 && echo $TERM", 0,
               "24 80\nxterm-256color\n");
    place_remove(&p);
}

Test(job_runner, a_working_folder_that_is_gone_is_111)
{
    struct place p;
    const struct runner_spec base = {.cwd = "/no/such/folder"};

    place_make(&p);
    struct test_job job = job_start(&p, NULL, RUNNER_STDIO, &base, "echo never");
    struct runner_exit end = job_end(&job);
    cr_assert_eq(end.status, RUNNER_EXITED);
    cr_assert_eq(end.exit_code, 111);
    place_remove(&p);
}

Test(job_runner, stdio_keeps_the_streams_apart)
{
    struct place p;

    place_make(&p);
    struct test_job job = job_start(&p, NULL, RUNNER_STDIO, NULL, "echo out; echo err >&2");
    struct runner_exit end = job_end(&job);
    char *out = job_file(&job, "output.log"), *err = job_file(&job, "stderr.log");
    int64_t started;
    cr_assert_str_eq(out, "out\n");
    cr_assert_str_eq(err, "err\n");
    cr_assert_eq(end.output_bytes, 4);
    cr_assert_eq(end.stderr_bytes, 4);
    cr_assert(job_runner_read_started(job.dir, &started));
    cr_assert_leq(started, end.ended_wall_ms);
    free(out);
    free(err);
    place_remove(&p);
}

Test(job_runner, the_environment_holds_no_setting_of_ours)
{
    struct place p;

    setenv("SHELLCTL_AUTH_TOKEN", "secret-1", 1);
    setenv("BINDERY_LEASE_SECRET", "secret-2", 1);
    setenv("DIFY_AGENT_API_TOKEN", "secret-3", 1);
    setenv("dify_agent_x", "secret-4", 1);
    place_make(&p);
    expect_run(&p, NULL, RUNNER_STDIO, "env | grep -c secret", 1, "0\n");
    expect_run(&p, NULL, RUNNER_STDIO, "tr '\\0' '\\n' </proc/$PPID/environ | grep -c secret", 1,
               "0\n");
    place_remove(&p);
}

Test(job_runner, the_jobs_environment_wins)
{
    struct place p;
    const char *const env[] = {"HOME", "/tmp", "GREETING", "hello world", NULL};
    const struct runner_spec base = {.env = env};

    place_make(&p);
    struct test_job job = job_start(&p, NULL, RUNNER_STDIO, &base, "echo $HOME $GREETING");
    job_end(&job);
    char *out = job_file(&job, "output.log");
    cr_assert_str_eq(out, "/tmp hello world\n");
    free(out);
    place_remove(&p);
}

Test(job_runner, no_descriptor_reaches_the_job)
{
    struct place p;
    int leak = open("/etc/passwd", O_RDONLY);

    cr_assert_geq(leak, 0);
    place_make(&p);
    /* ls opens one for the folder itself */
    expect_run(&p, NULL, RUNNER_STDIO, "exec ls /proc/self/fd", 0, "0\n1\n2\n3\n");
    expect_run(&p, NULL, RUNNER_PTY, "ls -x /proc/self/fd", 0, "0  1  2  3\n");
    place_remove(&p);
}

Test(job_runner, input_reaches_the_terminal)
{
    struct place p;
    struct error err = {0};
    enum { LONG = 200000 };
    char *text = malloc(LONG + 1);

    place_make(&p);
    struct test_job job =
        job_start(&p, NULL, RUNNER_PTY, NULL, "stty -echo; echo ready; read a; echo \"got $a\"");
    cr_assert(job_runner_input(job.dir, "first line\n", 11, &err), "%s", err.message);
    job_end(&job);
    char *out = job_file(&job, "output.log");
    cr_assert_not_null(strstr(out, "got first line\n"), "%s", out);
    free(out);

    /* longer than a frame and than the terminal takes at once */
    for (int i = 0; i < LONG; i++)
        text[i] = i % 100 == 99 ? '\n' : 'x';
    text[LONG] = '\0';
    job = job_start(&p, NULL, RUNNER_PTY, NULL, "stty -echo; head -c 200000 | wc -c");
    cr_assert(job_runner_input(job.dir, text, LONG, &err), "%s", err.message);
    job_end(&job);
    out = job_file(&job, "output.log");
    cr_assert_not_null(strstr(out, "200000\n"), "%s", out);
    free(out);
    free(text);
    cr_assert_not(job_runner_input(job.dir, "late", 4, &err));
    cr_assert_eq(err.code, ERR_CONFLICT);
    place_remove(&p);
}

Test(job_runner, the_terminal_can_be_resized)
{
    struct place p;
    struct error err = {0};

    place_make(&p);
    struct test_job job = job_start(&p, NULL, RUNNER_PTY, NULL, "stty -echo; read a; stty size");
    cr_assert(job_runner_resize(job.dir, 132, 43, &err), "%s", err.message);
    cr_assert(job_runner_input(job.dir, "\n", 1, &err), "%s", err.message);
    job_end(&job);
    char *out = job_file(&job, "output.log");
    cr_assert_not_null(strstr(out, "43 132\n"), "%s", out);
    free(out);
    place_remove(&p);
}

Test(job_runner, terminate_ends_at_once_when_the_job_does)
{
    struct place p;
    struct error err = {0};

    place_make(&p);
    for (int mode = RUNNER_PTY; mode <= RUNNER_STDIO; mode++) {
        struct test_job job = job_start(&p, NULL, mode, NULL, "echo up; sleep 300");
        cr_assert(job_runner_terminate(job.dir, 60000, &err), "%s", err.message);
        struct runner_exit end = job_end(&job); /* long before the grace of a minute */
        cr_assert_eq(end.status, RUNNER_TERMINATED);
        cr_assert_str_eq(end.reason, "terminated");
    }
    place_remove(&p);
}

Test(job_runner, terminate_kills_what_ignores_it)
{
    struct place p;
    struct error err = {0};

    place_make(&p);
    struct test_job job = job_start(&p, NULL, RUNNER_PTY, NULL,
                                    "trap '' INT TERM HUP; echo up; while :; do sleep 1; done");
    job_says(&job, "up\n");
    cr_assert(job_runner_terminate(job.dir, 300, &err), "%s", err.message);
    struct runner_exit end = job_end(&job);
    cr_assert_eq(end.status, RUNNER_TERMINATED);
    cr_assert_eq(end.exit_code, 128 + 9);

    /* a second command shortens the grace of the first */
    job = job_start(&p, NULL, RUNNER_STDIO, NULL, "trap '' INT TERM; while :; do sleep 1; done");
    cr_assert(job_runner_terminate(job.dir, 3600000, &err), "%s", err.message);
    cr_assert(job_runner_terminate(job.dir, 0, &err), "%s", err.message);
    end = job_end(&job);
    cr_assert_eq(end.status, RUNNER_TERMINATED);
    place_remove(&p);
}

Test(job_runner, a_signal_to_the_runner_is_a_terminate)
{
    struct place p;

    place_make(&p);
    struct test_job job = job_start(&p, NULL, RUNNER_PTY, NULL, "echo up; sleep 300");
    job_says(&job, "up\n");
    kill(job.runner.pid, SIGTERM);
    struct runner_exit end = job_end(&job);
    cr_assert_eq(end.status, RUNNER_TERMINATED);
    place_remove(&p);
}

Test(job_runner, terminate_lets_handlers_finish)
{
    struct place p;
    struct error err = {0};

    place_make(&p);
    struct test_job job =
        job_start(&p, NULL, RUNNER_PTY, NULL,
                  "trap 'echo bye; exit 7' INT; echo ready; while :; do sleep 0.05; done");
    job_says(&job, "ready\n");
    cr_assert(job_runner_terminate(job.dir, 10000, &err), "%s", err.message);
    struct runner_exit end = job_end(&job);
    char *out = job_file(&job, "output.log");
    cr_assert_eq(end.status, RUNNER_TERMINATED);
    cr_assert_eq(end.exit_code, 7, "%d", end.exit_code);
    cr_assert_not_null(strstr(out, "bye\n"), "%s", out);
    free(out);
    place_remove(&p);
}

/* Numbers that a job wrote into its output, one a line. */
static int read_pids(const struct test_job *job, pid_t *pids, int max)
{
    char *out = job_file(job, "output.log");
    int n = 0;

    for (char *at = strtok(out, "\n"); at != NULL && n < max; at = strtok(NULL, "\n"))
        if (atoi(at) > 0)
            pids[n++] = atoi(at);
    free(out);
    return n;
}

static bool all_gone(const pid_t *pids, int n)
{
    for (int i = 0; i < n; i++)
        if (kill(pids[i], 0) == 0)
            return false;
    return true;
}

Test(job_runner, no_descendant_survives)
{
    struct place p;
    struct error err = {0};
    pid_t pids[8];
    /* in its session, out of it, twice removed from it, and one that ignores every polite word */
    static const char tree[] = "sleep 300 & echo $!\n"
                               "setsid sleep 300 & echo $!\n"
                               "(setsid sh -c 'sleep 300 & echo $!' &)\n"
                               "(trap '' INT TERM HUP; exec setsid sleep 300) & echo $!\n";
    char text[512];

    place_make(&p);
    for (int killed = 0; killed <= 1; killed++) {
        snprintf(text, sizeof text, "%s%s", tree, killed ? "echo; wait" : "sleep 0.2; exit 5");
        struct test_job job = job_start(&p, NULL, RUNNER_STDIO, NULL, text);
        for (int i = 0; i < 1000 && read_pids(&job, pids, 8) < 4; i++)
            usleep(5000);
        int n = read_pids(&job, pids, 8);
        cr_assert_eq(n, 4, "%d", n);
        if (killed)
            cr_assert(job_runner_terminate(job.dir, 200, &err), "%s", err.message);
        struct runner_exit end;
        cr_assert(job_ended(&job, 2000, &end));
        cr_assert(all_gone(pids, n), "a process outlived exit.json");
        cr_assert(killed ? end.status == RUNNER_TERMINATED : end.exit_code == 5);
        job_end(&job);
    }
    place_remove(&p);
}

Test(job_runner, endless_output_is_bounded)
{
    struct place p;
    const struct runner_spec base = {.limits = {.max_output_bytes = 1 << 20}};

    place_make(&p);
    struct test_job job =
        job_start(&p, NULL, RUNNER_STDIO, &base,
                  "head -c 200000000 /dev/zero | tr '\\0' x; echo; echo done >&2");
    struct runner_exit end = job_end(&job);
    struct stat st;
    char path[160];
    snprintf(path, sizeof path, "%s/output.log", job.dir);
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(end.exit_code, 0);
    cr_assert_leq(st.st_size, (1 << 20) + 100);
    cr_assert_eq(end.output_bytes, st.st_size);
    /* everything that was written is accounted for; the line about the limit is the runner's own */
    cr_assert_gt(end.output_bytes + end.output_dropped, 200000000);
    cr_assert_lt(end.output_bytes + end.output_dropped, 200000000 + 200);
    char *err = job_file(&job, "stderr.log");
    cr_assert_str_eq(err, "done\n");
    free(err);
    place_remove(&p);
}

Test(job_runner, the_runner_outlives_its_parent)
{
    struct place p;
    struct error err = {0};
    int fds[2];

    place_make(&p);
    cr_assert_eq(pipe(fds), 0);
    pid_t daemon = fork();
    if (daemon == 0) {
        struct test_job job =
            job_start(&p, NULL, RUNNER_PTY, NULL, "stty -echo; read word; echo \"heard $word\"");
        (void)!write(fds[1], &job, sizeof job);
        for (;;)
            pause();
    }
    struct test_job job;
    cr_assert_eq(read(fds[0], &job, sizeof job), (ssize_t)sizeof job);
    kill(daemon, SIGKILL);
    waitpid(daemon, NULL, 0);

    /* what the next daemon does: look, watch, command, and read the end */
    struct job_runner found = {.pidfd = -1};
    cr_assert(job_runner_alive(job.dir));
    for (int i = 0; i < 1000 && !job_runner_open(job.dir, &found); i++)
        usleep(5000);
    cr_assert_eq(found.pid, job.runner.pid);
    cr_assert(job_runner_input(job.dir, "you\n", 4, &err), "%s", err.message);
    struct runner_exit end;
    cr_assert(job_ended(&job, 2000, &end));
    cr_assert_eq(end.exit_code, 0);
    char *out = job_file(&job, "output.log");
    cr_assert_not_null(strstr(out, "heard you\n"), "%s", out);
    free(out);
    for (int i = 0; i < 1000 && job_runner_alive(job.dir); i++)
        usleep(5000);
    cr_assert_not(job_runner_alive(job.dir));
    close(found.pidfd);
    place_remove(&p);
}

Test(job_runner, a_forged_identity_is_never_taken)
{
    struct place p;
    struct job_runner found;
    char path[160], text[200];

    place_make(&p);
    struct test_job job = job_start(&p, NULL, RUNNER_STDIO, NULL, "true");
    job_end(&job);
    usleep(30000); /* start times count in hundredths of a second */
    pid_t stranger = fork();
    if (stranger == 0) {
        alarm(30);
        for (;;)
            pause();
    }
    snprintf(path, sizeof path, "%s/runner.pid", job.dir);
    char *real = get_file(path);
    unsigned long long start;
    char boot[64];
    int old;
    cr_assert_eq(sscanf(real, "%d %llu %36s", &old, &start, boot), 3);
    free(real);

    cr_assert_not(job_runner_open(job.dir, &found), "ended");
    /* the pid went to someone else: same boot, another start time */
    snprintf(text, sizeof text, "%d %llu %s\n", (int)stranger, start, boot);
    put_file(path, text);
    cr_assert_not(job_runner_open(job.dir, &found));
    static const char *const broken[] = {"", "1", "-1 5 x",
                                         "1 1 00000000-0000-0000-0000-000000000000\n",
                                         "99999999999999999999 1 a\n"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        put_file(path, broken[i]);
        cr_assert_not(job_runner_open(job.dir, &found), "%s", broken[i]);
    }
    cr_assert_eq(waitpid(stranger, NULL, WNOHANG), 0, "the stranger was harmed");
    kill(stranger, SIGKILL);
    waitpid(stranger, NULL, 0);
    place_remove(&p);
}

Test(job_runner, a_spec_that_cannot_be_read_is_a_failed_start)
{
    struct place p;
    struct test_job job = {0};
    struct error err = {0};
    char path[160];

    place_make(&p);
    snprintf(job.dir, sizeof job.dir, "%s/jobs/broken", p.state);
    cr_assert_eq(mkdir(job.dir, 0700), 0);
    snprintf(path, sizeof path, "%s/job.json", job.dir);
    put_file(path, "{\"mode\":");
    cr_assert(job_runner_spawn(job.dir, &job.runner, &err), "%s", err.message);
    struct runner_exit end = job_end(&job);
    cr_assert_eq(end.status, RUNNER_FAILED);
    cr_assert_str_eq(end.reason, "start_failed");
    place_remove(&p);
}
