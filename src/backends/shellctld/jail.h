/* The last steps of a job's process before its script runs: what has to happen inside the sandbox,
 * from the terminal to the system call filter. Where there is bubblewrap these steps run behind it,
 * in `bindery-runner jail`; elsewhere in the runner's forked child. Same code, same order. */
#pragma once

#include "backends/shellctld/runner_spec.h"
#include "core/runtime/arena.h"
#include "core/runtime/buf.h"

#include <stdbool.h>
#include <sys/types.h>

/** Exit statuses of steps that fail before the script runs (shellctl protocol section 9). */
enum {
    JAIL_EXIT_CHDIR = 111,
    JAIL_EXIT_SETUP = 125,
    JAIL_EXIT_NOT_EXECUTABLE = 126,
    JAIL_EXIT_NOT_FOUND = 127,
};

/** First byte of a message on the status pipe: setup is complete, or it failed (text follows). */
enum { JAIL_STARTED = 'S', JAIL_FAILED = 'F' };

/** What to do. Paths are those inside the sandbox. */
struct jail {
    unsigned layers; /* enum isolation_layer */
    bool in_bwrap;   /* mounts, user and processes are separated already */
    bool scoped;
    bool terminal; /* descriptor 0 becomes the controlling terminal */
    int landlock_abi;
    uid_t uid;                                /* LAYER_UID without bubblewrap: become this */
    const char *home, *workspace, *temporary; /* writable; NULL = none */
    const char *cwd;
    const char *script;
    bool direct;      /* the script has an interpreter line of its own */
    const char **env; /* NAME=value, …, NULL */
    struct runner_limits limits;
};

/** Encode for a file that another process of the same program reads at once. */
void jail_encode(const struct jail *jail, struct buf *out);
/** False when it is not what jail_encode wrote. Strings in `arena`. */
bool jail_decode(const char *bytes, size_t len, struct arena *arena, struct jail *ret);

/** Do it, in a process that is to become the job. Descriptors 0-2 are the job's. One message goes
 * to `status_fd`. Does not return. */
_Noreturn void jail_enter(const struct jail *jail, int status_fd);

/** `bindery-runner jail <spec fd> <status fd>`: decode and enter. */
int jail_main(int argc, char **argv);
