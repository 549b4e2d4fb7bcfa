/* Failures: one table of codes, one value type. The first failure of an operation wins. */
#pragma once

#include "core/runtime/check.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

/** Codes; ERR_NONE is success. From error_codes.def, in its order. */
enum err_code {
    ERR_NONE = 0,
#define ERR(symbol, wire, status, retryable, meaning, todo) ERR_##symbol,
#include "core/runtime/error_codes.def"
#undef ERR
    ERR_COUNT
};

/** Whether the remote effect of a failed request took place (design 3: `admitted`). */
enum err_admitted {
    ADMITTED_NO = 0, /* certainly not: safe to repeat */
    ADMITTED_UNKNOWN,
    ADMITTED_YES,
};

/** Room for a person's message; a longer one is cut at a character boundary and ends in "...". */
enum { ERROR_MESSAGE_MAX = 480, ERROR_UPSTREAM_CODE_MAX = 48 };

/** One failure. A value: copy it freely. All-zero means success. */
struct error {
    enum err_code code;
    enum err_admitted admitted;
    int upstream_status;                         /* the peer's HTTP or gRPC status; 0 = none */
    int64_t retry_after_ms;                      /* 0 = nothing said */
    char upstream_code[ERROR_UPSTREAM_CODE_MAX]; /* the peer's own code, e.g. `sandbox_expired` */
    char message[ERROR_MESSAGE_MAX];             /* what failed, where, what to do; no secrets */
};

/** No error. */
extern const struct error error_none;

/** What the table says of a code. Valid for every enum value. */
struct err_info {
    const char *symbol; /* "BINDING_LOST" */
    const char *wire;   /* "binding_lost" */
    int http_status;    /* 404 */
    bool retryable;
    const char *meaning; /* for a person */
    const char *todo;    /* what to do about it */
};

const struct err_info *err_info(enum err_code code);

/** Wire name of a code, "ok" for ERR_NONE. */
const char *err_wire(enum err_code code);

/** Set `err` to `code` with a formatted message and everything else zero. `err` may be NULL. */
void error_set(struct error *err, enum err_code code, const char *format, ...) PRINTF_LIKE(3, 4);

void error_vset(struct error *err, enum err_code code, const char *format, va_list args)
    PRINTF_LIKE(3, 0);

/** Change the code and put a prefix in front of the message; keeps the upstream fields. */
void error_wrap(struct error *err, enum err_code code, const char *format, ...) PRINTF_LIKE(3, 4);

static inline bool error_is(const struct error *err)
{
    return err->code != ERR_NONE;
}

static inline void error_clear(struct error *err)
{
    *err = (struct error){0};
}
