/* The rules of wait (shellctl protocol section 8.1) under a virtual clock, and its torture. */
#include "backends/shellctld/job_wait.h"

#include "backends/shellctld/fault.h"
#include "backends/shellctld/job_process.h"
#include "support/op_torture.h"
#include "unit/backends/shellctld/jobs_fixture.h"

#include <criterion/criterion.h>
#include <string.h>

static struct arena *arena;
static struct job *job;

static void set_up(void)
{
    jobs_set_up();
    arena = arena_new();
    job = jobs_add(NULL);
    fake_runner_begin(job->dir);
}

static void tear_down(void)
{
    jobs_tear_down();
    arena_free(arena);
}

TestSuite(job_wait, .init = set_up, .fini = tear_down, .timeout = 20);

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

/* Started; its first look has been taken. */
static struct job_wait *begin(const struct wait_request *request, struct outcome *o)
{
    struct job_wait *w = job_wait_new(jobs.loop, arena, NULL, jobs.table,
                                      arena_strdup(arena, job->id), &control, request);

    *o = (struct outcome){0};
    op_start(&w->op, note, o);
    loop_turn(jobs.loop, false);
    return w;
}

static void print(const char *text)
{
    fake_runner_write(job->dir, text, strlen(text));
}

static const struct wait_request usual = {
    .output_limit = 100, .idle_flush_ms = 500, .timeout_ms = 10000};
static struct wait_request request;

/* The usual request with some fields set differently. */
#define REQUEST(...) (request = usual, __VA_ARGS__, &request)

static void expect(const struct job_wait *w, const char *output, int64_t offset, bool truncated)
{
    cr_assert_str_eq(buf_text(&w->result.output), output);
    cr_assert_eq(w->result.offset, offset);
    cr_assert_eq(w->result.truncated, truncated);
}

Test(job_wait, zero_and_negative_timeouts_are_one_look)
{
    struct outcome o;
    struct job_wait *w = begin(REQUEST(request.timeout_ms = 0), &o);

    cr_assert_eq(o.calls, 1);
    expect(w, "", 0, false);
    cr_assert_eq(w->result.status, JOB_RUNNING);
    print("hello");
    w = begin(REQUEST(request.timeout_ms = -5, request.offset = 1), &o);
    cr_assert_eq(o.calls, 1);
    expect(w, "ello", 5, false);
}

Test(job_wait, silence_lasts_until_the_timeout)
{
    struct outcome o;
    int64_t begun = loop_now_ms(jobs.loop);
    struct job_wait *w = begin(REQUEST(request.timeout_ms = 3000), &o);

    loop_advance_ms(jobs.loop, 2990);
    cr_assert_eq(o.calls, 0);
    loop_advance_ms(jobs.loop, 20);
    cr_assert_eq(o.calls, 1);
    cr_assert_eq(o.at_ms, begun + 3000);
    expect(w, "", 0, false);
}

Test(job_wait, output_is_given_when_nothing_was_added_for_the_idle_time)
{
    struct outcome o;
    struct job_wait *w = begin(REQUEST(request.timeout_ms = 9000), &o);

    loop_advance_ms(jobs.loop, 1000);
    print("one ");
    loop_advance_ms(jobs.loop, 400);
    print("two");
    loop_advance_ms(jobs.loop, 450);
    cr_assert_eq(o.calls, 0, "growth moves the end of the idle time");
    loop_advance_ms(jobs.loop, 120);
    cr_assert_eq(o.calls, 1);
    expect(w, "one two", 7, false);
}

Test(job_wait, output_there_before_counts_as_new_when_the_wait_begins)
{
    struct outcome o;
    struct job_wait *w;

    print("old");
    loop_advance_ms(jobs.loop, 5000);
    int64_t begun = loop_now_ms(jobs.loop);
    w = begin(REQUEST(request.offset = 0), &o);
    cr_assert_eq(o.calls, 0);
    loop_advance_ms(jobs.loop, 600);
    cr_assert_eq(o.at_ms, begun + 500);
    expect(w, "old", 3, false);
}

Test(job_wait, negative_idle_gives_the_first_byte_at_once)
{
    struct outcome o;
    struct job_wait *w;

    print("x");
    w = begin(REQUEST(request.idle_flush_ms = -1), &o);
    cr_assert_eq(o.calls, 1);
    expect(w, "x", 1, false);
}

Test(job_wait, a_full_window_is_given_at_once)
{
    struct outcome o;
    struct job_wait *w = begin(REQUEST(request.output_limit = 4), &o);

    print("abcd");
    loop_advance_ms(jobs.loop, 60);
    cr_assert_eq(o.calls, 0, "not more than fits");
    print("e");
    loop_advance_ms(jobs.loop, 60);
    cr_assert_eq(o.calls, 1);
    expect(w, "abcd", 4, true);
}

Test(job_wait, the_timeout_gives_what_is_there)
{
    struct outcome o;
    struct job_wait *w = begin(REQUEST(request.timeout_ms = 1000), &o);

    loop_advance_ms(jobs.loop, 900);
    print("late");
    loop_advance_ms(jobs.loop, 110);
    cr_assert_eq(o.calls, 1);
    expect(w, "late", 4, false);
    cr_assert_eq(w->result.status, JOB_RUNNING);
}

Test(job_wait, the_end_of_the_job_is_seen_at_once)
{
    struct outcome o;
    struct job_wait *w = begin(&usual, &o);

    loop_advance_ms(jobs.loop, 1234);
    print("bye");
    fake_runner_end(job->dir, RUNNER_EXITED, 4, 1);
    loop_turn(jobs.loop, false);
    cr_assert_eq(o.calls, 1, "without a pause");
    expect(w, "bye", 3, false);
    cr_assert_eq(w->result.status, JOB_EXITED);
    cr_assert_eq(w->result.exit_code, 4);
    cr_assert_str_eq(w->result.output_path, job->output_path);
}

Test(job_wait, an_ended_job_answers_every_wait_at_once)
{
    struct outcome o;
    struct job_wait *w;

    print("abcdef");
    fake_runner_end(job->dir, RUNNER_EXITED, 0, 1);
    loop_turn(jobs.loop, false);
    w = begin(REQUEST(request.output_limit = 4), &o);
    cr_assert_eq(o.calls, 1);
    expect(w, "abcd", 4, true);
    w = begin(REQUEST(request.offset = 4, request.output_limit = 4), &o);
    cr_assert_eq(o.calls, 1);
    expect(w, "ef", 6, false);
}

/* A character in writing is no output yet; when the writer ends, what is left of it is replaced. */
Test(job_wait, half_a_character_is_waited_for)
{
    struct outcome o;
    struct job_wait *w = begin(REQUEST(request.timeout_ms = 5000), &o);

    print("\xE2\x98");
    loop_advance_ms(jobs.loop, 2000);
    cr_assert_eq(o.calls, 0);
    print("\x95");
    loop_advance_ms(jobs.loop, 600);
    cr_assert_eq(o.calls, 1);
    expect(w, "\xE2\x98\x95", 3, false);
    w = begin(REQUEST(request.offset = 3), &o);
    print("\xE2");
    loop_advance_ms(jobs.loop, 100);
    fake_runner_end(job->dir, RUNNER_EXITED, 0, 1);
    loop_turn(jobs.loop, false);
    expect(w, "\xEF\xBF\xBD", 4, false);
}

Test(job_wait, offsets_beyond_the_output_are_refused)
{
    struct outcome o;

    print("abc");
    begin(REQUEST(request.offset = 4), &o);
    cr_assert_str_eq(fault_code(&o.error), "invalid_offset");
    begin(REQUEST(request.offset = -1), &o);
    cr_assert_str_eq(fault_code(&o.error), "invalid_offset");
    begin(REQUEST(request.offset = 3, request.timeout_ms = 0), &o);
    cr_assert_eq(o.error.code, ERR_NONE);
}

Test(job_wait, a_job_deleted_meanwhile_is_unknown)
{
    struct outcome o;

    begin(&usual, &o);
    job_process_detach(job);
    job_remove(job);
    loop_turn(jobs.loop, false);
    cr_assert_eq(o.calls, 1);
    cr_assert_str_eq(fault_code(&o.error), "job_not_found");
}

Test(job_wait, many_waits_on_one_job_end_together)
{
    struct outcome o[20];

    for (int i = 0; i < 20; i++)
        begin(&usual, &o[i]);
    fake_runner_end(job->dir, RUNNER_EXITED, 0, 1);
    loop_turn(jobs.loop, false);
    for (int i = 0; i < 20; i++)
        cr_assert_eq(o[i].calls, 1);
}

/* Pauses grow from 5 to 50 ms: a second of silence is some 23 looks, not hundreds. */
Test(job_wait, looks_seldom)
{
    struct outcome o;
    uint32_t waits;

    op_torture_arm(OP_TORTURE_NONE, 0);
    begin(REQUEST(request.timeout_ms = 1000), &o);
    loop_advance_ms(jobs.loop, 1001);
    waits = op_torture_waits();
    cr_assert_eq(o.calls, 1);
    cr_assert(waits >= 20 && waits <= 26, "%u pauses", waits);
}

/* Every pause failed, lost and cancelled: the wait ends once, and the job stays as it was. */
static void torture_start(struct torture_run *run)
{
    jobs_set_up_on(run->loop);
    job = jobs_add(NULL);
    fake_runner_begin(job->dir);
    request = usual;
    request.timeout_ms = 300;
    op_start(&job_wait_new(run->loop, NULL, NULL, jobs.table, job->id, &control, &request)->op,
             torture_done, run);
}

static void torture_check(struct torture_run *run)
{
    cr_assert_eq(job->status, JOB_RUNNING, "%s", run->what_happened);
    cr_assert(list_empty(&job->watchers), "%s", run->what_happened);
    jobs_tear_down();
}

Test(job_wait_torture, leaves_nothing_behind, .timeout = 60)
{
    op_torture_run(&(struct torture_scenario){.start = torture_start, .check = torture_check});
}
