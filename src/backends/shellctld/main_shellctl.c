#include "backends/shellctld/main_shellctl.h"

#include "backends/shellctld/daemon.h"
#include "core/runtime/config.h"
#include "core/runtime/log.h"

#include <getopt.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#define DEFAULT_LISTEN "127.0.0.1:8765"
#define MIB            (1024 * 1024)

static int usage(void)
{
    fputs("usage: bindery shellctl serve [--listen host:port|unix:/path] [--state-dir DIR]\n"
          "                              [--token TOKEN] [--ready-fd N]\n",
          stderr);
    return EX_USAGE;
}

/* ---- from the environment ---------------------------------------------------------------------- */

/* HOME, which is set where it was not: settings have defaults in it, and jobs inherit it. */
static const char *user_home(void)
{
    const char *home = getenv("HOME");
    const struct passwd *user;

    if (home == NULL || home[0] != '/') {
        user = getpwuid(geteuid());
        setenv("HOME", user != NULL && user->pw_dir != NULL ? user->pw_dir : "/", 1);
    }
    return getenv("HOME");
}

/* `$XDG_DATA_HOME/shellctl`, else `~/.local/share/shellctl` (protocol section 7). */
static const char *default_state_dir(struct arena *arena, const char *home)
{
    const char *data = getenv("XDG_DATA_HOME");

    if (data != NULL && data[0] == '/')
        return arena_printf(arena, "%s/shellctl", data);
    return arena_printf(arena, "%s/.local/share/shellctl", home);
}

/* Not for jobs: they inherit what is left (protocol section 9). */
static void hide_own_variables(void)
{
    static const char *const names[] = {"TMUX",
                                        "SHELLCTL_STATE_DIR",
                                        "SHELLCTL_RUNTIME_DIR",
                                        "SHELLCTL_TMUX_SOCKET",
                                        "SHELLCTL_RUNNER",
                                        "SHELLCTL_AUTH_TOKEN"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        unsetenv(names[i]);
}

static void warn_of_unsupported(void)
{
    static const char *const names[] = {"SHELLCTL_LANDLOCK_RW_PATHS", "SHELLCTL_LANDLOCK_RO_PATHS",
                                        "SHELLCTL_LANDLOCK_RW_DEV_PATHS"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (getenv(names[i]) != NULL)
            log_warn("%s has no effect: jobs see their HOME, their folder and the read-only system",
                     names[i]);
}

/* ---- options ----------------------------------------------------------------------------------- */

static bool read_arguments(int argc, char **argv, struct daemon_options *ret)
{
    static const struct option known[] = {{"listen", required_argument, NULL, 'l'},
                                          {"state-dir", required_argument, NULL, 's'},
                                          {"token", required_argument, NULL, 't'},
                                          {"ready-fd", required_argument, NULL, 'r'},
                                          {NULL, 0, NULL, 0}};
    int option;
    char *end;

    optind = 1;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (option) {
        case 'l':
            ret->listen = optarg;
            break;
        case 's':
            ret->state_dir = optarg;
            break;
        case 't':
            ret->token = optarg;
            break;
        case 'r':
            ret->ready_fd = (int)strtol(optarg, &end, 10);
            if (*end != '\0' || ret->ready_fd < 3)
                return false;
            break;
        default:
            return false;
        }
    }
    return optind == argc;
}

static void read_config(const struct config *config, struct daemon_options *ret)
{
    ret->isolation = (struct isolation_options){
        .network = config->local_network,
        .data_dir = config->data_dir,
        .home_root = config->local_roots_given[0] ? config->local_home_root : NULL,
        .workspace_root = config->local_roots_given[1] ? config->local_workspace_root : NULL,
    };
    PRE(isolation_policy_parse(config->local_isolation, &ret->isolation.policy));
    ret->limits = (struct runner_limits){
        .max_processes = config->job_max_processes,
        .max_memory_bytes = config->job_max_memory_mib * MIB,
        .max_open_files = config->job_max_open_files,
        .nice = config->job_nice,
        .max_output_bytes = config->job_max_output_mib * MIB,
    };
    ret->max_live = (size_t)config->job_max_count;
    ret->gc_interval_ms = config->job_gc_interval_ms;
    ret->retention_ms = config->job_retention_ms;
    ret->access_log = config->access_log;
}

static void read_log_config(const struct config *config, struct daemon_options *ret)
{
    ret->log_level = LOG_INFO;
    if (strcmp(config->log_level, "debug") == 0)
        ret->log_level = LOG_DEBUG;
    else if (strcmp(config->log_level, "warn") == 0)
        ret->log_level = LOG_WARN;
    else if (strcmp(config->log_level, "error") == 0)
        ret->log_level = LOG_ERROR;
    ret->log_format = strcmp(config->log_format, "json") == 0 ? LOG_JSON : LOG_LOGFMT;
    log_init(ret->log_level, ret->log_format, NULL);
}

static int serve(int argc, char **argv)
{
    struct daemon_options options = {.listen = DEFAULT_LISTEN, .ready_fd = -1};
    const char *path_isolation = getenv("SHELLCTL_ENABLE_PATH_ISOLATION");
    const char *home = user_home();
    struct buf problems = {0};
    struct config *config;
    int status;

    if (!read_arguments(argc, argv, &options))
        return usage();
    config = config_load(&problems);
    if (config == NULL) {
        fputs(buf_text(&problems), stderr);
        buf_fini(&problems);
        return EX_CONFIG;
    }
    read_config(config, &options);
    read_log_config(config, &options);
    warn_of_unsupported();
    options.user_home = arena_strdup(config->arena, home);
    if (options.state_dir == NULL)
        options.state_dir = default_state_dir(config->arena, options.user_home);
    if (options.token == NULL && getenv("SHELLCTL_AUTH_TOKEN") != NULL)
        options.token = arena_strdup(config->arena, getenv("SHELLCTL_AUTH_TOKEN"));
    if (options.token == NULL)
        options.token = "";
    log_redact(options.token);
    options.path_isolation = path_isolation == NULL || strcmp(path_isolation, "true") == 0;
    hide_own_variables();
    status = daemon_run(&options);
    config_free(config);
    buf_fini(&problems);
    return status;
}

int shellctl_main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "serve") == 0)
        return serve(argc - 1, argv + 1);
    return usage();
}
