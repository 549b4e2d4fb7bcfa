#include "backends/shellctld/job.h"

#include "backends/shellctld/fault.h"
#include "core/runtime/op.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 4096 }; /* power of two; jobs are collected minutes after their end */

struct job_table {
    struct loop *loop;
    struct list jobs; /* newest first */
    size_t count, live;
    struct list buckets[BUCKETS];
};

static const char *const status_names[] = {
    "created", "starting", "running", "exited", "terminated", "failed", "lost",
};

const char *job_status_name(enum job_status status)
{
    return status_names[status];
}

/* ---- table ---------------------------------------------------------------------------------- */

struct job_table *job_table_new(struct loop *loop)
{
    struct job_table *table = xcalloc(1, sizeof(*table));

    table->loop = loop;
    list_init(&table->jobs);
    for (size_t i = 0; i < BUCKETS; i++)
        list_init(&table->buckets[i]);
    return table;
}

static void job_free(void *ptr)
{
    struct job *job = ptr;

    free((char *)job->scope.home);
    free((char *)job->scope.workspace);
    free(job->dir);
    free(job->output_path);
    free(job);
}

void job_table_free(struct job_table *table)
{
    if (table == NULL)
        return;
    LIST_FOREACH_SAFE (it, next, &table->jobs) {
        struct job *job = container_of(it, struct job, link);
        PRE(list_empty(&job->watchers) && job->process == NULL);
        job_free(job);
    }
    free(table);
}

/* FNV-1a; ids are ours, and random. */
static struct list *bucket_of(struct job_table *table, const char *id)
{
    uint32_t hash = 2166136261u;

    for (; *id != '\0'; id++)
        hash = (hash ^ (unsigned char)*id) * 16777619u;
    return &table->buckets[hash & (BUCKETS - 1)];
}

/* Newest first: behind every job that is newer, which after the start is none. */
static void insert_by_age(struct job_table *table, struct job *job)
{
    struct list *at = table->jobs.next;

    while (at != &table->jobs &&
           container_of(at, struct job, link)->created_wall_ms > job->created_wall_ms)
        at = at->next;
    list_push(at, &job->link); /* in front of `at` */
}

struct job *job_add(struct job_table *table, const char *id, const struct scope *scope,
                    const char *dir, int64_t created_wall_ms)
{
    struct job *job = xcalloc(1, sizeof(*job));
    size_t dir_len = strlen(dir);

    PRE(strlen(id) == JOB_ID_CHARS && job_find(table, id) == NULL);
    memcpy(job->id, id, JOB_ID_CHARS + 1);
    job->table = table;
    job->created_wall_ms = created_wall_ms;
    if (scope_is_confined(scope)) {
        job->scope.home = xstrdup(scope->home);
        job->scope.workspace = xstrdup(scope->workspace);
    }
    job->dir = xstrdup(dir);
    job->output_path = xmalloc(dir_len + sizeof("/output.log"));
    memcpy(job->output_path, dir, dir_len);
    memcpy(job->output_path + dir_len, "/output.log", sizeof("/output.log"));
    list_init(&job->watchers);
    list_push(bucket_of(table, id), &job->hash_link);
    insert_by_age(table, job);
    table->count++;
    table->live++;
    return job;
}

void job_remove(struct job *job)
{
    PRE(job->process == NULL);
    job_notify(job);
    job->table->count--;
    if (!job_status_is_terminal(job->status))
        job->table->live--;
    list_remove(&job->link);
    list_remove(&job->hash_link);
    loop_defer_free(job->table->loop, job_free, job);
}

struct job *job_find(struct job_table *table, const char *id)
{
    struct list *bucket = bucket_of(table, id);

    for (struct list *it = bucket->next; it != bucket; it = it->next) {
        struct job *job = container_of(it, struct job, hash_link);
        if (strcmp(job->id, id) == 0)
            return job;
    }
    return NULL;
}

struct job *job_find_in(struct job_table *table, const char *id, const struct scope *scope,
                        struct error *err)
{
    struct job *job = job_find(table, id);

    if (job != NULL && scope_equal(&job->scope, scope))
        return job;
    fault_set(err, FAULT_JOB_NOT_FOUND, "Unknown job id");
    return NULL;
}

struct job *job_first(struct job_table *table)
{
    return list_empty(&table->jobs) ? NULL : container_of(table->jobs.next, struct job, link);
}

struct job *job_next(struct job *job)
{
    return job->link.next == &job->table->jobs ? NULL
                                               : container_of(job->link.next, struct job, link);
}

size_t job_count(const struct job_table *table)
{
    return table->count;
}

size_t job_live_count(const struct job_table *table)
{
    return table->live;
}

struct loop *job_loop(const struct job *job)
{
    return job->table->loop;
}

struct loop *job_table_loop(const struct job_table *table)
{
    return table->loop;
}

/* ---- states --------------------------------------------------------------------------------- */

static void note_end(struct job *job)
{
    struct loop *loop = job->table->loop;
    int64_t age_ms;

    job->table->live--;
    if (job->ended_wall_ms == 0)
        job->ended_wall_ms = loop_wall_ms(loop);
    age_ms = loop_wall_ms(loop) - job->ended_wall_ms;
    job->ended_ms = loop_now_ms(loop) - (age_ms > 0 ? age_ms : 0);
}

bool job_move(struct job *job, unsigned from, enum job_status to)
{
    PRE((from & ~(unsigned)JOB_LIVE) == 0); /* nothing leaves a terminal state */
    if ((from & JOB_BIT(job->status)) == 0)
        return false;
    job->status = to;
    if ((to == JOB_STARTING || to == JOB_RUNNING) && job->started_wall_ms == 0)
        job->started_wall_ms = loop_wall_ms(job->table->loop);
    if (job_status_is_terminal(to))
        note_end(job);
    job_notify(job);
    return true;
}

bool job_move_exited(struct job *job, int exit_code, int64_t ended_wall_ms)
{
    if ((JOB_BIT(job->status) & JOB_LIVE) == 0)
        return false;
    job->exit_code = exit_code;
    job->ended_wall_ms = ended_wall_ms;
    return job_move(job, JOB_LIVE, JOB_EXITED);
}

/* ---- watching ------------------------------------------------------------------------------- */

static void watcher_end(struct job_watcher *watcher)
{
    list_remove(&watcher->link);
    timer_cancel(watcher->loop, &watcher->timer);
}

static void watcher_wake(void *ctx)
{
    struct job_watcher *watcher = ctx;

    watcher_end(watcher);
    op_wake(watcher->op, NULL);
}

static void watcher_cancel(void *ctx)
{
    watcher_end(ctx);
}

void job_notify(struct job *job)
{
    struct list now = LIST_INIT(now);

    list_splice(&now, &job->watchers);
    while (!list_empty(&now))
        watcher_wake(container_of(now.next, struct job_watcher, link));
}

void job_watch(struct job *job, struct job_watcher *watcher, struct op *op, int64_t ms)
{
    watcher->op = op;
    watcher->loop = op->loop;
    timer_init(&watcher->timer, watcher_wake, watcher);
    list_init(&watcher->link);
    list_push(&job->watchers, &watcher->link);
    timer_set_ms(op->loop, &watcher->timer, ms);
    op_wait_begin(op, watcher_cancel, watcher);
}
