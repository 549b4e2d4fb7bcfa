#include "core/runtime/json.h"
#include "core/runtime/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- problems -------------------------------------------------------------------------------- */

static struct json_problem *note(struct json_reader *r, const char *key, const char *type,
                                 const char *message, struct json_object *input)
{
    struct json_problem *p = ARENA_NEW(r->arena, struct json_problem);
    struct json_reader *root = r;
    size_t depth = 0;

    p->type = type;
    p->message = message;
    p->input = input;
    while (depth < sizeof(r->prefix) / sizeof(*r->prefix) && r->prefix[depth] != NULL) {
        p->path[depth] = r->prefix[depth];
        depth++;
    }
    p->path[depth] = key;
    for (struct json_reader *each = r; each != NULL; each = each->outer) {
        each->count++;
        if (each->first == NULL)
            each->first = p;
        root = each;
    }
    *root->next = p;
    root->next = &p->next;
    return p;
}

static void note_limit(struct json_reader *r, const char *key, const char *type,
                       const char *message, const char *ctx_key, int64_t limit,
                       struct json_object *input)
{
    struct json_problem *p =
        note(r, key, type, arena_printf(r->arena, "%s %" PRId64, message, limit), input);

    p->ctx_key = ctx_key;
    p->ctx_value = limit;
}

void json_reader_init(struct json_reader *r, struct arena *arena, struct json_object *root)
{
    *r = (struct json_reader){.arena = arena};
    r->next = &r->first;
    if (json_object_is_type(root, json_type_object)) {
        r->object = root;
        return;
    }
    if (root == NULL)
        note(r, NULL, "missing", "Field required", NULL);
    else
        note(r, NULL, "model_attributes_type",
             "Input should be a valid dictionary or object to extract fields from", root);
}

/* Look `key` up and mark it as known. False when there is nothing to read; a problem was noted if
 * the key is required (but not for a root that is no object: that was noted already). */
static bool find(struct json_reader *r, const char *key, bool required, bool null_is_absent,
                 struct json_object **ret)
{
    PRE(r->n_seen < (int)(sizeof(r->seen) / sizeof(*r->seen)));
    r->seen[r->n_seen++] = key;
    *ret = NULL;
    if (r->object == NULL)
        return false;
    if (!json_object_object_get_ex(r->object, key, ret)) {
        if (required)
            note(r, key, "missing", "Field required", r->object);
        return false;
    }
    return *ret != NULL || !null_is_absent;
}

/* ---- scalars --------------------------------------------------------------------------------- */

static const char *take_string(struct json_reader *r, const char *key, struct json_object *value,
                               size_t min_chars)
{
    const char *text;
    size_t len;

    if (!json_object_is_type(value, json_type_string)) {
        note(r, key, "string_type", "Input should be a valid string", value);
        return NULL;
    }
    text = json_object_get_string(value);
    len = (size_t)json_object_get_string_len(value);
    if (memchr(text, '\0', len) != NULL) {
        note(r, key, "string_nul", "String should not contain a NUL character", value);
        return NULL;
    }
    if (utf8_count(text, len) < min_chars) {
        struct json_problem *p = note(r, key, "string_too_short", NULL, value);
        p->message = arena_printf(r->arena, "String should have at least %zu character%s",
                                  min_chars, min_chars == 1 ? "" : "s");
        p->ctx_key = "min_length";
        p->ctx_value = (int64_t)min_chars;
        return NULL;
    }
    return arena_memdup(r->arena, text, len);
}

const char *json_read_string(struct json_reader *r, const char *key, size_t min_chars)
{
    struct json_object *value;

    return find(r, key, true, false, &value) ? take_string(r, key, value, min_chars) : NULL;
}

const char *json_read_string_opt(struct json_reader *r, const char *key, size_t min_chars)
{
    struct json_object *value;

    return find(r, key, false, true, &value) ? take_string(r, key, value, min_chars) : NULL;
}

/* The whole text is one decimal integer, perhaps within white space. */
static bool text_is_int(const char *text, int64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoll(text, &end, 10);
    if (end == text || errno != 0)
        return false;
    while (isspace((unsigned char)*end))
        end++;
    return *end == '\0';
}

/* The integer that `value` means, or the type and message of what is wrong with it. */
static bool value_to_int(struct json_object *value, int64_t *ret, const char **ret_type,
                         const char **ret_message)
{
    double number;

    *ret_type = "int_type";
    *ret_message = "Input should be a valid integer";
    if (json_object_is_type(value, json_type_int)) {
        *ret = json_object_get_int64(value); /* an unsigned one beyond the range saturates */
        return true;
    }
    if (json_object_is_type(value, json_type_string)) {
        *ret_type = "int_parsing";
        *ret_message = "Input should be a valid integer, unable to parse string as an integer";
        return text_is_int(json_object_get_string(value), ret);
    }
    if (!json_object_is_type(value, json_type_double))
        return false;
    *ret_type = "int_from_float";
    *ret_message = "Input should be a valid integer, got a number with a fractional part";
    number = json_object_get_double(value);
    if (!(number >= -9007199254740992.0 && number <= 9007199254740992.0) || number != floor(number))
        return false;
    *ret = (int64_t)number;
    return true;
}

int64_t json_read_int(struct json_reader *r, const char *key, bool required, int64_t fallback,
                      int64_t min, int64_t max)
{
    const char *type, *message;
    struct json_object *value;
    int64_t number;

    if (!find(r, key, required, !required, &value))
        return fallback;
    if (!value_to_int(value, &number, &type, &message)) {
        note(r, key, type, message, value);
        return fallback;
    }
    if (number < min) {
        note_limit(r, key, "greater_than_equal", "Input should be greater than or equal to", "ge",
                   min, value);
        return fallback;
    }
    if (number > max) {
        note_limit(r, key, "less_than_equal", "Input should be less than or equal to", "le", max,
                   value);
        return fallback;
    }
    return number;
}

double json_read_double(struct json_reader *r, const char *key, bool required, double fallback)
{
    struct json_object *value;
    double number;

    if (!find(r, key, required, !required, &value))
        return fallback;
    if (!json_object_is_type(value, json_type_double) &&
        !json_object_is_type(value, json_type_int)) {
        note(r, key, "float_type", "Input should be a valid number", value);
        return fallback;
    }
    number = json_object_get_double(value);
    if (!isfinite(number)) {
        note(r, key, "finite_number", "Input should be a finite number", value);
        return fallback;
    }
    return number;
}

/* What pydantic's lax mode takes for a boolean besides true and false. */
static bool lax_bool(struct json_object *value, bool *ret)
{
    static const char *const words[][2] = {{"false", "true"}, {"0", "1"}, {"off", "on"},
                                           {"f", "t"},        {"n", "y"}, {"no", "yes"}};
    double number;

    if (json_object_is_type(value, json_type_string)) {
        const char *text = json_object_get_string(value);
        for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
            *ret = strcasecmp(text, words[i][1]) == 0;
            if (*ret || strcasecmp(text, words[i][0]) == 0)
                return true;
        }
        return false;
    }
    number = json_object_get_double(value);
    *ret = number == 1.0;
    return *ret || number == 0.0;
}

bool json_read_bool(struct json_reader *r, const char *key, bool required, bool fallback, bool lax)
{
    struct json_object *value;
    bool is_scalar, answer;

    if (!find(r, key, required, !required, &value))
        return fallback;
    if (json_object_is_type(value, json_type_boolean))
        return json_object_get_boolean(value);
    is_scalar = json_object_is_type(value, json_type_string) ||
                json_object_is_type(value, json_type_int) ||
                json_object_is_type(value, json_type_double);
    if (!lax || !is_scalar) {
        note(r, key, "bool_type", "Input should be a valid boolean", value);
        return fallback;
    }
    if (!lax_bool(value, &answer)) {
        note(r, key, "bool_parsing", "Input should be a valid boolean, unable to interpret input",
             value);
        return fallback;
    }
    return answer;
}

/* 'a', 'b' or 'c' */
static const char *choices_text(struct arena *arena, const char *const *choices)
{
    const char *text = "";

    for (size_t i = 0; choices[i] != NULL; i++) {
        const char *between = i == 0 ? "" : choices[i + 1] == NULL ? " or " : ", ";
        text = arena_printf(arena, "%s%s'%s'", text, between, choices[i]);
    }
    return text;
}

const char *json_read_choice(struct json_reader *r, const char *key, bool required,
                             const char *const *choices)
{
    struct json_object *value;
    struct json_problem *p;

    if (!find(r, key, required, !required, &value))
        return NULL;
    if (json_object_is_type(value, json_type_string)) {
        const char *text = json_object_get_string(value);
        size_t len = (size_t)json_object_get_string_len(value);
        for (size_t i = 0; choices[i] != NULL; i++) {
            if (strlen(choices[i]) == len && memcmp(choices[i], text, len) == 0)
                return choices[i];
        }
    }
    p = note(r, key, "literal_error", NULL, value);
    p->ctx_key = "expected";
    p->ctx_text = choices_text(r->arena, choices);
    p->message = arena_printf(r->arena, "Input should be %s", p->ctx_text);
    return NULL;
}

/* ---- structure ------------------------------------------------------------------------------- */

struct json_object *json_read_any(struct json_reader *r, const char *key)
{
    struct json_object *value;

    (void)find(r, key, false, false, &value);
    return value;
}

bool json_read_object(struct json_reader *r, const char *key, bool required,
                      struct json_reader *ret)
{
    const size_t max_depth = sizeof(r->prefix) / sizeof(*r->prefix);
    struct json_object *value;
    size_t depth = 0;

    *ret = (struct json_reader){.arena = r->arena, .outer = r};
    while (depth < max_depth && r->prefix[depth] != NULL) {
        ret->prefix[depth] = r->prefix[depth];
        depth++;
    }
    PRE(depth < max_depth);
    ret->prefix[depth] = key;
    if (!find(r, key, required, !required, &value))
        return false;
    if (!json_object_is_type(value, json_type_object)) {
        note(r, key, "model_attributes_type",
             "Input should be a valid dictionary or object to extract fields from", value);
        return false;
    }
    ret->object = value;
    return true;
}

void json_reader_problem(struct json_reader *r, const char *key, const char *type,
                         const char *message)
{
    struct json_object *input = r->object;

    if (key != NULL && r->object != NULL && !json_object_object_get_ex(r->object, key, &input))
        input = r->object;
    note(r, key, type, arena_strdup(r->arena, message), input);
}

static void note_extras(struct json_reader *r)
{
    struct json_object_iterator it = json_object_iter_begin(r->object);
    struct json_object_iterator end = json_object_iter_end(r->object);

    for (; !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
        const char *key = json_object_iter_peek_name(&it);
        bool known = false;
        for (int i = 0; i < r->n_seen && !known; i++)
            known = strcmp(r->seen[i], key) == 0;
        if (!known)
            note(r, arena_strdup(r->arena, key), "extra_forbidden",
                 "Extra inputs are not permitted", json_object_iter_peek_value(&it));
    }
}

static const char *path_text(struct arena *arena, const struct json_problem *p)
{
    const size_t max_depth = sizeof(p->path) / sizeof(*p->path);
    const char *text = p->path[0] == NULL ? "the body" : p->path[0];

    for (size_t i = 1; i < max_depth && p->path[i] != NULL; i++)
        text = arena_printf(arena, "%s.%s", text, p->path[i]);
    return text;
}

bool json_reader_finish(struct json_reader *r, bool extras_allowed, struct error *err)
{
    if (!extras_allowed && r->object != NULL)
        note_extras(r);
    if (r->count == 0)
        return true;
    error_set(err, ERR_VALIDATION, "%s: %s", path_text(r->arena, r->first), r->first->message);
    if (r->count > 1)
        error_set(err, ERR_VALIDATION, "%s: %s (and %d more)", path_text(r->arena, r->first),
                  r->first->message, r->count - 1);
    return false;
}
