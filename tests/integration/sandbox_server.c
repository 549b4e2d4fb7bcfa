/* A server in so far as it supervises the embedded sandbox: sandbox_server PROGRAM DATA_DIR. It
 * prints the socket, then a line of JSON at each change of readiness, and stops on SIGTERM. */
#include "backends/local/embedded.h"
#include "core/runtime/buf.h"
#include "core/runtime/config.h"
#include "core/runtime/json.h"
#include "core/runtime/log.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>

struct app {
    struct loop *loop;
    struct embedded *embedded;
};

static void on_change(void *ctx, bool ready)
{
    struct app *app = ctx;
    struct buf line = {0};
    struct json_writer w = {.out = &line};

    (void)ready;
    if (app->embedded == NULL) /* a change during the start: told by main */
        return;
    embedded_describe(app->embedded, &w);
    puts(buf_text(&line));
    fflush(stdout);
    buf_fini(&line);
}

static void on_stopped(void *ctx)
{
    loop_stop(ctx);
}

static void on_term(evutil_socket_t number, short what, void *ctx)
{
    struct app *app = ctx;

    (void)number;
    (void)what;
    loop_touch(app->loop);
    embedded_stop(app->embedded, on_stopped, app->loop);
}

int main(int argc, char **argv)
{
    struct app app = {.loop = loop_new(NULL)};
    struct buf problems = {0};
    struct config *config = config_load(&problems);
    struct error err = {0};
    struct event *term;

    if (argc != 3 || config == NULL) {
        fprintf(stderr, "usage: sandbox_server PROGRAM DATA_DIR\n%s", buf_text(&problems));
        return 2;
    }
    log_init(LOG_INFO, LOG_LOGFMT, app.loop);
    app.embedded = embedded_start(app.loop,
                                  &(struct embedded_options){.config = config,
                                                             .program = argv[1],
                                                             .data_dir = argv[2],
                                                             .on_change = on_change,
                                                             .ctx = &app},
                                  &err);
    if (app.embedded == NULL) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    puts(embedded_socket(app.embedded));
    fflush(stdout);
    term = evsignal_new(loop_base(app.loop), SIGTERM, on_term, &app);
    evsignal_add(term, NULL);
    loop_run(app.loop);
    event_free(term);
    embedded_free(app.embedded);
    log_flush();
    log_init(LOG_INFO, LOG_LOGFMT, NULL);
    loop_free(app.loop);
    config_free(config);
    buf_fini(&problems);
    return 0;
}
