/* JSON from outside: what parses and what does not, and every problem of one object at once, in
 * pydantic's words. */
#include "core/runtime/json.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <json-c/json.h>
#include <math.h>

static struct arena *arena;
static struct json_reader r;
static struct error err;

static void set_up(void)
{
    arena = arena_new();
}

static void tear_down(void)
{
    arena_free(arena);
}

TestSuite(json_parse, .init = set_up, .fini = tear_down, .timeout = 10);
TestSuite(json_read, .init = set_up, .fini = tear_down, .timeout = 10);

/* ---- parsing --------------------------------------------------------------------------------- */

static bool parses_n(const char *text, size_t len)
{
    struct json_object *value;
    size_t position = 0;

    if (json_parse(arena, text, len, &value, &position, &err))
        return true;
    cr_assert(eq(int, err.code, ERR_BAD_REQUEST));
    cr_assert(position <= len);
    return false;
}

static bool parses(const char *text)
{
    return parses_n(text, strlen(text));
}

Test(json_parse, takes_every_kind_of_value)
{
    static const char *const texts[] = {"{}",
                                        " [1, -2, 3.5, 1e5, -0.5E-7] \r\n\t",
                                        "12",
                                        "-0",
                                        "true",
                                        "null",
                                        "\"x\"",
                                        " 7 ",
                                        "\"\\u00e4\\ud83d\\ude00\\\"\\\\\"",
                                        "18446744073709551615",
                                        "-9223372036854775808",
                                        "{\"a\":{\"b\":[{}]}}",
                                        "\"ä€😀\"",
                                        "\"\\u0000\""};

    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        cr_assert(parses(texts[i]), "%s: %s", texts[i], err.message);
}

Test(json_parse, refuses_what_is_not_json)
{
    static const char *const texts[] = {"",
                                        " ",
                                        "{",
                                        "[1,]",
                                        "{\"a\":1,}",
                                        "{a:1}",
                                        "'a'",
                                        "[1] x",
                                        "{}{}",
                                        "nul",
                                        "TRUE",
                                        "[01]",
                                        "[+1]",
                                        "[.5]",
                                        "[1.]",
                                        "1.",
                                        "-",
                                        "1e",
                                        "\"abc",
                                        "\"\\q\"",
                                        "\"\\u00\"",
                                        "// c\n1",
                                        "/* c */ 1",
                                        "\"a\nb\"",
                                        "\"\t\"",
                                        "\"\x01\"",
                                        "NaN",
                                        "[NaN]",
                                        "[-Infinity]",
                                        "Infinity",
                                        "\xEF\xBB\xBF{}",
                                        "\"\xFF\"",
                                        "\"\xC0\x80\"",
                                        "\"\xED\xA0\x80\"",
                                        "\"\xF4\x90\x80\x80\"",
                                        "\"\xE2\x82\"",
                                        "\"\\\xFF\"",
                                        "[18446744073709551616]",
                                        "[-9223372036854775809]",
                                        "[100000000000000000000000000000]",
                                        "{\"a\\u0000b\":1}",
                                        "{\"\\u0000\" : 1}",
                                        "[1 2]",
                                        "[1\v]",
                                        "\"\\"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        cr_assert(not(parses(texts[i])), "%s", texts[i]);
}

Test(json_parse, a_nul_byte_is_never_the_end)
{
    cr_assert(not(parses_n("{}\0", 3)));
    cr_assert(not(parses_n("\"a\0b\"", 5)));
    cr_assert(not(parses_n("1\0", 2)));
    cr_assert(not(parses_n("\0", 1)));
}

Test(json_parse, reads_no_byte_behind_the_text)
{
    char *exact = malloc(2); /* AddressSanitizer watches its end */

    memcpy(exact, "12", 2);
    cr_assert(parses_n(exact, 2));
    exact[0] = '"';
    exact[1] = '\\';
    cr_assert(not(parses_n(exact, 2)));
    exact[1] = (char)0xE2;
    cr_assert(not(parses_n(exact, 2)));
    free(exact);
}

Test(json_parse, nesting_is_limited)
{
    char text[200];

    for (int depth = 32; depth <= 33; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        cr_assert(eq(int, parses_n(text, (size_t)depth * 2), depth == 32));
    }
}

Test(json_parse, names_the_position)
{
    struct json_object *value;
    size_t position;

    cr_assert(not(json_parse(arena, "{\"a\":x}", 7, &value, &position, &err)));
    cr_assert(eq(sz, position, 5));
    cr_assert(not(json_parse(arena, "[\"\x01\"]", 5, &value, &position, &err)));
    cr_assert(eq(sz, position, 2));
    cr_assert_str_eq(err.message, "not valid JSON at byte 2: a control character in a string");
}

/* ---- reading --------------------------------------------------------------------------------- */

static void read_text(const char *text)
{
    struct json_object *root;

    cr_assert(json_parse(arena, text, strlen(text), &root, NULL, &err), "%s", err.message);
    json_reader_init(&r, arena, root);
}

/* "type path message" of the k-th problem. */
static const char *problem(int k)
{
    const struct json_problem *p = r.first;
    char *text;

    while (k-- > 0 && p != NULL)
        p = p->next;
    if (p == NULL)
        return "none";
    text = arena_printf(arena, "%s ", p->type);
    for (int i = 0; i < 8 && p->path[i] != NULL; i++)
        text = arena_printf(arena, "%s/%s", text, p->path[i]);
    return arena_printf(arena, "%s %s", text, p->message);
}

Test(json_read, strings)
{
    read_text("{\"a\":\"x\",\"n\":null,\"e\":\"\",\"i\":5,\"z\":\"a\\u0000\",\"u\":\"\\u00e4\"}");
    cr_assert_str_eq(json_read_string(&r, "a", 1), "x");
    cr_assert_str_eq(json_read_string(&r, "u", 1), "ä");
    cr_assert_null(json_read_string_opt(&r, "n", 1));
    cr_assert_null(json_read_string_opt(&r, "absent", 1));
    cr_assert_str_eq(json_read_string_opt(&r, "e", 0), "");
    cr_assert(eq(int, r.count, 0));

    cr_assert_null(json_read_string(&r, "missing", 1));
    cr_assert_null(json_read_string(&r, "n", 0));
    cr_assert_null(json_read_string(&r, "e", 1));
    cr_assert_null(json_read_string(&r, "i", 1));
    cr_assert_null(json_read_string(&r, "z", 1));
    cr_assert_null(json_read_string(&r, "u", 2), "code points count, not bytes");
    cr_assert_str_eq(problem(0), "missing /missing Field required");
    cr_assert_str_eq(problem(1), "string_type /n Input should be a valid string");
    cr_assert_str_eq(problem(2), "string_too_short /e String should have at least 1 character");
    cr_assert_str_eq(problem(3), "string_type /i Input should be a valid string");
    cr_assert_str_eq(problem(4), "string_nul /z String should not contain a NUL character");
    cr_assert_str_eq(problem(5), "string_too_short /u String should have at least 2 characters");
    cr_assert(eq(int, r.count, 6));
    cr_assert_str_eq(r.first->next->next->ctx_key, "min_length");
    cr_assert(eq(i64, r.first->next->next->ctx_value, 1));
    cr_assert(eq(ptr, r.first->input, r.object), "the input of `missing` is the object");
}

Test(json_read, integers)
{
    read_text("{\"a\":5,\"f\":6.0,\"s\":\" 7 \",\"n\":null,\"b\":true,\"x\":1.5,\"w\":\"1x\","
              "\"low\":0,\"high\":11,\"huge\":18446744073709551615,\"far\":1e300,\"l\":[]}");
    cr_assert(eq(i64, json_read_int(&r, "a", true, 0, 1, 10), 5));
    cr_assert(eq(i64, json_read_int(&r, "f", true, 0, 1, 10), 6));
    cr_assert(eq(i64, json_read_int(&r, "s", true, 0, 1, 10), 7));
    cr_assert(eq(i64, json_read_int(&r, "absent", false, 9, 1, 10), 9));
    cr_assert(eq(i64, json_read_int(&r, "n", false, 9, 1, 10), 9));
    cr_assert(eq(int, r.count, 0));

    json_read_int(&r, "n", true, 0, 1, 10);
    json_read_int(&r, "b", true, 0, 1, 10);
    json_read_int(&r, "x", true, 0, 1, 10);
    json_read_int(&r, "w", true, 0, 1, 10);
    json_read_int(&r, "low", true, 0, 1, 10);
    json_read_int(&r, "high", true, 0, 1, 10);
    json_read_int(&r, "huge", true, 0, 1, 10);
    json_read_int(&r, "far", true, 0, 1, 10);
    json_read_int(&r, "l", true, 0, 1, 10);
    json_read_int(&r, "absent", true, 0, 1, 10);
    cr_assert_str_eq(problem(0), "int_type /n Input should be a valid integer");
    cr_assert_str_eq(problem(1), "int_type /b Input should be a valid integer");
    cr_assert_str_eq(problem(2), "int_from_float /x Input should be a valid integer, got a number "
                                 "with a fractional part");
    cr_assert_str_eq(problem(3), "int_parsing /w Input should be a valid integer, unable to parse "
                                 "string as an integer");
    cr_assert_str_eq(problem(4),
                     "greater_than_equal /low Input should be greater than or equal to 1");
    cr_assert_str_eq(problem(5), "less_than_equal /high Input should be less than or equal to 10");
    cr_assert_str_eq(problem(6), "less_than_equal /huge Input should be less than or equal to 10");
    cr_assert_str_eq(problem(7),
                     "int_from_float /far Input should be a valid integer, got a number "
                     "with a fractional part");
    cr_assert_str_eq(problem(8), "int_type /l Input should be a valid integer");
    cr_assert_str_eq(problem(9), "missing /absent Field required");
    cr_assert(eq(int, r.count, 10));
}

Test(json_read, doubles)
{
    read_text("{\"a\":1.5,\"i\":2,\"n\":null,\"s\":\"x\",\"far\":1e999}");
    cr_assert(ieee_ulp_eq(dbl, json_read_double(&r, "a", true, 0), 1.5, 1));
    cr_assert(ieee_ulp_eq(dbl, json_read_double(&r, "i", true, 0), 2, 1));
    cr_assert(ieee_ulp_eq(dbl, json_read_double(&r, "n", false, 3), 3, 1));
    cr_assert(eq(int, r.count, 0));
    json_read_double(&r, "s", true, 0);
    json_read_double(&r, "far", true, 0);
    cr_assert_str_eq(problem(0), "float_type /s Input should be a valid number");
    cr_assert_str_eq(problem(1), "finite_number /far Input should be a finite number");
}

Test(json_read, booleans)
{
    read_text("{\"t\":true,\"f\":false,\"one\":1,\"zero\":0.0,\"yes\":\"Yes\",\"off\":\"OFF\","
              "\"two\":2,\"word\":\"maybe\",\"n\":null,\"l\":[]}");
    cr_assert(json_read_bool(&r, "t", true, false, false));
    cr_assert(not(json_read_bool(&r, "f", true, true, false)));
    cr_assert(json_read_bool(&r, "absent", false, true, false));
    cr_assert(json_read_bool(&r, "n", false, true, true));
    cr_assert(json_read_bool(&r, "one", true, false, true));
    cr_assert(not(json_read_bool(&r, "zero", true, true, true)));
    cr_assert(json_read_bool(&r, "yes", true, false, true));
    cr_assert(not(json_read_bool(&r, "off", true, true, true)));
    cr_assert(eq(int, r.count, 0));

    json_read_bool(&r, "one", true, false, false);
    json_read_bool(&r, "two", true, false, true);
    json_read_bool(&r, "word", true, false, true);
    json_read_bool(&r, "n", true, false, true);
    json_read_bool(&r, "l", true, false, true);
    cr_assert_str_eq(problem(0), "bool_type /one Input should be a valid boolean");
    cr_assert_str_eq(
        problem(1), "bool_parsing /two Input should be a valid boolean, unable to interpret input");
    cr_assert_str_eq(problem(2), "bool_parsing /word Input should be a valid boolean, unable to "
                                 "interpret input");
    cr_assert_str_eq(problem(3), "bool_type /n Input should be a valid boolean");
    cr_assert_str_eq(problem(4), "bool_type /l Input should be a valid boolean");
}

Test(json_read, choices)
{
    static const char *const kinds[] = {"file", "dir", "other", NULL};

    read_text("{\"a\":\"dir\",\"b\":\"door\",\"c\":5,\"z\":\"dir\\u0000\"}");
    cr_assert_str_eq(json_read_choice(&r, "a", true, kinds), "dir");
    cr_assert_null(json_read_choice(&r, "absent", false, kinds));
    cr_assert(eq(int, r.count, 0));
    cr_assert_null(json_read_choice(&r, "b", true, kinds));
    cr_assert_null(json_read_choice(&r, "c", true, kinds));
    cr_assert_null(json_read_choice(&r, "z", true, kinds));
    cr_assert_str_eq(problem(0), "literal_error /b Input should be 'file', 'dir' or 'other'");
    cr_assert_str_eq(problem(1), "literal_error /c Input should be 'file', 'dir' or 'other'");
    cr_assert_str_eq(problem(2), "literal_error /z Input should be 'file', 'dir' or 'other'");
    cr_assert_str_eq(r.first->ctx_text, "'file', 'dir' or 'other'");
}

Test(json_read, inner_objects_report_to_the_outer)
{
    struct json_reader inner, deep;

    read_text("{\"in\":{\"a\":1,\"deep\":{\"b\":\"\"},\"more\":2},\"list\":[]}");
    cr_assert(json_read_object(&r, "in", true, &inner));
    cr_assert(json_read_object(&inner, "deep", true, &deep));
    cr_assert_null(json_read_string(&deep, "b", 1));
    cr_assert_null(json_read_string(&inner, "a", 1));
    cr_assert(not(json_reader_finish(&inner, false, &err)));
    cr_assert_str_eq(err.message,
                     "in.deep.b: String should have at least 1 character (and 2 more)");
    cr_assert(not(json_read_object(&r, "list", true, &inner)));
    cr_assert_null(json_read_string(&inner, "x", 1), "reading an absent object is quiet");
    cr_assert(not(json_read_object(&r, "gone", true, &inner)));
    cr_assert(not(json_read_object(&r, "gone", false, &inner)));
    cr_assert(json_reader_finish(&inner, false, &err));
    cr_assert(not(json_reader_finish(&r, false, &err)));
    cr_assert_str_eq(problem(0), "string_too_short /in/deep/b String should have at least 1 "
                                 "character");
    cr_assert_str_eq(problem(1), "string_type /in/a Input should be a valid string");
    cr_assert_str_eq(problem(2), "extra_forbidden /in/more Extra inputs are not permitted");
    cr_assert_str_eq(problem(3), "model_attributes_type /list Input should be a valid dictionary "
                                 "or object to extract fields from");
    cr_assert_str_eq(problem(4), "missing /gone Field required");
    cr_assert(eq(int, r.count, 5));
}

Test(json_read, extras_and_own_problems)
{
    read_text("{\"a\":\"x\",\"b\":1,\"c\":2}");
    json_read_string(&r, "a", 1);
    cr_assert_not_null(json_read_any(&r, "b"));
    cr_assert_null(json_read_any(&r, "absent"));
    json_reader_problem(&r, NULL, "value_error", "Value error, a needs c");
    cr_assert(eq(ptr, r.first->input, r.object));
    json_reader_problem(&r, "b", "value_error", "Value error, b is odd");
    cr_assert(not(json_reader_finish(&r, false, &err)));
    cr_assert(eq(int, err.code, ERR_VALIDATION));
    cr_assert_str_eq(err.message, "the body: Value error, a needs c (and 2 more)");
    cr_assert_str_eq(problem(1), "value_error /b Value error, b is odd");
    cr_assert_str_eq(problem(2), "extra_forbidden /c Extra inputs are not permitted");
}

Test(json_read, extras_may_be_allowed)
{
    read_text("{\"a\":\"x\",\"b\":1}");
    json_read_string(&r, "a", 1);
    cr_assert(json_reader_finish(&r, true, NULL));
}

Test(json_read, a_root_that_is_no_object_is_one_problem)
{
    read_text("[1]");
    json_read_string(&r, "a", 1);
    cr_assert(eq(i64, json_read_int(&r, "b", true, 4, 0, 9), 4));
    cr_assert(not(json_reader_finish(&r, false, NULL)));
    cr_assert(eq(int, r.count, 1));
    cr_assert_str_eq(problem(0), "model_attributes_type  Input should be a valid dictionary or "
                                 "object to extract fields from");
    read_text("null");
    cr_assert_str_eq(problem(0), "missing  Field required");
}
