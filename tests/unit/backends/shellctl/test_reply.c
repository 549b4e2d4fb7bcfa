/* The reply decoder: good answers, each way an answer can be wrong, error envelopes, and who may be
 * called gone. */
#include "backends/shellctl/reply.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

static struct arena *arena;
static struct error err;

static void set_up(void)
{
    arena = arena_new();
    error_clear(&err);
}

static void tear_down(void)
{
    arena_free(arena);
}

TestSuite(shellctl_reply, .init = set_up, .fini = tear_down, .timeout = 10);

static struct http_response answer(int status, const char *body)
{
    return (struct http_response){.status = status, .body = body, .body_len = strlen(body)};
}

#define GOOD                                                                                       \
    "{\"job_id\":\"0a1b\",\"done\":true,\"status\":\"exited\",\"exit_code\":0,"                    \
    "\"output_path\":\"/x\",\"output\":\"h\\u0000\\u2615\",\"offset\":5,\"truncated\":false"

Test(shellctl_reply, a_job)
{
    struct http_response r = answer(200, GOOD ",\"later\":[1]}\n");
    struct shellctl_job job;

    cr_assert(shellctl_read_job(arena, "shellctl", &r, &job, &err), "%s", err.message);
    cr_assert(eq(str, (char *)job.job_id, "0a1b"));
    cr_assert(job.done && job.has_exit_code && !job.truncated);
    cr_assert(eq(sz, job.output_len, 5));
    cr_assert(eq(int, memcmp(job.output, "h\0\xe2\x98\x95", 6), 0));
    cr_assert(eq(i64, job.offset, 5));
}

Test(shellctl_reply, a_running_job_has_no_exit_code)
{
    struct http_response r =
        answer(200, "{\"job_id\":\"j\",\"done\":false,\"status\":\"running\",\"exit_code\":null,"
                    "\"output\":\"\",\"offset\":0,\"truncated\":false}");
    struct shellctl_job job;

    cr_assert(shellctl_read_job(arena, "shellctl", &r, &job, &err), "%s", err.message);
    cr_assert_not(job.has_exit_code);
}

Test(shellctl_reply, wrong_answers_with_a_good_status)
{
    static const char *const bad[] = {
        "",
        "null",
        "[]",
        "\"x\"",
        "<html>",
        "{}",
        GOOD "} x",
        GOOD,
        "{\"job_id\":\"../x\",\"done\":true,\"status\":\"exited\",\"exit_code\":0,\"output\":\"\","
        "\"offset\":0,\"truncated\":false}",
        "{\"job_id\":\"j\",\"done\":1,\"status\":\"exited\",\"exit_code\":0,\"output\":\"\","
        "\"offset\":0,\"truncated\":false}",
        "{\"job_id\":\"j\",\"done\":true,\"status\":\"exited\",\"exit_code\":\"0\",\"output\":\"\","
        "\"offset\":0,\"truncated\":false}",
        "{\"job_id\":\"j\",\"done\":true,\"status\":\"exited\",\"exit_code\":0,\"output\":null,"
        "\"offset\":0,\"truncated\":false}",
        "{\"job_id\":\"j\",\"done\":true,\"status\":\"exited\",\"exit_code\":0,\"output\":\"\","
        "\"offset\":-1,\"truncated\":false}",
        "{\"job_id\":\"j\",\"done\":true,\"status\":7,\"exit_code\":0,\"output\":\"\","
        "\"offset\":0,\"truncated\":false}",
    };
    struct shellctl_job job;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct http_response r = answer(200, bad[i]);
        cr_assert_not(shellctl_read_job(arena, "shellctl", &r, &job, &err), "%s", bad[i]);
        cr_assert(eq(int, err.code, ERR_UPSTREAM_PROTOCOL), "%s", bad[i]);
        cr_assert(eq(int, err.admitted, ADMITTED_YES));
    }
}

Test(shellctl_reply, errors_keep_status_and_code)
{
    static const struct {
        int status;
        const char *body, *code;
        enum err_admitted admitted;
        bool gone;
    } cases[] = {
        {404, "{\"error\":{\"code\":\"job_not_found\",\"message\":\"Unknown job id\"}}",
         "job_not_found", ADMITTED_NO, false},
        {404, "{\"error\":{\"code\":\"sandbox_not_found\",\"message\":\"x\"}}", "sandbox_not_found",
         ADMITTED_NO, true},
        {400, "{\"error\":{\"code\":\"Sandbox_Expired\",\"message\":\"x\"}}", "Sandbox_Expired",
         ADMITTED_NO, true},
        {500, "{\"error\":{\"code\":\"NOT_FOUND\",\"message\":\"x\"}}", "NOT_FOUND",
         ADMITTED_UNKNOWN, true},
        {404, "404 page not found\n", "invalid_json", ADMITTED_NO, false},
        {502, "", "invalid_json", ADMITTED_UNKNOWN, false},
        {502, "<html>Bad gateway</html>", "invalid_json", ADMITTED_UNKNOWN, false},
        {503, "{\"message\":\"later\"}", "request_failed", ADMITTED_UNKNOWN, false},
        {401, "{\"error\":{\"code\":7}}", "request_failed", ADMITTED_NO, false},
        {429, "[]", "request_failed", ADMITTED_NO, false},
        {302, "{}", "request_failed", ADMITTED_NO, false},
    };
    struct shellctl_job job;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct http_response r = answer(cases[i].status, cases[i].body);
        cr_assert_not(shellctl_read_job(arena, "shellctl", &r, &job, &err));
        cr_assert(eq(int, err.code, ERR_UPSTREAM_STATUS));
        cr_assert(eq(int, err.upstream_status, cases[i].status));
        cr_assert(eq(str, err.upstream_code, (char *)cases[i].code));
        cr_assert(eq(int, err.admitted, cases[i].admitted), "%s", cases[i].body);
        cr_assert(eq(int, shellctl_says_gone(&err), cases[i].gone), "%s", cases[i].body);
    }
}

Test(shellctl_reply, long_and_wild_messages_are_tamed)
{
    struct http_response r =
        answer(500, "{\"error\":{\"code\":\"x\\r\\ny\",\"message\":\"a\\r\\nb\\u0001\"}}");
    struct shellctl_job job;

    cr_assert_not(shellctl_read_job(arena, "shellctl", &r, &job, &err));
    cr_assert_null(strpbrk(err.message, "\r\n\x01"));
    cr_assert_null(strpbrk(err.upstream_code, "\r\n"));
}

Test(shellctl_reply, lists)
{
    struct http_response null_list = answer(200, "{\"jobs\":null}");
    struct http_response two =
        answer(200, "{\"jobs\":[{\"job_id\":\"b\",\"status\":\"exited\","
                    "\"created_at\":\"t\"},{\"job_id\":\"a\",\"status\":"
                    "\"running\",\"created_at\":\"s\",\"started_at\":\"x\"}]}");
    struct http_response bad = answer(200, "{\"jobs\":[{}]}");
    struct shellctl_list list;

    cr_assert(shellctl_read_list(arena, "s", &null_list, &list, &err));
    cr_assert(eq(sz, list.n_jobs, 0));
    cr_assert(shellctl_read_list(arena, "s", &two, &list, &err));
    cr_assert(eq(sz, list.n_jobs, 2));
    cr_assert(eq(str, (char *)list.jobs[1].job_id, "a"));
    cr_assert_not(shellctl_read_list(arena, "s", &bad, &list, &err));
}

Test(shellctl_reply, deleted_and_health)
{
    struct http_response yes = answer(200, "{\"job_id\":\"x\",\"deleted\":true}");
    struct http_response no = answer(200, "{\"job_id\":\"x\",\"deleted\":false}");
    struct http_response ok = answer(200, "{\"status\":\"ok\"}");
    struct http_response ill = answer(200, "{\"status\":\"ill\"}");

    struct http_response spaced = answer(200, "{ \"deleted\": true, \"job_id\": \"x\" }");
    struct http_response path = answer(200, "{\"job_id\":\"../x\",\"deleted\":true}");
    struct http_response cut = answer(200, "{\"job_id\":\",\"deleted\":true}");

    cr_assert(shellctl_read_deleted(arena, "s", &yes, &err));
    cr_assert(shellctl_read_deleted(arena, "s", &spaced, &err));
    cr_assert_not(shellctl_read_deleted(arena, "s", &no, &err));
    cr_assert_not(shellctl_read_deleted(arena, "s", &path, &err));
    cr_assert_not(shellctl_read_deleted(arena, "s", &cut, &err));
    cr_assert(shellctl_read_health(arena, "s", &ok, &err));
    cr_assert_not(shellctl_read_health(arena, "s", &ill, &err));
}
