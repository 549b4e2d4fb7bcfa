/* The JSON writer: commas and nesting, escapes, ill-formed UTF-8, numbers, passing values through.
 */
#include "core/runtime/json.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <json-c/json.h>
#include <math.h>

static struct buf out;
static struct json_writer w;

static void set_up(void)
{
    w = (struct json_writer){.out = &out};
}

static void tear_down(void)
{
    buf_fini(&out);
}

TestSuite(json_write, .init = set_up, .fini = tear_down, .timeout = 10);

#define WRITES(expected) cr_assert_str_eq(buf_text(&out), expected)

Test(json_write, commas_and_nesting)
{
    json_object_begin(&w);
    json_member_string(&w, "a", "x");
    json_key(&w, "b");
    json_array_begin(&w);
    json_int(&w, 1);
    json_array_begin(&w);
    json_array_finish(&w);
    json_object_begin(&w);
    json_object_finish(&w);
    json_null(&w);
    json_array_finish(&w);
    json_member_bool(&w, "c", true);
    json_member_null(&w, "d");
    json_member_int(&w, "e", -7);
    json_key(&w, "f");
    json_raw(&w, "{\"g\":0}", 7);
    json_key(&w, "h");
    json_boolean(&w, false);
    json_object_finish(&w);
    WRITES("{\"a\":\"x\",\"b\":[1,[],{},null],\"c\":true,\"d\":null,\"e\":-7,\"f\":{\"g\":0},"
           "\"h\":false}");
}

Test(json_write, null_string_is_null)
{
    json_string(&w, NULL);
    WRITES("null");
}

Test(json_write, escapes)
{
    json_string_n(&w, "\"\\/\b\f\n\r\t\x01\x1f\0\x7f", 12);
    WRITES("\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\\u0000\x7f\"");
}

/* Every byte at every offset of an eight byte word: the fast path must not skip any. */
Test(json_write, special_bytes_are_found_at_every_offset)
{
    for (int offset = 0; offset < 24; offset++) {
        for (int c = 0; c < 0x80; c++) {
            struct arena *arena = arena_new();
            struct json_object *back;
            struct error err;
            char text[24];
            memset(text, 'x', sizeof(text));
            text[offset] = (char)c;
            buf_clear(&out);
            set_up();
            json_string_n(&w, text, sizeof(text));
            cr_assert(json_parse(arena, out.data, out.len, &back, NULL, &err), "%s", err.message);
            cr_assert(eq(int, json_object_get_string_len(back), sizeof(text)));
            cr_assert(memcmp(json_object_get_string(back), text, sizeof(text)) == 0,
                      "byte %d at %d", c, offset);
            arena_free(arena);
        }
    }
}

Test(json_write, well_formed_utf8_passes)
{
    json_string(&w, "aä€😀\xEF\xBF\xBF\xF4\x8F\xBF\xBF");
    WRITES("\"aä€😀\xEF\xBF\xBF\xF4\x8F\xBF\xBF\"");
}

Test(json_write, ill_formed_utf8_is_replaced)
{
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"a\xFFz", "\"a\xEF\xBF\xBDz\""},
        {"\x80\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"\xC0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},                 /* overlong */
        {"\xED\xA0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""}, /* surrogate */
        {"\xE2\x82", "\"\xEF\xBF\xBD\""},                             /* cut: one replacement */
        {"\xF0\x9F\x98\"", "\"\xEF\xBF\xBD\\\"\""},
        {"\xE2\x82ä", "\"\xEF\xBF\xBDä\""},
        {"\xF4\x90\x80\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        buf_clear(&out);
        set_up();
        json_string(&w, rows[i].in);
        WRITES(rows[i].out);
    }
}

Test(json_write, numbers)
{
    json_array_begin(&w);
    json_int(&w, INT64_MIN);
    json_int(&w, INT64_MAX);
    json_int(&w, 0);
    json_double(&w, 0.1);
    json_double(&w, 3);
    json_double(&w, 1e300);
    json_double(&w, 1.0 / 3);
    json_double(&w, -0.0);
    json_double(&w, NAN);
    json_double(&w, INFINITY);
    json_array_finish(&w);
    WRITES("[-9223372036854775808,9223372036854775807,0,0.1,3.0,1e+300,0.3333333333333333,-0.0,"
           "null,null]");
}

Test(json_write, times)
{
    json_array_begin(&w);
    json_time_ms(&w, 0);
    json_time_ms(&w, 1764558183042);
    json_time_ms(&w, -1);
    json_time_ms(&w, INT64_MAX);
    json_time_ms(&w, INT64_MIN);
    json_array_finish(&w);
    WRITES("[\"1970-01-01T00:00:00.000Z\",\"2025-12-01T03:03:03.042Z\","
           "\"1969-12-31T23:59:59.999Z\",\"9999-12-31T23:59:59.999Z\","
           "\"0000-01-01T00:00:00.000Z\"]");
}

Test(json_write, parsed_values_pass_through)
{
    static const char text[] =
        "{\"a\":[1,2.50,true,null,{\"k\\u0001\":\"v\\u0000\"}],\"big\":18446744073709551615}";
    struct arena *arena = arena_new();
    struct json_object *value;

    cr_assert(json_parse(arena, text, strlen(text), &value, NULL, NULL));
    json_array_begin(&w);
    json_value(&w, value);
    json_value(&w, NULL);
    json_array_finish(&w);
    WRITES("[{\"a\":[1,2.50,true,null,{\"k\\u0001\":\"v\\u0000\"}],\"big\":18446744073709551615},"
           "null]");
    arena_free(arena);
}
