#include "backends/shellctld/requests.h"

#include "backends/shellctld/fault.h"
#include "backends/shellctld/window.h"
#include "http/exchange.h"

#include <errno.h>
#include <json-c/json.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    TERMINAL_COLS = 200,
    TERMINAL_ROWS = 50,
    TERMINAL_SIDE_MAX = 4096,
    RUN_TIMEOUT_MS = 30000,
    IDLE_FLUSH_MS = 500,
    GRACE_MS = 10000,
    GRACE_MAX_MS = 600000,
    ENV_MAX = 4096,
};

/* Seconds beyond any use, so that milliseconds never overflow. */
static const double SECONDS_MAX = 1e9;

static int64_t seconds_to_ms(double seconds)
{
    if (seconds > SECONDS_MAX)
        seconds = SECONDS_MAX;
    if (seconds < -SECONDS_MAX)
        seconds = -SECONDS_MAX;
    return (int64_t)(seconds < 0 ? floor(seconds * 1000) : ceil(seconds * 1000));
}

/* Length of the first JSON value when it is an object or an array; else all of it. Only finds the
 * matching bracket: whether it is JSON is for the parser to say. */
static size_t first_value_length(const char *text, size_t len)
{
    size_t depth = 0;
    bool in_string = false;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && depth > 0 && --depth == 0) {
            return i + 1;
        }
    }
    return len;
}

static bool read_body(const struct exchange *x, struct json_reader *ret, struct error *err)
{
    struct json_object *root;
    struct error why = {0};

    if (!json_parse(x->arena, x->body, first_value_length(x->body, x->body_len), &root, NULL,
                    &why)) {
        fault_set(err, FAULT_INVALID_REQUEST, "%s", why.message);
        return false;
    }
    json_reader_init(ret, x->arena, root);
    return true;
}

static bool finish(struct json_reader *r, struct error *err)
{
    struct error why = {0};

    if (json_reader_finish(r, true, &why))
        return true;
    fault_set(err, FAULT_INVALID_REQUEST, "%s", why.message);
    return false;
}

static int64_t read_limit(struct json_reader *r)
{
    int64_t limit = json_read_int(r, "output_limit", false, 0, INT64_MIN, INT64_MAX);

    return limit <= 0 ? WINDOW_DEFAULT : limit;
}

static struct wait_request read_wait(struct json_reader *r)
{
    double idle = json_read_double(r, "idle_flush_seconds", false, 0);

    return (struct wait_request){
        .offset = json_read_int(r, "offset", false, 0, INT64_MIN, INT64_MAX),
        .timeout_ms = seconds_to_ms(json_read_double(r, "timeout", false, 0)),
        .output_limit = read_limit(r),
        .idle_flush_ms = idle == 0 ? IDLE_FLUSH_MS : seconds_to_ms(idle),
    };
}

/* ---- run ------------------------------------------------------------------------------------ */

static bool has_nul(struct json_object *text)
{
    size_t len = (size_t)json_object_get_string_len(text);

    return memchr(json_object_get_string(text), '\0', len) != NULL;
}

static bool check_variable(const char *name, struct json_object *value, struct error *err)
{
    if (!json_object_is_type(value, json_type_string)) {
        fault_set(err, FAULT_INVALID_REQUEST, "env: the value of `%.100s` is no string", name);
        return false;
    }
    if (name[0] == '\0' || strchr(name, '=') != NULL) {
        fault_set(err, FAULT_VALIDATION, "env: the name `%.100s` is empty or holds `=`", name);
        return false;
    }
    if (has_nul(value)) {
        fault_set(err, FAULT_VALIDATION, "env: the value of `%.100s` holds a NUL", name);
        return false;
    }
    return true;
}

static bool read_env(struct arena *arena, struct json_object *env, struct run_request *ret,
                     struct error *err)
{
    const char **words;
    size_t n = 0;

    if (env == NULL)
        return true;
    if (!json_object_is_type(env, json_type_object) || json_object_object_length(env) > ENV_MAX) {
        fault_set(err, FAULT_INVALID_REQUEST, "env must be an object of at most %d strings",
                  ENV_MAX);
        return false;
    }
    words = arena_alloc(arena, (2 * (size_t)json_object_object_length(env) + 1) * sizeof(*words));
    json_object_object_foreach(env, name, value)
    {
        if (!check_variable(name, value, err))
            return false;
        words[n++] = name; /* owned by the arena's JSON */
        words[n++] = json_object_get_string(value);
    }
    ret->env = words;
    return true;
}

static bool check_terminal(int64_t *side, int fallback, const char *name, struct error *err)
{
    if (*side == 0)
        *side = fallback;
    if (*side > 0 && *side <= TERMINAL_SIDE_MAX)
        return true;
    fault_set(err, FAULT_VALIDATION, "terminal.%s must be between 1 and %d", name,
              TERMINAL_SIDE_MAX);
    return false;
}

static bool check_run(const char *mode, int64_t cols, int64_t rows, struct run_request *ret,
                      struct error *err)
{
    if (ret->script == NULL || ret->script[0] == '\0') {
        fault_set(err, FAULT_INVALID_REQUEST, "script is required");
        return false;
    }
    if (mode != NULL && mode[0] != '\0' && strcmp(mode, "pty") != 0 && strcmp(mode, "stdio") != 0) {
        fault_set(err, FAULT_VALIDATION, "mode must be `pty` or `stdio`");
        return false;
    }
    if (!check_terminal(&cols, TERMINAL_COLS, "cols", err) ||
        !check_terminal(&rows, TERMINAL_ROWS, "rows", err))
        return false;
    ret->stdio = mode != NULL && strcmp(mode, "stdio") == 0;
    ret->cols = (int)cols;
    ret->rows = (int)rows;
    return true;
}

bool request_read_run(const struct exchange *x, struct run_request *ret, struct error *err)
{
    struct json_reader r, terminal;
    struct json_object *env;
    const char *mode;
    int64_t cols = 0, rows = 0;

    *ret = (struct run_request){.script = NULL};
    if (!read_body(x, &r, err))
        return false;
    ret->script = json_read_string_opt(&r, "script", 0);
    ret->cwd = json_read_string_opt(&r, "cwd", 0);
    mode = json_read_string_opt(&r, "mode", 0);
    env = json_read_any(&r, "env");
    if (json_read_object(&r, "terminal", false, &terminal)) {
        cols = json_read_int(&terminal, "cols", false, 0, INT32_MIN, INT32_MAX);
        rows = json_read_int(&terminal, "rows", false, 0, INT32_MIN, INT32_MAX);
    }
    ret->wait = read_wait(&r);
    if (!finish(&r, err) || !check_run(mode, cols, rows, ret, err) ||
        !read_env(x->arena, env, ret, err))
        return false;
    ret->wait.offset = 0;
    if (ret->wait.timeout_ms <= 0)
        ret->wait.timeout_ms = RUN_TIMEOUT_MS;
    if (ret->wait.idle_flush_ms < 0)
        ret->wait.idle_flush_ms = IDLE_FLUSH_MS;
    return true;
}

/* ---- wait, input ---------------------------------------------------------------------------- */

bool request_read_wait(const struct exchange *x, struct wait_request *ret, struct error *err)
{
    struct json_reader r;

    if (!read_body(x, &r, err))
        return false;
    *ret = read_wait(&r);
    return finish(&r, err);
}

bool request_read_input(const struct exchange *x, struct input_request *ret, struct error *err)
{
    struct json_reader r;
    struct json_object *text;

    if (!read_body(x, &r, err))
        return false;
    text = json_read_any(&r, "text");
    ret->wait = read_wait(&r);
    if (ret->wait.timeout_ms <= 0)
        ret->wait.timeout_ms = RUN_TIMEOUT_MS;
    if (!finish(&r, err))
        return false;
    if (text != NULL && !json_object_is_type(text, json_type_string)) {
        fault_set(err, FAULT_INVALID_REQUEST, "text must be a string");
        return false;
    }
    ret->text = text == NULL ? "" : json_object_get_string(text);
    ret->text_len = text == NULL ? 0 : (size_t)json_object_get_string_len(text);
    return true;
}

/* ---- grace and counts ------------------------------------------------------------------------ */

static int64_t grace_ms(double seconds)
{
    int64_t ms = seconds_to_ms(seconds);

    return ms < 0 ? 0 : ms > GRACE_MAX_MS ? GRACE_MAX_MS : ms;
}

int64_t request_read_grace_ms(const struct exchange *x)
{
    struct json_reader r;
    struct error ignored = {0}; /* a body that cannot be read means the default, by protocol */
    double seconds;

    if (!read_body(x, &r, &ignored))
        return GRACE_MS;
    seconds = json_read_double(&r, "grace_seconds", false, GRACE_MS / 1000.0);
    return finish(&r, &ignored) ? grace_ms(seconds) : GRACE_MS;
}

int64_t request_query_grace_ms(const struct exchange *x)
{
    const char *text = exchange_query(x, "grace_seconds");
    char *end;
    double seconds;

    if (text == NULL || text[0] == '\0')
        return GRACE_MS;
    seconds = strtod(text, &end);
    return *end == '\0' && isfinite(seconds) ? grace_ms(seconds) : GRACE_MS;
}

int64_t request_query_count(const struct exchange *x, const char *name, int64_t fallback,
                            int64_t max)
{
    const char *text = exchange_query(x, name);
    long long count;
    char *end;

    if (text == NULL || text[0] == '\0')
        return fallback;
    errno = 0;
    count = strtoll(text, &end, 10);
    if (*end != '\0' || errno != 0 || count <= 0)
        return fallback;
    return count > max ? max : count;
}
