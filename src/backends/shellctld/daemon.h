/* The embedded sandbox daemon: `bindery shellctl serve`. One process, one loop, one state folder. */
#pragma once

#include "backends/shellctld/isolation.h"
#include "backends/shellctld/runner_spec.h"
#include "core/runtime/log.h"

#include <stddef.h>
#include <stdint.h>

/** Everything it is told. Texts are borrowed for the run. */
struct daemon_options {
    const char *listen; /* `host:port` or `unix:/path` */
    const char *state_dir;
    const char *token;                  /* "" = no authentication */
    const char *user_home;              /* default folder and HOME of jobs without a scope */
    struct isolation_options isolation; /* its state_dir is filled in */
    bool path_isolation; /* false: requests without a scope are not isolated, on any listener */
    struct runner_limits limits;
    size_t max_live;
    int64_t gc_interval_ms, retention_ms;
    bool access_log;
    enum log_level log_level;
    enum log_format log_format;
    int ready_fd; /* gets one line of JSON when the daemon listens, then closed; -1 = none */
};

/** Run until SIGTERM or SIGINT. Returns the exit status: 0, 69 when something outside is missing (an
 * address, isolation), 78 for a state folder that cannot be used. Jobs outlive it. */
int daemon_run(const struct daemon_options *options);
