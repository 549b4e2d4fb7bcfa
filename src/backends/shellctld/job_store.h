/* Jobs on disk: `<state>/jobs/<id>/` and the files in it (job_runner.h lists them).
 *
 * There is no database. The folder's files are the truth about a job: the runner, which outlives
 * this process, writes how a job ended (exit.json); a second record beside it could only disagree
 * with it after a crash, and would cost every probe three transactions. What only the daemon knows,
 * the end of a job that left no exit.json, is one more file, written once:
 *
 *   end.json      daemon   status, reason, message and time of a job that failed to start, was lost,
 *                          or was terminated by force
 *
 * created_at is job.json's time of writing. Files are synchronous, small and local. */
#pragma once

#include "backends/shellctld/job.h"

#include <stdint.h>

/** The state folder, locked for this process. Opaque. */
struct job_store;

/** Make the folder where it is missing (0700) and lock it; a crashed predecessor's lock is no
 * hindrance, but one that is still ending is waited for, up to `patience_ms`. NULL with
 * ERR_CONFLICT when another daemon has it, ERR_INTERNAL when it cannot be made or written. */
struct job_store *job_store_open(const char *state_dir, int64_t patience_ms, struct error *err);
void job_store_close(struct job_store *store);

/** Absolute path of the state folder. */
const char *job_store_dir(const struct job_store *store);

/** What a new job's folder begins with. */
struct job_seed {
    struct scope scope;
    const char *script;
    bool stdio;
    bool unbound; /* isolated without being a binding's: the file `unbound` says so */
};

/** A folder with a new id and the script in it, and a job of the table in state `created`. NULL
 * with the faults JOB_ID_COLLISION or INTERNAL; nothing is left behind then. */
struct job *job_store_create(struct job_store *store, struct job_table *jobs,
                             const struct job_seed *seed, struct error *err);

/** Record the end of a job that left no exit.json. A failure to write is returned for the log: the
 * job is then judged anew after a restart. */
bool job_store_record_end(const struct job *job, const char *reason, const char *message,
                          struct error *err) MUST_CHECK;

/** Remove the job's folder, then the job. The job must have no process. A folder that cannot be
 * removed stays, logged, and is collected after a restart. */
void job_store_delete(struct job *job);

/** Size of the job's output.log in bytes; 0 when there is none. */
int64_t job_store_output_size(const struct job *job);

/** At start: every folder becomes a job again, in state `starting` unless end.json says how it
 * ended (job_process_adopt settles the others); folders that never became a job are removed.
 * False with ERR_INTERNAL when they cannot be read. */
bool job_store_load(struct job_store *store, struct job_table *jobs, struct error *err) MUST_CHECK;
