/* Stopping, deleting and typing: order of events under a virtual clock, and torture. */
#include "backends/shellctld/fault.h"
#include "backends/shellctld/job_delete.h"
#include "backends/shellctld/job_input.h"
#include "backends/shellctld/job_process.h"
#include "backends/shellctld/job_stop.h"
#include "support/op_torture.h"
#include "unit/backends/shellctld/jobs_fixture.h"

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

static struct arena *arena;
static struct job *job;
static char id[JOB_ID_CHARS + 1], dir[128];

static void new_job(void)
{
    job = jobs_add(NULL);
    strcpy(id, job->id);
    strcpy(dir, job->dir);
    fake_runner_begin(dir);
    job_process_refresh(job);
}

static void set_up(void)
{
    jobs_set_up();
    arena = arena_new();
    new_job();
}

static void tear_down(void)
{
    jobs_tear_down();
    arena_free(arena);
}

TestSuite(job_end, .init = set_up, .fini = tear_down, .timeout = 20);

static const struct scope control = {NULL, NULL};

struct outcome {
    int calls;
    struct error error;
    int64_t at_ms;
};

static void note(struct op *op, void *ctx)
{
    struct outcome *o = ctx;

    o->calls++;
    o->error = *op_error(op);
    o->at_ms = loop_now_ms(op->loop);
}

static void begin(struct op *op, struct outcome *o)
{
    *o = (struct outcome){0};
    op_start(op, note, o);
    loop_turn(jobs.loop, false);
}

static struct op *stop(int64_t grace_ms)
{
    return &job_stop_new(jobs.loop, arena, NULL, jobs.table, id, &control, grace_ms)->op;
}

static struct op *delete (bool force)
{
    return &job_delete_new(jobs.loop, arena, jobs.table, id, &control, force, 1000)->op;
}

static struct op *input(const char *text)
{
    struct input_request request = {
        .text = text, .text_len = strlen(text), .wait = {.timeout_ms = 0, .output_limit = 100}};

    return &job_input_new(jobs.loop, arena, jobs.table, id, &control, &request)->op;
}

/* ---- stop ------------------------------------------------------------------------------------- */

Test(job_end, stop_returns_when_the_processes_have_gone_not_when_the_grace_is_over)
{
    struct outcome o;
    int64_t begun = loop_now_ms(jobs.loop);

    begin(stop(10000), &o);
    loop_turn(jobs.loop, false);
    cr_assert_eq(o.calls, 1);
    cr_assert_eq(o.error.code, ERR_NONE);
    cr_assert_eq(o.at_ms, begun);
    cr_assert_eq(job->status, JOB_TERMINATED);
    cr_assert_eq(fake_runner_of(dir)->grace_ms, 10000);
    cr_assert_eq(fake_runner_of(dir)->terminates, 1);
}

Test(job_end, stop_waits_for_a_slow_end)
{
    struct outcome o;

    fake_runner_of(dir)->stubborn = true;
    begin(stop(2000), &o);
    loop_advance_ms(jobs.loop, 1900);
    cr_assert_eq(o.calls, 0);
    cr_assert_eq(job->status, JOB_RUNNING, "live until its processes are gone");
    fake_runner_end(dir, RUNNER_TERMINATED, 137, 1);
    loop_turn(jobs.loop, false);
    cr_assert_eq(o.calls, 1);
    cr_assert_eq(job->status, JOB_TERMINATED);
}

Test(job_end, stop_kills_a_runner_that_does_not_end_its_job)
{
    struct outcome o;

    fake_runner_of(dir)->stubborn = true;
    begin(stop(2000), &o);
    loop_advance_ms(jobs.loop, 20000);
    cr_assert_eq(o.calls, 1);
    cr_assert_eq(o.error.code, ERR_NONE);
    cr_assert_eq(fake_runner_of(dir)->kills, 1);
    cr_assert_eq(job->status, JOB_TERMINATED, "it was asked to end, so it is not lost");
}

Test(job_end, stop_kills_a_runner_that_takes_no_command)
{
    struct outcome o;

    fake_runner_of(dir)->deaf = true;
    begin(stop(60000), &o);
    loop_advance_ms(jobs.loop, 20000);
    cr_assert_eq(o.calls, 1);
    cr_assert_eq(fake_runner_of(dir)->kills, 1);
    cr_assert_eq(job->status, JOB_TERMINATED);
}

Test(job_end, stop_says_so_when_nothing_helps)
{
    struct outcome o;

    fake_runner_of(dir)->stubborn = fake_runner_of(dir)->unkillable = true;
    begin(stop(100), &o);
    loop_advance_ms(jobs.loop, 30000);
    cr_assert_eq(o.calls, 1);
    cr_assert_str_eq(fault_code(&o.error), "job_stop_failed");
    cr_assert_eq(job->status, JOB_RUNNING, "nothing is called ended that runs");
}

Test(job_end, stop_leaves_an_ended_job_as_it_is)
{
    struct outcome o;

    fake_runner_end(dir, RUNNER_EXITED, 5, 1);
    loop_turn(jobs.loop, false);
    begin(stop(10000), &o);
    cr_assert_eq(o.calls, 1);
    cr_assert_eq(job->status, JOB_EXITED);
    cr_assert_eq(job->exit_code, 5);
    cr_assert_eq(fake_runner_of(dir)->terminates, 0);
}

Test(job_end, two_stops_end_together)
{
    struct outcome a, b;

    fake_runner_of(dir)->stubborn = true;
    begin(stop(10000), &a);
    begin(stop(500), &b);
    cr_assert_eq(fake_runner_of(dir)->grace_ms, 500);
    fake_runner_end(dir, RUNNER_TERMINATED, 137, 1);
    loop_turn(jobs.loop, false);
    cr_assert(a.calls == 1 && b.calls == 1);
}

Test(job_end, stop_of_an_unknown_job_is_not_found)
{
    struct outcome o;

    strcpy(id, "00000000deadbeef");
    begin(stop(1), &o);
    cr_assert_str_eq(fault_code(&o.error), "job_not_found");
}

/* ---- delete ------------------------------------------------------------------------------------ */

Test(job_end, delete_refuses_a_live_job)
{
    struct outcome o;

    begin(delete (false), &o);
    cr_assert_str_eq(fault_code(&o.error), "job_running");
    cr_assert_eq(job->status, JOB_RUNNING);
    cr_assert_eq(fake_runner_of(dir)->terminates, 0);
}

Test(job_end, delete_by_force_stops_then_removes)
{
    struct outcome o;

    begin(delete (true), &o);
    loop_turn(jobs.loop, false);
    cr_assert_eq(o.calls, 1);
    cr_assert_eq(o.error.code, ERR_NONE);
    cr_assert_eq(job_count(jobs.table), 0);
    cr_assert_neq(access(dir, F_OK), 0, "its folder is gone");
    begin(delete (true), &o);
    cr_assert_str_eq(fault_code(&o.error), "job_not_found");
}

Test(job_end, delete_of_an_ended_job_needs_no_force)
{
    struct outcome o;

    fake_runner_end(dir, RUNNER_EXITED, 0, 1);
    loop_turn(jobs.loop, false);
    begin(delete (false), &o);
    cr_assert_eq(o.error.code, ERR_NONE);
    cr_assert_eq(job_count(jobs.table), 0);
}

/* A caller that goes away does not leave the job behind. */
Test(job_end, delete_goes_on_when_its_caller_has_gone)
{
    struct outcome o;
    struct op *op = delete (true);

    fake_runner_of(dir)->stubborn = true;
    begin(op, &o);
    op_cancel(op, "the client closed the connection");
    loop_advance_ms(jobs.loop, 100);
    cr_assert_eq(job_count(jobs.table), 1);
    fake_runner_end(dir, RUNNER_TERMINATED, 137, 1);
    loop_advance_ms(jobs.loop, 100);
    cr_assert_eq(o.calls, 1);
    cr_assert_eq(job_count(jobs.table), 0);
}

/* ---- input ------------------------------------------------------------------------------------- */

Test(job_end, input_reaches_the_runner)
{
    struct outcome o;

    begin(input("ls\n"), &o);
    loop_turn(jobs.loop, false);
    cr_assert_eq(o.calls, 1);
    cr_assert_eq(o.error.code, ERR_NONE);
    cr_assert_str_eq(fake_runner_of(dir)->input, "ls\n");
}

Test(job_end, input_is_tried_again_while_the_runner_is_busy)
{
    struct outcome o;

    fake_runner_of(dir)->deaf = true;
    begin(input("x"), &o);
    loop_advance_ms(jobs.loop, 300);
    cr_assert_eq(o.calls, 0);
    fake_runner_of(dir)->deaf = false;
    loop_advance_ms(jobs.loop, 300);
    cr_assert_eq(o.calls, 1);
    cr_assert_str_eq(fake_runner_of(dir)->input, "x", "once");
}

Test(job_end, input_gives_up_on_a_job_that_does_not_read)
{
    struct outcome o;

    fake_runner_of(dir)->deaf = true;
    begin(input("x"), &o);
    loop_advance_ms(jobs.loop, 10000);
    cr_assert_eq(o.error.code, ERR_OVERLOADED);
}

Test(job_end, input_to_an_ended_job_is_refused_before_its_mode_is_looked_at)
{
    struct outcome o;

    job->stdio = true;
    begin(input("x"), &o);
    cr_assert_str_eq(fault_code(&o.error), "input_unsupported");
    fake_runner_end(dir, RUNNER_EXITED, 0, 1);
    loop_turn(jobs.loop, false);
    begin(input("x"), &o);
    cr_assert_str_eq(fault_code(&o.error), "job_not_running");
}

Test(job_end, input_to_a_job_that_dies_on_the_way_is_refused)
{
    struct outcome o;

    fake_runner_of(dir)->alive = false;
    begin(input("x"), &o);
    cr_assert_str_eq(fault_code(&o.error), "job_not_running");
}

/* ---- torture ----------------------------------------------------------------------------------- */

/* What each run is about: set before op_torture_run. */
static struct op *(*torture_make)(void);
static bool torture_kills;

static struct op *stubborn_delete(void)
{
    fake_runner_of(dir)->stubborn = true;
    return delete (true);
}

static struct op *deaf_stop(void)
{
    fake_runner_of(dir)->deaf = true;
    return stop(1000);
}

static struct op *input_to_a_busy_runner(void)
{
    fake_runner_of(dir)->deaf = true;
    return input("x");
}

static void torture_start(struct torture_run *run)
{
    jobs_set_up_on(run->loop);
    arena = NULL;
    new_job();
    op_start(torture_make(), torture_done, run);
}

/* No watcher is left, and what is called ended has no process. */
static void torture_check(struct torture_run *run)
{
    job = job_find(jobs.table, id);
    if (job != NULL) {
        cr_assert(list_empty(&job->watchers), "%s", run->what_happened);
        cr_assert_eq(job_status_is_terminal(job->status), job->process == NULL, "%s",
                     run->what_happened);
    }
    if (torture_kills && !error_is(&run->error))
        cr_assert_not(fake_runner_of(dir)->alive, "%s", run->what_happened);
    jobs_tear_down();
}

Test(job_end_torture, delete, .timeout = 240)
{
    torture_make = stubborn_delete;
    torture_kills = true;
    op_torture_run(&(struct torture_scenario){.start = torture_start, .check = torture_check});
}

Test(job_end_torture, stop, .timeout = 240)
{
    torture_make = deaf_stop;
    torture_kills = true;
    op_torture_run(&(struct torture_scenario){.start = torture_start, .check = torture_check});
}

Test(job_end_torture, input, .timeout = 240)
{
    torture_make = input_to_a_busy_runner;
    torture_kills = false;
    op_torture_run(&(struct torture_scenario){
        .start = torture_start, .check = torture_check, .expected = ERR_OVERLOADED});
}
