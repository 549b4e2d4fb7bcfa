#include "http/access_log.h"

#include "core/runtime/log.h"
#include "core/runtime/metrics.h"
#include "http/exchange_impl.h"
#include "http/gate.h"
#include "http/server_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STATUSES_CACHED = 4 };

/* Series of one route, looked up once: the label lookup stays off the hot path. */
struct route_series {
    struct metric_series *seconds;
    struct {
        struct metric_series *requests;
        const char *method; /* of methods[] */
        int status;
    } by_status[STATUSES_CACHED];
};

struct access_log {
    bool lines;
    size_t n_routes;
    struct route_series routes[]; /* one more for requests without a route */
};

struct access_log *access_log_new(size_t n_routes, bool lines)
{
    struct access_log *log =
        xcalloc(1, sizeof(*log) + (n_routes + 1) * sizeof(struct route_series));

    log->n_routes = n_routes;
    log->lines = lines;
    return log;
}

void access_log_free(struct access_log *log)
{
    free(log);
}

/* Methods come from outside, metric labels from closed sets. */
static const char *method_label(const char *method)
{
    static const char *const known[] = {"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(method, known[i]) == 0)
            return known[i];
    }
    return "other";
}

static void count(struct access_log *log, const struct exchange_impl *x, int status, int64_t us)
{
    const char *route = x->x.route != NULL ? x->x.route->path : "(unmatched)";
    const char *method = method_label(x->x.method);
    struct route_series *series = &log->routes[x->x.route != NULL ? x->route_index : log->n_routes];
    size_t i = 0;
    char text[8];

    if (series->seconds == NULL)
        series->seconds = metric_series(METRIC_HTTP_SECONDS, LABELS(route));
    metric_series_observe_us(series->seconds, us);
    while (i < STATUSES_CACHED && series->by_status[i].requests != NULL) {
        if (series->by_status[i].status == status && series->by_status[i].method == method) {
            metric_series_add(series->by_status[i].requests, 1);
            return;
        }
        i++;
    }
    snprintf(text, sizeof(text), "%d", status);
    if (i == STATUSES_CACHED) {
        metric_add(METRIC_HTTP_REQUESTS, LABELS(route, method, text), 1);
        return;
    }
    series->by_status[i].status = status;
    series->by_status[i].method = method;
    series->by_status[i].requests =
        metric_series(METRIC_HTTP_REQUESTS, LABELS(route, method, text));
    metric_series_add(series->by_status[i].requests, 1);
}

/* Decimal digits, at least `width` of them, into the end of a buffer: printf would cost more than
 * the rest of the line. Returns their start. */
static char *put_number(char *end, uint64_t n, int width)
{
    for (; n > 0 || width > 0; n /= 10, width--)
        *--end = (char)('0' + n % 10);
    return end;
}

static void write_line(const struct exchange_impl *x, int status, int64_t us, bool gone)
{
    char status_text[12] = {0}, bytes[24] = {0}, ms[32] = {0};
    char *status_at = put_number(status_text + sizeof(status_text) - 1, (uint64_t)status, 1);
    char *bytes_at = put_number(bytes + sizeof(bytes) - 1, x->bytes_sent, 1);
    char *ms_at = put_number(ms + sizeof(ms) - 1, (uint64_t)us % 1000, 3);

    *--ms_at = '.';
    ms_at = put_number(ms_at, (uint64_t)us / 1000, 1);
    LOG_WITH(LOG_INFO, gone ? "client left" : "request", {"method", x->x.method},
             {"route", x->x.route != NULL ? x->x.route->path : NULL}, {"path", x->x.path},
             {"status", status_at}, {"ms", ms_at}, {"bytes", bytes_at},
             {"request_id", x->x.request_id}, {"traceparent", x->x.traceparent}, {"peer", x->peer});
}

int64_t access_log_clock_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

void access_log_write(struct exchange_impl *x, bool gone)
{
    struct access_log *log = x->x.server->access_log;
    int64_t us = access_log_clock_us() - x->started_us;
    int status = gone ? 499 : x->status; /* as nginx logs a client that closed the request */

    count(log, x, status, us);
    if (log->lines && log_enabled(LOG_INFO))
        write_line(x, status, us, gone);
}
