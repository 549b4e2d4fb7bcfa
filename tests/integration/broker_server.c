/* The product's API over the backend in memory, for tests that need its faults: broker_server
 * UPSTREAM_URL. Settings come from the environment as for `bindery serve`. It prints its address,
 * then serves until SIGTERM. Routes of its own, all GET:
 *   /test/lose/{ref}              the binding vanishes
 *   /test/script/{call}/{ms}/{n}  calls of that kind take that long, the next n fail
 *   /test/state                   what exists and what was called */
#include "core/domain/broker.h"
#include "core/runtime/config.h"
#include "http/app.h"
#include "http/auth.h"
#include "http/handlers_binding.h"
#include "http/handlers_command.h"
#include "http/handlers_files.h"
#include "http/handlers_lease.h"
#include "http/handlers_snapshot.h"
#include "http/proxy.h"
#include "http/server.h"
#include "support/fake_backend.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    struct app app; /* first: exchange.app */
    struct loop *loop;
    struct fake_backend *fake;
    struct http_server *server;
    struct task drained;
} test;

static void handle_lose(struct exchange *x)
{
    fake_backend_lose(test.fake, exchange_param(x, "ref"));
    exchange_reply_empty(x, 204);
}

static void handle_script(struct exchange *x)
{
    static const char *const calls[FAKE_CALLS] = {"create",  "acquire",  "reopen", "release",
                                                  "destroy", "snapshot", "drop",   "run"};

    for (int i = 0; i < FAKE_CALLS; i++) {
        if (calls[i] == NULL || strcmp(calls[i], exchange_param(x, "call")) != 0)
            continue;
        test.fake->script[i].delay_ms = atoi(exchange_param(x, "ms"));
        fake_backend_fail(test.fake, (enum fake_call)i, atoi(exchange_param(x, "n")),
                          ERR_UPSTREAM_STATUS);
    }
    exchange_reply_empty(x, 204);
}

static void handle_state(struct exchange *x)
{
    struct buf out = {0};
    struct json_writer w = {.out = &out};

    json_object_begin(&w);
    json_member_int(&w, "bindings", test.fake->live_bindings);
    json_member_int(&w, "snapshots", test.fake->live_snapshots);
    json_member_int(&w, "planes", test.fake->live_planes);
    json_member_int(&w, "leases", lease_count(broker_leases(test.app.broker)));
    json_member_int(&w, "creates", test.fake->script[FAKE_CREATE].calls);
    json_member_int(&w, "acquires", test.fake->script[FAKE_ACQUIRE].calls);
    json_member_int(&w, "reopens", test.fake->script[FAKE_REOPEN].calls);
    json_member_int(&w, "in_flight", http_server_in_flight(test.server));
    json_object_finish(&w);
    exchange_reply_json(x, 200, &out);
    buf_fini(&out);
}

static const struct route test_routes[] = {
    {"GET", "/test/lose/{ref}", AUTH_NONE, ERRORS_DETAIL, 0, 0, handle_lose, "", NULL, NULL},
    {"GET", "/test/script/{call}/{ms}/{n}", AUTH_NONE, ERRORS_DETAIL, 0, 0, handle_script, "", NULL,
     NULL},
    {"GET", "/test/state", AUTH_NONE, ERRORS_DETAIL, 0, 0, handle_state, "", NULL, NULL},
    {0},
};

static const struct route *const tables[] = {binding_routes, files_routes, snapshot_routes,
                                             lease_routes,   proxy_routes, command_routes,
                                             test_routes};

static void on_all_over(void *ctx)
{
    (void)ctx;
    loop_stop(test.loop);
}

static void on_drained(void *ctx, int left)
{
    (void)ctx;
    if (left > 0)
        fprintf(stderr, "%d requests left after the drain\n", left);
    broker_drain(test.app.broker, &test.drained);
}

static void on_term(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd;
    (void)what;
    (void)ctx;
    loop_touch(test.loop);
    http_server_drain(test.server, 0, test.app.config->drain_timeout_ms, 5000, on_drained, NULL);
}

int main(int argc, char **argv)
{
    struct route_set routes = {tables, sizeof(tables) / sizeof(*tables)};
    struct buf problems = {0};
    struct config *config = config_load(&problems);
    struct event *term;
    struct error err;

    if (argc != 2 || config == NULL) {
        fprintf(stderr, "%s", buf_text(&problems));
        return 1;
    }
    signal(SIGPIPE, SIG_IGN);
    test.loop = loop_new(NULL);
    test.fake = fake_backend_new(test.loop, BACKEND_SNAPSHOTS);
    test.fake->endpoint.base_url = argv[1];
    test.fake->endpoint.headers[0] = (struct http_header){"X-Sandbox-Id", "routed"};
    test.fake->endpoint.n_headers = 1;
    test.app.config = config;
    test.app.http = http_client_new(test.loop, &(struct http_client_options){0});
    test.app.broker =
        broker_new(test.loop, &test.fake->backend,
                   &(struct broker_options){.acquire_timeout_ms = config->acquire_timeout_ms,
                                            .create_timeout_ms = 600000,
                                            .destroy_timeout_ms = 600000,
                                            .snapshot_timeout_ms = 600000,
                                            .leases = {.default_ttl_ms = config->lease_ttl_ms,
                                                       .max_ttl_ms = config->lease_max_ttl_ms,
                                                       .max_total_ms = config->lease_max_total_ms,
                                                       .max_leases = (int)config->max_leases},
                                            .lease_secret = "a secret for tests"});
    task_init(&test.drained, on_all_over, NULL);
    test.server = http_server_new(
        test.loop,
        &(struct http_server_options){.listen = config->listen,
                                      .no_access_log = true,
                                      .auth = {auth_bearer_callback, (void *)config->api_token}},
        &routes, &test.app, &err);
    if (test.server == NULL) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    printf("%s\n", http_server_address(test.server, 0));
    fflush(stdout);
    term = evsignal_new(loop_base(test.loop), SIGTERM, on_term, NULL);
    event_add(term, NULL);
    loop_run(test.loop);
    event_free(term);
    http_server_free(test.server);
    broker_free(test.app.broker);
    http_client_free(test.app.http);
    fake_backend_free(test.fake);
    loop_free(test.loop);
    config_free(config);
    buf_fini(&problems);
    return 0;
}
