/* Series, histograms and the text that Prometheus reads. */
#include "core/runtime/buf.h"
#include "core/runtime/metrics.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

static struct buf out;

static void tear_down(void)
{
    buf_fini(&out);
    metrics_reset();
}

TestSuite(metrics, .fini = tear_down, .timeout = 10);

static bool rendered(const char *line)
{
    buf_clear(&out);
    metrics_render(&out);
    return strstr(buf_text(&out), line) != NULL;
}

Test(metrics, counters_and_gauges)
{
    metric_add(METRIC_HTTP_REQUESTS, LABELS("/healthz", "GET", "200"), 1);
    metric_add(METRIC_HTTP_REQUESTS, LABELS("/healthz", "GET", "200"), 2);
    metric_add(METRIC_HTTP_REQUESTS, LABELS("/healthz", "HEAD", "200"), 1);
    metric_set(METRIC_LEASES, LABELS("local"), 12.5);
    metric_set(METRIC_HTTP_CONNECTIONS, NULL, 3);
    metric_add(METRIC_HTTP_CONNECTIONS, NULL, -1);
    cr_assert(eq(dbl, metric_value(METRIC_HTTP_REQUESTS, LABELS("/healthz", "GET", "200")), 3));
    cr_assert(eq(dbl, metric_value(METRIC_HTTP_REQUESTS, LABELS("/x", "GET", "200")), 0));
    cr_assert(eq(dbl, metric_value(METRIC_HTTP_CONNECTIONS, NULL), 2));
    cr_assert(rendered("# TYPE bindery_http_requests_total counter\n"
                       "bindery_http_requests_total{route=\"/healthz\",method=\"GET\","
                       "status=\"200\"} 3\n"
                       "bindery_http_requests_total{route=\"/healthz\",method=\"HEAD\","
                       "status=\"200\"} 1\n"));
    cr_assert(rendered("\nbindery_leases{backend=\"local\"} 12.5\n"));
    cr_assert(rendered("\nbindery_http_connections 2\n"));
}

Test(metrics, what_has_no_labels_is_shown_as_zero)
{
    cr_assert(rendered("\nbindery_http_client_disconnects_total 0\n"));
    cr_assert(rendered("\nbindery_loop_turn_seconds_count 0\n"));
}

Test(metrics, label_values_are_escaped)
{
    metric_add(METRIC_ERRORS, LABELS("a\"b\\c\nd\xFF"), 1);
    cr_assert(rendered("\nbindery_errors_total{code=\"a\\\"b\\\\c\\nd\xEF\xBF\xBD\"} 1\n"));
}

Test(metrics, missing_values_are_empty)
{
    metric_add(METRIC_HTTP_REQUESTS, LABELS("/a", NULL), 1);
    metric_add(METRIC_HTTP_REQUESTS, LABELS("/a", "", ""), 1);
    cr_assert(rendered("{route=\"/a\",method=\"\",status=\"\"} 2\n"));
}

Test(metrics, values_do_not_run_into_each_other)
{
    metric_add(METRIC_HTTP_REQUESTS, LABELS("ab", "c", ""), 1);
    metric_add(METRIC_HTTP_REQUESTS, LABELS("a", "bc", ""), 1);
    cr_assert(eq(dbl, metric_value(METRIC_HTTP_REQUESTS, LABELS("ab", "c", "")), 1));
    cr_assert(eq(dbl, metric_value(METRIC_HTTP_REQUESTS, LABELS("a", "bc", "")), 1));
}

Test(metrics, histograms)
{
    struct metric_series *s = metric_series(METRIC_HTTP_SECONDS, LABELS("/r"));

    metric_series_observe_us(s, 100); /* on a bound: counts there */
    metric_series_observe_us(s, 101);
    metric_series_observe_us(s, 20000);
    metric_series_observe_us(s, 300000001); /* beyond the last */
    metric_observe_us(METRIC_HTTP_SECONDS, LABELS("/r"), 0);
    cr_assert(eq(dbl, metric_value(METRIC_HTTP_SECONDS, LABELS("/r")), 5));
    cr_assert(rendered("\nbindery_http_request_seconds_bucket{route=\"/r\",le=\"0.0001\"} 2\n"));
    cr_assert(rendered("_bucket{route=\"/r\",le=\"0.0002\"} 3\n"));
    cr_assert(rendered("_bucket{route=\"/r\",le=\"0.01\"} 3\n"));
    cr_assert(rendered("_bucket{route=\"/r\",le=\"0.02\"} 4\n"));
    cr_assert(rendered("_bucket{route=\"/r\",le=\"300\"} 4\n"));
    cr_assert(rendered("_bucket{route=\"/r\",le=\"+Inf\"} 5\n"));
    cr_assert(rendered("\nbindery_http_request_seconds_sum{route=\"/r\"} 300.020202\n"));
    cr_assert(rendered("\nbindery_http_request_seconds_count{route=\"/r\"} 5\n"));
    metric_observe_us(METRIC_LOOP_TURN_SECONDS, NULL, 1);
    cr_assert(rendered("\nbindery_loop_turn_seconds_bucket{le=\"0.0001\"} 1\n"));
}

Test(metrics, a_series_stays_valid_and_is_the_same)
{
    struct metric_series *s = metric_series(METRIC_ERRORS, LABELS("x"));

    cr_assert(eq(ptr, metric_series(METRIC_ERRORS, LABELS("x")), s));
    metric_series_add(s, 4);
    cr_assert(eq(dbl, metric_value(METRIC_ERRORS, LABELS("x")), 4));
}

Test(metrics, too_many_series_become_other)
{
    for (int i = 0; i < 1500; i++) {
        char value[16];
        snprintf(value, sizeof(value), "%d", i);
        metric_add(METRIC_ERRORS, LABELS(value), 1);
    }
    cr_assert(eq(dbl, metric_value(METRIC_ERRORS, LABELS("999")), 1));
    cr_assert(eq(dbl, metric_value(METRIC_ERRORS, LABELS("1000")), 0));
    cr_assert(eq(dbl, metric_value(METRIC_ERRORS, LABELS("other")), 500));
}

static void refresh(void *ctx)
{
    metric_set(METRIC_HTTP_IN_FLIGHT, NULL, *(int *)ctx);
}

Test(metrics, hooks_refresh_before_each_rendering)
{
    int value = 7;

    metrics_on_render(refresh, &value);
    cr_assert(rendered("\nbindery_http_requests_in_flight 7\n"));
    value = 8;
    cr_assert(rendered("\nbindery_http_requests_in_flight 8\n"));
}
