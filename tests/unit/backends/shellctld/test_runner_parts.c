/* The parsers and writers that the runner is made of: pure, no process. */
#include "backends/shellctld/cgroup.h"
#include "backends/shellctld/isolation.h"
#include "backends/shellctld/jail.h"
#include "backends/shellctld/job_env.h"
#include "backends/shellctld/process.h"
#include "backends/shellctld/runner_control.h"
#include "backends/shellctld/system_paths.h"
#include "core/runtime/json.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(runner_parts, .timeout = 10);

Test(runner_parts, a_stat_line_with_any_command_name)
{
    struct process_stat s;
    const char *tail = " S 17 3 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654321 1000 5 18446744";
    char line[300];
    static const char *const names[] = {"sh", "a b", "x) S 99 (y", "))))", "new\nline", ""};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(line, sizeof line, "4242 (%s)%s", names[i], tail);
        cr_assert(process_stat_parse(line, &s), "%s", line);
        cr_assert_eq(s.pid, 4242);
        cr_assert_eq(s.parent, 17);
        cr_assert_eq(s.state, 'S');
        cr_assert_eq(s.start_ticks, 987654321);
    }
    static const char *const bad[] = {"",         "12",          "12 (x",
                                      "12 (x) S", "x (y) S 1 2", "12 (x) S 1 2 3"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_not(process_stat_parse(bad[i], &s), "%s", bad[i]);
}

Test(runner_parts, an_identity_survives_writing)
{
    struct process_id id, back;
    char text[96];

    cr_assert(process_id_of(getpid(), &id));
    process_id_format(&id, text, sizeof text);
    cr_assert(process_id_parse(text, &back));
    cr_assert_eq(back.pid, getpid());
    cr_assert_eq(back.start_ticks, id.start_ticks);
    cr_assert_str_eq(back.boot_id, id.boot_id);
    int fd = process_open(&back);
    cr_assert_geq(fd, 0);
    close(fd);
    back.boot_id[0] = back.boot_id[0] == '0' ? '1' : '0';
    cr_assert_eq(process_open(&back), -1, "another boot");
    cr_assert_not(process_id_parse("1 2 short\n", &back));
    cr_assert_not(process_id_parse("0 2 00000000-0000-0000-0000-000000000000\n", &back));
    cr_assert_not(process_id_parse("1 2 00000000-0000-0000-0000-000000000000 more\n", &back));
}

Test(runner_parts, groups_are_located_in_every_layout)
{
    struct cgroup_roots r;
    /* version 1 with a nested group, and version 2 beside it */
    const char *self = "9:name=systemd:/\n8:pids:/\n4:memory:/api/2c6b\n3:cpu,cpuacct:/x\n0::/\n";
    const char *mounts = "24 20 0:22 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                         "25 20 0:23 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup "
                         "rw,memory\n"
                         "26 20 0:24 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
                         "27 20 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    cgroup_locate(self, mounts, &r);
    cr_assert_str_eq(r.memory, "/sys/fs/cgroup/memory/api/2c6b");
    cr_assert_str_eq(r.pids, "/sys/fs/cgroup/pids");
    cr_assert_str_eq(r.unified, "/sys/fs/cgroup/unified");

    /* version 2 alone, in a service */
    cgroup_locate("0::/system.slice/bindery.service\n",
                  "30 20 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n", &r);
    cr_assert_str_eq(r.memory, "");
    cr_assert_str_eq(r.unified, "/sys/fs/cgroup/system.slice/bindery.service");

    /* a container that sees its part of the hierarchy, and paths from outside of it */
    cgroup_locate("4:memory:/docker/abc\n0::/../outside\n",
                  "25 20 0:23 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
                  "27 20 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
                  &r);
    cr_assert_str_eq(r.memory, "/sys/fs/cgroup/memory");
    cr_assert_str_eq(r.unified, "/sys/fs/cgroup/unified");

    static const char *const bad[] = {"", "\n", "::", "0:", "garbage", "0::", "1:memory"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cgroup_locate(bad[i], mounts, &r);
        cgroup_locate(self, bad[i], &r);
        cr_assert_str_eq(r.memory, "");
    }
}

static void send(struct buf *out, uint32_t type, const char *payload)
{
    const uint32_t head[2] = {type, (uint32_t)strlen(payload)};

    buf_add(out, head, sizeof head);
    buf_adds(out, payload);
}

Test(runner_parts, frames_come_out_whole_at_every_split)
{
    struct buf all = {0};

    send(&all, CONTROL_INPUT, "hello");
    send(&all, 99, "");
    send(&all, CONTROL_INPUT, "world");
    for (size_t split = 0; split <= all.len; split++) {
        struct buf received = {0};
        struct control_frame frame;
        char text[32] = "";
        size_t at = 0;
        int n = 0;
        buf_add(&received, all.data, split);
        while (control_next(&received, &at, &frame)) {
            strncat(text, frame.payload, frame.len);
            n++;
        }
        buf_drain(&received, at);
        at = 0;
        buf_add(&received, all.data + split, all.len - split);
        while (control_next(&received, &at, &frame)) {
            strncat(text, frame.payload, frame.len);
            n++;
        }
        cr_assert_eq(n, 3);
        cr_assert_str_eq(text, "helloworld");
        cr_assert_eq(at, received.len);
        buf_fini(&received);
    }
    buf_fini(&all);
}

Test(runner_parts, a_frame_that_cannot_be_is_thrown_away)
{
    struct buf received = {0};
    struct control_frame frame;
    const uint32_t head[2] = {CONTROL_INPUT, PIPE_BUF};
    size_t at = 0;

    buf_add(&received, head, sizeof head);
    buf_adds(&received, "rest");
    cr_assert_not(control_next(&received, &at, &frame));
    cr_assert_eq(received.len, 0);
    cr_assert_eq(at, 0);
    buf_fini(&received);
}

Test(runner_parts, a_jail_survives_encoding)
{
    struct arena *arena = arena_new();
    const char *env[] = {"A=1", "EMPTY=", "TEXT=two\nlines", NULL};
    const struct jail jail = {
        .layers = LAYER_LANDLOCK | LAYER_SECCOMP,
        .in_bwrap = true,
        .scoped = true,
        .terminal = true,
        .landlock_abi = 7,
        .uid = 4000000000U,
        .home = "/h",
        .workspace = "/w",
        .temporary = NULL,
        .cwd = "/w/sub",
        .script = "",
        .direct = true,
        .env = env,
        .limits = {1, 1LL << 40, 3, 0},
    };
    struct jail back;
    struct buf text = {0};

    jail_encode(&jail, &text);
    cr_assert(jail_decode(text.data, text.len, arena, &back));
    cr_assert_eq(back.layers, jail.layers);
    cr_assert(back.in_bwrap && back.scoped && back.terminal && back.direct);
    cr_assert_eq(back.landlock_abi, 7);
    cr_assert_eq(back.uid, 4000000000U);
    cr_assert_str_eq(back.home, "/h");
    cr_assert_null(back.temporary);
    cr_assert_str_eq(back.script, "");
    cr_assert_str_eq(back.env[2], "TEXT=two\nlines");
    cr_assert_null(back.env[3]);
    cr_assert_eq(back.limits.max_memory_bytes, 1LL << 40);
    for (size_t len = 0; len < text.len; len++) /* cut anywhere: refused, never overrun */
        cr_assert_not(jail_decode(text.data, len, arena, &back), "%zu", len);
    buf_addc(&text, 'x');
    cr_assert_not(jail_decode(text.data, text.len, arena, &back));
    buf_fini(&text);
    arena_free(arena);
}

static const char *value_of(const char **env, const char *name)
{
    size_t len = strlen(name);

    for (; *env != NULL; env++)
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
            return *env + len + 1;
    return NULL;
}

Test(runner_parts, environments)
{
    struct arena *arena = arena_new();
    char *inherited[] = {"PATH=/daemon", "LANG=de_DE.UTF-8",       "SHELLCTL_AUTH_TOKEN=x",
                         "AWS_KEY=y",    "BINDERY_LEASE_SECRET=z", NULL};
    const char *overlay[] = {"PATH", "/mine", "NEW", "1", NULL};
    struct runner_spec spec = {
        .scope = RUNNER_SCOPED, .mode = RUNNER_PTY, .home = "/h", .cwd = "/w"};

    const char **env = job_env_build(arena, &spec, inherited, "sandbox", "/tmp");
    cr_assert_str_neq(value_of(env, "PATH"), "/daemon");
    cr_assert_str_eq(value_of(env, "LANG"), "de_DE.UTF-8");
    cr_assert_str_eq(value_of(env, "HOME"), "/h");
    cr_assert_str_eq(value_of(env, "USER"), "sandbox");
    cr_assert_str_eq(value_of(env, "TMPDIR"), "/tmp");
    cr_assert_not_null(value_of(env, "TERM"));
    cr_assert_null(value_of(env, "AWS_KEY"));

    spec.scope = RUNNER_CONTROL;
    spec.mode = RUNNER_STDIO;
    spec.env = overlay;
    env = job_env_build(arena, &spec, inherited, "root", NULL);
    cr_assert_str_eq(value_of(env, "PATH"), "/mine");
    cr_assert_str_eq(value_of(env, "NEW"), "1");
    cr_assert_str_eq(value_of(env, "AWS_KEY"), "y");
    cr_assert_null(value_of(env, "SHELLCTL_AUTH_TOKEN"));
    cr_assert_null(value_of(env, "BINDERY_LEASE_SECRET"));
    cr_assert_null(value_of(env, "TMPDIR"));
    arena_free(arena);
}

Test(runner_parts, readable_places)
{
    cr_assert(system_paths_cover("/usr"));
    cr_assert(system_paths_cover("/usr/local/state"));
    cr_assert(system_paths_cover("/opt/x"));
    cr_assert_not(system_paths_cover("/usrlocal"));
    cr_assert_not(system_paths_cover("/var/lib/bindery"));
    cr_assert_not(system_paths_cover("/"));
}

Test(runner_parts, the_report_names_what_is_missing)
{
    struct isolation iso = {.policy = ISOLATION_AUTO,
                            .layers = LAYER_LANDLOCK | LAYER_SECCOMP | LAYER_NO_INET,
                            .landlock_abi = 2,
                            .note_bwrap = "no \"user\" namespaces",
                            .note_uid = "needs root"};
    struct buf text = {0};
    struct json_writer w = {.out = &text};
    struct json_object *root;
    struct arena *arena = arena_new();
    struct error err = {0};

    isolation_summary(&iso, &text);
    cr_assert_str_eq(buf_text(&text),
                     "landlock+seccomp; network none (sockets refused); processes visible, signals "
                     "possible; no bubblewrap: no \"user\" namespaces; no own uid: needs root");
    buf_clear(&text);
    isolation_describe(&iso, &w);
    cr_assert(json_parse(arena, buf_text(&text), text.len, &root, NULL, &err), "%s", err.message);
    cr_assert_not_null(strstr(buf_text(&text), "\"landlock_abi\":2"));
    cr_assert_not_null(strstr(buf_text(&text), "\"bubblewrap\":false"));
    buf_fini(&text);
    arena_free(arena);

    struct buf none = {0};
    struct isolation nothing = {.policy = ISOLATION_NONE};
    isolation_summary(&nothing, &none);
    cr_assert_str_eq(buf_text(&none), "none, jobs have the daemon's rights; network host");
    buf_fini(&none);

    enum isolation_policy policy;
    cr_assert(isolation_policy_parse("landlock", &policy));
    cr_assert_eq(policy, ISOLATION_LANDLOCK);
    cr_assert_not(isolation_policy_parse("LANDLOCK", &policy));
}
