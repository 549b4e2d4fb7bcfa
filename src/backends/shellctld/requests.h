/* The request bodies and queries of shellctl's API (shellctl protocol section 4), decoded and with
 * the defaults in place. Unknown keys are ignored, and so is what follows the first JSON value, as
 * the protocol has it. Texts live in the arena. */
#pragma once

#include "core/runtime/arena.h"
#include "core/runtime/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct exchange;

/** What wait, and the end of run and input, are asked for. */
struct wait_request {
    int64_t offset;
    int64_t timeout_ms;    /* <= 0: one look */
    int64_t output_limit;  /* bytes, > 0 */
    int64_t idle_flush_ms; /* < 0: as soon as there is a byte */
};

struct run_request {
    const char *script;
    const char *cwd;        /* NULL or "" = default */
    const char *const *env; /* NAME, value, NAME, value, …, NULL */
    int cols, rows;
    bool stdio;
    struct wait_request wait; /* its offset is 0 */
};

struct input_request {
    const char *text;
    size_t text_len; /* may hold NULs */
    struct wait_request wait;
};

/** Each decodes the exchange's body. False with the fault INVALID_REQUEST (not decodable, no
 * script) or VALIDATION (environment, mode, terminal). */
bool request_read_run(const struct exchange *x, struct run_request *ret,
                      struct error *err) MUST_CHECK;
bool request_read_wait(const struct exchange *x, struct wait_request *ret,
                       struct error *err) MUST_CHECK;
bool request_read_input(const struct exchange *x, struct input_request *ret,
                        struct error *err) MUST_CHECK;

/** Grace of a terminate body; anything that cannot be read is the default of 10 s. */
int64_t request_read_grace_ms(const struct exchange *x);

/** Grace of a delete's query, likewise. */
int64_t request_query_grace_ms(const struct exchange *x);

/** A query parameter that counts something: unparsable or <= 0 is `fallback`, capped at `max`. */
int64_t request_query_count(const struct exchange *x, const char *name, int64_t fallback,
                            int64_t max);
