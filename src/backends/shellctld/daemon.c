#include "backends/shellctld/daemon.h"

#include "backends/shellctld/handlers.h"
#include "backends/shellctld/job_gc.h"
#include "backends/shellctld/job_launch.h"
#include "backends/shellctld/job_process.h"
#include "core/runtime/json.h"
#include "core/runtime/log.h"
#include "core/runtime/op.h"
#include "http/server.h"

#include <event2/event.h>
#include <signal.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

enum {
    LOCK_PATIENCE_MS = 5000, /* a predecessor that has been told to end */
    DRAIN_MS = 5000,
    SETTLE_MS = 1000,
};

struct daemon {
    const struct daemon_options *options;
    struct loop *loop;
    struct launcher launcher; /* what handlers see; owns store and table */
    struct job_gc gc;
    struct http_server *server;
    struct event *signals[2];
    bool stopping;
};

/* ---- authentication ---------------------------------------------------------------------------- */

/* The header must be exactly `Bearer <token>` (protocol section 2); the time taken depends on the
 * length of what was sent alone. */
static const char *check_token(void *ctx, const char *authorization)
{
    static const char scheme[] = "Bearer ";
    const char *token = ctx;
    size_t token_len = strlen(token), len;
    unsigned char wrong;

    if (token_len == 0)
        return NULL;
    len = authorization != NULL ? strlen(authorization) : 0;
    wrong = len != sizeof(scheme) - 1 + token_len;
    for (size_t i = 0; i < len; i++) {
        size_t at = i - (sizeof(scheme) - 1);
        char want = i < sizeof(scheme) - 1 ? scheme[i] : token[at % token_len];
        wrong |= (unsigned char)(authorization[i] ^ want);
    }
    return wrong != 0 ? "Missing or invalid bearer token" : NULL;
}

/* ---- start ------------------------------------------------------------------------------------- */

/* All listeners are unix sockets: whoever reaches them may have the daemon's rights. */
static bool is_private(const char *listen)
{
    const char *comma;

    for (; strncmp(listen, "unix:", 5) == 0; listen = comma + 1) {
        comma = strchr(listen, ',');
        if (comma == NULL)
            return true;
    }
    return false;
}

/* Landlock only adds: it cannot take a folder out of one that a job may use. */
static void warn_of_exposed_state(const struct daemon *d)
{
    const char *state = job_store_dir(d->launcher.store), *home = d->launcher.user_home;
    size_t len = strlen(home);

    if (d->launcher.confine_unscoped && (d->launcher.isolation.layers & LAYER_BWRAP) == 0 &&
        strncmp(state, home, len) == 0 && state[len] == '/')
        log_warn("jobs can reach the state folder %s, which lies in HOME: give --state-dir another "
                 "place",
                 state);
}

/* State, isolation, jobs of the last run. */
static int open_state(struct daemon *d, struct error *err)
{
    const struct daemon_options *o = d->options;
    struct isolation_options probe = o->isolation;
    struct isolation isolation;
    struct launcher *l = &d->launcher;

    l->store = job_store_open(o->state_dir, LOCK_PATIENCE_MS, err);
    if (l->store == NULL)
        return EX_CONFIG;
    probe.state_dir = job_store_dir(l->store);
    if (!isolation_probe(&probe, &isolation, err))
        return EX_UNAVAILABLE;
    launcher_set_isolation(l, &isolation);
    l->jobs = job_table_new(d->loop);
    l->limits = o->limits;
    l->max_live = o->max_live;
    l->user_home = o->user_home;
    l->confine_unscoped =
        !is_private(o->listen) && o->path_isolation && isolation.policy != ISOLATION_NONE;
    warn_of_exposed_state(d);
    return 0;
}

static bool reconcile(struct daemon *d, struct error *err)
{
    struct job_table *jobs = d->launcher.jobs;
    size_t live = 0;

    if (!job_store_load(d->launcher.store, jobs, err))
        return false;
    for (struct job *job = job_first(jobs); job != NULL; job = job_next(job)) {
        if (!job_status_is_terminal(job->status))
            job_process_adopt(job);
        live += !job_status_is_terminal(job->status);
    }
    if (job_count(jobs) > 0)
        log_info("%zu jobs of an earlier run, %zu of them live", job_count(jobs), live);
    return true;
}

static bool listen_on(struct daemon *d, struct error *err)
{
    struct http_server_options options = {
        .listen = d->options->listen,
        .title = "shellctl",
        .errors = ERRORS_SHELLCTL,
        .no_access_log = !d->options->access_log,
        .auth = {check_token, (void *)d->options->token},
    };

    d->server = http_server_new(d->loop, &options, &shellctl_routes, &d->launcher, err);
    return d->server != NULL;
}

/* One line of JSON for whoever started us, and one for the log. */
static void announce(struct daemon *d)
{
    struct buf line = {0}, summary = {0};
    struct json_writer w = {.out = &line};
    const char *address = http_server_address(d->server, 0);

    isolation_summary(&d->launcher.isolation, &summary);
    LOG_WITH(LOG_INFO, "shellctl listens", {"address", address},
             {"state", job_store_dir(d->launcher.store)}, {"isolation", buf_text(&summary)});
    json_object_begin(&w);
    json_member_string(&w, "address", address);
    json_key(&w, "isolation");
    isolation_describe(&d->launcher.isolation, &w);
    json_object_finish(&w);
    buf_addc(&line, '\n');
    if (d->options->ready_fd >= 0) {
        if (write(d->options->ready_fd, line.data, line.len) != (ssize_t)line.len)
            log_warn("nobody reads the ready descriptor");
        close(d->options->ready_fd);
    }
    buf_fini(&line);
    buf_fini(&summary);
}

/* ---- stop -------------------------------------------------------------------------------------- */

static void on_drained(void *ctx, int left)
{
    struct daemon *d = ctx;

    if (left > 0)
        log_warn("%d requests were cut", left);
    loop_stop(d->loop);
}

static void on_signal(evutil_socket_t number, short what, void *ctx)
{
    struct daemon *d = ctx;

    (void)what;
    loop_touch(d->loop);
    if (d->stopping) {
        http_server_hurry(d->server);
        return;
    }
    d->stopping = true;
    log_info("signal %d: stopping; jobs go on", (int)number);
    http_server_drain(d->server, 0, DRAIN_MS, SETTLE_MS, on_drained, d);
}

static void watch_signals(struct daemon *d)
{
    static const int numbers[2] = {SIGTERM, SIGINT};

    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 2; i++) {
        d->signals[i] = evsignal_new(loop_base(d->loop), numbers[i], on_signal, d);
        PRE(d->signals[i] != NULL && evsignal_add(d->signals[i], NULL) == 0);
    }
}

static void close_all(struct daemon *d)
{
    for (int i = 0; i < 2; i++)
        if (d->signals[i] != NULL)
            event_free(d->signals[i]);
    http_server_free(d->server);
    if (d->launcher.jobs != NULL) {
        job_gc_stop(&d->gc);
        for (struct job *job = job_first(d->launcher.jobs); job != NULL; job = job_next(job))
            job_process_detach(job);
        loop_turn(d->loop, false); /* what was cancelled ends here */
        job_table_free(d->launcher.jobs);
    }
    job_store_close(d->launcher.store);
    log_flush();
    log_init(d->options->log_level, d->options->log_format, NULL);
    loop_free(d->loop);
}

int daemon_run(const struct daemon_options *options)
{
    struct daemon d = {.options = options};
    struct error err = {0};
    int status;

    d.loop = loop_new(NULL);
    log_init(options->log_level, options->log_format, d.loop);
    status = open_state(&d, &err);
    if (status == 0) {
        watch_signals(&d);
        job_gc_start(&d.gc, d.launcher.jobs, options->gc_interval_ms, options->retention_ms);
        if (!reconcile(&d, &err))
            status = EX_CONFIG;
        else if (!listen_on(&d, &err))
            status = EX_UNAVAILABLE;
    }
    if (status != 0) {
        log_error("cannot start: %s", err.message);
    } else {
        announce(&d);
        loop_run(d.loop);
    }
    close_all(&d);
    return status;
}
