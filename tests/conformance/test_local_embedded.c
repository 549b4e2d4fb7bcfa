/* The Local backend over the real embedded daemon: `bindery shellctl serve` of this build, with
 * whatever isolation this machine has. One daemon serves all worlds of a test process; it dies with
 * it. */
#include "support/local_world.h"

#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READY_MS = 30000 };

static struct conformance_world first; /* owns the folders */

static void child_exec(const struct local_world *l, int ready_fd)
{
    const char *program = getenv("BINDERY_BIN");
    char listen[128], state[96], ready[16];
    int log;

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    snprintf(listen, sizeof(listen), "unix:%s", l->socket);
    snprintf(state, sizeof(state), "%s/state", l->dir);
    snprintf(ready, sizeof(ready), "%d", ready_fd);
    setenv("BINDERY_DATA_DIR", l->dir, 1);
    setenv("BINDERY_ACCESS_LOG", "false", 1);
    setenv("DIFY_AGENT_LOCAL_SANDBOX_MATERIALIZED_HOME_ROOT", l->home_root, 1);
    setenv("DIFY_AGENT_LOCAL_SANDBOX_WORKSPACE_ROOT", l->workspace_root, 1);
    unsetenv("SHELLCTL_AUTH_TOKEN");
    log = open("/dev/null", O_WRONLY);
    dup2(log, 1);
    if (getenv("BINDERY_TEST_LOG") == NULL)
        dup2(log, 2);
    execl(program, program, "shellctl", "serve", "--listen", listen, "--state-dir", state,
          "--ready-fd", ready, (char *)NULL);
    _exit(127);
}

static void start_daemon(struct local_world *l)
{
    struct pollfd ready;
    int pipe_fds[2];
    char line[512];

    cr_assert(getenv("BINDERY_BIN") != NULL, "BINDERY_BIN names the program");
    cr_assert(eq(int, pipe(pipe_fds), 0));
    l->daemon = fork();
    if (l->daemon == 0) {
        close(pipe_fds[0]);
        child_exec(l, pipe_fds[1]);
    }
    close(pipe_fds[1]);
    ready = (struct pollfd){.fd = pipe_fds[0], .events = POLLIN};
    cr_assert(eq(int, poll(&ready, 1, READY_MS), 1), "the daemon does not become ready");
    cr_assert(gt(long, (long)read(pipe_fds[0], line, sizeof(line)), 0), "the daemon has ended");
    close(pipe_fds[0]);
}

static void stop_daemon(void)
{
    struct local_world *l = first.ctx;

    if (l == NULL || l->daemon == 0)
        return;
    kill(l->daemon, SIGTERM);
    waitpid(l->daemon, NULL, 0);
    local_world_remove(&first);
}

static void set_up(struct conformance_world *world)
{
    struct local_world *l = first.ctx;

    if (l == NULL) {
        char command[512];
        l = local_world_new(&first);
        snprintf(command, sizeof(command), "mkdir -p %s %s %s/state", l->home_root,
                 l->workspace_root, l->dir);
        cr_assert(eq(int, system(command), 0));
        start_daemon(l);
    }
    world->ctx = l;
    local_world_backend(world, "http://shellctl", true);
}

/* The folders go with the daemon; between two worlds they only become empty. */
static void tear_down(struct conformance_world *world)
{
    struct local_world *l = world->ctx;
    char command[512];

    snprintf(command, sizeof(command), "rm -rf %s/* %s/.bindery %s %s/*", l->home_root,
             l->home_root, l->snapshot_root, l->workspace_root);
    cr_assert(eq(int, system(command), 0));
}

static const struct conformance_target target = {
    .set_up = set_up,
    .tear_down = tear_down,
    .live = local_world_live,
    .lose = local_world_lose,
    .check_clean = local_world_check_clean,
    .bad_refs = local_world_bad_refs,
    .unknown_ref = "b-9:w-9",
    .runs_scripts = true,
    .names_are_kept = true,
};

CONFORMANCE_IN(local_embedded, target, .fini = stop_daemon)
