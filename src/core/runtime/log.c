#include "core/runtime/log.h"

#include "core/runtime/buf.h"
#include "core/runtime/json.h"
#include "core/runtime/loop.h"
#include "core/runtime/metrics.h"
#include "core/runtime/utc.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    PENDING_MAX = 256 * 1024, /* bytes that wait for a slow reader; beyond, lines are dropped */
    RETRY_MS = 50,            /* next look at a reader that took nothing */
    FLUSH_WAIT_MS = 2000,     /* at exit: longest wait for a reader that takes nothing */
    SECRET_MIN = 4,           /* anything shorter would blank out ordinary words */
};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

static struct {
    enum log_level level;
    enum log_format format;
    struct loop *loop;
    struct turn_hook hook;
    struct timer retry;
    struct buf pending;
    uint64_t dropped;
    uint64_t dropped_unsaid; /* not yet told by a line of its own */
    char **secrets;          /* longest first, so that one inside another leaves no rest */
    size_t n_secrets, shortest_secret;
} logger = {.level = LOG_INFO};

/* ---- redaction ------------------------------------------------------------------------------- */

void log_redact(const char *secret)
{
    size_t len = secret == NULL ? 0 : strlen(secret);
    size_t at = 0;

    if (len < SECRET_MIN)
        return;
    while (at < logger.n_secrets && strlen(logger.secrets[at]) >= len) {
        if (strcmp(logger.secrets[at], secret) == 0)
            return;
        at++;
    }
    logger.secrets = xrealloc(logger.secrets, (logger.n_secrets + 1) * sizeof(*logger.secrets));
    memmove(logger.secrets + at + 1, logger.secrets + at,
            (logger.n_secrets - at) * sizeof(*logger.secrets));
    logger.secrets[at] = xstrdup(secret);
    logger.n_secrets++;
    logger.shortest_secret = strlen(logger.secrets[logger.n_secrets - 1]);
}

/* The last secret is the shortest: most values are shorter, and hold none. */
static bool too_short_for_a_secret(size_t len)
{
    return logger.n_secrets == 0 || len < logger.shortest_secret;
}

void log_scrub(char *text)
{
    if (too_short_for_a_secret(strlen(text)))
        return;
    for (size_t i = 0; i < logger.n_secrets; i++) {
        size_t len = strlen(logger.secrets[i]);
        for (char *at = text; (at = strstr(at, logger.secrets[i])) != NULL; at += 3) {
            at[0] = at[1] = at[2] = '*';
            memmove(at + 3, at + len, strlen(at + len) + 1);
        }
    }
}

/* ---- output ---------------------------------------------------------------------------------- */

/* Write what the reader takes without blocking. A pipe that polls writable takes PIPE_BUF bytes at
 * once. False when the reader is slow. */
static bool write_some(int wait_ms)
{
    size_t at = 0;

    while (at < logger.pending.len) {
        struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
        size_t rest = logger.pending.len - at;
        ssize_t n;
        if (poll(&p, 1, wait_ms) <= 0)
            break;
        n = write(STDERR_FILENO, logger.pending.data + at, rest < PIPE_BUF ? rest : PIPE_BUF);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) { /* nobody will ever read it */
            buf_clear(&logger.pending);
            return true;
        }
        at += (size_t)n;
    }
    buf_drain(&logger.pending, at);
    return logger.pending.len == 0;
}

static void on_turn_end(void *ctx)
{
    (void)ctx;
    if (!write_some(0))
        timer_set_ms(logger.loop, &logger.retry, RETRY_MS);
}

static void on_retry(void *ctx)
{
    (void)ctx;
    loop_at_turn_end(logger.loop, &logger.hook);
}

void log_init(enum log_level level, enum log_format format, struct loop *loop)
{
    if (logger.loop != NULL) {
        turn_hook_cancel(&logger.hook);
        timer_cancel(logger.loop, &logger.retry);
    }
    logger.level = level;
    logger.format = format;
    logger.loop = loop;
    turn_hook_init(&logger.hook, on_turn_end, NULL);
    timer_init(&logger.retry, on_retry, NULL);
    if (loop == NULL)
        log_flush();
    else if (logger.pending.len != 0)
        loop_at_turn_end(loop, &logger.hook);
}

void log_flush(void)
{
    (void)write_some(FLUSH_WAIT_MS);
}

bool log_enabled(enum log_level level)
{
    return level >= logger.level;
}

uint64_t log_dropped(void)
{
    return logger.dropped;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* What a terminal would act on although JSON lets it pass: DEL and the C1 controls (U+0080-9F). */
static void blunt(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c != '\0'; c++) {
        if (*c == 0x7F)
            *c = '?';
        else if (*c == 0xC2 && c[1] >= 0x80 && c[1] <= 0x9F)
            c[0] = c[1] = '?';
    }
}

/* Stands for itself in either format, without quotes in logfmt: printable ASCII but space, = " and backslash. */
static bool is_plain(unsigned char c)
{
    return c > ' ' && c < 0x7F && c != '"' && c != '=' && c != '\\';
}

/* How many bytes at the start are plain. By table: every value of every line passes here. */
static size_t plain_length(const char *text)
{
    static bool plain[256];
    const unsigned char *at = (const unsigned char *)text;

    if (!plain['a']) {
        for (int c = 0; c < 256; c++)
            plain[c] = is_plain((unsigned char)c);
    }
    while (plain[*at])
        at++;
    return (size_t)(at - (const unsigned char *)text);
}

/* Redacted and made harmless; in quotes where the format asks for them. */
static void add_value(struct buf *line, const char *value, bool json)
{
    static struct buf clean; /* kept for the next value */

    buf_clear(&clean);
    buf_adds(&clean, value);
    if (clean.len != 0) {
        log_scrub(clean.data);
        blunt(clean.data);
    }
    value = buf_text(&clean);
    if (json || *value == '\0' || value[plain_length(value)] != '\0')
        json_string(&(struct json_writer){.out = line}, value);
    else
        buf_adds(line, value);
}

static void add_field(struct buf *line, const char *key, const char *value)
{
    bool json = logger.format == LOG_JSON;
    size_t plain = plain_length(value);

    if (line->len != 0)
        buf_addc(line, json ? ',' : ' ');
    if (json)
        buf_addc(line, '"');
    buf_adds(line, key);
    buf_adds(line, json ? "\":" : "=");
    if (plain == 0 || value[plain] != '\0' || !too_short_for_a_secret(plain)) {
        add_value(line, value, json);
        return;
    }
    if (json)
        buf_addc(line, '"');
    buf_add(line, value, plain);
    if (json)
        buf_addc(line, '"');
}

static int64_t wall_ms(void)
{
    struct timespec now;

    if (logger.loop != NULL)
        return loop_wall_ms(logger.loop);
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void queue_line(enum log_level level, const struct log_field *fields, const char *message)
{
    static struct buf line;
    char time_text[UTC_TEXT_MAX];

    buf_clear(&line);
    utc_format_ms(wall_ms(), time_text);
    add_field(&line, "time", time_text);
    add_field(&line, "level", level_names[level]);
    add_field(&line, "msg", message);
    for (; fields != NULL && fields->key != NULL; fields++) {
        if (fields->value != NULL)
            add_field(&line, fields->key, fields->value);
    }
    if (logger.pending.len != 0 && logger.pending.len + line.len > PENDING_MAX) {
        logger.dropped++;
        logger.dropped_unsaid++;
        metric_add(METRIC_LOG_DROPPED, NULL, 1);
        return;
    }
    buf_reserve(&logger.pending, line.len + 3);
    if (logger.format == LOG_JSON)
        buf_addc(&logger.pending, '{');
    buf_add(&logger.pending, line.data, line.len);
    buf_adds(&logger.pending, logger.format == LOG_JSON ? "}\n" : "\n");
}

/* Once there is room again, say what is missing. */
static void confess_dropped(void)
{
    char message[64];

    if (logger.dropped_unsaid == 0 || logger.pending.len > PENDING_MAX / 2)
        return;
    snprintf(message, sizeof(message), "%llu log lines were dropped: their reader was too slow",
             (unsigned long long)logger.dropped_unsaid);
    logger.dropped_unsaid = 0;
    queue_line(LOG_WARN, NULL, message);
}

void log_write(enum log_level level, const struct log_field *fields, const char *format, ...)
{
    static struct buf message;
    va_list args;

    if (!log_enabled(level))
        return;
    buf_clear(&message);
    va_start(args, format);
    if (strcmp(format, "%s") == 0) /* what LOG_WITH gives: no formatting on the way of requests */
        buf_adds(&message, va_arg(args, const char *));
    else
        buf_vaddf(&message, format, args);
    va_end(args);
    confess_dropped();
    queue_line(level, fields, buf_text(&message));
    if (logger.loop == NULL)
        (void)write_some(FLUSH_WAIT_MS);
    else if (!timer_armed(&logger.retry))
        loop_at_turn_end(logger.loop, &logger.hook);
}
