#include "http/reply.h"

#include <criterion/criterion.h>
#include <json-c/json.h>
#include <string.h>

TestSuite(reply, .timeout = 10);

static void read_all(struct json_reader *r)
{
    json_read_string(r, "tenant_id", 1);
    json_read_bool(r, "destroy_workspace", true, false, true);
    json_reader_problem(r, NULL, "value_error", "Value error, both or none");
    cr_assert_not(json_reader_finish(r, false, NULL));
}

static char *problems(struct arena *arena, const char *body, enum route_errors style)
{
    struct json_object *value;
    struct json_reader r;
    struct buf out = {0};
    char *text;

    cr_assert(json_parse(arena, body, strlen(body), &value, NULL, NULL));
    json_reader_init(&r, arena, value);
    read_all(&r);
    error_body_problems(&out, style, &r);
    text = arena_strdup(arena, buf_text(&out));
    buf_fini(&out);
    return text;
}

Test(reply, problems_have_fastapis_shape)
{
    struct arena *arena = arena_new();

    cr_assert_str_eq(
        problems(arena, "{\"tenant_id\":\"\",\"x\":[1],\"destroy_workspace\":true}", ERRORS_DETAIL),
        "{\"detail\":[{\"type\":\"string_too_short\",\"loc\":[\"body\",\"tenant_id\"],\"msg\":"
        "\"String should have at least 1 character\",\"input\":\"\",\"ctx\":{\"min_length\":1}},"
        "{\"type\":\"value_error\",\"loc\":[\"body\"],\"msg\":\"Value error, both or none\","
        "\"input\":{\"tenant_id\":\"\",\"x\":[1],\"destroy_workspace\":true},\"ctx\":{\"error\":{}}"
        "},"
        "{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"x\"],\"msg\":\"Extra inputs are not "
        "permitted\",\"input\":[1]}]}");
    arena_free(arena);
}

Test(reply, errors_have_three_shapes)
{
    const struct {
        enum route_errors style;
        const char *want;
    } cases[] = {
        {ERRORS_DETAIL, "{\"detail\":{\"code\":\"conflict\",\"message\":\"no\"}}"},
        {ERRORS_V1, "{\"detail\":{\"code\":\"conflict\",\"message\":\"no\",\"retryable\":false,"
                    "\"admitted\":\"yes\"}}"},
        {ERRORS_SHELLCTL, "{\"error\":{\"code\":\"conflict\",\"message\":\"no\"}}"},
    };
    struct error err;

    error_set(&err, ERR_CONFLICT, "no");
    err.admitted = ADMITTED_YES;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf out = {0};
        error_body_write(&out, cases[i].style, &err);
        cr_assert_str_eq(buf_text(&out), cases[i].want);
        buf_fini(&out);
    }
}

Test(reply, retry_after_is_whole_seconds_and_never_zero)
{
    struct error err;

    error_set(&err, ERR_OVERLOADED, "x");
    cr_assert_eq(error_retry_after_s(&err, 503), 1);
    err.retry_after_ms = 1001;
    cr_assert_eq(error_retry_after_s(&err, 429), 2);
    cr_assert_eq(error_retry_after_s(&err, 500), 0);
}

Test(reply, head_says_what_it_must)
{
    struct buf out = {0}, more = {0};

    buf_adds(&more, "Allow: GET\r\n");
    reply_head_write(&out, &(struct reply_head){.status = 405,
                                                .date = "D",
                                                .content_type = "text/plain",
                                                .content_length = 10,
                                                .request_id = "r",
                                                .headers = &more});
    cr_assert_str_eq(out.data, "HTTP/1.1 405 Method Not Allowed\r\nDate: D\r\nContent-Type: "
                               "text/plain\r\nContent-Length: 10\r\nX-Request-Id: r\r\nConnection: "
                               "close\r\nAllow: GET\r\n\r\n");
    buf_fini(&out);
    buf_fini(&more);
}
