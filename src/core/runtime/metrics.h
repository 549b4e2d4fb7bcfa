/* Counters, gauges and histograms from metrics.def, and their Prometheus text. Single-threaded. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/** Metric symbols, in the order of metrics.def. */
enum metric {
#define COUNTER(symbol, name, labels, help)   METRIC_##symbol,
#define GAUGE(symbol, name, labels, help)     METRIC_##symbol,
#define HISTOGRAM(symbol, name, labels, help) METRIC_##symbol,
#include "core/runtime/metrics.def"
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
    METRIC_COUNT
};

struct buf;

/** Up to four label values, in the order of the metric's keys; NULL for missing ones. The pair
 * (metric, values) names a series; series are created on first use and live for ever, so values
 * must come from closed sets. Beyond 1,000 series of a metric, values read `other`. */
struct metric_labels {
    const char *values[4];
};

#define LABELS(...) (&(const struct metric_labels){{__VA_ARGS__}})

/** `labels` NULL for a metric without labels. */
void metric_add(enum metric metric, const struct metric_labels *labels, double amount);
void metric_set(enum metric metric, const struct metric_labels *labels, double value);
/** Histogram only. */
void metric_observe_us(enum metric metric, const struct metric_labels *labels, int64_t us);

/** A series resolved once, for hot paths: no lookup on use. Valid for the process's life. */
struct metric_series;
struct metric_series *metric_series(enum metric metric, const struct metric_labels *labels);
void metric_series_add(struct metric_series *series, double amount);
void metric_series_observe_us(struct metric_series *series, int64_t us);

/** Current value of a counter or gauge series, count of a histogram; 0 when unknown. For tests. */
double metric_value(enum metric metric, const struct metric_labels *labels);

/** Register a function that refreshes gauges right before each rendering. */
void metrics_on_render(void (*refresh)(void *ctx), void *ctx);

/** Prometheus text format 0.0.4 of everything. */
void metrics_render(struct buf *out);

/** Forget all series and hooks; for tests. */
void metrics_reset(void);
