/* `bindery ledger export|import [URL]`: the ledger as JSON lines, for moving it from one database to
 * another. The first line names the format; each further one is a row of a table, exactly as it is
 * stored. An import goes into an empty ledger only, and changes nothing of what it reads.
 *
 * Stop the servers first: an export is not one moment of a ledger that is being written. */
#include "commands.h"
#include "core/domain/ledger.h"
#include "core/runtime/config.h"
#include "core/runtime/json.h"
#include "core/runtime/log.h"
#include "gc/ledger_open.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT_VERSION = 1, PAGE_ROWS = 1000, IMPORT_AT_ONCE = 200 };

static const char header_key[] = "bindery_ledger_export";

/* One call, run to its end. */
struct tool_call {
    struct op op;
    struct ledger *ledger;
    enum ledger_kind kind;
    struct ledger_filter filter;
    struct ledger_page page;
    void *row;
    bool import;
    int *running;
    struct error *first;
};

enum tool_state { TOOL_START, TOOL_CALLING };
static const char *const tool_states[] = {"start", "calling"};

static void call_begin(struct tool_call *t, struct op *op)
{
    if (t->import)
        t->ledger->ops->import_row(t->ledger, op, t->kind, t->row);
    else
        t->ledger->ops->list(t->ledger, op, t->kind, &t->filter, &t->page);
}

static enum op_poll tool_step(struct op *op)
{
    struct tool_call *t = container_of(op, struct tool_call, op);

    switch ((enum tool_state)op->state) {
    case TOOL_START:
        AWAIT(op, TOOL_CALLING, call_begin(t, op));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type tool_type = {"ledger_tool", tool_states, 2, tool_step, NULL};

static void on_over(struct op *op, void *ctx)
{
    struct tool_call *t = ctx;

    (*t->running)--;
    if (error_is(op_error(op)) && !error_is(t->first))
        *t->first = *op_error(op);
}

static struct tool_call *call_new(struct loop *loop, struct arena *arena, struct ledger *ledger,
                                  enum ledger_kind kind)
{
    struct tool_call *t = OP_ROOT(loop, &tool_type, tool_call, arena);

    t->ledger = ledger;
    t->kind = kind;
    return t;
}

static void call_start(struct tool_call *t, int *running, struct error *first)
{
    t->running = running;
    t->first = first;
    (*running)++;
    op_start(&t->op, on_over, t);
}

static void run_until(struct loop *loop, const int *running, int at_most)
{
    while (*running > at_most)
        loop_turn(loop, true);
}

/* ---- export -------------------------------------------------------------------------------------------- */

static void write_row(struct buf *out, enum ledger_kind kind, const void *row)
{
    const struct ledger_table *table = ledger_table(kind);
    struct json_writer w = {.out = out};

    json_object_begin(&w);
    json_member_string(&w, "table", table->name);
    json_key(&w, "row");
    json_object_begin(&w);
    for (size_t i = 0; i < table->n_columns; i++) {
        int64_t number;
        const char *text = ledger_row_get(row, &table->columns[i], &number);
        if (table->columns[i].type == COLUMN_TEXT)
            json_member_string(&w, table->columns[i].name, text);
        else
            json_member_int(&w, table->columns[i].name, number);
    }
    json_object_finish(&w);
    json_object_finish(&w);
    buf_addc(out, '\n');
}

static bool export_page(struct loop *loop, struct ledger *ledger, enum ledger_kind kind,
                        char **cursor, struct error *err)
{
    struct arena *arena = arena_new();
    struct tool_call *t = call_new(loop, arena, ledger, kind);
    struct buf out = {0};
    int running = 0;
    bool good;

    t->filter = (struct ledger_filter){.cursor = *cursor, .limit = PAGE_ROWS};
    call_start(t, &running, err);
    run_until(loop, &running, 0);
    for (size_t i = 0; i < t->page.n; i++)
        write_row(&out, kind, t->page.rows[i]);
    good = !error_is(err) && fwrite(buf_text(&out), 1, out.len, stdout) == out.len;
    if (!good && !error_is(err))
        error_set(err, ERR_INTERNAL, "cannot write the export");
    free(*cursor);
    *cursor = good && t->page.next != NULL ? xstrdup(t->page.next) : NULL;
    buf_fini(&out);
    loop_turn(loop, false); /* the op's end of turn comes before its arena's end */
    arena_free(arena);
    return good;
}

static bool export_all(struct loop *loop, struct ledger *ledger, struct error *err)
{
    printf("{\"%s\":%d}\n", header_key, FORMAT_VERSION);
    for (int kind = 0; kind < LEDGER_KINDS; kind++) {
        char *cursor = NULL;
        do {
            if (!export_page(loop, ledger, (enum ledger_kind)kind, &cursor, err))
                return false;
        } while (cursor != NULL);
    }
    if (fflush(stdout) == 0)
        return true;
    error_set(err, ERR_INTERNAL, "cannot write the export");
    return false;
}

/* ---- import ----------------------------------------------------------------------------------------------- */

static bool read_columns(struct arena *arena, const struct ledger_table *table,
                         struct json_object *object, void *row, struct error *err)
{
    for (size_t i = 0; i < table->n_columns; i++) {
        const struct ledger_column *column = &table->columns[i];
        struct json_object *value;
        if (!json_object_object_get_ex(object, column->name, &value)) {
            error_set(err, ERR_BAD_REQUEST, "a row of %s has no %s", table->name, column->name);
            return false;
        }
        if (column->type == COLUMN_TEXT && value != NULL)
            ledger_row_set(row, column, arena_strdup(arena, json_object_get_string(value)), 0);
        else if (column->type != COLUMN_TEXT)
            ledger_row_set(row, column, NULL, json_object_get_int64(value));
    }
    return true;
}

static bool read_row(struct arena *arena, const char *line, size_t len, enum ledger_kind *ret_kind,
                     void **ret_row, struct error *err)
{
    struct json_object *root, *name, *object;

    if (!json_parse(arena, line, len, &root, NULL, err))
        return false;
    if (!json_object_object_get_ex(root, "table", &name) ||
        !json_object_object_get_ex(root, "row", &object)) {
        error_set(err, ERR_BAD_REQUEST, "neither a table nor a row");
        return false;
    }
    for (int kind = 0; kind < LEDGER_KINDS; kind++) {
        const struct ledger_table *table = ledger_table((enum ledger_kind)kind);
        if (strcmp(table->name, json_object_get_string(name)) != 0)
            continue;
        *ret_kind = (enum ledger_kind)kind;
        *ret_row = arena_alloc(arena, table->row_size);
        return read_columns(arena, table, object, *ret_row, err);
    }
    error_set(err, ERR_BAD_REQUEST, "no table is called %s", json_object_get_string(name));
    return false;
}

/* Rows go out in groups: one commit for many. */
static bool import_group(struct loop *loop, struct ledger *ledger, char **line, size_t *cap,
                         int64_t *number, bool *ret_more, struct error *err)
{
    struct arena *arena = arena_new();
    ssize_t len = 0;
    int running = 0;

    for (int n = 0; n < IMPORT_AT_ONCE && !error_is(err); n++) {
        struct tool_call *t;
        enum ledger_kind kind = LEDGER_EVENTS;
        void *row = NULL;
        if ((len = getline(line, cap, stdin)) < 0)
            break;
        ++*number;
        if (!read_row(arena, *line, (size_t)len, &kind, &row, err)) {
            error_wrap(err, err->code, "line %lld", (long long)*number);
            break;
        }
        t = call_new(loop, arena, ledger, kind);
        t->import = true;
        t->row = row;
        call_start(t, &running, err);
    }
    if (len < 0 && !error_is(err)) {
        struct tool_call *last = call_new(loop, arena, ledger, LEDGER_EVENTS);
        run_until(loop, &running, 0);
        last->import = true;
        call_start(last, &running, err);
    }
    run_until(loop, &running, 0);
    loop_turn(loop, false);
    arena_free(arena);
    *ret_more = len >= 0;
    return !error_is(err);
}

static bool is_empty(struct loop *loop, struct ledger *ledger, struct error *err)
{
    for (int kind = 0; kind < LEDGER_KINDS && !error_is(err); kind++) {
        struct arena *arena = arena_new();
        struct tool_call *t = call_new(loop, arena, ledger, (enum ledger_kind)kind);
        int running = 0;
        t->filter.limit = 1;
        call_start(t, &running, err);
        run_until(loop, &running, 0);
        if (!error_is(err) && t->page.n > 0)
            error_set(err, ERR_CONFLICT, "the ledger has rows: import into an empty one");
        loop_turn(loop, false);
        arena_free(arena);
    }
    return !error_is(err);
}

static bool import_all(struct loop *loop, struct ledger *ledger, struct error *err)
{
    char *line = NULL;
    size_t cap = 0;
    int64_t number = 1;
    bool more = true;
    ssize_t len = getline(&line, &cap, stdin);

    if (len < 0 || strstr(line, header_key) == NULL)
        error_set(err, ERR_BAD_REQUEST, "standard input is not an export of a ledger");
    else if (is_empty(loop, ledger, err))
        while (more && import_group(loop, ledger, &line, &cap, &number, &more, err))
            ;
    free(line);
    return !error_is(err);
}

/* ---- the command --------------------------------------------------------------------------------------------- */

static int run(const char *verb, const char *url, const char *data_dir)
{
    struct loop *loop = loop_new(NULL);
    struct error err = {0};
    struct ledger *ledger =
        ledger_open(loop, &(struct ledger_open_options){.url = url, .data_dir = data_dir}, &err);
    bool good = ledger != NULL &&
                (strcmp(verb, "export") == 0 ? export_all : import_all)(loop, ledger, &err);

    if (!good)
        fprintf(stderr, "bindery: ledger %s: %s\n", verb, err.message);
    if (ledger != NULL)
        ledger->ops->close(ledger);
    loop_free(loop);
    return good ? 0 : ledger == NULL ? EXIT_CONFIG : EXIT_UNAVAILABLE;
}

int ledger_main(int argc, char **argv)
{
    struct buf problems = {0};
    struct config *config;
    int status;

    if (argc < 2 || argc > 3 ||
        (strcmp(argv[1], "export") != 0 && strcmp(argv[1], "import") != 0)) {
        fprintf(stderr, "usage: bindery ledger export [URL] >FILE\n"
                        "       bindery ledger import [URL] <FILE\n"
                        "URL is as BINDERY_LEDGER_URL, which is the default.\n");
        return EXIT_USAGE;
    }
    log_init(LOG_WARN, LOG_LOGFMT, NULL);
    if (argc == 3)
        return run(argv[1], argv[2], NULL);
    config = config_load(&problems);
    if (config == NULL) {
        fprintf(stderr, "bindery: the settings have problems:\n%s", buf_text(&problems));
        buf_fini(&problems);
        return EXIT_CONFIG;
    }
    status = run(argv[1], config->ledger_url, config->data_dir);
    config_free(config);
    buf_fini(&problems);
    return status;
}
