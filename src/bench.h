/* `bindery bench`: how fast a Bindery, or the gateway behind it, turns leases over.
 *
 * Closed loop: N cycles at once, each followed at once by the next. Open loop: cycles start at a
 * fixed rate whether or not the earlier ones are over, and latency counts from the intended start,
 * so that a stall shows in full. Bounded in count and time. */
#pragma once

#include "core/runtime/http_client.h"

/** A log-linear histogram of microseconds: 64 steps per power of two, so a value is kept within
 * 1.6 %; up to about 19 hours. Plain data, 18 KiB. */
struct bench_histogram {
    uint64_t count;
    int64_t max_us;
    uint64_t bins[36 * 64];
};

void bench_histogram_add(struct bench_histogram *histogram, int64_t us);
/** The value that `percent` of all are not above; 0 when empty. */
int64_t bench_histogram_percentile_us(const struct bench_histogram *histogram, double percent);

/** What one cycle is. */
enum bench_scenario {
    BENCH_CHURN,     /* acquire, release: over as many bindings as connections, at most 1,024 */
    BENCH_LIFECYCLE, /* create, acquire, run a command, release, destroy */
    BENCH_FANOUT,    /* acquire, release: all on one binding */
    BENCH_GATEWAY, /* the two gateway requests of one acquire and release, straight at a gateway */
};

/** What to do; texts are borrowed for the run. */
struct bench_options {
    const char *url;   /* base URL without trailing slash */
    const char *token; /* bearer of the API, or the gateway's key; NULL = none */
    enum bench_scenario scenario;
    int connections;     /* cycles at once */
    double rate;         /* cycles a second; 0 = closed loop */
    int64_t duration_ms; /* no new cycle after this */
    int64_t warmup_ms;   /* cycles that began before this do not count */
    int64_t max_cycles;  /* 0 = only the time bounds the run */
    const char *target;  /* an existing binding_ref or sandbox id; NULL = make and remove own */
    bool json;
};

enum { BENCH_ERROR_KINDS = 32 };

/** What was measured. */
struct bench_result {
    int64_t elapsed_us; /* from the end of the warm-up to the end of the last cycle */
    uint64_t cycles, failed;
    struct bench_histogram cycle; /* from the (intended) start to the end */
    struct bench_histogram first; /* the acquire, or the create in `lifecycle` */
    int n_errors;
    struct {
        char code[48]; /* the answer's code, or `http_<status>`, or the transport's code */
        uint64_t count;
    } errors[BENCH_ERROR_KINDS];
};

/** Run on a loop of its own until done. False with `err` when it could not be set up. */
bool bench_run(const struct bench_options *options, struct bench_result *ret, struct error *err);

/** Human table or JSON on stdout. */
void bench_report(const struct bench_options *options, const struct bench_result *result);
