#include "bench.h"

#include "commands.h"
#include "core/runtime/json.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: bindery bench [--url URL | --gateway URL] [options]\n"
    "\n"
    "  --url URL            a Bindery (default http://127.0.0.1:5050)\n"
    "  --gateway URL        an Enterprise gateway: the two raw requests of one lease cycle\n"
    "  --scenario NAME      churn (default), lifecycle or fanout\n"
    "  --connections N      cycles at once (default 16)\n"
    "  --rate R             open loop: R cycles a second, latency from the intended start\n"
    "  --duration S         seconds in which cycles start (default 10)\n"
    "  --warmup S           seconds before that which do not count (default 1)\n"
    "  --cycles N           stop after N cycles\n"
    "  --target REF         use this binding_ref (sandbox id with --gateway) and keep it\n"
    "  --json               one JSON object in place of the table\n"
    "\n"
    "The token comes from BINDERY_BENCH_TOKEN, never from the command line.\n";

static const char *const scenario_names[] = {"churn", "lifecycle", "fanout", "gateway"};

/* ---- report ---------------------------------------------------------------------------------- */

static double cycles_per_s(const struct bench_result *r)
{
    return r->elapsed_us > 0 ? (double)r->cycles * 1e6 / (double)r->elapsed_us : 0;
}

static const double percents[] = {50, 90, 99, 99.9, 100};
static const char *const percent_names[] = {"p50", "p90", "p99", "p99.9", "max"};

static void table_row(const char *name, const struct bench_histogram *h)
{
    printf("  %-10s", name);
    for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++)
        printf(" %10.3f", (double)bench_histogram_percentile_us(h, percents[i]) / 1000);
    printf("\n");
}

static void report_table(const struct bench_options *o, const struct bench_result *r)
{
    printf("%s at %s: %d at once, %s\n", scenario_names[o->scenario], o->url, o->connections,
           o->rate > 0 ? "open loop" : "closed loop");
    printf("  %.1f cycles/s, %" PRIu64 " done, %" PRIu64 " failed, in %.2f s\n", cycles_per_s(r),
           r->cycles, r->failed, (double)r->elapsed_us / 1e6);
    printf("  %-10s", "ms");
    for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++)
        printf(" %10s", percent_names[i]);
    printf("\n");
    table_row(o->scenario == BENCH_LIFECYCLE ? "create" : "acquire", &r->first);
    table_row("cycle", &r->cycle);
    for (int i = 0; i < r->n_errors; i++)
        printf("  error %-32s %" PRIu64 "\n", r->errors[i].code, r->errors[i].count);
}

static void json_histogram(struct json_writer *w, const char *key, const struct bench_histogram *h)
{
    json_key(w, key);
    json_object_begin(w);
    for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++)
        json_member_int(w, percent_names[i], bench_histogram_percentile_us(h, percents[i]));
    json_object_finish(w);
}

static void report_json(const struct bench_options *o, const struct bench_result *r)
{
    struct buf out = {0};
    struct json_writer w = {.out = &out};

    json_object_begin(&w);
    json_member_string(&w, "scenario", scenario_names[o->scenario]);
    json_member_string(&w, "url", o->url);
    json_member_int(&w, "connections", o->connections);
    json_key(&w, "rate");
    json_double(&w, o->rate);
    json_member_int(&w, "cycles", (int64_t)r->cycles);
    json_member_int(&w, "failed", (int64_t)r->failed);
    json_member_int(&w, "elapsed_us", r->elapsed_us);
    json_key(&w, "cycles_per_second");
    json_double(&w, cycles_per_s(r));
    json_histogram(&w, o->scenario == BENCH_LIFECYCLE ? "create_us" : "acquire_us", &r->first);
    json_histogram(&w, "cycle_us", &r->cycle);
    json_key(&w, "errors");
    json_object_begin(&w);
    for (int i = 0; i < r->n_errors; i++)
        json_member_int(&w, r->errors[i].code, (int64_t)r->errors[i].count);
    json_object_finish(&w);
    json_object_finish(&w);
    printf("%s\n", buf_text(&out));
    buf_fini(&out);
}

void bench_report(const struct bench_options *options, const struct bench_result *result)
{
    if (options->json)
        report_json(options, result);
    else
        report_table(options, result);
}

/* ---- options --------------------------------------------------------------------------------- */

static bool parse_number(const char *text, double min, double max, double *ret)
{
    char *end = NULL;

    errno = 0;
    *ret = strtod(text, &end);
    return errno == 0 && end != text && *end == '\0' && *ret >= min && *ret <= max;
}

static bool parse_scenario(const char *name, enum bench_scenario *ret)
{
    for (int i = BENCH_CHURN; i <= BENCH_FANOUT; i++) {
        if (strcmp(name, scenario_names[i]) == 0) {
            *ret = (enum bench_scenario)i;
            return true;
        }
    }
    return false;
}

enum option_key {
    KEY_URL = 1,
    KEY_GATEWAY,
    KEY_SCENARIO,
    KEY_CONNECTIONS,
    KEY_RATE,
    KEY_DURATION,
    KEY_WARMUP,
    KEY_CYCLES,
    KEY_TARGET,
    KEY_JSON,
    KEY_HELP,
};

static const struct option option_table[] = {
    {"url", required_argument, NULL, KEY_URL},
    {"gateway", required_argument, NULL, KEY_GATEWAY},
    {"scenario", required_argument, NULL, KEY_SCENARIO},
    {"connections", required_argument, NULL, KEY_CONNECTIONS},
    {"rate", required_argument, NULL, KEY_RATE},
    {"duration", required_argument, NULL, KEY_DURATION},
    {"warmup", required_argument, NULL, KEY_WARMUP},
    {"cycles", required_argument, NULL, KEY_CYCLES},
    {"target", required_argument, NULL, KEY_TARGET},
    {"json", no_argument, NULL, KEY_JSON},
    {"help", no_argument, NULL, KEY_HELP},
    {NULL, 0, NULL, 0},
};

static bool take_option(int key, const char *value, struct bench_options *o)
{
    double number = 0;

    switch (key) {
    case KEY_URL:
    case KEY_GATEWAY:
        o->url = value;
        if (key == KEY_GATEWAY)
            o->scenario = BENCH_GATEWAY;
        return strncmp(value, "http://", 7) == 0 || strncmp(value, "https://", 8) == 0;
    case KEY_SCENARIO:
        return parse_scenario(value, &o->scenario);
    case KEY_CONNECTIONS:
        if (!parse_number(value, 1, 60000, &number))
            return false;
        o->connections = (int)number;
        return true;
    case KEY_RATE:
        return parse_number(value, 0.001, 1e6, &o->rate);
    case KEY_DURATION:
        if (!parse_number(value, 0.01, 86400, &number))
            return false;
        o->duration_ms = (int64_t)(number * 1000);
        return true;
    case KEY_WARMUP:
        if (!parse_number(value, 0, 3600, &number))
            return false;
        o->warmup_ms = (int64_t)(number * 1000);
        return true;
    case KEY_CYCLES:
        if (!parse_number(value, 1, 1e12, &number))
            return false;
        o->max_cycles = (int64_t)number;
        return true;
    case KEY_TARGET:
        o->target = value;
        return true;
    case KEY_JSON:
        o->json = true;
        return true;
    default:
        return false;
    }
}

int bench_main(int argc, char **argv)
{
    struct bench_options o = {
        .url = "http://127.0.0.1:5050",
        .token = getenv("BINDERY_BENCH_TOKEN"),
        .connections = 16,
        .duration_ms = 10000,
        .warmup_ms = 1000,
    };
    struct bench_result *result;
    struct error err;
    int key, code;

    while ((key = getopt_long(argc, argv, "", option_table, NULL)) != -1) {
        if (key == KEY_HELP) {
            fputs(usage, stdout);
            return 0;
        }
        if (key == '?' || !take_option(key, optarg, &o)) {
            if (key != '?')
                fprintf(stderr, "bindery bench: bad value for an option: %s\n",
                        optarg != NULL ? optarg : "");
            fputs(usage, stderr);
            return EXIT_USAGE;
        }
    }
    if (optind != argc) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    result = xcalloc(1, sizeof(*result));
    if (!bench_run(&o, result, &err)) {
        fprintf(stderr, "bindery bench: %s\n", err.message);
        code = 1;
    } else {
        bench_report(&o, result);
        code = result->failed == 0 && result->cycles > 0 ? 0 : 1;
    }
    free(result);
    return code;
}
