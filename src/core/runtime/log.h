/* Structured log lines on stderr: one line per event, logfmt or JSON, never a secret.
 *
 * Context comes as fields. Leaf code returns errors and does not log; an operation's owner logs
 * once when it ends. Writing never blocks the loop: lines collect in a buffer that is written
 * at the end of the turn; when the reader of a pipe is too slow, lines are dropped and counted. */
#pragma once

#include "core/runtime/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_LOGFMT, LOG_JSON };

struct loop;

/** One field of a line: a NULL value is left out. Values are quoted and escaped as needed; control
 * characters never reach the output raw. */
struct log_field {
    const char *key;
    const char *value;
};

/** Set level and format; with `loop` lines are written at the end of its turns, without (NULL) at
 * once. Callable again. */
void log_init(enum log_level level, enum log_format format, struct loop *loop);

bool log_enabled(enum log_level level);

/** Register a secret: every later occurrence in any value or message is replaced by `***`. Values
 * shorter than 4 bytes are ignored. Copies. */
void log_redact(const char *secret);

/** Replace the secrets registered by log_redact in `text`, in place. For error messages too. */
void log_scrub(char *text);

/** Write one line. `fields` ends with a {NULL, NULL} or may be NULL. */
void log_write(enum log_level level, const struct log_field *fields, const char *format, ...)
    PRINTF_LIKE(3, 4);

#define log_debug(...) log_write(LOG_DEBUG, NULL, __VA_ARGS__)
#define log_info(...)  log_write(LOG_INFO, NULL, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, NULL, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, NULL, __VA_ARGS__)
/** Fields as a brace-less list: LOG_WITH(LOG_WARN, "text", {"op", name}, {"code", code}). */
#define LOG_WITH(level, message, ...)                                                              \
    log_write((level), (const struct log_field[]){__VA_ARGS__, {NULL, NULL}}, "%s", (message))

/** Everything buffered goes out now, waiting if it must. At exit only. */
void log_flush(void);

/** Lines dropped so far. */
uint64_t log_dropped(void);
