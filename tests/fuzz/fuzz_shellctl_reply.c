/* Answers of a shellctl: whatever the bytes, each decoder either succeeds with what the protocol
 * promises or fails with an error of its class and a message that a log line can bear. The first
 * byte chooses the HTTP status. */
#include "fuzz.h"

#include "backends/shellctl/reply.h"
#include "core/runtime/quote.h"

#include <string.h>

static const int statuses[] = {200, 200, 204, 302, 400, 404, 409, 429, 500, 503};

static void check_failure(int status, const struct error *err)
{
    bool refused = status < 200 || status > 299;

    POST(err->code == (refused ? ERR_UPSTREAM_STATUS : ERR_UPSTREAM_PROTOCOL));
    POST(err->upstream_status == (refused ? status : 0));
    POST(quote_is_utf8(err->message, strlen(err->message)));
    POST(quote_is_header_safe(err->upstream_code));
    POST(quote_is_utf8(err->upstream_code, strlen(err->upstream_code)));
}

static void check_job(const struct shellctl_job *job)
{
    POST(quote_is_safe_part(job->job_id));
    POST(job->status[0] != '\0' && job->offset >= 0);
    POST(job->output[job->output_len] == '\0');
    POST(quote_is_utf8(job->output, strlen(job->output)));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct arena *arena = arena_new();
    struct http_response response = {0};
    struct shellctl_job job;
    struct shellctl_view view;
    struct shellctl_list list;
    struct error err;

    if (len > 0) {
        response.status = statuses[bytes[0] % (sizeof(statuses) / sizeof(statuses[0]))];
        response.body = arena_memdup(arena, bytes + 1, len - 1);
        response.body_len = len - 1;
        if (shellctl_read_job(arena, "fuzz", &response, &job, &err))
            check_job(&job);
        else
            check_failure(response.status, &err);
        if (shellctl_read_view(arena, "fuzz", &response, &view, &err))
            POST(quote_is_safe_part(view.job_id));
        else
            check_failure(response.status, &err);
        if (shellctl_read_list(arena, "fuzz", &response, &list, &err))
            POST(list.n_jobs == 0 || quote_is_safe_part(list.jobs[list.n_jobs - 1].job_id));
        else
            check_failure(response.status, &err);
        if (!shellctl_read_deleted(arena, "fuzz", &response, &err))
            check_failure(response.status, &err);
        if (!shellctl_read_health(arena, "fuzz", &response, &err))
            check_failure(response.status, &err);
        (void)shellctl_error_code(arena, response.body, response.body_len);
    }
    arena_free(arena);
    return 0;
}
