/* The supervision of the embedded sandbox, with small shell programs in place of the child: real
 * processes and time, so every wait has a bound that is far beyond what it takes. */
#include "backends/local/embedded.h"

#include "core/runtime/buf.h"
#include "core/runtime/config.h"
#include "core/runtime/json.h"
#include "core/runtime/metrics.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct loop *loop;
static struct config *config;
static char dir[64], program[96];
static int changes;
static bool ready_now;

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

static void set_up(void)
{
    char *environment[] = {(char *)"HOME=/tmp", (char *)"BINDERY_JOB_MAX_PROCESSES=17",
                           (char *)"DIFY_AGENT_API_TOKEN=very-secret-token",
                           (char *)"BINDERY_JOB_GC_SECONDS=1.5", NULL};
    struct config_sources sources = {.environment = environment};
    struct buf problems = {0};

    snprintf(dir, sizeof(dir), "/tmp/bindery-embedded-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    snprintf(program, sizeof(program), "%s/program", dir);
    config = config_parse(&sources, &problems);
    cr_assert_not_null(config, "%s", buf_text(&problems));
    setenv("DIFY_AGENT_API_TOKEN", "very-secret-token", 1);
    loop = loop_new(NULL);
    changes = 0;
}

static void tear_down(void)
{
    loop_free(loop);
    config_free(config);
    nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

TestSuite(embedded, .init = set_up, .fini = tear_down, .timeout = 60);

static void write_program(const char *script)
{
    int fd = open(program, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);

    cr_assert(write(fd, script, strlen(script)) == (ssize_t)strlen(script));
    close(fd);
}

static void on_change(void *ctx, bool ready)
{
    (void)ctx;
    changes++;
    ready_now = ready;
}

static struct embedded *start(void)
{
    struct embedded_options options = {
        .config = config, .data_dir = dir, .program = program, .on_change = on_change};
    struct error err = {0};
    struct embedded *e = embedded_start(loop, &options, &err);

    cr_assert_not_null(e, "%s", err.message);
    return e;
}

static void run_until_changes(int n)
{
    while (changes < n)
        loop_turn(loop, true);
}

static bool stopped;
static void on_stopped(void *ctx)
{
    (void)ctx;
    stopped = true;
}

static void stop_and_free(struct embedded *e)
{
    stopped = false;
    embedded_stop(e, on_stopped, NULL);
    while (!stopped)
        loop_turn(loop, true);
    embedded_free(e);
}

static char *read_file(const char *name)
{
    static char text[8192];
    char path[160];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert(fd >= 0, "%s", path);
    n = read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    close(fd);
    return text;
}

#define READY "echo '{\"isolation\":{}}' >&3; exec 3>&-\n"
#define WAIT  "trap 'exit 0' TERM; while :; do sleep 0.05; done\n"

Test(embedded, is_ready_when_the_child_says_so)
{
    struct error err = {0};
    struct buf text = {0};
    struct json_writer w = {.out = &text};
    struct stat st;
    char run_dir[96];
    struct embedded *e;

    write_program("#!/bin/sh\n" READY WAIT);
    e = start();
    cr_assert_not(embedded_ready(e, &err));
    cr_assert_eq(err.code, ERR_BACKEND_UNAVAILABLE);
    run_until_changes(1);
    cr_assert(ready_now && embedded_ready(e, NULL));
    embedded_describe(e, &w);
    cr_assert_not_null(strstr(buf_text(&text), "\"child\":{\"isolation\":{}}"), "%s", text.data);
    cr_assert(strncmp(embedded_socket(e), dir, strlen(dir)) == 0);
    snprintf(run_dir, sizeof(run_dir), "%s/run", dir);
    cr_assert(stat(run_dir, &st) == 0 && (st.st_mode & 0777) == 0700);
    stop_and_free(e);
    cr_assert_eq(changes, 2);
    cr_assert_not(ready_now);
    buf_fini(&text);
}

Test(embedded, tells_the_child_its_settings_and_no_secret)
{
    struct embedded *e;
    char *text;

    write_program("#!/bin/sh\nenv > ../environment; echo \"$@\" > ../arguments\n"
                  "ls -l /proc/self/fd > ../descriptors\n" READY WAIT);
    e = start();
    run_until_changes(1);
    text = read_file("environment");
    cr_assert_not_null(strstr(text, "BINDERY_JOB_MAX_PROCESSES=17\n"));
    cr_assert_not_null(strstr(text, "BINDERY_JOB_GC_SECONDS=1.500\n"));
    cr_assert_null(strstr(text, "secret"));
    text = read_file("arguments");
    cr_assert_not_null(strstr(text, "shellctl serve --listen unix:"));
    cr_assert_null(strstr(text, "secret"));
    text = read_file("descriptors");
    cr_assert_null(strstr(text, "eventpoll"), "no descriptor of the server: %s", text);
    stop_and_free(e);
}

Test(embedded, starts_the_child_again_when_it_ends)
{
    struct error err = {0};
    struct embedded *e;

    write_program("#!/bin/sh\n" READY "sleep 0.1; exit 3\n");
    e = start();
    run_until_changes(2);
    cr_assert_not(embedded_ready(e, &err));
    cr_assert_not_null(strstr(err.message, "status 3"), "%s", err.message);
    run_until_changes(4);
    cr_assert_geq(metric_value(METRIC_CHILD_RESTARTS, LABELS("shellctl")), 2);
    stop_and_free(e);
}

Test(embedded, goes_on_trying_when_the_program_cannot_be_run)
{
    struct embedded *e = start(); /* there is none */

    while (metric_value(METRIC_CHILD_RESTARTS, LABELS("shellctl")) < 3)
        loop_turn(loop, true);
    cr_assert_eq(changes, 0);
    write_program("#!/bin/sh\n" READY WAIT);
    run_until_changes(1);
    cr_assert(embedded_ready(e, NULL));
    stop_and_free(e);
}

Test(embedded, can_be_stopped_while_it_pauses)
{
    struct embedded *e = start();

    while (metric_value(METRIC_CHILD_RESTARTS, LABELS("shellctl")) < 1)
        loop_turn(loop, true);
    stop_and_free(e);
}

Test(embedded, free_without_stop_leaves_no_process)
{
    struct embedded *e;

    write_program("#!/bin/sh\n" READY WAIT);
    e = start();
    run_until_changes(1);
    embedded_free(e);
    cr_assert(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

/* Case A60, first half: a server that is killed takes its daemon with it. */
Test(embedded, the_child_dies_with_its_server)
{
    char pid_text[32] = "";
    char path[160];
    pid_t server, child;
    int status;

    write_program("#!/bin/sh\necho $$ > ../pid.new; mv ../pid.new ../pid\n" READY WAIT);
    server = fork();
    if (server == 0) {
        loop = loop_new(NULL);
        start();
        loop_run(loop);
        _exit(0);
    }
    snprintf(path, sizeof(path), "%s/pid", dir);
    while (access(path, F_OK) != 0)
        usleep(10000);
    snprintf(pid_text, sizeof(pid_text), "%s", read_file("pid"));
    child = (pid_t)atoi(pid_text);
    cr_assert(child > 1 && kill(child, 0) == 0);
    kill(server, SIGKILL);
    cr_assert_eq(waitpid(server, &status, 0), server);
    while (kill(child, 0) == 0) { /* until the suite's timeout */
        char stat_path[64], stat_text[256] = "";
        snprintf(stat_path, sizeof(stat_path), "/proc/%d/stat", child);
        FILE *f = fopen(stat_path, "r");
        if (f == NULL)
            break;
        if (fgets(stat_text, sizeof(stat_text), f) != NULL && strstr(stat_text, ") Z ") != NULL) {
            fclose(f);
            break; /* dead; its new parent has not reaped it */
        }
        fclose(f);
        usleep(10000);
    }
}

Test(embedded, a_long_data_folder_gets_a_socket_elsewhere)
{
    struct embedded_options options = {.config = config, .program = program};
    struct error err = {0};
    struct embedded *e;
    char deep[256];

    write_program("#!/bin/sh\n" READY WAIT);
    snprintf(deep, sizeof(deep), "%s/%0100d", dir, 7);
    options.data_dir = deep;
    options.on_change = on_change;
    e = embedded_start(loop, &options, &err);
    cr_assert_not_null(e, "%s", err.message);
    cr_assert_lt(strlen(embedded_socket(e)), 108);
    run_until_changes(1);
    stop_and_free(e);
}

Test(embedded, a_folder_that_cannot_be_made_is_said)
{
    struct embedded_options options = {
        .config = config, .data_dir = "/proc/nowhere", .program = program};
    struct error err = {0};

    cr_assert_null(embedded_start(loop, &options, &err));
    cr_assert_not_null(strstr(err.message, "/proc/nowhere"));
}
