#include "core/runtime/metrics.h"

#include "core/runtime/buf.h"
#include "core/runtime/check.h"
#include "core/runtime/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { KIND_COUNTER, KIND_GAUGE, KIND_HISTOGRAM };
enum { LABELS_MAX = 4, SERIES_PER_METRIC_MAX = 1000, HASH_SLOTS = 1024, HOOKS_MAX = 16 };

static const struct metric_info {
    enum kind kind;
    const char *name, *labels, *help;
} infos[METRIC_COUNT] = {
#define COUNTER(symbol, name, labels, help) [METRIC_##symbol] = {KIND_COUNTER, name, labels, help},
#define GAUGE(symbol, name, labels, help)   [METRIC_##symbol] = {KIND_GAUGE, name, labels, help},
#define HISTOGRAM(symbol, name, labels, help)                                                      \
    [METRIC_##symbol] = {KIND_HISTOGRAM, name, labels, help},
#include "core/runtime/metrics.def"
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
};

/* Upper bounds of the buckets: from a cached answer to the longest wait for a sandbox (300 s). 20
 * ms is there because it is the limit for a turn of the loop. */
static const int64_t bounds_us[] = {
    100,    200,    500,     1000,    2000,    5000,     10000,    20000,    50000,     100000,
    200000, 500000, 1000000, 2000000, 5000000, 10000000, 30000000, 60000000, 120000000, 300000000,
};

enum { BOUNDS = sizeof(bounds_us) / sizeof(*bounds_us) };

struct histogram {
    uint64_t buckets[BOUNDS + 1]; /* not cumulated; the last is beyond all bounds */
    uint64_t count;
    int64_t sum_us;
};

struct metric_series {
    struct metric_series *next_same_hash;
    struct metric_series *next; /* of the metric, in order of creation */
    enum metric metric;
    uint64_t hash;
    double value;
    struct histogram *histogram; /* NULL unless it is one */
    const char *labels[LABELS_MAX];
};

static struct {
    struct metric_series *by_hash[HASH_SLOTS];
    struct metric_series *first[METRIC_COUNT], *last[METRIC_COUNT];
    int count[METRIC_COUNT];
    struct {
        void (*refresh)(void *ctx);
        void *ctx;
    } hooks[HOOKS_MAX];
    int n_hooks;
} registry;

/* ---- series ---------------------------------------------------------------------------------- */

static int label_count(enum metric metric)
{
    const char *keys = infos[metric].labels;
    int count = *keys != '\0';

    for (; *keys != '\0'; keys++)
        count += *keys == ',';
    return count;
}

/* FNV-1a over the metric's number and the values, each with its end. */
static uint64_t hash_of(enum metric metric, const char *const *values, int n)
{
    uint64_t hash = UINT64_C(14695981039346656037) ^ (uint64_t)metric;

    for (int i = 0; i < n; i++) {
        const char *value = values[i];
        do {
            hash = (hash ^ (unsigned char)*value) * UINT64_C(1099511628211);
        } while (*value++ != '\0');
    }
    return hash ^ hash >> 32;
}

static struct metric_series *series_find(enum metric metric, const char *const *values, int n,
                                         uint64_t hash)
{
    for (struct metric_series *s = registry.by_hash[hash % HASH_SLOTS]; s != NULL;
         s = s->next_same_hash) {
        bool same = s->hash == hash && s->metric == metric;
        for (int i = 0; i < n && same; i++)
            same = strcmp(s->labels[i], values[i]) == 0;
        if (same)
            return s;
    }
    return NULL;
}

static struct metric_series *series_make(enum metric metric, const char *const *values, int n,
                                         uint64_t hash)
{
    struct metric_series *s = xcalloc(1, sizeof(*s));
    struct metric_series **slot = &registry.by_hash[hash % HASH_SLOTS];

    s->metric = metric;
    s->hash = hash;
    for (int i = 0; i < n; i++)
        s->labels[i] = xstrdup(values[i]);
    if (infos[metric].kind == KIND_HISTOGRAM)
        s->histogram = xcalloc(1, sizeof(*s->histogram));
    s->next_same_hash = *slot;
    *slot = s;
    if (registry.first[metric] == NULL)
        registry.first[metric] = s;
    else
        registry.last[metric]->next = s;
    registry.last[metric] = s;
    registry.count[metric]++;
    return s;
}

/* The values that name a series: as many as the metric has keys, none of them NULL. */
static int label_values(enum metric metric, const struct metric_labels *labels,
                        const char *ret_values[LABELS_MAX])
{
    int n = label_count(metric);

    PRE(metric >= 0 && metric < METRIC_COUNT && n <= LABELS_MAX);
    for (int i = 0; i < n; i++)
        ret_values[i] = labels == NULL || labels->values[i] == NULL ? "" : labels->values[i];
    return n;
}

struct metric_series *metric_series(enum metric metric, const struct metric_labels *labels)
{
    const char *values[LABELS_MAX];
    int n = label_values(metric, labels, values);
    uint64_t hash = hash_of(metric, values, n);
    struct metric_series *s = series_find(metric, values, n, hash);

    if (s != NULL)
        return s;
    if (registry.count[metric] >= SERIES_PER_METRIC_MAX) {
        for (int i = 0; i < n; i++)
            values[i] = "other";
        hash = hash_of(metric, values, n);
        s = series_find(metric, values, n, hash);
    }
    return s != NULL ? s : series_make(metric, values, n, hash);
}

/* ---- use ------------------------------------------------------------------------------------- */

void metric_series_add(struct metric_series *series, double amount)
{
    PRE(series->histogram == NULL);
    series->value += amount;
}

void metric_series_observe_us(struct metric_series *series, int64_t us)
{
    struct histogram *h = series->histogram;
    int bucket = 0;

    PRE(h != NULL);
    while (bucket < BOUNDS && us > bounds_us[bucket])
        bucket++;
    h->buckets[bucket]++;
    h->count++;
    h->sum_us += us;
}

void metric_add(enum metric metric, const struct metric_labels *labels, double amount)
{
    metric_series_add(metric_series(metric, labels), amount);
}

void metric_set(enum metric metric, const struct metric_labels *labels, double value)
{
    PRE(infos[metric].kind == KIND_GAUGE);
    metric_series(metric, labels)->value = value;
}

void metric_observe_us(enum metric metric, const struct metric_labels *labels, int64_t us)
{
    metric_series_observe_us(metric_series(metric, labels), us);
}

double metric_value(enum metric metric, const struct metric_labels *labels)
{
    const char *values[LABELS_MAX];
    int n = label_values(metric, labels, values);
    struct metric_series *s = series_find(metric, values, n, hash_of(metric, values, n));

    if (s == NULL)
        return 0;
    return s->histogram != NULL ? (double)s->histogram->count : s->value;
}

void metrics_on_render(void (*refresh)(void *ctx), void *ctx)
{
    PRE(registry.n_hooks < HOOKS_MAX);
    registry.hooks[registry.n_hooks].refresh = refresh;
    registry.hooks[registry.n_hooks].ctx = ctx;
    registry.n_hooks++;
}

void metrics_reset(void)
{
    for (int m = 0; m < METRIC_COUNT; m++) {
        for (struct metric_series *s = registry.first[m], *next; s != NULL; s = next) {
            next = s->next;
            for (int i = 0; i < LABELS_MAX; i++)
                free((char *)s->labels[i]);
            free(s->histogram);
            free(s);
        }
    }
    memset(&registry, 0, sizeof(registry));
}

/* ---- rendering ------------------------------------------------------------------------------- */

/* In help texts and label values a backslash and a line feed are escaped, in values a quote too. */
static void add_escaped(struct buf *out, const char *text)
{
    while (*text != '\0') {
        size_t plain = strcspn(text, "\\\n\"");
        utf8_add(out, text, plain);
        text += plain;
        if (*text == '\0')
            break;
        buf_adds(out, *text == '\n' ? "\\n" : *text == '"' ? "\\\"" : "\\\\");
        text++;
    }
}

static void add_number(struct buf *out, double value)
{
    if (value == floor(value) && fabs(value) < 1e15)
        buf_addf(out, "%" PRId64, (int64_t)value);
    else
        buf_addf(out, "%.17g", value);
}

/* {key="value",…}, with `le` as one more label unless NULL; nothing when there is none. */
static void add_labels(struct buf *out, const struct metric_series *s, const char *le)
{
    const char *key = infos[s->metric].labels;
    char open = '{';

    for (int i = 0; *key != '\0'; i++) {
        size_t len = strcspn(key, ",");
        buf_addc(out, open);
        open = ',';
        buf_add(out, key, len);
        buf_adds(out, "=\"");
        add_escaped(out, s->labels[i]);
        buf_addc(out, '"');
        key += len + (key[len] == ',');
    }
    if (le != NULL) {
        buf_addf(out, "%cle=\"%s\"", open, le);
        open = ',';
    }
    if (open == ',')
        buf_addc(out, '}');
}

static void render_histogram(struct buf *out, const struct metric_series *s)
{
    const struct histogram *h = s->histogram;
    const char *name = infos[s->metric].name;
    uint64_t cumulated = 0;

    for (int i = 0; i <= BOUNDS; i++) {
        char le[24] = "+Inf";
        if (i < BOUNDS)
            snprintf(le, sizeof(le), "%g", (double)bounds_us[i] / 1e6);
        cumulated += h->buckets[i];
        buf_addf(out, "%s_bucket", name);
        add_labels(out, s, le);
        buf_addf(out, " %" PRIu64 "\n", cumulated);
    }
    buf_addf(out, "%s_sum", name);
    add_labels(out, s, NULL);
    buf_addf(out, " %.6f\n%s_count", (double)h->sum_us / 1e6, name);
    add_labels(out, s, NULL);
    buf_addf(out, " %" PRIu64 "\n", h->count);
}

void metrics_render(struct buf *out)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};

    for (int i = 0; i < registry.n_hooks; i++)
        registry.hooks[i].refresh(registry.hooks[i].ctx);
    for (int m = 0; m < METRIC_COUNT; m++) {
        const struct metric_info *info = &infos[m];
        buf_addf(out, "# HELP %s ", info->name);
        add_escaped(out, info->help);
        buf_addf(out, "\n# TYPE %s %s\n", info->name, types[info->kind]);
        if (*info->labels == '\0')
            (void)metric_series((enum metric)m, NULL); /* shown as 0 before its first use */
        for (const struct metric_series *s = registry.first[m]; s != NULL; s = s->next) {
            if (s->histogram != NULL) {
                render_histogram(out, s);
                continue;
            }
            buf_adds(out, info->name);
            add_labels(out, s, NULL);
            buf_addc(out, ' ');
            add_number(out, s->value);
            buf_addc(out, '\n');
        }
    }
}
