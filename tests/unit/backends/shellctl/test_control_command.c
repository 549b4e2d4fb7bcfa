/* Control commands and callers' commands against a shellctl that really runs them: cost in requests,
 * judgement, bounds, faults of every call, and that no job stays. */
#include "backends/shellctl/control_command.h"
#include "backends/shellctl/job_delete.h"
#include "backends/shellctl/run_command.h"
#include "core/runtime/metrics.h"
#include "support/fake_shellctl.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct loop *loop;
static struct backend backend;
static struct fake_shellctl *fake;
static struct endpoint endpoint;

static void set_up(void)
{
    static const struct backend_ops ops = {.name = "test"};

    signal(SIGPIPE, SIG_IGN);
    loop = loop_new(NULL);
    fake = fake_shellctl_new(loop, NULL);
    backend = (struct backend){.ops = &ops, .loop = loop, .http = http_client_new(loop, NULL)};
    endpoint =
        (struct endpoint){.base_url = fake_shellctl_url(fake), .token = "tok", .peer = "shellctl"};
}

static void settle_deletes(void)
{
    while (job_deletes_running() > 0)
        loop_turn(loop, true);
}

static void tear_down(void)
{
    settle_deletes();
    loop_turn(loop, false);
    http_client_free(backend.http);
    fake_shellctl_free(fake);
    loop_turn(loop, false);
    loop_free(loop);
    metrics_reset();
}

TestSuite(shellctl_commands, .init = set_up, .fini = tear_down, .timeout = 30);

/* ---- harness -------------------------------------------------------------------------------- */

struct holder {
    struct op op;
    struct control_command control;
    const struct command_spec *spec; /* instead */
    struct control_result control_ret;
    struct command_result ret;
    struct outcome *outcome;
};

struct outcome {
    bool done;
    struct error error;
    int exit_code;
    char output[256], status[32], stop_reason[32];
    size_t output_len;
    bool truncated;
};

enum holder_state { HOLDER_START, HOLDER_RUNNING };
static const char *const holder_states[] = {"start", "running"};
static const struct layout layout = {"/tmp", "/usr"};

static void begin(struct holder *h)
{
    if (h->spec != NULL)
        shellctl_run_command(&backend, &h->op, &endpoint, &layout, h->spec, &h->ret);
    else
        control_command_run(&backend, &h->op, &endpoint, &h->control, &h->control_ret);
}

static enum op_poll holder_step(struct op *op)
{
    struct holder *h = container_of(op, struct holder, op);
    struct outcome *o = h->outcome;

    switch ((enum holder_state)op->state) {
    case HOLDER_START:
        AWAIT(op, HOLDER_RUNNING, begin(h));
        if (h->spec != NULL) {
            o->exit_code = h->ret.exit_code;
            o->output_len = h->ret.output_len;
            o->truncated = h->ret.truncated;
            snprintf(o->output, sizeof(o->output), "%.200s", h->ret.output);
            snprintf(o->status, sizeof(o->status), "%s", h->ret.status);
            snprintf(o->stop_reason, sizeof(o->stop_reason), "%s",
                     h->ret.stop_reason != NULL ? h->ret.stop_reason : "");
        } else {
            o->exit_code = h->control_ret.exit_code;
            o->output_len = h->control_ret.output_len;
            snprintf(o->output, sizeof(o->output), "%.200s", h->control_ret.output);
        }
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type holder_type = {"holder", holder_states, 2, holder_step, NULL};

static void note_done(struct op *op, void *ctx)
{
    struct outcome *o = ctx;

    o->error = *op_error(op);
    o->done = true;
}

static struct holder *start(struct control_command control, const struct command_spec *spec,
                            struct outcome *o)
{
    struct holder *h = OP_ROOT(loop, &holder_type, holder, NULL);

    *o = (struct outcome){0};
    h->control = control;
    if (h->control.deadline_ms == 0)
        h->control.deadline_ms = 5000;
    h->control.phase = "the test";
    h->spec = spec;
    h->outcome = o;
    op_start(&h->op, note_done, o);
    return h;
}

static void finish(struct outcome *o)
{
    while (!o->done)
        loop_turn(loop, true);
    settle_deletes();
}

static struct outcome control(struct control_command c)
{
    struct outcome o;

    start(c, NULL, &o);
    finish(&o);
    return o;
}

static struct outcome command(struct command_spec spec)
{
    struct outcome o;

    start((struct control_command){0}, &spec, &o);
    finish(&o);
    return o;
}

/* ---- control commands ------------------------------------------------------------------------ */

Test(shellctl_commands, a_probe_is_one_run_and_one_delete)
{
    struct outcome o = control((struct control_command){.script = "echo hi; exit 3"});

    cr_assert(eq(int, o.error.code, ERR_NONE), "%s", o.error.message);
    cr_assert(eq(int, o.exit_code, 3));
    cr_assert(eq(str, o.output, "hi\n"));
    cr_assert(eq(int, fake->calls[FAKE_RUN_JOB], 1));
    cr_assert(eq(int, fake->calls[FAKE_WAIT_JOB], 0));
    cr_assert(eq(int, fake->calls[FAKE_DELETE_JOB], 1));
    cr_assert(eq(int, fake->live_jobs, 0));
    cr_assert_not_null(strstr(fake->last_head, "Authorization: Bearer tok\r\n"));
}

Test(shellctl_commands, cwd_and_env_arrive)
{
    const char *env[] = {"A\"B", "c'd", NULL};
    struct outcome o = control(
        (struct control_command){.script = "pwd; tr '\\0' '\\n' </proc/$$/environ | grep 'A\"B'",
                                 .cwd = "/usr/bin",
                                 .env = env});

    cr_assert(eq(str, o.output, "/usr/bin\nA\"B=c'd\n"), "%s", o.error.message);
}

Test(shellctl_commands, long_output_comes_whole_over_several_windows)
{
    struct outcome o;

    fake->run_answers_early = true;
    o = control((struct control_command){
        .script = "i=0; while [ $i -lt 20000 ]; do echo 12345678; i=$((i+1)); done"});
    cr_assert(eq(int, o.error.code, ERR_NONE), "%s", o.error.message);
    cr_assert(eq(sz, o.output_len, 180000));
    cr_assert(gt(int, fake->calls[FAKE_WAIT_JOB], 1));
    cr_assert(eq(int, fake->live_jobs, 0));
}

Test(shellctl_commands, too_much_output_is_refused)
{
    struct outcome o =
        control((struct control_command){.script = "head -c 400000 /dev/zero | tr '\\0' x"});

    cr_assert(eq(int, o.error.code, ERR_UPSTREAM_PROTOCOL));
    cr_assert(eq(int, fake->live_jobs, 0));
}

Test(shellctl_commands, only_exited_is_success)
{
    static const char *const states[] = {"failed", "lost", "terminated"};

    for (int i = 0; i < 3; i++) {
        struct outcome o;
        fake->status_instead = states[i];
        o = control((struct control_command){.script = "true"});
        cr_assert(eq(int, o.error.code, ERR_UPSTREAM_STATUS));
        cr_assert_not_null(strstr(o.error.upstream_code, states[i]));
        cr_assert_not(shellctl_says_gone(&o.error));
        cr_assert(eq(int, fake->live_jobs, 0));
    }
}

Test(shellctl_commands, one_total_deadline_however_many_waits)
{
    struct outcome o = control((struct control_command){
        .script = "while :; do echo x; sleep 0.01; done", .deadline_ms = 300});

    cr_assert(eq(int, o.error.code, ERR_DEADLINE));
    cr_assert(eq(int, fake->live_jobs, 0), "killed and deleted");
}

Test(shellctl_commands, a_job_forgotten_is_run_again_once)
{
    struct outcome o;

    fake->run_answers_early = true;
    fake->forget_waits = 1;
    o = control((struct control_command){.script = "echo x", .repeatable = true});
    cr_assert(eq(str, o.output, "x\n"), "%s", o.error.message);
    cr_assert(eq(int, fake->calls[FAKE_RUN_JOB], 2));

    fake->forget_waits = 5;
    o = control((struct control_command){.script = "echo x", .repeatable = true});
    cr_assert(eq(int, o.error.code, ERR_UPSTREAM_STATUS));
    cr_assert(eq(str, o.error.upstream_code, "job_not_found"));
    cr_assert_not_null(strstr(o.error.message, "twice"), "%s", o.error.message);
    cr_assert_not(shellctl_says_gone(&o.error));

    fake_shellctl_reset_calls(fake);
    fake->forget_waits = 1;
    o = control((struct control_command){.script = "echo x"});
    cr_assert(eq(str, o.error.upstream_code, "job_not_found"), "not repeatable");
    cr_assert(eq(int, fake->calls[FAKE_RUN_JOB], 1));
    cr_assert(eq(int, fake->live_jobs, 0));
}

Test(shellctl_commands, a_window_that_does_not_advance_is_refused)
{
    struct outcome o;

    fake->stuck_window = true;
    o = control((struct control_command){.script = "echo x"});
    cr_assert(eq(int, o.error.code, ERR_UPSTREAM_PROTOCOL));
    o = command((struct command_spec){.script = "echo x", .timeout_ms = 1000});
    cr_assert(eq(int, o.error.code, ERR_UPSTREAM_PROTOCOL));
    cr_assert(eq(int, fake->live_jobs, 0));
}

Test(shellctl_commands, a_failing_delete_is_tried_again_then_counted)
{
    struct outcome o;

    fake_shellctl_fail(fake, FAKE_DELETE_JOB, FAULT_REPLY, -1,
                       "HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n");
    o = control((struct control_command){.script = "true"});
    cr_assert(eq(int, o.error.code, ERR_NONE), "the result is not hidden");
    cr_assert(eq(int, fake->calls[FAKE_DELETE_JOB], 3));
    cr_assert(eq(dbl, metric_value(METRIC_PROBE_JOBS_LEFT, LABELS("test")), 1));
    fake->fault_times[FAKE_DELETE_JOB] = 1;
    o = control((struct control_command){.script = "true"});
    cr_assert(eq(dbl, metric_value(METRIC_PROBE_JOBS_LEFT, LABELS("test")), 1));
}

static void note_finished(void *ctx)
{
    *(bool *)ctx = true;
}

Test(shellctl_commands, at_the_end_of_the_process_deletes_get_a_little_time)
{
    struct outcome o;
    bool finished = false;

    fake_shellctl_fail(fake, FAKE_DELETE_JOB, FAULT_HANG, 1, NULL);
    start((struct control_command){.script = "true"}, NULL, &o);
    while (!o.done)
        loop_turn(loop, true);
    cr_assert(eq(int, job_deletes_running(), 1));
    job_deletes_finish(loop, 50, note_finished, &finished);
    cr_assert_not(finished);
    while (!finished)
        loop_turn(loop, true);
    cr_assert(eq(int, job_deletes_running(), 0));
    cr_assert(eq(dbl, metric_value(METRIC_PROBE_JOBS_LEFT, LABELS("test")), 1));
}

Test(shellctl_commands, with_nothing_under_way_the_end_is_at_once)
{
    bool finished = false;

    job_deletes_finish(loop, 60000, note_finished, &finished);
    loop_turn(loop, false);
    cr_assert(finished);
}

Test(shellctl_commands, the_caller_goes_away_while_the_job_runs)
{
    struct outcome o;
    struct holder *h;

    fake->run_answers_early = true;
    h = start((struct control_command){.script = "sleep 30"}, NULL, &o);
    while (fake->calls[FAKE_WAIT_JOB] == 0)
        loop_turn(loop, true);
    op_cancel(&h->op, "gone");
    finish(&o);
    cr_assert(eq(int, o.error.code, ERR_CANCELLED));
    cr_assert(eq(int, fake->live_jobs, 0));
}

Test(shellctl_commands, an_unanswered_run_is_counted_as_a_job_left)
{
    struct outcome o;

    fake_shellctl_fail(fake, FAKE_RUN_JOB, FAULT_HANG, 1, NULL);
    o = control((struct control_command){.script = "true", .deadline_ms = 100, .repeatable = true});
    cr_assert(eq(int, o.error.code, ERR_DEADLINE));
    cr_assert(eq(dbl, metric_value(METRIC_PROBE_JOBS_LEFT, LABELS("test")), 1));
}

Test(shellctl_commands, errors_of_the_run_keep_their_class)
{
    static const struct {
        const char *reply;
        enum err_code code;
        bool gone;
    } cases[] = {
        {"HTTP/1.1 404 x\r\nContent-Length: 3\r\n\r\nabc", ERR_UPSTREAM_STATUS, false},
        {"HTTP/1.1 404 x\r\nContent-Length: "
         "49\r\n\r\n{\"error\":{\"code\":\"sandbox_expired\",\"message\":\"\"}}",
         ERR_UPSTREAM_STATUS, true},
        {"HTTP/1.1 502 x\r\nContent-Length: 0\r\n\r\n", ERR_UPSTREAM_STATUS, false},
        {"HTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\n{}", ERR_UPSTREAM_PROTOCOL, false},
        {"garbage\r\n\r\n", ERR_UPSTREAM_PROTOCOL, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct outcome o;
        fake_shellctl_fail(fake, FAKE_RUN_JOB, FAULT_REPLY, 1, cases[i].reply);
        o = control((struct control_command){.script = "true"});
        cr_assert(eq(int, o.error.code, cases[i].code), "%zu: %s", i, o.error.message);
        cr_assert(eq(int, shellctl_says_gone(&o.error), cases[i].gone), "%zu", i);
    }
}

/* ---- callers' commands ------------------------------------------------------------------------ */

Test(shellctl_commands, a_command_runs_in_the_workspace_with_its_home)
{
    const char *env[] = {"HOME", "/evil", "X", "1", NULL};
    struct outcome o =
        command((struct command_spec){.script = "pwd; echo $HOME $X; exit 7", .env = env});

    cr_assert(eq(int, o.error.code, ERR_NONE), "%s", o.error.message);
    cr_assert(eq(str, o.status, "exited"));
    cr_assert(eq(int, o.exit_code, 7));
    cr_assert(eq(str, o.output, "/usr\n/tmp 1\n"));
    cr_assert(eq(int, fake->calls[FAKE_RUN_JOB], 1));
    cr_assert(eq(int, fake->calls[FAKE_WAIT_JOB], 0));
    cr_assert(eq(int, fake->live_jobs, 0));
}

Test(shellctl_commands, time_over_stops_the_command_and_is_a_result)
{
    struct outcome o =
        command((struct command_spec){.script = "echo a; sleep 30", .timeout_ms = 150});

    cr_assert(eq(int, o.error.code, ERR_NONE), "%s", o.error.message);
    cr_assert(eq(str, o.stop_reason, "timeout"));
    cr_assert(eq(str, o.status, "terminated"));
    cr_assert(eq(str, o.output, "a\n"));
    cr_assert(eq(int, fake->live_jobs, 0));
}

Test(shellctl_commands, output_is_cut_at_a_character)
{
    struct outcome o = command((struct command_spec){
        .script =
            "i=0; while [ $i -lt 100 ]; do printf '\\342\\230\\225'; i=$((i+1)); done; sleep 30",
        .max_output = 100,
        .timeout_ms = 10000});

    cr_assert(eq(int, o.error.code, ERR_NONE), "%s", o.error.message);
    cr_assert(eq(str, o.stop_reason, "output_limit"));
    cr_assert(o.truncated);
    cr_assert(eq(sz, o.output_len, 99));
    cr_assert(eq(int, fake->live_jobs, 0));
}

Test(shellctl_commands, output_of_exactly_the_limit_is_not_truncated)
{
    struct outcome o =
        command((struct command_spec){.script = "printf 0123456789", .max_output = 10});

    cr_assert(eq(str, o.output, "0123456789"));
    cr_assert_not(o.truncated);
    cr_assert(eq(str, o.stop_reason, ""));
}

Test(shellctl_commands, cwd_rules)
{
    static const struct {
        const char *cwd, *want;
    } cases[] = {
        {NULL, "/w/s"},        {"", "/w/s"},          {"~", "/h"},
        {"~/a/./b", "/h/a/b"}, {"x//y/", "/w/s/x/y"}, {"/w/s/../s/z", "/w/s/z"},
        {"/h", "/h"},          {"../s", "/w/s"},      {"..", NULL},
        {"/", NULL},           {"/w/ss", NULL},       {"~/..", NULL},
        {"/etc", NULL},        {"~x", "/w/s/~x"},     {"a/../../../etc", NULL},
    };
    struct layout where = {"/h", "/w/s"};
    struct arena *arena = arena_new();

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = {0};
        const char *got = shellctl_resolve_cwd(arena, &where, cases[i].cwd, &err);
        if (cases[i].want == NULL) {
            cr_assert_null(got, "%s", cases[i].cwd);
            cr_assert(eq(int, err.code, ERR_BAD_REQUEST));
        } else {
            cr_assert_str_eq(got, cases[i].want);
        }
    }
    arena_free(arena);
}

Test(shellctl_commands, a_sandbox_gone_under_the_command_is_lost)
{
    struct outcome o;

    fake_shellctl_fail(fake, FAKE_RUN_JOB, FAULT_REPLY, 1,
                       "HTTP/1.1 404 x\r\nConnection: close\r\nContent-Length: 51\r\n\r\n"
                       "{\"error\":{\"code\":\"sandbox_not_found\",\"message\":\"\"}}");
    o = command((struct command_spec){.script = "true"});
    cr_assert(eq(int, o.error.code, ERR_BINDING_LOST));
}

/* ---- torture -------------------------------------------------------------------------------- */

static void torture(enum op_torture what, const struct command_spec *spec)
{
    struct control_command c = {.script = "echo x", .repeatable = true};
    struct outcome o;
    uint32_t waits;

    fake->run_answers_early = true;
    op_torture_arm(OP_TORTURE_NONE, 0);
    start(c, spec, &o);
    finish(&o);
    cr_assert(eq(int, o.error.code, ERR_NONE), "%s", o.error.message);
    waits = op_torture_waits();
    for (uint32_t k = 1; k <= waits; k++) {
        op_torture_arm(what, k);
        start(c, spec, &o);
        finish(&o);
        cr_assert(o.done);
        op_torture_arm(OP_TORTURE_NONE, 0);
        /* A run whose answer was thrown away is the one job that cannot be known. */
        cr_assert(le(int, fake->live_jobs, 1), "wait %u", k);
        while (fake->live_jobs > 0) {
            struct fake_shellctl *old = fake;
            fake = fake_shellctl_new(loop, NULL);
            fake->run_answers_early = true;
            endpoint.base_url = fake_shellctl_url(fake);
            fake_shellctl_free(old);
        }
    }
}

Test(shellctl_commands, torture_fail)
{
    torture(OP_TORTURE_FAIL, NULL);
    torture(OP_TORTURE_FAIL, &(struct command_spec){.script = "echo x"});
}

Test(shellctl_commands, torture_lose)
{
    torture(OP_TORTURE_LOSE, NULL);
    torture(OP_TORTURE_LOSE, &(struct command_spec){.script = "echo x"});
}

Test(shellctl_commands, torture_cancel)
{
    torture(OP_TORTURE_CANCEL, NULL);
    torture(OP_TORTURE_CANCEL, &(struct command_spec){.script = "echo x"});
}

/* ---- limits of a call ------------------------------------------------------------------------- */

Test(shellctl_commands, a_call_that_does_not_wait_has_the_endpoints_limit)
{
    struct outcome o;

    fake_shellctl_fail(fake, FAKE_DELETE_JOB, FAULT_HANG, 2, NULL);
    endpoint.call_timeout_ms =
        100; /* three deletes of the default 15 s would outlast the suite's limit */
    o = control((struct control_command){.script = "true"});
    cr_assert(eq(int, o.error.code, ERR_NONE), "%s", o.error.message);
    cr_assert(
        ge(int, fake->calls[FAKE_DELETE_JOB], 2)); /* the first was given up and tried again */
}
