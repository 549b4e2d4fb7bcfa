/* The daemon's end of a job's runner process: starting, adopting after a restart, and the moves of
 * the job that follow from what becomes of it. A job in a live state has a process; its end is
 * seen by pidfd.
 *
 *   runner ends, exit.json says   exited      → exited, with the code
 *                                 terminated  → terminated
 *                                 failed      → failed
 *   runner ends without it                    → lost, or terminated if it was being stopped, once
 *                                               what it left has been cleaned up
 *   no runner was ever started                → failed
 *
 * Only processes whose identity is known are ever signalled (job_runner.h). */
#pragma once

#include "backends/shellctld/job.h"

/** Spawn the runner of a job whose folder is complete: created → starting, or → failed, which is
 * recorded and no error to the caller (protocol section 5.4). */
void job_process_start(struct job *job);

/** After a restart: find the runner of a job in state `starting`, or settle the job. */
void job_process_adopt(struct job *job);

/** See whether a starting job runs by now. Cheap. */
void job_process_refresh(struct job *job);

/** Kill the runner itself; the job's end follows. Last resort. */
void job_process_kill(struct job *job);

/** Stop watching; the runner lives on. At shutdown, for every job. */
void job_process_detach(struct job *job);
