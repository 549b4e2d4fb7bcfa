#include "backends/shellctld/handlers.h"

#include "backends/shellctld/fault.h"
#include "backends/shellctld/job_delete.h"
#include "backends/shellctld/job_input.h"
#include "backends/shellctld/job_launch.h"
#include "backends/shellctld/job_process.h"
#include "backends/shellctld/replies.h"
#include "backends/shellctld/window.h"
#include "http/exchange.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
    RUN_BODY_MAX = 32 << 20, /* scripts carry uploaded files */
    INPUT_BODY_MAX = 4 << 20,
    SMALL_BODY_MAX = 64 << 10,
    LIST_DEFAULT = 50,
    LIST_MAX = 200,
};

static struct launcher *launcher_of(const struct exchange *x)
{
    return x->app;
}

/* Whose request it is; false when it was answered. */
static bool read_scope(struct exchange *x, struct scope *ret)
{
    struct error err = {0};

    if (scope_parse(x->arena, exchange_header(x, SCOPE_HOME_HEADER),
                    exchange_header(x, SCOPE_WORKSPACE_HEADER), ret, &err))
        return true;
    reply_fault(x, &err);
    return false;
}

/* The job that the path names, up to date; NULL when it was answered. */
static struct job *read_job(struct exchange *x, const struct scope *scope)
{
    struct error err = {0};
    struct job *job = NULL;

    if (scope_check_exists(scope, &err))
        job = job_find_in(launcher_of(x)->jobs, exchange_param(x, "job_id"), scope, &err);
    if (job == NULL)
        reply_fault(x, &err);
    else
        job_process_refresh(job);
    return job;
}

static void handle_health(struct exchange *x)
{
    reply_health(x);
}

/* ---- run, wait, input ------------------------------------------------------------------------ */

static void wait_done(struct exchange *x, struct op *root)
{
    if (op_failed(root))
        reply_fault(x, op_error(root));
    else
        reply_result(x, &container_of(root, struct job_wait, op)->result);
}

static void wait_for(struct exchange *x, const char *job_id, const struct scope *scope,
                     const struct wait_request *request)
{
    struct job_wait *wait =
        job_wait_new(x->loop, x->arena, NULL, launcher_of(x)->jobs, job_id, scope, request);

    exchange_run(x, &wait->op, wait_done);
}

static void handle_run(struct exchange *x)
{
    struct run_request request;
    struct error err = {0};
    struct scope scope;
    struct job *job;

    if (!read_scope(x, &scope))
        return;
    if (!request_read_run(x, &request, &err)) {
        reply_fault(x, &err);
        return;
    }
    job = job_launch(launcher_of(x), x->arena, &scope, &request, &err);
    if (job == NULL)
        reply_fault(x, &err);
    else
        wait_for(x, arena_strdup(x->arena, job->id), &scope, &request.wait);
}

static void handle_wait(struct exchange *x)
{
    struct wait_request request;
    struct error err = {0};
    struct scope scope;

    if (!read_scope(x, &scope))
        return;
    if (!request_read_wait(x, &request, &err)) {
        reply_fault(x, &err);
        return;
    }
    if (read_job(x, &scope) != NULL)
        wait_for(x, exchange_param(x, "job_id"), &scope, &request);
}

static void input_done(struct exchange *x, struct op *root)
{
    if (op_failed(root))
        reply_fault(x, op_error(root));
    else
        reply_result(x, &container_of(root, struct job_input, op)->wait->result);
}

static void handle_input(struct exchange *x)
{
    struct input_request request;
    struct error err = {0};
    struct scope scope;
    struct job_input *input;

    if (!read_scope(x, &scope))
        return;
    if (!request_read_input(x, &request, &err)) {
        reply_fault(x, &err);
        return;
    }
    if (read_job(x, &scope) == NULL)
        return;
    input = job_input_new(x->loop, x->arena, launcher_of(x)->jobs, exchange_param(x, "job_id"),
                          &scope, &request);
    exchange_run(x, &input->op, input_done);
}

/* ---- looking --------------------------------------------------------------------------------- */

static void release_output(void *ctx)
{
    buf_fini(ctx);
}

static void handle_tail(struct exchange *x)
{
    int64_t limit = request_query_count(x, "output_limit", WINDOW_DEFAULT, WINDOW_TAIL_MAX);
    struct job_result *result = ARENA_NEW(x->arena, struct job_result);
    struct error err = {0};
    struct window window;
    struct scope scope;
    struct job *job;
    bool ok;
    int fd;

    if (!read_scope(x, &scope) || (job = read_job(x, &scope)) == NULL)
        return;
    arena_on_free(x->arena, release_output, &result->output);
    fd = open(job->output_path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ok = window_read_tail(fd, limit, !job_status_is_terminal(job->status), &result->output, &window,
                          &err);
    if (fd >= 0)
        close(fd);
    if (!ok) {
        reply_fault(x, &err);
        return;
    }
    job_result_of(result, x->arena, job);
    result->offset = window.offset;
    reply_result(x, result);
}

static void handle_status(struct exchange *x)
{
    struct scope scope;
    struct job *job;

    if (read_scope(x, &scope) && (job = read_job(x, &scope)) != NULL)
        reply_view(x, job);
}

static void handle_list(struct exchange *x)
{
    const char *status = exchange_query(x, "status");
    struct error err = {0};
    struct scope scope;

    if (!read_scope(x, &scope))
        return;
    if (!scope_check_exists(&scope, &err)) {
        reply_fault(x, &err);
        return;
    }
    reply_list(x, launcher_of(x)->jobs, &scope, status != NULL && status[0] != '\0' ? status : NULL,
               request_query_count(x, "limit", LIST_DEFAULT, LIST_MAX));
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void terminate_done(struct exchange *x, struct op *root)
{
    struct job_stop *stop = container_of(root, struct job_stop, op);
    struct error err = *op_error(root);
    struct job *job = NULL;

    if (!error_is(&err))
        job = job_find_in(stop->jobs, stop->job_id, &stop->scope, &err);
    if (job == NULL)
        reply_fault(x, &err);
    else
        reply_view(x, job);
}

/* The sandbox's folders are not asked for here and in delete: a job of a sandbox that is gone can
 * still be ended. */
static void handle_terminate(struct exchange *x)
{
    struct job_stop *stop;
    struct scope scope;

    if (!read_scope(x, &scope))
        return;
    stop = job_stop_new(x->loop, x->arena, NULL, launcher_of(x)->jobs, exchange_param(x, "job_id"),
                        &scope, request_read_grace_ms(x));
    exchange_run(x, &stop->op, terminate_done);
}

static void delete_done(struct exchange *x, struct op *root)
{
    if (op_failed(root))
        reply_fault(x, op_error(root));
    else
        reply_deleted(x, exchange_param(x, "job_id"));
}

static void handle_delete(struct exchange *x)
{
    const char *force = exchange_query(x, "force");
    struct job_delete *op;
    struct scope scope;

    if (!read_scope(x, &scope))
        return;
    op =
        job_delete_new(x->loop, x->arena, launcher_of(x)->jobs, exchange_param(x, "job_id"), &scope,
                       force != NULL && strcmp(force, "true") == 0, request_query_grace_ms(x));
    exchange_run(x, &op->op, delete_done);
}

/* ---- table ----------------------------------------------------------------------------------- */

#define ROUTE(method, path, flags, max_body, handle, summary)                                      \
    {                                                                                              \
        method, path, AUTH_API, ERRORS_SHELLCTL, flags, max_body, handle, summary, NULL, NULL      \
    }

static const struct route routes[] = {
    {"GET", "/healthz", AUTH_NONE, ERRORS_SHELLCTL, ROUTE_WHILE_DRAINING, 0, handle_health,
     "The daemon lives", NULL, NULL},
    ROUTE("POST", "/v1/jobs/run", ROUTE_LONG, RUN_BODY_MAX, handle_run, "Start a job and wait"),
    ROUTE("POST", "/v1/jobs/{job_id}/wait", ROUTE_LONG, SMALL_BODY_MAX, handle_wait,
          "Wait for output or the end"),
    ROUTE("POST", "/v1/jobs/{job_id}/input", ROUTE_LONG, INPUT_BODY_MAX, handle_input,
          "Type into the terminal and wait"),
    ROUTE("GET", "/v1/jobs/{job_id}/log/tail", 0, 0, handle_tail, "The last output"),
    ROUTE("GET", "/v1/jobs/{job_id}", 0, 0, handle_status, "State of a job"),
    ROUTE("GET", "/v1/jobs", 0, 0, handle_list, "Jobs, newest first"),
    ROUTE("POST", "/v1/jobs/{job_id}/terminate", ROUTE_LONG, SMALL_BODY_MAX, handle_terminate,
          "End a job"),
    ROUTE("DELETE", "/v1/jobs/{job_id}", ROUTE_LONG, 0, handle_delete, "Remove a job"),
    {.path = NULL},
};

static const struct route *const tables[] = {routes};
const struct route_set shellctl_routes = {tables, 1};
