/* A shellctl for tests: on the test's loop, really running the scripts with sh (unconfined), with
 * faults on demand. Speaks what shellctl.md sections 3 to 8 say of run, wait, terminate and delete;
 * scope headers of the embedded daemon are honoured as far as a missing folder is refused. */
#pragma once

#include "core/runtime/http_client.h"
#include "support/script_server.h"

enum fake_route { FAKE_RUN_JOB, FAKE_WAIT_JOB, FAKE_TERMINATE_JOB, FAKE_DELETE_JOB, FAKE_ROUTES };

enum fake_fault {
    FAULT_NONE,
    FAULT_REPLY, /* `reply`, raw bytes, without doing anything */
    FAULT_RESET, /* without doing anything */
    FAULT_LOSE,  /* does it, then resets */
    FAULT_HANG,  /* does it, never answers */
};

struct fake_shellctl {
    struct loop *loop;
    struct script_server *server;
    struct list jobs;
    int live_jobs;
    int calls[FAKE_ROUTES];
    enum fake_fault fault[FAKE_ROUTES];
    int fault_times[FAKE_ROUTES]; /* the next that many; negative: always */
    const char *fault_reply;
    bool run_answers_early;     /* run never waits for the job's end */
    int forget_waits;           /* the next that many waits answer job_not_found */
    const char *status_instead; /* of ended jobs, with exit code 0 */
    bool stuck_window;          /* truncated for ever, offset never advances */
    char last_head[4096];       /* of the latest run */
    char last_cwd[512];
    struct timer poll;
};

struct fake_shellctl *fake_shellctl_new(struct loop *loop, const char *unix_path);
/** Kills what still runs. */
void fake_shellctl_free(struct fake_shellctl *fake);
const char *fake_shellctl_url(struct fake_shellctl *fake);
void fake_shellctl_fail(struct fake_shellctl *fake, enum fake_route route, enum fake_fault fault,
                        int times, const char *reply);
void fake_shellctl_reset_calls(struct fake_shellctl *fake);
