/* The job table and the state machine: what may follow what, what each move sets, who sees whom. */
#include "backends/shellctld/job.h"

#include "backends/shellctld/fault.h"
#include "backends/shellctld/job_process.h"
#include "unit/backends/shellctld/jobs_fixture.h"

#include <criterion/criterion.h>

TestSuite(job, .init = jobs_set_up, .fini = jobs_tear_down, .timeout = 20);

static const struct scope control = {NULL, NULL};
static const struct scope alice = {"/homes/alice", "/work/one"};
static const struct scope bob = {"/homes/bob", "/work/one"};

static struct job *plain_job(const char *id, int64_t created_wall_ms)
{
    return job_add(jobs.table, id, &control, "/nowhere", created_wall_ms);
}

Test(job, moves_only_from_the_states_named)
{
    struct job *job = plain_job("00000000000000aa", 1000);

    cr_assert_eq(job->status, JOB_CREATED);
    cr_assert_not(job_move(job, JOB_BIT(JOB_STARTING), JOB_RUNNING));
    cr_assert_eq(job->status, JOB_CREATED);
    cr_assert_eq(job->started_wall_ms, 0);
    cr_assert(job_move(job, JOB_BIT(JOB_CREATED), JOB_STARTING));
    cr_assert_eq(job->started_wall_ms, loop_wall_ms(jobs.loop));
    cr_assert(job_move(job, JOB_LIVE, JOB_RUNNING));
    cr_assert_eq(job->ended_wall_ms, 0);
}

Test(job, the_first_end_stays)
{
    static const enum job_status ends[] = {JOB_EXITED, JOB_TERMINATED, JOB_FAILED, JOB_LOST};

    for (size_t i = 0; i < 4; i++) {
        char id[] = "00000000000000b0";
        id[15] = (char)('0' + i);
        struct job *job = plain_job(id, 1000);
        cr_assert_eq(job_live_count(jobs.table), 1);
        cr_assert(job_move(job, JOB_LIVE, ends[i]));
        cr_assert_eq(job_live_count(jobs.table), 0);
        int64_t ended = job->ended_wall_ms;
        cr_assert_eq(ended, loop_wall_ms(jobs.loop));
        loop_advance_ms(jobs.loop, 5000);
        for (size_t k = 0; k < 4; k++)
            cr_assert_not(job_move(job, JOB_LIVE, ends[k]));
        cr_assert_not(job_move_exited(job, 7, 1));
        cr_assert_eq(job->status, ends[i]);
        cr_assert_eq(job->exit_code, 0);
        cr_assert_eq(job->ended_wall_ms, ended);
    }
}

Test(job, every_name_is_the_protocols)
{
    static const char *const names[] = {"created",    "starting", "running", "exited",
                                        "terminated", "failed",   "lost"};

    for (int i = 0; i < JOB_STATUS_COUNT; i++) {
        cr_assert_str_eq(job_status_name((enum job_status)i), names[i]);
        cr_assert_eq(job_status_is_terminal((enum job_status)i), i >= JOB_EXITED);
    }
}

Test(job, newest_first_even_when_loaded_out_of_order)
{
    struct job *job;

    plain_job("00000000000000c2", 2000);
    plain_job("00000000000000c1", 1000);
    plain_job("00000000000000c4", 4000);
    plain_job("00000000000000c3", 3000);
    plain_job("00000000000000c5", 4000);
    job = job_first(jobs.table);
    for (char c = '5'; c >= '1'; c--) {
        cr_assert_eq(job->id[15], c);
        job = job_next(job);
    }
    cr_assert_null(job);
}

Test(job, other_scopes_do_not_exist)
{
    struct job *of_alice = job_add(jobs.table, "00000000000000d1", &alice, "/nowhere", 1);
    struct job *of_control = plain_job("00000000000000d2", 1);
    struct error err = {0};

    cr_assert_eq(job_find_in(jobs.table, of_alice->id, &alice, &err), of_alice);
    cr_assert_eq(job_find_in(jobs.table, of_control->id, &control, &err), of_control);
    cr_assert_null(job_find_in(jobs.table, of_alice->id, &bob, &err));
    cr_assert_str_eq(fault_code(&err), "job_not_found");
    cr_assert_null(job_find_in(jobs.table, of_alice->id, &control, &err));
    cr_assert_null(job_find_in(jobs.table, of_control->id, &alice, &err));
    cr_assert_null(job_find_in(jobs.table, "", &control, &err));
    job_remove(of_alice);
    cr_assert_null(job_find_in(jobs.table, "00000000000000d1", &alice, &err));
    cr_assert_eq(job_count(jobs.table), 1);
}

/* ---- what follows from a runner's end --------------------------------------------------------- */

Test(job, follows_its_runner_from_start_to_exit)
{
    struct job *job = jobs_add(NULL);

    cr_assert_eq(job->status, JOB_STARTING);
    job_process_refresh(job);
    cr_assert_eq(job->status, JOB_STARTING);
    fake_runner_begin(job->dir);
    job_process_refresh(job);
    cr_assert_eq(job->status, JOB_RUNNING);
    fake_runner_end(job->dir, RUNNER_EXITED, 3, 1790000009000);
    loop_turn(jobs.loop, false);
    cr_assert_eq(job->status, JOB_EXITED);
    cr_assert_eq(job->exit_code, 3);
    cr_assert_eq(job->ended_wall_ms, 1790000009000);
    cr_assert_null(job->process);
}

Test(job, a_runner_that_cannot_be_spawned_is_a_failed_job)
{
    struct job *job;

    fake_runner_default.refuse_spawn = true;
    job = jobs_add(NULL);
    cr_assert_eq(job->status, JOB_FAILED);
    cr_assert_neq(job->ended_wall_ms, 0);
    cr_assert_null(job->process);
}

Test(job, a_runner_that_reports_a_failed_start_is_a_failed_job)
{
    struct job *job = jobs_add(NULL);

    fake_runner_end(job->dir, RUNNER_FAILED, 125, 5);
    loop_turn(jobs.loop, false);
    cr_assert_eq(job->status, JOB_FAILED);
    cr_assert_eq(job->exit_code, 0, "no exit code but of a script that ended");
}

Test(job, a_runner_gone_without_a_word_is_a_lost_job_once_its_rest_is_gone)
{
    struct job *job;

    fake_runner_default.clean_ups_needed = 3;
    job = jobs_add(NULL);
    fake_runner_vanish(job->dir);
    loop_turn(jobs.loop, false);
    cr_assert_eq(job->status, JOB_STARTING, "its processes are still going away");
    loop_advance_ms(jobs.loop, 1000);
    cr_assert_eq(job->status, JOB_LOST);
    cr_assert_eq(fake_runner_of(job->dir)->clean_ups, 4);
}

Test(job, a_rest_that_never_goes_is_called_lost_in_the_end)
{
    struct job *job;

    fake_runner_default.clean_ups_needed = 1000000;
    job = jobs_add(NULL);
    fake_runner_vanish(job->dir);
    loop_advance_ms(jobs.loop, 9000);
    cr_assert_eq(job->status, JOB_LOST);
}

/* ---- adopting after a restart ------------------------------------------------------------------ */

/* A job as job_store_load leaves it. */
static struct job *loaded_job(void)
{
    struct job *job = jobs_add(NULL);

    job_process_detach(job);
    return job;
}

Test(job, adopts_a_living_runner_and_sees_its_end)
{
    struct job *job = loaded_job();

    fake_runner_begin(job->dir);
    job_process_adopt(job);
    cr_assert_eq(job->status, JOB_RUNNING);
    fake_runner_end(job->dir, RUNNER_EXITED, 0, 77);
    loop_turn(jobs.loop, false);
    cr_assert_eq(job->status, JOB_EXITED);
}

Test(job, waits_for_a_runner_that_has_not_written_its_pid)
{
    struct job *job = loaded_job();

    fake_runner_of(job->dir)->has_record = false;
    job_process_adopt(job);
    loop_advance_ms(jobs.loop, 200);
    cr_assert_eq(job->status, JOB_STARTING);
    fake_runner_of(job->dir)->has_record = true;
    loop_advance_ms(jobs.loop, 200);
    fake_runner_end(job->dir, RUNNER_EXITED, 0, 77);
    loop_turn(jobs.loop, false);
    cr_assert_eq(job->status, JOB_EXITED);
}

Test(job, reads_the_result_of_a_runner_that_ended_meanwhile)
{
    struct job *job = loaded_job();

    fake_runner_end(job->dir, RUNNER_EXITED, 9, 55);
    job_process_adopt(job);
    cr_assert_eq(job->status, JOB_EXITED);
    cr_assert_eq(job->exit_code, 9);
    cr_assert_eq(job->ended_wall_ms, 55);
}

/* Case A60: a starting row with no owner becomes failed. */
Test(job, whose_runner_was_never_started_has_failed)
{
    struct job *job = loaded_job();

    fake_runner_of(job->dir)->alive = false;
    job_process_adopt(job);
    cr_assert_eq(job->status, JOB_FAILED);
    cr_assert_eq(fake_runner_of(job->dir)->kills, 0);
}

Test(job, whose_runner_never_shows_itself_is_lost_after_a_while)
{
    struct job *job = loaded_job();

    fake_runner_of(job->dir)->has_record = false;
    job_process_adopt(job);
    loop_advance_ms(jobs.loop, 10000);
    cr_assert(job_status_is_terminal(job->status));
    cr_assert_neq(job->status, JOB_EXITED);
}
