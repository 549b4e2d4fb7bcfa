/* Log lines into a pipe in place of stderr: form, escaping, redaction, a slow reader. */
#include "core/runtime/log.h"
#include "core/runtime/loop.h"
#include "core/runtime/metrics.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int pipe_fds[2];
static int real_stderr;
static char text[1 << 20];

static void set_up(void)
{
    real_stderr = dup(STDERR_FILENO);
    cr_assert(eq(int, pipe(pipe_fds), 0));
    fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK);
    dup2(pipe_fds[1], STDERR_FILENO);
    close(pipe_fds[1]);
}

static void tear_down(void)
{
    dup2(real_stderr, STDERR_FILENO);
}

TestSuite(log, .init = set_up, .fini = tear_down, .timeout = 20);

/* What came through the pipe since the last call. */
static const char *output(void)
{
    size_t len = 0;
    ssize_t n;

    while ((n = read(pipe_fds[0], text + len, sizeof(text) - 1 - len)) > 0)
        len += (size_t)n;
    text[len] = '\0';
    return text;
}

/* Without the time in front, which is real. */
static const char *line(void)
{
    const char *level = strstr(output(), "level=");

    return level != NULL ? level : text;
}

Test(log, logfmt)
{
    log_info("plain");
    cr_assert(strncmp(output(), "time=20", 7) == 0);
    log_info("plain");
    cr_assert_str_eq(line(), "level=info msg=plain\n");
    LOG_WITH(LOG_WARN, "two words", {"op", "create"}, {"none", NULL}, {"empty", ""},
             {"odd", "a=b \"c\"\n\x1b[31m\\"});
    cr_assert_str_eq(line(), "level=warn msg=\"two words\" op=create empty=\"\" "
                             "odd=\"a=b \\\"c\\\"\\n\\u001b[31m\\\\\"\n");
}

Test(log, json_lines)
{
    log_init(LOG_DEBUG, LOG_JSON, NULL);
    LOG_WITH(LOG_ERROR, "it \"broke\"", {"code", "internal"}, {"raw", "\xFF\x7F\xC2\x9B"});
    cr_assert_str_eq(strstr(output(), "\"level\""),
                     "\"level\":\"error\",\"msg\":\"it \\\"broke\\\"\",\"code\":\"internal\","
                     "\"raw\":\"\xEF\xBF\xBD???\"}\n");
    cr_assert(eq(chr, text[0], '{'));
}

Test(log, levels)
{
    log_debug("not shown");
    log_init(LOG_ERROR, LOG_LOGFMT, NULL);
    log_warn("not shown");
    cr_assert_str_eq(output(), "");
    cr_assert(log_enabled(LOG_ERROR));
    cr_assert(not(log_enabled(LOG_WARN)));
}

Test(log, secrets_never_reach_the_output)
{
    log_redact("abcdef");
    log_redact("abcdefgh");
    log_redact("abcdef");
    log_redact("abc");
    log_redact("");
    log_redact(NULL);
    log_redact("quo\"te");
    log_write(LOG_INFO, (struct log_field[]){{"token", "xabcdefghabcdefx"}, {NULL, NULL}},
              "got %s and %s and abc", "abcdefgh", "quo\"te");
    cr_assert_str_eq(line(), "level=info msg=\"got *** and *** and abc\" token=x******x\n");
}

Test(log, scrub_in_place)
{
    char message[] = "a secret1 b secret1secret1";

    log_redact("secret1");
    log_scrub(message);
    cr_assert_str_eq(message, "a *** b ******");
}

Test(log, lines_wait_for_the_end_of_the_turn)
{
    struct loop *loop = loop_new(&(struct loop_options){.virtual_clock = true});

    log_init(LOG_INFO, LOG_LOGFMT, loop);
    log_info("one");
    log_info("two");
    cr_assert_str_eq(output(), "");
    loop_turn(loop, false);
    cr_assert_str_eq(output(), "time=1970-01-01T00:00:00.000Z level=info msg=one\n"
                               "time=1970-01-01T00:00:00.000Z level=info msg=two\n");
    log_init(LOG_INFO, LOG_LOGFMT, NULL);
    loop_free(loop);
}

Test(log, a_slow_reader_costs_lines_and_never_time)
{
    struct loop *loop = loop_new(&(struct loop_options){.virtual_clock = true});
    char long_text[1001];
    uint64_t dropped;

    memset(long_text, 'x', 1000);
    long_text[1000] = '\0';
    log_init(LOG_INFO, LOG_LOGFMT, loop);
    for (int i = 0; i < 1000; i++) { /* 1 MB: the pipe holds 64 KiB, the buffer 256 KiB */
        log_info("%s", long_text);
        loop_turn(loop, false);
    }
    dropped = log_dropped();
    cr_assert(dropped > 500 && dropped < 800, "%lu dropped", (unsigned long)dropped);
    cr_assert(eq(dbl, metric_value(METRIC_LOG_DROPPED, NULL), (double)dropped));
    for (int i = 0; i < 20; i++) { /* the reader wakes up: the rest follows without a new line */
        output();
        loop_advance_ms(loop, 60);
    }
    log_info("last");
    loop_turn(loop, false);
    output();
    cr_assert_not_null(strstr(text, "log lines were dropped: their reader was too slow"));
    cr_assert_not_null(strstr(text, "msg=last"));
    log_init(LOG_INFO, LOG_LOGFMT, NULL);
    loop_free(loop);
}

Test(log, a_reader_that_went_away_is_survived)
{
    signal(SIGPIPE, SIG_IGN);
    close(pipe_fds[0]);
    log_info("into the void");
    log_flush();
}
