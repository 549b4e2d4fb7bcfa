/* One cycle of a benchmark as an operation. */
#pragma once

#include "bench.h"

struct bench;

/** The cycle and what it found. Freed by the engine at the end of the turn in which it is done. */
struct bench_cycle {
    struct op op;
    struct bench *bench;
    int64_t intended_us; /* when it was meant to start */
    int64_t first_us;    /* when its first step was over; 0 = not */
    const char *target;  /* binding_ref or sandbox id */
    const char *workspace_ref;
    const char *lease_id, *job_id;
    struct http_response response;
    char failure[48]; /* code of the first failure; "" = none */
};

/** Parts of the benchmark that a cycle needs. */
struct bench {
    const struct bench_options *options;
    struct loop *loop;
    struct http_client *http;
    struct http_header headers[4];
    size_t n_headers;
    uint64_t serial;
};

/** A cycle that has not started; `target` NULL for scenarios that make their own. */
struct bench_cycle *bench_cycle_new(struct bench *bench, int64_t intended_us, const char *target);

/** Leaf wait: one JSON request of the benchmark, path appended to its URL. */
void bench_fetch(struct bench *bench, struct op *op, const char *method, const char *path,
                 const char *body, struct http_response *ret);

/** The string at `key` of a JSON answer, in the op's arena; NULL when there is none. */
const char *bench_answer_string(struct op *op, const struct http_response *response,
                                const char *key);

/** Write a short code for what went wrong: the answer's own code, `http_<status>`, or `fallback`. */
void bench_failure_code(struct op *op, const struct http_response *response, const char *fallback,
                        char code[48]);
