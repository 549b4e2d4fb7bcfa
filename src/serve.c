/* `bindery serve`: settings → data folder → loop → ledger → backend → broker → HTTP edge, then the
 * loop; and the way back on SIGTERM: drain the edge, end the leases, stop what works on the ledger,
 * stop the sandbox, free all. */
#include "commands.h"
#include "core/domain/broker.h"
#include "core/runtime/config.h"
#include "core/runtime/log.h"
#include "core/runtime/reaper.h"
#include "data_dir.h"
#include "http/app.h"
#include "http/auth.h"
#include "http/handlers_binding.h"
#include "http/handlers_command.h"
#include "http/handlers_files.h"
#include "http/handlers_gateway.h"
#include "http/handlers_gc.h"
#include "http/handlers_lease.h"
#include "http/handlers_ledger.h"
#include "http/handlers_owner.h"
#include "http/handlers_snapshot.h"
#include "http/handlers_system.h"
#include "http/proxy.h"
#include "http/server.h"
#include "observe.h"
#include "serve_backend.h"
#include "serve_ledger.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    SETTLE_MS = 10 * 1000, /* that aborted requests get to undo what they made */
    LAST_MS = 15 * 1000,   /* that leases and the sandbox get to end after the edge */
    PEER_CONNECTIONS_MAX = 4096,
    OPERATION_MAX_MS = 15 * 60 * 1000, /* above every deadline of a backend's own */
};

static const struct route *const tables[] = {
    binding_routes, files_routes,  snapshot_routes, lease_routes,  proxy_routes, command_routes,
    gateway_routes, system_routes, owner_routes,    ledger_routes, gc_routes,
};

/* Everything that lives as long as the server. */
struct service {
    struct config *config;
    struct data_dir dir;
    struct loop *loop;
    struct http_client *http;
    struct served_backend served;
    struct served_ledger ledger;
    struct app app;
    struct http_server *edge;
    struct readiness readiness[2];
    struct event *sigterm, *sigint;
    struct reaper *reaper; /* as process 1 only */
    struct task leases_over;
    struct timer last_call;
    bool draining, all_over;
    int status; /* of the exit, after a drain */
};

/* ---- stopping */

static void on_all_over(void *ctx)
{
    struct service *s = ctx;

    s->all_over = true;
    loop_stop(s->loop);
}

static void on_ledger_stopped(void *ctx)
{
    struct service *s = ctx;

    served_backend_stop(&s->served, s->loop, on_all_over, s);
}

static void on_leases_over(void *ctx)
{
    struct service *s = ctx;

    served_ledger_stop(&s->ledger, on_ledger_stopped, s);
}

static void on_last_call(void *ctx)
{
    struct service *s = ctx;

    log_error("leases or the sandbox did not end in time");
    loop_stop(s->loop);
}

static void on_drained(void *ctx, int left)
{
    struct service *s = ctx;
    char count[16];

    snprintf(count, sizeof(count), "%d", left);
    if (left > 0)
        LOG_WITH(LOG_WARN, "requests were cut by the end of the drain", {"requests", count});
    timer_set_ms(s->loop, &s->last_call, LAST_MS);
    broker_drain(s->app.broker, &s->leases_over);
}

static void begin_drain(struct service *s, const char *why)
{
    s->draining = true;
    LOG_WITH(LOG_INFO, "draining", {"signal", why});
    http_server_drain(s->edge, s->config->drain_grace_ms, s->config->drain_timeout_ms, SETTLE_MS,
                      on_drained, s);
}

/* Found out only when the database was reached. */
static void on_ledger_refused(void *ctx, const struct error *why)
{
    struct service *s = ctx;

    LOG_WITH(LOG_ERROR, "the ledger must not be used", {"error", why->message});
    s->status = EXIT_CONFIG;
    if (!s->draining)
        begin_drain(s, "none");
}

/* The first signal drains, the second spares the rest of the waiting. */
static void on_signal(evutil_socket_t number, short what, void *ctx)
{
    struct service *s = ctx;

    (void)what;
    loop_touch(s->loop);
    if (s->draining) {
        log_warn("second signal: not waiting for running requests any more");
        http_server_hurry(s->edge);
        return;
    }
    begin_drain(s, number == SIGINT ? "SIGINT" : "SIGTERM");
}

/* ---- starting */

static bool backend_is_ready(void *ctx, struct error *err)
{
    return broker_ready(((struct service *)ctx)->app.broker, err);
}

static void backend_describe(void *ctx, struct json_writer *w)
{
    served_backend_describe(&((struct service *)ctx)->served, w);
}

static enum log_level level_of(const char *name)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};

    for (int i = 0; i < 4; i++) {
        if (strcmp(names[i], name) == 0)
            return (enum log_level)i;
    }
    return LOG_INFO;
}

static bool start_broker(struct service *s, struct error *err)
{
    const struct config *c = s->config;
    const char *secret = c->lease_secret;

    if (secret == NULL)
        secret = data_dir_secret(&s->dir, "lease-secret", c->arena, err);
    if (secret == NULL)
        return false;
    log_redact(secret);
    s->app.broker = broker_new(s->loop, s->served.backend,
                               &(struct broker_options){
                                   .acquire_timeout_ms = c->acquire_timeout_ms,
                                   .create_timeout_ms = OPERATION_MAX_MS,
                                   .destroy_timeout_ms = OPERATION_MAX_MS,
                                   .snapshot_timeout_ms = OPERATION_MAX_MS,
                                   .leases = {.default_ttl_ms = c->lease_ttl_ms,
                                              .max_ttl_ms = c->lease_max_ttl_ms,
                                              .max_total_ms = c->lease_max_total_ms,
                                              .max_leases = (int)c->max_leases},
                                   .lease_secret = secret,
                               });
    return true;
}

static bool start_edge(struct service *s, struct error *err)
{
    static const struct route_set routes = {tables, sizeof(tables) / sizeof(*tables)};
    const struct config *c = s->config;

    s->readiness[0] = (struct readiness){"backend", backend_is_ready, backend_describe, s};
    s->readiness[1] =
        (struct readiness){"ledger", served_ledger_ready, served_ledger_describe, &s->ledger};
    s->edge = http_server_new(s->loop,
                              &(struct http_server_options){
                                  .listen = c->listen,
                                  .max_connections = (int)c->max_connections,
                                  .max_connections_per_ip = (int)c->max_connections_per_ip,
                                  .max_in_flight = (int)c->max_in_flight,
                                  .max_header_bytes = (size_t)c->max_header_bytes,
                                  .header_timeout_ms = c->header_timeout_ms,
                                  .body_timeout_ms = c->body_timeout_ms,
                                  .idle_timeout_ms = c->idle_timeout_ms,
                                  .write_timeout_ms = c->write_timeout_ms,
                                  .request_timeout_ms = c->request_timeout_ms,
                                  .no_access_log = !c->access_log,
                                  .auth = {auth_bearer_callback, (void *)c->api_token},
                                  .readiness = s->readiness,
                                  .n_readiness = 2,
                              },
                              &routes, &s->app, err);
    return s->edge != NULL;
}

static void start_signals(struct service *s)
{
    signal(SIGPIPE, SIG_IGN);
    s->sigterm = evsignal_new(loop_base(s->loop), SIGTERM, on_signal, s);
    s->sigint = evsignal_new(loop_base(s->loop), SIGINT, on_signal, s);
    PRE(s->sigterm != NULL && s->sigint != NULL);
    event_add(s->sigterm, NULL);
    event_add(s->sigint, NULL);
    s->reaper = reaper_start(s->loop, served_backend_owns, &s->served);
}

/* Long polls take a connection each: short calls must not queue behind them. */
static int connections_of(const struct config *c)
{
    if (strcmp(c->runtime_backend, "enterprise") == 0)
        return (int)c->enterprise_max_connections;
    return PEER_CONNECTIONS_MAX;
}

/* Exit status 0, or what `err` means for the operator. */
static int start(struct service *s, struct error *err)
{
    const struct config *c = s->config;

    if (!data_dir_open(&s->dir, c->data_dir, err))
        return err->code == ERR_CONFLICT ? EXIT_UNAVAILABLE : EXIT_CONFIG;
    s->loop = loop_new(NULL);
    log_init(level_of(c->log_level), strcmp(c->log_format, "json") == 0 ? LOG_JSON : LOG_LOGFMT,
             s->loop);
    config_register_secrets(c);
    observe_loop(s->loop);
    task_init(&s->leases_over, on_leases_over, s);
    timer_init(&s->last_call, on_last_call, s);
    LOG_WITH(LOG_INFO, "starting", {"version", BINDERY_VERSION}, {"backend", c->runtime_backend},
             {"data_dir", c->data_dir}, {"proxy", c->http_proxy != NULL ? c->http_proxy : "none"});
    if (c->unknown != NULL)
        LOG_WITH(LOG_WARN, "there are no such settings", {"names", c->unknown});
    if (c->api_token == NULL)
        log_warn("authentication is off: DIFY_AGENT_API_TOKEN is not set");
    s->http = http_client_new(s->loop, &(struct http_client_options){
                                           .proxy = c->http_proxy,
                                           .max_connections_per_host = connections_of(c),
                                       });
    s->app.config = c;
    s->app.http = s->http;
    s->ledger.on_refused = on_ledger_refused;
    s->ledger.refused_ctx = s;
    if (!served_ledger_open(&s->ledger, s->loop, c, err) ||
        !served_backend_start(&s->served, s->loop, s->http, c, err) || !start_broker(s, err))
        return EXIT_CONFIG;
    s->app.gateway_leases = gateway_leases_new(s->loop, s->app.broker);
    served_ledger_start(&s->ledger, s->app.broker, c);
    s->app.lifecycle = s->ledger.lifecycle;
    s->app.gc = &s->ledger.control;
    if (!start_edge(s, err))
        return EXIT_UNAVAILABLE;
    start_signals(s);
    return 0;
}

/* What was started, in reverse; after a start that failed, too. */
static void finish(struct service *s)
{
    if (s->sigterm != NULL)
        event_free(s->sigterm);
    if (s->sigint != NULL)
        event_free(s->sigint);
    reaper_free(s->reaper);
    http_server_free(s->edge);
    gateway_leases_free(s->app.gateway_leases);
    served_ledger_finish(&s->ledger);
    broker_free(s->app.broker);
    served_backend_free(&s->served);
    if (s->http != NULL)
        http_client_free(s->http);
    served_ledger_close(&s->ledger);
    log_flush();
    if (s->loop != NULL) {
        timer_cancel(s->loop, &s->last_call);
        log_init(LOG_INFO, LOG_LOGFMT, NULL);
        loop_free(s->loop);
    }
    data_dir_close(&s->dir);
}

static int run(struct config *config)
{
    struct service s = {.config = config, .dir = {NULL, -1}};
    struct error err = {0};
    int status = start(&s, &err);

    if (status != 0) {
        log_scrub(err.message);
        fprintf(stderr, "bindery: %s\n", err.message);
        finish(&s);
        return status;
    }
    loop_run(s.loop);
    if (!s.all_over) { /* operations still refer to what would be freed */
        log_flush();
        _exit(1);
    }
    log_info("stopped");
    finish(&s);
    return s.status;
}

int serve_main(int argc, char **argv)
{
    struct buf text = {0};
    struct config *config;
    bool print = argc == 2 && strcmp(argv[1], "--print-config") == 0;
    int status = 0;

    if (argc > 1 && !print) {
        fprintf(stderr, "usage: bindery serve [--print-config]\n"
                        "Settings come from the environment: docs/settings.md.\n");
        return EXIT_USAGE;
    }
    config = config_load(&text);
    if (config == NULL) {
        fprintf(stderr, "bindery: the settings have problems:\n%s", buf_text(&text));
        buf_fini(&text);
        return EXIT_CONFIG;
    }
    if (print) {
        config_print(config, &text);
        printf("%s", buf_text(&text));
    } else {
        status = run(config);
    }
    buf_fini(&text);
    config_free(config);
    return status;
}
