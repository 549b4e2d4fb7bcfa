/* Jobs and their table: what a job is, the state machine of shellctl protocol section 6, and who
 * may see it. Knows nothing of files (job_store.h) or processes (job_process.h).
 *
 * Moves are compare-and-set: each names the states that it may leave, and changes nothing when the
 * job is in another. Only `exited` ever carries an exit code. */
#pragma once

#include "backends/shellctld/scope.h"
#include "core/runtime/list.h"
#include "core/runtime/loop.h"

#include <stdint.h>

enum job_status {
    JOB_CREATED,    /* its folder exists */
    JOB_STARTING,   /* its runner is being started */
    JOB_RUNNING,    /* its runner lives */
    JOB_EXITED,     /* its script ended by itself and its output is complete */
    JOB_TERMINATED, /* it was asked to end, and has */
    JOB_FAILED,     /* it could not be started */
    JOB_LOST,       /* its runner is gone and left no result */
    JOB_STATUS_COUNT,
};

/** Bit of a status, for sets of states. */
#define JOB_BIT(status) (1u << (status))
enum {
    JOB_LIVE = JOB_BIT(JOB_CREATED) | JOB_BIT(JOB_STARTING) | JOB_BIT(JOB_RUNNING),
};

const char *job_status_name(enum job_status status);
static inline bool job_status_is_terminal(enum job_status status)
{
    return (JOB_BIT(status) & JOB_LIVE) == 0;
}

enum { JOB_ID_CHARS = 16 }; /* 64 random bits in hex */

struct job_table;
struct job_process;

/** One job. Owned by its table; hold the id across waits and look it up again. */
struct job {
    char id[JOB_ID_CHARS + 1];
    enum job_status status;
    struct scope scope; /* owned texts */
    char *dir;          /* absolute path of its folder; owned */
    char *output_path;  /* absolute path of output.log; owned */
    bool stdio;         /* pipes instead of a terminal */
    bool stopping;      /* asked to end: its end will be `terminated` */
    int exit_code;      /* of `exited` */
    int64_t created_wall_ms, started_wall_ms, ended_wall_ms; /* 0 = not yet */
    int64_t ended_ms;            /* the end in loop time, which does not jump */
    struct job_process *process; /* while its runner lives; job_process.h owns it */
    struct job_table *table;
    struct list watchers; /* struct job_watcher */
    struct list link;     /* newest first */
    struct list hash_link;
};

struct job_table *job_table_new(struct loop *loop);
/** Frees all jobs; nobody may be waiting for one, and no process be attached. */
void job_table_free(struct job_table *table);

/** Add a job in state `created`. `id` must not be in the table; everything is copied. Jobs are
 * listed in the order of `created_wall_ms`, equals in the order of adding. */
struct job *job_add(struct job_table *table, const char *id, const struct scope *scope,
                    const char *dir, int64_t created_wall_ms);

/** Take it out of the table and free it at the end of the turn; its watchers wake and find it
 * gone. Its process must have ended. */
void job_remove(struct job *job);

struct job *job_find(struct job_table *table, const char *id);
/** The same, but only for a job of this scope: others do not exist for it. NULL with the fault
 * JOB_NOT_FOUND. */
struct job *job_find_in(struct job_table *table, const char *id, const struct scope *scope,
                        struct error *err);

/** Newest first; NULL at the end. job_next may be called for a job just removed only if it was
 * fetched before. */
struct job *job_first(struct job_table *table);
struct job *job_next(struct job *job);
size_t job_count(const struct job_table *table);
size_t job_live_count(const struct job_table *table);

/** Move to `to` if the job is in one of `from`; then wake its watchers. Entering `starting`
 * or `running` sets started_wall_ms, a terminal state ended_wall_ms, unless set before. False: no move. */
bool job_move(struct job *job, unsigned from, enum job_status to);

/** The move to `exited` with its code; false likewise. */
bool job_move_exited(struct job *job, int exit_code, int64_t ended_wall_ms);

struct loop *job_loop(const struct job *job);
struct loop *job_table_loop(const struct job_table *table);

/** Wake the watchers without a move. */
void job_notify(struct job *job);

/* ---- watching ------------------------------------------------------------------------------- */

struct op;

/** One operation's wait for a change of a job. Embedded in the operation. */
struct job_watcher {
    struct list link;
    struct timer timer;
    struct loop *loop;
    struct op *op;
};

/** Leaf wait of `op`: wakes at the job's next change or removal, or after `ms`, never with an
 * error. */
void job_watch(struct job *job, struct job_watcher *watcher, struct op *op, int64_t ms);
