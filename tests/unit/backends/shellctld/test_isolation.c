/* Jobs in every isolation that works on this machine: what they see, what they cannot reach, and
 * what bounds them. Where a policy does not work the test says so and passes. */
#include "runner_fixture.h"

#include <dirent.h>
#include <grp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

TestSuite(isolation, .timeout = 90);

static const enum isolation_policy policies[] = {ISOLATION_AUTO, ISOLATION_LANDLOCK};

/* `body(place)` under each policy, with the umask that the program has, as whoever runs the test. */
static void each_policy(void (*body)(struct place *p))
{
    for (size_t i = 0; i < 2; i++) {
        struct place p;
        umask(077);
        place_make(&p);
        if (place_isolate(&p, policies[i])) {
            struct buf text = {0};
            isolation_summary(&p.iso, &text);
            cr_log_info("%s", buf_text(&text));
            buf_fini(&text);
            place_binding(&p, "a");
            place_binding(&p, "b");
            body(&p);
        }
        place_remove(&p);
    }
}

/* … and as a user without rights; a Criterion test is a process of its own. */
static void each_policy_as_user(void (*body)(struct place *p))
{
    if (geteuid() != 0)
        cr_skip_test("not root: the other case covers it");
    cr_assert(setgroups(0, NULL) == 0 && setresgid(65534, 65534, 65534) == 0 &&
              setresuid(65534, 65534, 65534) == 0);
    prctl(PR_SET_DUMPABLE, 1); /* for the leak checker */
    each_policy(body);
}

static void body_works(struct place *p)
{
    expect_run(p, "a", RUNNER_STDIO, "echo hi; exit 3", 3, "hi\n");
    expect_run(p, "a", RUNNER_PTY, "echo hi; exit 3", 3, "hi\n");
    expect_run(p, "a", RUNNER_PTY, "stty size; echo to-tty > /dev/tty; echo e > /dev/stderr", 0,
               "24 80\nto-tty\ne\n");
    expect_run(p, "a", RUNNER_STDIO, "echo o > /dev/stdout; echo e > /dev/stderr", 0, "o\n");
    expect_run(p, "a", RUNNER_STDIO, "kill -9 $$", 128 + 9, "");
    expect_run(p, "a", RUNNER_STDIO, "no-such-command", 127, "");
    expect_run(p, "a", RUNNER_STDIO, "#!/bin/sh\necho direct", 0, "direct\n");
    expect_run(p, "a", RUNNER_STDIO, "#!/no/such\n", 127, "");
    expect_run(p, "a", RUNNER_STDIO, "ls /proc/self/fd", 0, "0\n1\n2\n3\n");
    /* Home, Workspace and temporary folder can be written, and hold from job to job */
    expect_run(
        p, "a", RUNNER_STDIO,
        "echo kept > \"$HOME/f\" && mkdir sub && echo w > sub/f && echo t > \"$TMPDIR/f\" && "
        "mv \"$HOME/f\" sub/g && cat sub/g && cp sub/g \"$HOME/h\"",
        0, "kept\n");
    expect_run(p, "a", RUNNER_STDIO,
               "cat sub/f \"$HOME/h\"; ls -A \"$TMPDIR\" | grep -v -e script -e bindery-runner", 1,
               "w\nkept\n");
    expect_run(p, "a", RUNNER_STDIO,
               "command -v python3 >/dev/null || { echo 42; exit; }; python3 -c 'print(6*7)'", 0,
               "42\n");
}

Test(isolation, ordinary_work_is_possible)
{
    each_policy(body_works);
}

Test(isolation, ordinary_work_is_possible_as_user)
{
    each_policy_as_user(body_works);
}

/* Every line of `script` must fail; the output says which did not. */
static void expect_refused(struct place *p, const char *binding, const char *script)
{
    struct test_job job = job_start(p, binding, RUNNER_STDIO, NULL, script);
    job_end(&job);
    char *out = job_file(&job, "output.log");
    cr_assert_str_eq(out, "end\n", "layers %x: %s", p->iso.layers, out);
    free(out);
}

static void body_files(struct place *p)
{
    char path[160], script[4096];
    char *home = realpath(p->state, NULL);

    expect_run(p, "b", RUNNER_STDIO, "echo b-secret > \"$HOME/s\"; echo b-secret > s; chmod 666 s",
               0, "");
    snprintf(path, sizeof path, "%s/daemon-secret", p->state);
    put_file(path, "daemon-secret\n");
    chmod(path, 0666);
    snprintf(script, sizeof script,
             "S=%s\n"
             "cat $S/homes/b/s 2>/dev/null && echo read b home\n"
             "cat $S/workspaces/b/s 2>/dev/null && echo read b workspace\n"
             "ls $S/homes/b 2>/dev/null && echo list b home\n"
             "ls $S/jobs 2>/dev/null && echo list jobs\n"
             "cat $S/daemon-secret 2>/dev/null && echo read state\n"
             "(echo x >> $S/daemon-secret) 2>/dev/null\n"
             "(echo x >> $S/workspaces/b/s) 2>/dev/null && echo write b workspace\n"
             "(echo x > $S/workspaces/b/new) 2>/dev/null && echo create in b workspace\n"
             "rm -f $S/workspaces/b/s 2>/dev/null && test ! -e $S/workspaces/b/s && "
             "test -e $S/workspaces && test -e $S/workspaces/b && echo remove in b workspace\n"
             "ln -s $S/workspaces/b/s link 2>/dev/null; cat link 2>/dev/null && echo by link\n"
             "cat /etc/shadow 2>/dev/null && echo shadow\n"
             "ls /root 2>/dev/null && echo root\n"
             "(echo x > /etc/x) 2>/dev/null && echo write etc\n"
             "(echo x > /usr/x) 2>/dev/null && echo write usr\n"
             "(echo x > /x) 2>/dev/null && echo write root\n"
             "cat $S/jobs/*/job.json 2>/dev/null && echo job\n"
             "echo end\n",
             home);
    expect_refused(p, "a", script);
    expect_run(p, "b", RUNNER_STDIO, "cat s \"$HOME/s\"", 0, "b-secret\nb-secret\n");
    char *secret = get_file(path); /* writing made at most a file of the job's own view */
    cr_assert_str_eq(secret, "daemon-secret\n");
    free(secret);
    free(home);
}

Test(isolation, other_bindings_files_are_out_of_reach)
{
    each_policy(body_files);
}

Test(isolation, other_bindings_files_are_out_of_reach_as_user)
{
    each_policy_as_user(body_files);
}

static pid_t wait_for_pid(const struct test_job *job)
{
    for (int i = 0; i < 2000; i++) {
        char *out = job_file(job, "output.log");
        char *end = strchr(out, '\n');
        pid_t pid = end != NULL ? atoi(out) : 0;
        free(out);
        if (pid > 0)
            return pid;
        usleep(5000);
    }
    cr_assert_fail("no output");
    return 0;
}

/* How many processes on this machine sleep for `seconds`, and the last one's pid. */
static int look_for_sleepers(const char *seconds, pid_t *ret_pid)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    int n = 0;

    while ((entry = readdir(dir)) != NULL) {
        char command[64] = "", path[300];
        snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
        int fd = atoi(entry->d_name) > 0 ? open(path, O_RDONLY) : -1;
        if (fd < 0)
            continue;
        if (read(fd, command, sizeof command - 1) > 6 && strcmp(command, "sleep") == 0 &&
            strcmp(command + 6, seconds) == 0) {
            *ret_pid = atoi(entry->d_name);
            n++;
        }
        close(fd);
    }
    closedir(dir);
    return n;
}

static int count_sleepers(const char *seconds)
{
    pid_t pid;

    return look_for_sleepers(seconds, &pid);
}

static pid_t find_sleeper(const char *seconds)
{
    pid_t pid = 0;

    for (int tries = 0; tries < 2000; tries++, usleep(5000))
        if (look_for_sleepers(seconds, &pid) > 0)
            return pid;
    cr_assert_fail("no sleeper");
    return 0;
}

static void body_processes(struct place *p)
{
    struct error err = {0};
    char seconds[32], script[1024];

    snprintf(seconds, sizeof seconds, "%d", 100000 + (int)getpid() + p->jobs);
    snprintf(script, sizeof script, "echo $$; SECRET=of-b exec sleep %s", seconds);
    struct test_job victim = job_start(p, "b", RUNNER_STDIO, NULL, script);
    wait_for_pid(&victim);
    pid_t pid = find_sleeper(seconds);
    pid_t runner = victim.runner.pid;
    snprintf(script, sizeof script,
             "kill -0 %d 2>/dev/null && test %d -ne 1 && echo signal other\n"
             "kill -KILL %d 2>/dev/null\n"
             "kill -KILL %d 2>/dev/null && echo signal runner\n"
             "kill -KILL %d 2>/dev/null && echo signal daemon\n"
             "cat /proc/%d/environ 2>/dev/null | grep -q of-b && echo environ\n"
             "ls /proc/%d/root/ 2>/dev/null && echo root\n"
             "ls /proc/%d/cwd/ 2>/dev/null && echo cwd\n"
             "readlink /proc/%d/fd/0 2>/dev/null && echo fd\n"
             "head -c 1 /proc/%d/mem >/dev/null 2>&1 && echo mem\n"
             "echo end\n",
             (int)pid, (int)pid, (int)pid, (int)runner, (int)getpid(), (int)pid, (int)pid, (int)pid,
             (int)pid, (int)pid);
    if (p->iso.landlock_abi >= 6 || (p->iso.layers & (LAYER_BWRAP | LAYER_UID)) != 0)
        expect_refused(p, "a", script);
    cr_assert_eq(kill(pid, 0), 0, "the other binding's process is gone");
    cr_assert(job_runner_terminate(victim.dir, 0, &err), "%s", err.message);
    job_end(&victim);
}

Test(isolation, other_bindings_processes_are_out_of_reach)
{
    each_policy(body_processes);
}

Test(isolation, other_bindings_processes_are_out_of_reach_as_user)
{
    each_policy_as_user(body_processes);
}

static void body_secrets(struct place *p)
{
    expect_run(p, "a", RUNNER_STDIO,
               "{ env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; } | grep -c secret", 1,
               "0\n");
    expect_run(p, "a", RUNNER_STDIO, "echo $HOME | grep -c homes/a; echo $TERM", 0, "1\n\n");
}

Test(isolation, no_secret_of_the_daemon_is_visible)
{
    setenv("SHELLCTL_AUTH_TOKEN", "secret-1", 1);
    setenv("AWS_ACCESS_KEY", "secret-2", 1);
    each_policy(body_secrets);
}

Test(isolation, no_secret_of_the_daemon_is_visible_as_user)
{
    setenv("SHELLCTL_AUTH_TOKEN", "secret-1", 1);
    setenv("AWS_ACCESS_KEY", "secret-2", 1);
    each_policy_as_user(body_secrets);
}

/* ---- sockets ----------------------------------------------------------------------------------- */

static int listen_on(const void *address, socklen_t len, int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    cr_assert_eq(bind(fd, address, len), 0, "%m");
    cr_assert_eq(listen(fd, 8), 0);
    return fd;
}

static int listen_tcp(int *ret_port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    int fd = listen_on(&in, len, AF_INET);

    cr_assert_eq(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    *ret_port = ntohs(in.sin_port);
    return fd;
}

static int listen_unix(const char *name, bool abstract)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};

    snprintf(un.sun_path + (abstract ? 1 : 0), sizeof un.sun_path - 1, "%s", name);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name) + 1);
    return listen_on(&un, len, AF_UNIX);
}

static const char connect_script[] =
    "import socket, sys\n"
    "def attempt(family, kind, address):\n"
    "    try:\n"
    "        s = socket.socket(family, kind)\n"
    "        s.settimeout(5)\n"
    "        s.connect(address)\n"
    "        s.send(b'x')\n"
    "        print('reached', address)\n"
    "    except OSError:\n"
    "        pass\n"
    "attempt(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', PORT))\n"
    "attempt(socket.AF_INET, socket.SOCK_STREAM, ('0.0.0.0', PORT))\n"
    "attempt(socket.AF_UNIX, socket.SOCK_STREAM, PATH)\n"
    "attempt(socket.AF_UNIX, socket.SOCK_STREAM, '\\0' + NAME)\n"
    "attempt(40, socket.SOCK_STREAM, (2, 22))\n"
    "a, b = socket.socketpair()\n"
    "print('end')\n";

static void body_sockets(struct place *p)
{
    char path[100], name[64], script[sizeof connect_script + 400];
    int port, tcp = listen_tcp(&port);

    snprintf(path, sizeof path, "%s/daemon.sock", p->state);
    snprintf(name, sizeof name, "bindery-test-%d-%d", (int)getpid(), (int)p->iso.policy);
    int named = listen_unix(path, false), abstract = listen_unix(name, true);
    chmod(path, geteuid() == 0 ? 0600 : 0777);
    snprintf(script, sizeof script,
             "command -v python3 >/dev/null || { echo end; exit; }\n"
             "python3 - <<'E'\nPORT = %d\nPATH = '%s'\nNAME = '%s'\n%sE\n",
             port, path, name, connect_script);
    if (p->iso.landlock_abi >= 6 || (p->iso.layers & LAYER_BWRAP) != 0)
        expect_run(p, "a", RUNNER_STDIO, script, 0, "end\n");
    close(tcp);
    close(named);
    close(abstract);
}

Test(isolation, sockets_of_the_host_are_out_of_reach)
{
    each_policy(body_sockets);
}

Test(isolation, sockets_of_the_host_are_out_of_reach_as_user)
{
    each_policy_as_user(body_sockets);
}

Test(isolation, the_hosts_network_only_when_allowed)
{
    for (size_t i = 0; i < 2; i++) {
        struct place p;
        struct error err = {0};
        char script[512];
        int port, tcp = listen_tcp(&port);
        place_make(&p);
        const struct isolation_options options = {
            .policy = policies[i], .state_dir = p.state, .network = true};
        if (isolation_probe(&options, &p.iso, &err)) {
            place_binding(&p, "a");
            snprintf(script, sizeof script,
                     "command -v python3 >/dev/null || { echo up; exit; }\n"
                     "python3 -c \"import socket; socket.create_connection(('127.0.0.1', %d)); "
                     "print('up')\"",
                     port);
            expect_run(&p, "a", RUNNER_STDIO, script, 0, "up\n");
        }
        close(tcp);
        place_remove(&p);
    }
}

/* ---- the kernel's surface ---------------------------------------------------------------------- */

static void body_calls(struct place *p)
{
    expect_refused(
        p, "a",
        "unshare -U true 2>/dev/null && echo userns\n"
        "unshare -m true 2>/dev/null && echo mountns\n"
        "mount -t tmpfs none \"$HOME\" 2>/dev/null && echo mount\n"
        "chroot / true 2>/dev/null && echo chroot\n"
        "mknod dev c 1 3 2>/dev/null && echo mknod\n"
        "dmesg >/dev/null 2>&1 && echo dmesg\n"
        "test \"$(grep NoNewPrivs /proc/self/status | tr -dc 01)\" = 1 || echo privs\n"
        "test \"$(grep CapEff /proc/self/status | cut -f2 | tr -d 0)\" = '' || echo caps\n"
        "test \"$(grep '^Seccomp:' /proc/self/status | tr -dc 0-9)\" = 2 || echo seccomp\n"
        "echo end\n");
}

Test(isolation, privileged_calls_are_refused)
{
    each_policy(body_calls);
}

Test(isolation, privileged_calls_are_refused_as_user)
{
    each_policy_as_user(body_calls);
}

/* What the daemon does for callers without a binding: isolated, but under its own uid. */
static void body_calls_own_uid(struct place *p)
{
    p->iso.layers &= ~(unsigned)LAYER_UID;
    body_calls(p);
}

Test(isolation, privileged_calls_are_refused_to_our_own_uid_too)
{
    each_policy(body_calls_own_uid);
}

/* ---- bounds ------------------------------------------------------------------------------------ */

static void body_fork_bomb(struct place *p)
{
    const struct runner_spec base = {.limits = {.max_processes = 50}};
    struct error err = {0};
    /* The shell itself forks nothing once the bomb is lit: it must not die of what it set off. */
    struct test_job job =
        job_start(p, "a", RUNNER_STDIO, &base, "b() { b | b & }; sleep 300 & (b) & wait");
    struct runner_exit end;

    usleep(300000); /* let it explode */
    cr_assert(job_runner_terminate(job.dir, 0, &err), "%s", err.message);
    cr_assert(job_ended(&job, 4000, &end), "the bomb could not be cleared");
    job_end(&job);
    /* Nothing of it is left, and the next job of the binding has its processes to itself. */
    expect_run(p, "a", RUNNER_STDIO, "true | true && echo fine", 0, "fine\n");
}

Test(isolation, a_fork_bomb_is_bounded)
{
    each_policy(body_fork_bomb);
}

Test(isolation, a_fork_bomb_is_bounded_as_user)
{
    each_policy_as_user(body_fork_bomb);
}

static void body_memory(struct place *p)
{
    const struct runner_spec base = {.limits = {.max_memory_bytes = 64 << 20}};
    struct test_job job = job_start(p, "a", RUNNER_STDIO, &base,
                                    "head -c 200000000 /dev/zero | tail -c 190000000 | wc -c");
    struct runner_exit end = job_end(&job);
    char *out = job_file(&job, "output.log");

    cr_assert_str_neq(out, "190000000\n", "200 MB were held in 64 MiB");
    free(out);
    if ((p->iso.layers & LAYER_MEMORY) != 0)
        cr_assert_not_null(strstr(end.message, "memory limit"), "%s", end.message);
}

Test(isolation, memory_is_bounded)
{
    each_policy(body_memory);
}

Test(isolation, memory_is_bounded_as_user)
{
    each_policy_as_user(body_memory);
}

static void body_files_limit(struct place *p)
{
    const struct runner_spec base = {.limits = {.max_open_files = 40}};
    struct test_job job = job_start(p, "a", RUNNER_STDIO, &base, "ulimit -n; ulimit -c");

    job_end(&job);
    char *out = job_file(&job, "output.log");
    cr_assert_str_eq(out, "40\n0\n");
    free(out);
}

Test(isolation, open_files_are_bounded)
{
    each_policy(body_files_limit);
}

static void body_tree(struct place *p)
{
    struct error err = {0};
    char seconds[32], script[512];

    snprintf(seconds, sizeof seconds, "%d", 200000 + (int)getpid() + p->jobs);
    snprintf(script, sizeof script,
             "setsid sleep %s & (setsid sh -c 'trap \"\" TERM INT; sleep %s' &) ; echo up; wait",
             seconds, seconds);
    struct test_job job = job_start(p, "a", RUNNER_PTY, NULL, script);
    find_sleeper(seconds);
    cr_assert(job_runner_terminate(job.dir, 300, &err), "%s", err.message);
    struct runner_exit end;
    cr_assert(job_ended(&job, 2000, &end));
    cr_assert_eq(count_sleepers(seconds), 0);
    cr_assert_eq(end.status, RUNNER_TERMINATED);
    job_end(&job);
}

Test(isolation, no_descendant_survives)
{
    each_policy(body_tree);
}

Test(isolation, no_descendant_survives_as_user)
{
    each_policy_as_user(body_tree);
}

/* The runner is killed: with bubblewrap the sandbox dies with it; what may be left is cleaned up. */
static void body_runner_killed(struct place *p)
{
    char seconds[32], script[512];

    snprintf(seconds, sizeof seconds, "%d", 300000 + (int)getpid() + p->jobs);
    snprintf(script, sizeof script, "setsid sleep %s & echo up; exec sleep %s", seconds, seconds);
    struct test_job job = job_start(p, "a", RUNNER_STDIO, NULL, script);
    find_sleeper(seconds);
    job_runner_kill(&job.runner);
    for (int i = 0; i < 2000 && !job_runner_reap(&job.runner); i++)
        usleep(5000);
    for (int i = 0; i < 2000 && !job_runner_clean_up(job.dir); i++)
        usleep(5000);
    int left = 1;
    for (int i = 0; i < 400 && left > 0; i++, usleep(5000))
        left = count_sleepers(seconds);
    if ((p->iso.layers & (LAYER_BWRAP | LAYER_CGKILL)) != 0)
        cr_assert_eq(left, 0, "layers %x", p->iso.layers);
    struct runner_exit end;
    cr_assert_not(job_runner_read_exit(job.dir, &end));
    cr_assert_not(job_runner_alive(job.dir));
    close(job.runner.pidfd);
}

Test(isolation, a_killed_runner_leaves_nothing)
{
    each_policy(body_runner_killed);
}

/* ---- names ------------------------------------------------------------------------------------- */

static void body_linked(struct place *p)
{
    char link[96], home[160], workspace[160], real_cwd[160];
    struct error err = {0};

    snprintf(link, sizeof link, "%s-link", p->state);
    cr_assert_eq(symlink(p->state, link), 0);
    snprintf(home, sizeof home, "%s/homes/a", link);
    snprintf(workspace, sizeof workspace, "%s/workspaces/a", link);
    snprintf(real_cwd, sizeof real_cwd, "%s/workspaces/a", p->state);
    struct test_job job = {0};
    const struct runner_spec spec = {.mode = RUNNER_STDIO,
                                     .scope = RUNNER_SCOPED,
                                     .cols = 80,
                                     .rows = 24,
                                     .cwd = real_cwd,
                                     .home = home,
                                     .workspace = workspace};
    snprintf(job.dir, sizeof job.dir, "%s/jobs/linked", p->state);
    cr_assert_eq(mkdir(job.dir, 0700), 0);
    char script[160];
    snprintf(script, sizeof script, "%s/script", job.dir);
    put_file(script, "echo x > f && cd \"$HOME\" && echo fine");
    cr_assert(runner_spec_write(job.dir, &spec, &p->iso, &err), "%s", err.message);
    cr_assert(job_runner_spawn(job.dir, &job.runner, &err), "%s", err.message);
    job_end(&job);
    char *out = job_file(&job, "output.log");
    cr_assert_str_eq(out, "fine\n");
    free(out);
    unlink(link);
}

Test(isolation, a_data_folder_behind_a_link_works)
{
    each_policy(body_linked);
}

/* Roots of Homes and Workspaces that others may not pass through. */
static void body_closed_roots(struct place *p)
{
    char path[128];

    snprintf(path, sizeof path, "%s/homes", p->state);
    cr_assert_eq(chmod(path, 0700), 0);
    snprintf(path, sizeof path, "%s/workspaces", p->state);
    cr_assert_eq(chmod(path, 0700), 0);
    expect_run(p, "a", RUNNER_STDIO, "echo x > \"$HOME/f\" && cat \"$HOME/f\"", 0, "x\n");
}

Test(isolation, closed_roots_do_not_lock_jobs_out)
{
    each_policy(body_closed_roots);
}

/* ---- sharing ----------------------------------------------------------------------------------- */

/* Two bindings on one Workspace work on each other's files; their Homes stay apart. */
static void body_shared(struct place *p)
{
    char workspace[128];

    snprintf(workspace, sizeof workspace, "%s/workspaces/a", p->state);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) {
            char home[128], script[160];
            struct error err = {0};
            struct test_job job = {0};
            snprintf(home, sizeof home, "%s/homes/%s", p->state, i == 0 ? "a" : "b");
            const struct runner_spec spec = {.mode = RUNNER_STDIO,
                                             .scope = RUNNER_SCOPED,
                                             .cols = 80,
                                             .rows = 24,
                                             .cwd = workspace,
                                             .home = home,
                                             .workspace = workspace};
            snprintf(job.dir, sizeof job.dir, "%s/jobs/shared-%d-%d", p->state, round, i);
            cr_assert_eq(mkdir(job.dir, 0700), 0);
            snprintf(script, sizeof script, "%s/script", job.dir);
            put_file(script, "umask 077; echo line >> log; echo h >> \"$HOME/h\"; wc -l < log");
            cr_assert(runner_spec_write(job.dir, &spec, &p->iso, &err), "%s", err.message);
            cr_assert(job_runner_spawn(job.dir, &job.runner, &err), "%s", err.message);
            job_end(&job);
            char *out = job_file(&job, "output.log");
            cr_assert_eq(atoi(out), round * 2 + i + 1, "%s", out);
            free(out);
        }
    }
}

Test(isolation, a_shared_workspace_is_shared)
{
    each_policy(body_shared);
}

Test(isolation, a_shared_workspace_is_shared_as_user)
{
    each_policy_as_user(body_shared);
}

/* As root, each Workspace has its uid, and keeps it. */
static void body_uids(struct place *p)
{
    char path[128];
    struct stat a, b, again;

    if ((p->iso.layers & LAYER_UID) == 0)
        return;
    snprintf(path, sizeof path, "%s/workspaces/a", p->state);
    expect_run(p, "a", RUNNER_STDIO, "mkdir d; echo x > d/f", 0, "");
    expect_run(p, "b", RUNNER_STDIO, "true", 0, "");
    cr_assert_eq(stat(path, &a), 0);
    snprintf(path, sizeof path, "%s/workspaces/b", p->state);
    cr_assert_eq(stat(path, &b), 0);
    cr_assert_geq(a.st_uid, p->iso.uid_first);
    cr_assert_neq(a.st_uid, b.st_uid);
    /* files that maintenance put there as root are handed over when the Home is new */
    snprintf(path, sizeof path, "%s/homes/a", p->state);
    cr_assert_eq(chown(path, 0, 0), 0);
    snprintf(path, sizeof path, "%s/homes/a/from-snapshot", p->state);
    put_file(path, "snapshot\n");
    expect_run(p, "a", RUNNER_STDIO,
               "cat \"$HOME/from-snapshot\" && echo more >> \"$HOME/from-snapshot\"", 0,
               "snapshot\n");
    cr_assert_eq(stat(path, &again), 0);
    cr_assert_eq(again.st_uid, a.st_uid);
}

Test(isolation, every_workspace_has_a_uid)
{
    each_policy(body_uids);
}

/* ---- starts that must fail --------------------------------------------------------------------- */

static void body_vanished(struct place *p)
{
    char path[160];
    struct stat st;

    snprintf(path, sizeof path, "%s/homes/a", p->state);
    cr_assert_eq(rmdir(path), 0);
    struct test_job job = job_start(p, "a", RUNNER_STDIO, NULL, "echo ran");
    struct runner_exit end = job_end(&job);
    cr_assert_eq(end.status, RUNNER_FAILED);
    cr_assert_str_eq(end.reason, "start_failed");
    cr_assert_not_null(strstr(end.message, "home"), "%s", end.message);
    cr_assert_neq(stat(path, &st), 0, "a vanished Home was made again");
    /* a link in its place is no Home */
    cr_assert_eq(symlink("/etc", path), 0);
    job = job_start(p, "a", RUNNER_STDIO, NULL, "echo ran");
    end = job_end(&job);
    cr_assert_eq(end.status, RUNNER_FAILED);
    cr_assert_str_eq(end.reason, "start_failed");
}

Test(isolation, a_vanished_home_fails_the_start)
{
    each_policy(body_vanished);
}

/* A layer that was promised and cannot be applied: the job does not run. */
static void expect_start_failed(struct place *p, const char *word)
{
    struct test_job job = job_start(p, "a", RUNNER_STDIO, NULL, "echo ran");
    struct runner_exit end = job_end(&job);
    char *out = job_file(&job, "output.log");

    cr_assert_eq(end.status, RUNNER_FAILED, "%d %s", end.status, end.message);
    cr_assert_str_eq(end.reason, "start_failed");
    cr_assert_not_null(strstr(end.message, word), "%s", end.message);
    cr_assert_null(strstr(out, "ran"));
    free(out);
}

static void body_promised(struct place *p)
{
    struct isolation good = p->iso;

    p->iso.landlock_abi = 1000; /* rights that no kernel has yet */
    (void)good;
    p->iso = good;
    snprintf(p->iso.cgroups.memory, CGROUP_PATH_MAX, "/sys/fs/cgroup/no-such-folder");
    p->iso.layers |= LAYER_MEMORY;
    expect_start_failed(p, "cgroup");
    p->iso = good;
    if ((good.layers & LAYER_UID) != 0) {
        p->iso.uid_first = (uid_t)-2;
        p->iso.uid_count = 1;
        /* (uid_t)-1 is no uid: the change is refused */
        p->iso.uid_first = (uid_t)-1;
        expect_start_failed(p, "uid");
    }
}

Test(isolation, a_missing_layer_fails_the_start)
{
    each_policy(body_promised);
}

Test(isolation, state_in_a_readable_part_of_the_system_is_refused)
{
    const struct isolation_options options = {.policy = ISOLATION_AUTO, .state_dir = "/opt/state"};
    struct isolation iso;
    struct error err = {0};

    cr_assert_not(isolation_probe(&options, &iso, &err));
    cr_assert_not_null(strstr(err.message, "/opt/state"));
}

Test(isolation, none_means_the_daemons_rights_and_still_limits)
{
    struct place p;
    const struct runner_spec base = {.limits = {.max_open_files = 40, .max_processes = 500}};

    place_make(&p);
    cr_assert(place_isolate(&p, ISOLATION_NONE));
    cr_assert_eq(p.iso.layers, 0);
    place_binding(&p, "a");
    expect_run(&p, "a", RUNNER_STDIO,
               "echo x > \"$HOME/f\" && echo t > \"$TMPDIR/t\" && cat \"$HOME/f\"", 0, "x\n");
    struct test_job job = job_start(&p, "a", RUNNER_STDIO, &base,
                                    "ulimit -n; grep NoNewPrivs /proc/self/status | cut -f2");
    job_end(&job);
    char *out = job_file(&job, "output.log");
    cr_assert_str_eq(out, "40\n0\n");
    free(out);
    place_remove(&p);
}

/* ---- a full disk ------------------------------------------------------------------------------- */

Test(isolation, a_full_disk_does_not_lose_the_job)
{
    struct place p;

    place_make(&p);
    if (mount("none", p.state, "tmpfs", 0, "size=256k,mode=0711") != 0) {
        place_remove(&p);
        cr_skip_test("cannot mount a small file system");
    }
    char path[160];
    static const char *const folders[] = {"jobs", "control"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", p.state, folders[i]);
        cr_assert_eq(mkdir(path, 0700), 0);
    }
    struct test_job job =
        job_start(&p, NULL, RUNNER_STDIO, NULL, "head -c 10000000 /dev/zero | tr '\\0' x; exit 4");
    struct runner_exit end = job_end(&job);
    cr_assert_eq(end.status, RUNNER_EXITED, "%s", end.message);
    cr_assert_eq(end.exit_code, 4);
    cr_assert_gt(end.output_dropped, 9000000);
    cr_assert_eq(end.output_bytes + end.output_dropped, 10000000);
    cr_assert_eq(umount2(p.state, MNT_DETACH), 0);
    place_remove(&p);
}
