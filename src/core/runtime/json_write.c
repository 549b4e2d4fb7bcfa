#include "core/runtime/json.h"
#include "core/runtime/json_scan.h"
#include "core/runtime/utc.h"
#include "core/runtime/utf8.h"

#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WRITER_DEPTH_MAX = 63 }; /* bits of has_member, the top level included */

/* ---- commas and nesting ---------------------------------------------------------------------- */

/* The bit of a level means: the next thing written there needs a comma in front. A key takes its
 * comma and clears the bit, so its value gets none. */
static void separate(struct json_writer *w)
{
    uint64_t bit = UINT64_C(1) << w->depth;

    if ((w->has_member & bit) != 0)
        buf_addc(w->out, ',');
    w->has_member |= bit;
}

static void enter(struct json_writer *w, char bracket)
{
    separate(w);
    PRE(w->depth < WRITER_DEPTH_MAX);
    buf_addc(w->out, bracket);
    w->depth++;
    w->has_member &= ~(UINT64_C(1) << w->depth);
}

static void leave(struct json_writer *w, char bracket)
{
    PRE(w->depth > 0);
    w->depth--;
    buf_addc(w->out, bracket);
}

void json_object_begin(struct json_writer *w)
{
    enter(w, '{');
}

void json_object_finish(struct json_writer *w)
{
    leave(w, '}');
}

void json_array_begin(struct json_writer *w)
{
    enter(w, '[');
}

void json_array_finish(struct json_writer *w)
{
    leave(w, ']');
}

static void key_begin(struct json_writer *w, size_t len)
{
    separate(w);
    w->has_member &= ~(UINT64_C(1) << w->depth);
    buf_reserve(w->out, len + 3);
}

void json_key(struct json_writer *w, const char *key)
{
    size_t len = strlen(key);

    PRE(w->depth > 0);
    key_begin(w, len);
    buf_addc(w->out, '"');
    buf_add(w->out, key, len);
    buf_add(w->out, "\":", 2);
}

void json_key_text(struct json_writer *w, const char *key)
{
    json_string(w, key);
    buf_addc(w->out, ':');
    w->has_member &= ~(UINT64_C(1) << w->depth);
}

/* ---- strings --------------------------------------------------------------------------------- */

static void escape(struct buf *out, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    static const char shorts[32] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    char text[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};

    if (c >= 0x20) { /* quote and backslash stand for themselves */
        text[1] = (char)c;
        buf_add(out, text, 2);
    } else if (shorts[c] != 0) {
        text[1] = shorts[c];
        buf_add(out, text, 2);
    } else {
        buf_add(out, text, 6);
    }
}

/* The string's content without its quotes. */
static void add_escaped(struct buf *out, const char *bytes, size_t len)
{
    while (len > 0) {
        size_t n = json_plain_prefix(bytes, len);
        buf_add(out, bytes, n);
        bytes += n;
        len -= n;
        if (len == 0)
            break;
        if ((unsigned char)*bytes < 0x80) {
            escape(out, (unsigned char)*bytes);
            n = 1;
        } else { /* a stretch of multi-byte characters in one go */
            for (n = 1; n < len && (unsigned char)bytes[n] >= 0x80; n++)
                ;
            utf8_add(out, bytes, n);
        }
        bytes += n;
        len -= n;
    }
}

void json_string_n(struct json_writer *w, const char *bytes, size_t len)
{
    separate(w);
    buf_reserve(w->out, len + 2);
    buf_addc(w->out, '"');
    add_escaped(w->out, bytes, len);
    buf_addc(w->out, '"');
}

void json_string(struct json_writer *w, const char *text)
{
    if (text == NULL)
        json_null(w);
    else
        json_string_n(w, text, strlen(text));
}

/* ---- other values ---------------------------------------------------------------------------- */

void json_raw(struct json_writer *w, const char *json, size_t len)
{
    separate(w);
    buf_add(w->out, json, len);
}

void json_int(struct json_writer *w, int64_t value)
{
    char digits[24];
    size_t at = sizeof(digits);
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;

    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest != 0);
    if (value < 0)
        digits[--at] = '-';
    json_raw(w, digits + at, sizeof(digits) - at);
}

/* The shortest of three precisions that reads back as the same number. JSON knows no NaN and no
 * infinity: null. */
void json_double(struct json_writer *w, double value)
{
    char text[40];
    int len = 0;

    if (!isfinite(value)) {
        json_null(w);
        return;
    }
    for (int precision = 15; precision <= 17; precision++) {
        len = snprintf(text, sizeof(text), "%.*g", precision, value);
        if (strtod(text, NULL) == value)
            break;
    }
    if (strpbrk(text, ".e") == NULL)
        len += snprintf(text + len, sizeof(text) - (size_t)len, ".0");
    json_raw(w, text, (size_t)len);
}

void json_boolean(struct json_writer *w, bool value)
{
    if (value)
        json_raw(w, "true", 4);
    else
        json_raw(w, "false", 5);
}

void json_null(struct json_writer *w)
{
    json_raw(w, "null", 4);
}

void json_time_ms(struct json_writer *w, int64_t wall_ms)
{
    char text[UTC_TEXT_MAX];
    int len = utc_format_ms(wall_ms, text);

    json_string_n(w, text, (size_t)len);
}

static void write_members(struct json_writer *w, struct json_object *object)
{
    struct json_object_iterator it = json_object_iter_begin(object);
    struct json_object_iterator end = json_object_iter_end(object);

    json_object_begin(w);
    for (; !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
        const char *key = json_object_iter_peek_name(&it);
        key_begin(w, strlen(key));
        buf_addc(w->out, '"');
        add_escaped(w->out, key, strlen(key));
        buf_add(w->out, "\":", 2);
        json_value(w, json_object_iter_peek_value(&it));
    }
    json_object_finish(w);
}

static void write_elements(struct json_writer *w, struct json_object *array)
{
    size_t count = json_object_array_length(array);

    json_array_begin(w);
    for (size_t i = 0; i < count; i++)
        json_value(w, json_object_array_get_idx(array, i));
    json_array_finish(w);
}

/* Recursion is bounded by the writer's own depth. */
void json_value(struct json_writer *w, struct json_object *value)
{
    const char *text;
    size_t len;

    switch (json_object_get_type(value)) {
    case json_type_object:
        write_members(w, value);
        return;
    case json_type_array:
        write_elements(w, value);
        return;
    case json_type_string:
        json_string_n(w, json_object_get_string(value), (size_t)json_object_get_string_len(value));
        return;
    case json_type_null:
        json_null(w);
        return;
    case json_type_boolean:
    case json_type_int:
    case json_type_double: /* json-c keeps the digits as they were written */
        text = json_object_to_json_string_length(value, JSON_C_TO_STRING_PLAIN, &len);
        json_raw(w, text, len);
        return;
    }
    UNREACHABLE("json type");
}

void json_member_string(struct json_writer *w, const char *key, const char *text)
{
    json_key(w, key);
    json_string(w, text);
}

void json_member_int(struct json_writer *w, const char *key, int64_t value)
{
    json_key(w, key);
    json_int(w, value);
}

void json_member_bool(struct json_writer *w, const char *key, bool value)
{
    json_key(w, key);
    json_boolean(w, value);
}

void json_member_null(struct json_writer *w, const char *key)
{
    json_key(w, key);
    json_null(w);
}
