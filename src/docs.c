/* `bindery docs errors|metrics|settings`: the reference pages in docs/ that come from the tables. A test fails
 * when a page and its table differ. */
#include "commands.h"

#include "core/runtime/buf.h"
#include "core/runtime/config.h"
#include "core/runtime/error.h"

#include <stdio.h>
#include <string.h>

static void add_cell(struct buf *out, const char *text)
{
    buf_adds(out, " ");
    for (; *text != '\0'; text++) {
        if (*text == '|')
            buf_addc(out, '\\');
        buf_addc(out, *text);
    }
    buf_adds(out, " |");
}

static void document_errors(struct buf *out)
{
    buf_adds(
        out,
        "# Error codes\n\n"
        "Made by `bindery docs errors` from `src/core/runtime/error_codes.def`. Codes are stable; "
        "messages are for people.\n"
        "`repeat` says whether the same request may succeed later; on `/v1` routes the answer also "
        "carries it as\n`retryable`, and `admitted` (`yes`, `no`, `unknown`): whether the remote "
        "effect took place.\n\n"
        "| code | status | repeat | meaning | what to do |\n|---|---|---|---|---|\n");
    for (int code = ERR_NONE + 1; code < ERR_COUNT; code++) {
        const struct err_info *info = err_info((enum err_code)code);
        buf_addf(out, "| `%s` | %d | %s |", info->wire, info->http_status,
                 info->retryable ? "yes" : "no");
        add_cell(out, info->meaning);
        add_cell(out, info->todo);
        buf_adds(out, "\n");
    }
}

static const struct metric_row {
    const char *kind, *name, *labels, *help;
} metric_rows[] = {
#define COUNTER(symbol, name, labels, help)   {"counter", name, labels, help},
#define GAUGE(symbol, name, labels, help)     {"gauge", name, labels, help},
#define HISTOGRAM(symbol, name, labels, help) {"histogram", name, labels, help},
#include "core/runtime/metrics.def"
#undef COUNTER
#undef GAUGE
#undef HISTOGRAM
};

static void document_metrics(struct buf *out)
{
    buf_adds(out,
             "# Metrics\n\nMade by `bindery docs metrics` from `src/core/runtime/metrics.def`. "
             "Served as Prometheus text on `/metrics`.\n\n"
             "| metric | kind | labels | meaning |\n|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof metric_rows / sizeof *metric_rows; i++) {
        const struct metric_row *row = &metric_rows[i];
        buf_addf(out, "| `%s` | %s | %s |", row->name, row->kind, row->labels);
        add_cell(out, row->help);
        buf_adds(out, "\n");
    }
}

static void document_settings(struct buf *out)
{
    buf_adds(out, "# Settings\n\nMade by `bindery docs settings` from "
                  "`src/core/runtime/config.def`. Read from the "
                  "environment, then `.env`, then\n`dify-agent/.env` of the working directory; the "
                  "first that has a "
                  "name wins.\n\n");
    config_document(out);
}

int docs_main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*write)(struct buf *out);
    } pages[] = {{"errors", document_errors},
                 {"metrics", document_metrics},
                 {"settings", document_settings}};

    for (size_t i = 0; argc == 2 && i < sizeof pages / sizeof *pages; i++) {
        if (strcmp(argv[1], pages[i].name) != 0)
            continue;
        struct buf out = {0};
        pages[i].write(&out);
        fputs(buf_text(&out), stdout);
        buf_fini(&out);
        return fflush(stdout) == 0 ? 0 : 1;
    }
    fprintf(stderr, "usage: bindery docs errors|metrics|settings\n");
    return EXIT_USAGE;
}
