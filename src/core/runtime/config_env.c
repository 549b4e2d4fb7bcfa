#include "core/runtime/config_env.h"

#include "core/runtime/buf.h"

#include <string.h>
#include <strings.h>

enum { VALUE_MAX = 64 * 1024 }; /* bytes of one value after ${NAME} has been filled in */

/* ---- .env files ------------------------------------------------------------------------------ */

struct reader {
    struct arena *arena;
    const char *at;
    int line;
    const struct env_source *process;
    struct env_source *source;
    size_t cap;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

static bool is_line_end(char c)
{
    return c == '\n' || c == '\0';
}

static void skip_blanks(struct reader *r)
{
    while (is_blank(*r->at))
        r->at++;
}

static void skip_line(struct reader *r)
{
    while (!is_line_end(*r->at))
        r->at++;
    if (*r->at == '\n') {
        r->at++;
        r->line++;
    }
}

static struct env_entry *entry_add(struct env_source *source, size_t *cap, struct arena *arena)
{
    if (source->n_entries == *cap) {
        size_t grown = *cap == 0 ? 32 : *cap * 2;
        struct env_entry *entries = arena_alloc(arena, grown * sizeof(*entries));
        if (source->n_entries != 0)
            memcpy(entries, source->entries, source->n_entries * sizeof(*entries));
        source->entries = entries;
        *cap = grown;
    }
    return &source->entries[source->n_entries++];
}

/* The latest entry of exactly this name. */
static const char *exact_value(const struct env_source *source, const char *name, size_t len)
{
    for (size_t i = source == NULL ? 0 : source->n_entries; i > 0; i--) {
        const struct env_entry *e = &source->entries[i - 1];
        if (strncmp(e->name, name, len) == 0 && e->name[len] == '\0')
            return e->value;
    }
    return NULL;
}

/* Where a reference that opens at `open` ends, with its parts; NULL when it is none. */
static const char *reference_end(const char *open, size_t *ret_name_len, const char **ret_fallback)
{
    const char *name = open + 2;
    const char *rest = name + strcspn(name, "}:\n");

    *ret_name_len = (size_t)(rest - name);
    *ret_fallback = NULL;
    if (*rest == '}')
        return rest;
    if (strncmp(rest, ":-", 2) != 0)
        return NULL;
    *ret_fallback = rest + 2;
    return strchr(rest, '}');
}

/* Fill ${NAME} and ${NAME:-fallback} in. NULL when the text grows beyond all reason. */
static const char *interpolate(const struct reader *r, const char *text)
{
    struct buf out = {0};
    const char *open;
    const char *filled = NULL;

    if (strstr(text, "${") == NULL)
        return text;
    while ((open = strstr(text, "${")) != NULL && out.len <= VALUE_MAX) {
        const char *fallback, *value;
        size_t name_len;
        const char *end = reference_end(open, &name_len, &fallback);
        buf_add(&out, text, (size_t)(open - text));
        text = end == NULL ? open + 2 : end + 1;
        if (end == NULL) { /* as it stands */
            buf_add(&out, open, 2);
            continue;
        }
        value = exact_value(r->source, open + 2, name_len);
        if (value == NULL)
            value = exact_value(r->process, open + 2, name_len);
        if (value != NULL)
            buf_adds(&out, value);
        else if (fallback != NULL)
            buf_add(&out, fallback, (size_t)(end - fallback));
    }
    buf_adds(&out, text);
    if (out.len <= VALUE_MAX)
        filled = arena_memdup(r->arena, buf_text(&out), out.len);
    buf_fini(&out);
    return filled;
}

/* The character that `\c` stands for in a quoted value; 0 when the backslash stands for itself. */
static char unescaped(char c, char quote)
{
    static const char names[] = "abfnrtv";
    static const char values[] = "\a\b\f\n\r\t\v";
    const char *at;

    if (c == '\\' || c == quote)
        return c;
    at = quote == '"' && c != '\0' ? strchr(names, c) : NULL;
    return at != NULL ? values[at - names] : 0;
}

/* The closing quote that belongs to the opening one in front of `at`, or NULL. */
static const char *closing_quote(const char *at, char quote)
{
    while (*at != quote) {
        if (*at == '\0')
            return NULL;
        at += *at == '\\' && unescaped(at[1], quote) != 0 ? 2 : 1;
    }
    return at;
}

/* From the opening quote to behind the closing one, which is at `close`. */
static char *read_quoted(struct reader *r, const char *close)
{
    char quote = *close;
    char *value, *to;

    r->at++;
    value = to = arena_alloc(r->arena, (size_t)(close - r->at) + 1);
    while (r->at < close) {
        char special = *r->at == '\\' ? unescaped(r->at[1], quote) : 0;
        r->line += *r->at == '\n';
        *to++ = special != 0 ? special : *r->at;
        r->at += special != 0 ? 2 : 1;
    }
    r->at++;
    return value;
}

/* To the end of the line or to a comment, which needs white space in front. */
static char *read_plain(struct reader *r)
{
    const char *start = r->at;
    const char *end;

    while (!is_line_end(*r->at) && !(*r->at == '#' && (r->at == start || is_blank(r->at[-1]))))
        r->at++;
    for (end = r->at; end > start && is_blank(end[-1]);)
        end--;
    return arena_memdup(r->arena, start, (size_t)(end - start));
}

static void read_value(struct reader *r, struct env_entry *e)
{
    char first = *r->at;
    bool quoted = first == '\'' || first == '"';
    const char *close = quoted ? closing_quote(r->at + 1, first) : NULL;

    if (quoted && close == NULL) { /* the lines behind it are read for themselves */
        e->why = "its quoted value has no end";
        return;
    }
    e->value = quoted ? read_quoted(r, close) : read_plain(r);
    skip_blanks(r);
    if (quoted && !is_line_end(*r->at) && *r->at != '#') {
        e->value = NULL;
        e->why = "something follows its quoted value";
    } else if (first != '\'') {
        e->value = interpolate(r, e->value);
        e->why = e->value == NULL ? "its value is too long" : NULL;
    }
}

static void read_line(struct reader *r)
{
    struct env_entry e = {.line = r->line};
    size_t len;

    skip_blanks(r);
    if (strncmp(r->at, "export", 6) == 0 && is_blank(r->at[6])) {
        r->at += 6;
        skip_blanks(r);
    }
    len = strcspn(r->at, "=# \t\r\n\f\v");
    if (len == 0)
        return;
    e.name = arena_memdup(r->arena, r->at, len);
    r->at += len;
    skip_blanks(r);
    if (*r->at != '=')
        return;
    r->at++;
    skip_blanks(r);
    read_value(r, &e);
    *entry_add(r->source, &r->cap, r->arena) = e;
}

void env_file_parse(struct env_source *ret, struct arena *arena, const char *text,
                    const struct env_source *process)
{
    struct reader r = {.arena = arena, .at = text, .line = 1, .process = process, .source = ret};

    if (strncmp(r.at, "\xEF\xBB\xBF", 3) == 0) /* a byte order mark, as some editors leave it */
        r.at += 3;
    while (*r.at != '\0') {
        read_line(&r);
        skip_line(&r);
    }
}

/* ---- all sources ----------------------------------------------------------------------------- */

static void environment_parse(struct env_source *ret, struct arena *arena, char *const *environment)
{
    size_t cap = 0;

    for (; environment != NULL && *environment != NULL; environment++) {
        const char *equals = strchr(*environment, '=');
        if (equals == NULL || equals == *environment)
            continue;
        *entry_add(ret, &cap, arena) = (struct env_entry){
            .name = arena_memdup(arena, *environment, (size_t)(equals - *environment)),
            .value = equals + 1};
    }
}

void env_sources_init(struct env_sources *env, struct arena *arena,
                      const struct config_sources *sources)
{
    *env = (struct env_sources){.n_sources = 1};
    env->source[0].where = "the environment";
    environment_parse(&env->source[0], arena, sources->environment);
    for (size_t i = 0; i < sizeof(sources->env_files) / sizeof(*sources->env_files); i++) {
        struct env_source *file = &env->source[env->n_sources];
        if (sources->env_files[i] == NULL)
            continue;
        file->where = sources->env_file_names[i];
        env_file_parse(file, arena, sources->env_files[i], &env->source[0]);
        env->n_sources++;
    }
}

static const struct env_entry *source_find(const struct env_source *source, const char *name)
{
    const struct env_entry *other_case = NULL;

    for (size_t i = source->n_entries; i > 0; i--) {
        const struct env_entry *e = &source->entries[i - 1];
        if (strcmp(e->name, name) == 0)
            return e;
        if (other_case == NULL && strcasecmp(e->name, name) == 0)
            other_case = e;
    }
    return other_case;
}

bool env_find(const struct env_sources *env, const char *const *names, size_t n_names,
              struct env_value *ret)
{
    for (size_t s = 0; s < env->n_sources; s++) {
        for (size_t n = 0; n < n_names; n++) {
            const struct env_entry *e = source_find(&env->source[s], names[n]);
            if (e == NULL)
                continue;
            *ret = (struct env_value){
                .name = e->name, .value = e->value, .where = env->source[s].where, .why = e->why};
            return true;
        }
    }
    return false;
}

const char *env_process(const struct env_sources *env, const char *name)
{
    return exact_value(&env->source[0], name, strlen(name));
}
