/* What keeps jobs apart: probed once at start by doing it, reported, and then applied to every
 * scoped job exactly as probed. A layer that the probe promised and that fails for a job fails that
 * job (`start_failed`, naming the layer); nothing is skipped silently. docs/isolation.md. */
#pragma once

#include "backends/shellctld/cgroup.h"
#include "core/runtime/buf.h"
#include "core/runtime/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct json_writer;

enum isolation_policy {
    ISOLATION_AUTO,     /* the strongest set that works; none of bubblewrap, Landlock: refuse */
    ISOLATION_LANDLOCK, /* no bubblewrap even where it works */
    ISOLATION_NONE,     /* jobs run with the daemon's rights */
};

/** Layers of a scoped job, as bits. */
enum isolation_layer {
    LAYER_BWRAP = 1 << 0,    /* own mount, pid, ipc, uts, cgroup and user namespaces (bubblewrap) */
    LAYER_NETNS = 1 << 1,    /* own, empty network namespace (with bubblewrap) */
    LAYER_LANDLOCK = 1 << 2, /* file rules; from ABI 6 signals and abstract sockets too */
    LAYER_SECCOMP = 1 << 3,  /* system call deny list */
    LAYER_UID = 1 << 4,      /* a uid of its own per Workspace; only as root */
    LAYER_NO_INET = 1 << 5,  /* seccomp refuses network sockets: no network without LAYER_NETNS */
    LAYER_MEMORY = 1 << 6,   /* a memory cgroup per job */
    LAYER_PIDS = 1 << 7,     /* a pids cgroup per job */
    LAYER_CGKILL = 1 << 8,   /* a cgroup v2 per job whose whole tree dies by one write */
};

struct isolation_options {
    enum isolation_policy policy;
    bool network;                           /* jobs may use the host's network */
    const char *state_dir;                  /* the daemon's, absolute and existing */
    const char *home_root, *workspace_root; /* parents of Homes and Workspaces; may be NULL */
    const char *data_dir;                   /* the folder of ours that holds these; may be NULL */
    uid_t uid_first;    /* first of `uid_count` ids that belong to us alone; 0 = 1879048192 */
    uint32_t uid_count; /* 0 = 65536 */
};

enum { ISOLATION_NOTE_MAX = 200 };

/** What was found. A value; copy it freely. */
struct isolation {
    enum isolation_policy policy;
    unsigned layers; /* enum isolation_layer */
    bool network;
    int landlock_abi; /* 0 = none */
    uid_t uid_first;
    uint32_t uid_count;
    struct cgroup_roots cgroups; /* our folders; all "" = none */
    /* Why a layer is missing, for people: "" when it is there. */
    char note_bwrap[ISOLATION_NOTE_MAX], note_landlock[ISOLATION_NOTE_MAX],
        note_seccomp[ISOLATION_NOTE_MAX], note_uid[ISOLATION_NOTE_MAX],
        note_cgroup[ISOLATION_NOTE_MAX];
};

/** Find out, by starting small test processes: blocks for up to a few 100 ms, so before the loop
 * runs. False (ERR_NOT_IMPLEMENTED, with what to do) when the policy cannot be satisfied. */
bool isolation_probe(const struct isolation_options *options, struct isolation *ret,
                     struct error *err) MUST_CHECK;

/** One line for the log: `bubblewrap+landlock(7)+seccomp+uid, no network, …; missing: …`. */
void isolation_summary(const struct isolation *iso, struct buf *out);

/** One JSON object, for /readyz. */
void isolation_describe(const struct isolation *iso, struct json_writer *w);

/** `auto`, `landlock`, `none`; false for anything else. */
bool isolation_policy_parse(const char *text, enum isolation_policy *ret);
