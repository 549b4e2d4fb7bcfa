/* A job table with real folders and scripted runners, on a virtual clock. */
#pragma once

#include "backends/shellctld/job.h"
#include "backends/shellctld/job_process.h"
#include "unit/backends/shellctld/fake_runner.h"

#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>

/** Set up by jobs_set_up, gone after jobs_tear_down. */
struct jobs_fixture {
    struct loop *loop;
    bool own_loop;
    struct job_table *table;
    char dir[64]; /* holds the job folders */
    int made;
};

static struct jobs_fixture jobs;

/** On a loop of somebody else's, with a virtual clock. */
static void jobs_set_up_on(struct loop *loop)
{
    jobs = (struct jobs_fixture){.loop = loop};
    fake_runners_reset();
    snprintf(jobs.dir, sizeof(jobs.dir), "/tmp/bindery-jobs-XXXXXX");
    PRE(mkdtemp(jobs.dir) != NULL);
    jobs.table = job_table_new(jobs.loop);
}

static void jobs_set_up(void)
{
    jobs_set_up_on(
        loop_new(&(struct loop_options){.virtual_clock = true, .virtual_wall_ms = 1790000000000}));
    jobs.own_loop = true;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

static void jobs_tear_down(void)
{
    for (struct job *job = job_first(jobs.table); job != NULL; job = job_next(job))
        job_process_detach(job);
    loop_turn(jobs.loop, false);
    job_table_free(jobs.table);
    if (jobs.own_loop)
        loop_free(jobs.loop);
    fake_runners_reset();
    nftw(jobs.dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/** A starting job with a living runner, of the control scope or of `scope`. */
static __attribute__((unused)) struct job *jobs_add(const struct scope *scope)
{
    static const struct scope control = {NULL, NULL};
    char id[JOB_ID_CHARS + 1], dir[96];
    struct job *job;

    snprintf(id, sizeof(id), "%016d", ++jobs.made);
    snprintf(dir, sizeof(dir), "%s/%s", jobs.dir, id);
    PRE(mkdir(dir, 0700) == 0);
    job = job_add(jobs.table, id, scope != NULL ? scope : &control, dir, loop_wall_ms(jobs.loop));
    job_process_start(job);
    return job;
}
