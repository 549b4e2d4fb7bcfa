/* The Enterprise driver against a scripted gateway: what is sent, what each answer becomes, and
 * that nothing is left in the gateway but what was reported. */
#include "backends/enterprise/enterprise.h"
#include "backends/shellctl/job_delete.h"
#include "core/runtime/json.h"
#include "support/op_torture.h"
#include "support/script_server.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* A gateway with one scripted answer for the next request of a kind, and the books of what is
 * alive. */
struct world {
    struct loop *loop;
    struct http_client *http;
    struct backend *backend;
    struct script_server *server;
    int alive, creates, deletes, runs, job_deletes;
    int orphans, unknowns;
    const char *create_raw, *delete_raw, *run_raw; /* raw answers in place of the right ones */
    int create_times, delete_times, run_times;     /* how often; -1 = always */
    bool create_counts;                            /* the scripted create takes effect */
    char last_head[2048], last_body[1024];
    struct arena *results;
};

static bool scripted(const char *raw, int *times, struct script_conn *conn)
{
    if (raw == NULL || *times == 0)
        return false;
    if (*times > 0)
        (*times)--;
    if (strcmp(raw, "RESET") == 0)
        script_reset(conn);
    else if (strcmp(raw, "HANG") != 0)
        script_send(conn, raw);
    if (strstr(raw, "Connection: close") != NULL)
        script_close(conn);
    return true;
}

static void on_create(struct world *w, struct script_conn *conn)
{
    char body[64];

    w->creates++;
    if (scripted(w->create_raw, &w->create_times, conn)) {
        w->alive += w->create_counts;
        return;
    }
    w->alive++;
    snprintf(body, sizeof(body), "{\"sandboxId\":\"sb-%d\"}", w->creates);
    script_reply(conn, 201, "", body);
}

static void gateway(void *ctx, struct script_conn *conn, const struct script_request *request)
{
    struct world *w = ctx;

    snprintf(w->last_head, sizeof(w->last_head), "%s", request->head);
    snprintf(w->last_body, sizeof(w->last_body), "%s", request->body);
    if (strcmp(request->target, "/gw/v1/sandboxes") == 0) {
        on_create(w, conn);
    } else if (strncmp(request->target, "/gw/v1/sandboxes/", 17) == 0) {
        w->deletes++;
        if (scripted(w->delete_raw, &w->delete_times, conn))
            return;
        script_reply(conn, w->alive > 0 ? 204 : 404, "", "");
        w->alive -= w->alive > 0;
    } else if (strcmp(request->target, "/gw/proxy/v1/jobs/run") == 0) {
        w->runs++;
        if (!scripted(w->run_raw, &w->run_times, conn))
            script_reply(
                conn, 200, "",
                "{\"job_id\":\"j1\",\"done\":true,\"status\":\"exited\",\"exit_code\":0,"
                "\"output_path\":\"/x\",\"output\":\"\",\"offset\":0,\"truncated\":false}");
    } else {
        w->job_deletes++;
        script_reply(conn, 200, "", "{\"job_id\":\"j1\",\"deleted\":true}");
    }
}

static void on_orphan(void *ctx, const struct backend *b, enum orphan_kind kind, const char *ref,
                      const struct binding_spec *spec, const struct error *why)
{
    struct world *w = ctx;

    (void)b;
    (void)spec;
    cr_assert(error_is(why));
    if (kind == ORPHAN_UNKNOWN)
        w->unknowns++;
    else
        w->orphans++;
    cr_assert(eq(int, ref == NULL, kind == ORPHAN_UNKNOWN));
}

static struct world *world_new(struct loop *loop)
{
    struct world *w = xcalloc(1, sizeof(*w));
    struct error err;

    signal(SIGPIPE, SIG_IGN);
    w->loop = loop;
    w->results = arena_new();
    w->server = script_server_new(loop, NULL, gateway, w);
    w->http = http_client_new(loop, NULL);
    w->backend = enterprise_backend_new(loop, w->http,
                                        &(struct enterprise_options){
                                            .endpoint = script_server_url(w->server, "/gw/"),
                                            .auth_token = "key-1",
                                            .workspace_dir = "/home/dify/workspace",
                                            .gateway_timeout_ms = 400,
                                            .proxy_timeout_ms = 1000,
                                            .snapshot_timeout_ms = 400,
                                            .validation_timeout_ms = 500,
                                            .retry_budget_ms = 2500,
                                            .snapshots = true,
                                        },
                                        &err);
    cr_assert(w->backend != NULL);
    w->backend->orphans = (struct orphan_sink){on_orphan, w};
    return w;
}

static void world_free(struct world *w)
{
    while (job_deletes_running() > 0)
        loop_turn(w->loop, true);
    w->backend->ops->free(w->backend);
    http_client_free(w->http);
    script_server_free(w->server);
    arena_free(w->results);
    free(w);
}

/* ---- one operation as a root ------------------------------------------------------------------- */

enum what { CREATE, ACQUIRE, DESTROY, SNAPSHOT };

struct job {
    struct op op;
    struct world *world;
    enum what what;
    struct binding_spec spec;
    struct binding binding;
    struct destroy_spec destroy;
    struct plane *plane;
    const char *ref;
};

enum job_state { JOB_START, JOB_DOING };
static const char *const job_states[] = {"start", "doing"};

static void job_begin(struct job *j)
{
    struct backend *b = j->world->backend;

    switch (j->what) {
    case CREATE:
        b->ops->create_binding(b, &j->op, &j->spec, &j->binding);
        break;
    case ACQUIRE:
        b->ops->acquire(b, &j->op, "sb-1", &j->plane);
        break;
    case DESTROY:
        b->ops->destroy_binding(b, &j->op, &j->destroy);
        break;
    case SNAPSHOT:
    default:
        b->ops->snapshot_delete(b, &j->op, "snap/a b");
        break;
    }
}

static enum op_poll job_step(struct op *op)
{
    struct job *j = container_of(op, struct job, op);

    switch ((enum job_state)op->state) {
    case JOB_START:
        AWAIT(op, JOB_DOING, job_begin(j));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static void job_fini(struct op *op)
{
    struct job *j = container_of(op, struct job, op);

    free(j->plane != NULL ? j->plane->binding_ref : NULL);
    free(j->plane);
}

static const struct op_type job_type = {"test_job", job_states, 2, job_step, job_fini};

static struct job *job_new(struct world *w, enum what what)
{
    struct job *j = OP_ROOT(w->loop, &job_type, job, NULL);

    j->world = w;
    j->what = what;
    j->spec = (struct binding_spec){
        .tenant_id = "t\"1", .agent_id = "a", .binding_id = "b", .workspace_id = "w"};
    j->destroy = (struct destroy_spec){"sb-1", "sb-1", true};
    return j;
}

struct outcome {
    int calls;
    struct error error;
};

static void note(struct op *op, void *ctx)
{
    struct outcome *o = ctx;

    o->calls++;
    o->error = *op_error(op);
}

static struct error run(struct world *w, enum what what)
{
    struct outcome o = {0};
    struct job *j = job_new(w, what);

    op_start(&j->op, note, &o);
    while (o.calls == 0)
        loop_turn(w->loop, true);
    for (int i = 0; i < 50 && w->job_deletes < w->runs; i++)
        loop_turn(w->loop, false);
    return o.error;
}

static void on_passed(void *ctx)
{
    *(bool *)ctx = true;
}

static void pass_ms(struct loop *loop, int64_t ms)
{
    bool passed = false;
    struct timer timer;

    timer_init(&timer, on_passed, &passed);
    timer_set_ms(loop, &timer, ms);
    while (!passed)
        loop_turn(loop, true);
}

static struct world *w;

static void set_up(void)
{
    w = world_new(loop_new(NULL));
}

static void tear_down(void)
{
    struct loop *loop = w->loop;

    world_free(w);
    loop_free(loop);
}

TestSuite(enterprise, .init = set_up, .fini = tear_down, .timeout = 120);

/* ---- what is sent ------------------------------------------------------------------------------ */

Test(enterprise, create_posts_the_tenant_and_lays_out_the_sandbox)
{
    cr_assert(eq(int, run(w, CREATE).code, ERR_NONE));
    cr_assert(eq(int, w->creates, 1));
    cr_assert(eq(int, w->runs, 1));
    cr_assert(eq(int, w->alive, 1));
    cr_assert(eq(int, w->deletes, 0));
}

Test(enterprise, the_key_and_the_routing_header_travel)
{
    cr_assert(eq(int, run(w, DESTROY).code, ERR_NONE));
    cr_assert(strstr(w->last_head, "X-Inner-Api-Key: key-1\r\n") != NULL);
    cr_assert(strstr(w->last_head, "Authorization") == NULL, "the control plane takes no bearer");
    w->run_raw = "HTTP/1.1 404 x\r\nConnection: close\r\n\r\n"
                 "{\"error\":{\"code\":\"SANDBOX_expired\",\"message\":\"gone\"}}";
    w->run_times = 1;
    cr_assert(eq(int, run(w, ACQUIRE).code, ERR_BINDING_LOST));
    cr_assert(strstr(w->last_head, "X-Sandbox-Id: sb-1\r\n") != NULL);
    cr_assert(strstr(w->last_head, "Authorization: Bearer key-1\r\n") != NULL);
    cr_assert(strstr(w->last_head, "X-Inner-Api-Key: key-1\r\n") != NULL);
}

/* ---- what an answer to a create becomes --------------------------------------------------------- */

struct answer {
    const char *raw;
    bool counts; /* the sandbox is made all the same */
    enum err_code code;
    int unknowns; /* reported creates without a name */
};

static const struct answer create_answers[] = {
    {"HTTP/1.1 500 x\r\nConnection: close\r\n\r\n{\"reason\":\"boom\",\"message\":\"no pod\"}",
     false, ERR_BINDING_CREATE, 0},
    {"HTTP/1.1 401 x\r\nContent-Length: 0\r\n\r\n", false, ERR_BACKEND_AUTH, 0},
    {"HTTP/1.1 403 x\r\nContent-Length: 0\r\n\r\n", false, ERR_BACKEND_AUTH, 0},
    {"HTTP/1.1 429 x\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n", false, ERR_RATE_LIMITED, 0},
    {"HTTP/1.1 503 x\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n", false, ERR_OVERLOADED, 0},
    {"HTTP/1.1 307 x\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", false,
     ERR_BINDING_CREATE, 0},
    {"HTTP/1.1 502 x\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>", true,
     ERR_BINDING_CREATE, 1},
    {"HTTP/1.1 201 x\r\nContent-Length: 4\r\n\r\nnope", true, ERR_BINDING_CREATE, 1},
    {"HTTP/1.1 201 x\r\nContent-Length: 2\r\n\r\n[]", true, ERR_BINDING_CREATE, 1},
    {"HTTP/1.1 201 x\r\nConnection: close\r\n\r\n{\"sandboxId\":7}", true, ERR_BINDING_CREATE, 1},
    {"HTTP/1.1 201 x\r\nConnection: close\r\n\r\n{\"sandboxId\":\"\"}", true, ERR_BINDING_CREATE,
     1},
    {"HTTP/1.1 201 x\r\nConnection: close\r\n\r\n{\"sandboxId\":\"a\\r\\nb: c\"}", true,
     ERR_BINDING_CREATE, 1},
    {"RESET", true, ERR_BACKEND_OUTCOME_UNKNOWN, 1},
    {"HTTP/1.1 2", true, ERR_DEADLINE, 1},
    {"HTTP/1.1 201 x\r\nContent-Length: 500\r\n\r\n{\"sand", true, ERR_DEADLINE, 1},
    {"HANG", true, ERR_DEADLINE, 1},
    {"\x01\x02 garbage\r\n\r\n", true, ERR_BACKEND_OUTCOME_UNKNOWN, 1},
};

Test(enterprise, each_bad_answer_to_a_create_has_its_code_and_its_books)
{
    for (size_t i = 0; i < sizeof(create_answers) / sizeof(create_answers[0]); i++) {
        const struct answer *a = &create_answers[i];
        struct world *one = world_new(w->loop);
        struct error err;

        one->create_raw = a->raw;
        one->create_times = 1;
        one->create_counts = a->counts;
        err = run(one, CREATE);
        cr_assert(eq(int, err.code, a->code), "answer %zu: %s: %s", i, err_wire(err.code),
                  err.message);
        cr_assert(eq(int, one->creates, 1), "answer %zu: sent more than once", i);
        cr_assert(eq(int, one->unknowns, a->unknowns), "answer %zu", i);
        cr_assert(eq(int, one->alive, a->unknowns), "answer %zu", i);
        cr_assert(eq(int, err.admitted, a->unknowns > 0 ? ADMITTED_UNKNOWN : ADMITTED_NO),
                  "answer %zu", i);
        world_free(one);
    }
}

Test(enterprise, the_gateways_reason_reaches_the_message)
{
    struct error err;

    w->create_raw = create_answers[0].raw;
    w->create_times = 1;
    err = run(w, CREATE);
    cr_assert(strstr(err.message, "no pod") != NULL, "%s", err.message);
    cr_assert_str_eq(err.upstream_code, "boom");
}

Test(enterprise, a_short_retry_after_is_waited_out_and_nothing_is_sent_meanwhile)
{
    int64_t before_ms, took_ms;

    w->create_raw = "HTTP/1.1 429 x\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";
    w->create_times = 1;
    before_ms = loop_now_ms(w->loop);
    cr_assert(eq(int, run(w, CREATE).code, ERR_NONE));
    took_ms = loop_now_ms(w->loop) - before_ms;
    cr_assert(took_ms >= 1000, "%lld", (long long)took_ms);
    cr_assert(eq(int, w->creates, 2));
}

Test(enterprise, a_long_retry_after_is_passed_on)
{
    struct error err;

    w->create_raw = "HTTP/1.1 503 x\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n";
    w->create_times = -1;
    err = run(w, CREATE);
    cr_assert(eq(int, err.code, ERR_OVERLOADED));
    cr_assert(err.retry_after_ms > 55000 && err.retry_after_ms <= 60000);
    err = run(w, CREATE);
    cr_assert(eq(int, err.code, ERR_OVERLOADED), "the gate is closed");
    cr_assert(eq(int, w->creates, 1), "and nothing is sent through it");
}

Test(enterprise, a_refused_key_shows_in_readiness_and_makes_no_storm)
{
    struct error err;

    w->create_raw = create_answers[1].raw;
    w->create_times = 1;
    for (int i = 0; i < 20; i++)
        cr_assert(eq(int, run(w, CREATE).code, ERR_BACKEND_AUTH));
    cr_assert(eq(int, w->creates, 1));
    cr_assert(not(w->backend->ops->ready(w->backend, &err)));
    cr_assert(eq(int, err.code, ERR_BACKEND_AUTH));
    pass_ms(w->loop, 1100); /* the gate opens after a second */
    cr_assert(eq(int, run(w, CREATE).code, ERR_NONE));
    cr_assert(w->backend->ops->ready(w->backend, &err));
}

/* ---- after the allocation ------------------------------------------------------------------------ */

static const char layout_failed[] =
    "HTTP/1.1 200 x\r\nConnection: close\r\n\r\n"
    "{\"job_id\":\"j1\",\"done\":true,\"status\":\"exited\",\"exit_code\":1,\"output_path\":\"/"
    "x\",\"output\":\"mkdir: denied\",\"offset\":13,\"truncated\":false}";

Test(enterprise, a_failed_layout_deletes_the_sandbox_and_reports_the_first_error)
{
    static const char *const raws[] = {layout_failed, "RESET",
                                       "HTTP/1.1 200 x\r\nContent-Length: 4\r\n\r\nnope",
                                       "HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n"};

    for (size_t i = 0; i < sizeof(raws) / sizeof(raws[0]); i++) {
        struct world *one = world_new(w->loop);
        struct error err;

        one->run_raw = raws[i];
        one->run_times = -1;
        err = run(one, CREATE);
        cr_assert(error_is(&err));
        cr_assert(eq(int, one->deletes, 1), "case %zu", i);
        cr_assert(eq(int, one->alive, 0), "case %zu", i);
        cr_assert(eq(int, one->orphans + one->unknowns, 0), "case %zu", i);
        if (i == 0)
            cr_assert(strstr(err.message, "mkdir: denied") != NULL, "%s", err.message);
        world_free(one);
    }
}

Test(enterprise, a_deletion_that_fails_too_is_recorded_as_an_orphan)
{
    struct error err;

    w->run_raw = layout_failed;
    w->run_times = -1;
    w->delete_raw = "HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n";
    w->delete_times = -1;
    err = run(w, CREATE);
    cr_assert(eq(int, err.code, ERR_BINDING_CREATE));
    cr_assert(strstr(err.message, "mkdir: denied") != NULL, "the first error wins");
    cr_assert(eq(int, w->alive, 1));
    cr_assert(eq(int, w->orphans, 1));
}

/* ---- acquire: lost or not -------------------------------------------------------------------------- */

struct probe_answer {
    const char *raw;
    enum err_code code;
    int runs; /* how often the probe is sent */
};

#define ERROR_ANSWER(status, code)                                                                 \
    "HTTP/1.1 " status " x\r\nConnection: close\r\n\r\n{\"error\":{\"code\":\"" code               \
    "\",\"message\":\"m\"}}"

static const struct probe_answer probe_answers[] = {
    {ERROR_ANSWER("404", "sandbox_not_found"), ERR_BINDING_LOST, 1},
    {ERROR_ANSWER("404", "whatever"), ERR_BINDING_LOST, 1},
    {ERROR_ANSWER("400", "Sandbox_Expired"), ERR_BINDING_LOST, 1},
    {ERROR_ANSWER("500", "NOT_FOUND"), ERR_BINDING_LOST, 1},
    {ERROR_ANSWER("410", "gone"), ERR_BINDING_ACQUIRE, 1},
    {ERROR_ANSWER("502", "bad_gateway"), ERR_BINDING_ACQUIRE, 1},
    {ERROR_ANSWER("503", "busy"), ERR_OVERLOADED, 1},
    {ERROR_ANSWER("429", "slow_down"), ERR_RATE_LIMITED, 1},
    {ERROR_ANSWER("401", "unauthorized"), ERR_BACKEND_AUTH, 1},
    {"HTTP/1.1 404 x\r\nContent-Length: 9\r\n\r\nNot Found", ERR_BINDING_ACQUIRE, 2},
    {"HTTP/1.1 502 x\r\nContent-Length: 6\r\n\r\n<html>", ERR_BINDING_ACQUIRE, 1},
    {"HTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\n[]", ERR_BINDING_ACQUIRE, 1},
    {"HANG", ERR_DEADLINE, 1},
};

Test(enterprise, missing_is_told_from_broken)
{
    for (size_t i = 0; i < sizeof(probe_answers) / sizeof(probe_answers[0]); i++) {
        const struct probe_answer *a = &probe_answers[i];
        struct world *one = world_new(w->loop);
        struct error err;

        one->run_raw = a->raw;
        one->run_times = -1;
        err = run(one, ACQUIRE);
        cr_assert(eq(int, err.code, a->code), "answer %zu: %s: %s", i, err_wire(err.code),
                  err.message);
        cr_assert(eq(int, one->runs, a->runs), "answer %zu", i);
        cr_assert(eq(int, one->creates, 0));
        world_free(one);
    }
}

Test(enterprise, a_proxy_that_starts_late_is_asked_once_more)
{
    w->run_raw = "HTTP/1.1 404 x\r\nContent-Length: 9\r\n\r\nNot Found";
    w->run_times = 1;
    cr_assert(eq(int, run(w, ACQUIRE).code, ERR_NONE));
    cr_assert(eq(int, w->runs, 2));
}

/* ---- destroy, snapshots ------------------------------------------------------------------------------ */

Test(enterprise, destroying_what_is_gone_succeeds_and_everything_else_does_not)
{
    static const struct {
        const char *raw;
        enum err_code code;
    } answers[] = {
        {"HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n", ERR_NONE},
        {"HTTP/1.1 204 x\r\n\r\n", ERR_NONE},
        {"HTTP/1.1 401 x\r\nContent-Length: 0\r\n\r\n", ERR_BACKEND_AUTH},
        {"HTTP/1.1 429 x\r\nContent-Length: 0\r\n\r\n", ERR_RATE_LIMITED},
        {"HTTP/1.1 409 x\r\nContent-Length: 0\r\n\r\n", ERR_BINDING_DESTROY},
        {"HTTP/1.1 302 x\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", ERR_BINDING_DESTROY},
        {"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n", ERR_BINDING_DESTROY},
        {"HANG", ERR_DEADLINE},
    };

    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct world *one = world_new(w->loop);
        struct error err;

        one->delete_raw = answers[i].raw;
        one->delete_times = -1;
        err = run(one, DESTROY);
        cr_assert(eq(int, err.code, answers[i].code), "answer %zu: %s", i, err.message);
        world_free(one);
    }
}

Test(enterprise, refs_that_cannot_have_been_issued_are_refused)
{
    static const char *const bad[] = {"",     ".",         "..",    "a/b",
                                      "a\\b", "a\r\nX: y", "a\x7f", "\xff\xfe"};
    struct error err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert(not(w->backend->ops->check_binding_ref(w->backend, bad[i], &err)), "%zu", i);
    cr_assert(w->backend->ops->check_binding_ref(w->backend, "sb;1?x=%2e#é", &err));
    cr_assert(w->backend->ops->check_snapshot_ref(w->backend, "snap/a b", &err));
    cr_assert(not(w->backend->ops->check_snapshot_ref(w->backend, "snap/../b", &err)));
}

Test(enterprise, a_snapshot_ref_keeps_its_slashes_and_encodes_the_rest)
{
    run(w, SNAPSHOT);
    cr_assert(strstr(w->last_head, "DELETE /gw/v1/home-snapshots/snap/a%20b HTTP/1.1") != NULL,
              "%s", w->last_head);
}

/* ---- torture ------------------------------------------------------------------------------------------ */

static void torture_start(struct torture_run *t)
{
    struct world *one = world_new(t->loop);
    struct job *j = job_new(one, *(enum what *)t->ctx);

    t->ctx = one;
    op_start(&j->op, torture_done, t);
}

static void torture_check(struct torture_run *t)
{
    struct world *one = t->ctx;

    /* Trouble in the test's own wait hides a create that was over: no fault of the driver. */
    if (error_is(&t->error) && strstr(t->what_happened, "(test_job") == NULL)
        cr_assert(one->alive <= one->orphans + one->unknowns, "%s: %d alive, %d reported",
                  t->what_happened, one->alive, one->orphans + one->unknowns);
    world_free(one);
}

static void torture(enum what what)
{
    op_torture_run(&(struct torture_scenario){.start = torture_start,
                                              .check = torture_check,
                                              .ctx = &what,
                                              .real_clock = true,
                                              .settle_ms = 200,
                                              .fail_undo = true});
}

Test(enterprise, create_under_torture)
{
    torture(CREATE);
}

Test(enterprise, acquire_under_torture)
{
    torture(ACQUIRE);
}

Test(enterprise, destroy_under_torture)
{
    torture(DESTROY);
}
