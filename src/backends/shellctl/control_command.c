/* Happy path: run, the answer says exited and holds all output; delete in the background.
 *   Longer scripts: wait, wait, … until done and nothing is left to read.
 * Failures:
 *   - the deadline passes or the caller goes away: what is in flight is cut, the job is deleted by
 *     force; without an answer to the run there is no id to delete, which is counted
 *   - shellctl does not know the job any more (it was restarted, or collected it): a repeatable
 *     script is run again, once
 *   - a job that ends as anything but `exited` has exit code 0 in shellctl's books: an error here */
#include "backends/shellctl/control_command.h"

#include "backends/shellctl/job_delete.h"
#include "core/runtime/buf.h"

#include <stdio.h>
#include <string.h>

enum { RUN_TIMEOUT_MS = 30000, WINDOW = 65536, DELETE_BUDGET_MS = 15000 };

struct control {
    struct op op;
    struct backend *backend;
    const struct endpoint *endpoint;
    struct control_command command;
    struct control_result *ret;
    struct shellctl_run run;
    struct shellctl_window window;
    struct shellctl_job job;
    const char *job_id; /* to be deleted */
    struct buf output;  /* of earlier windows */
    bool ran_again, asked;
};

enum control_state { CONTROL_START, CONTROL_RUNNING, CONTROL_WAITING, CONTROL_DELETING };
static const char *const control_states[] = {"start", "running", "waiting", "deleting"};

static int64_t wait_ms(const struct control *c)
{
    int64_t left_ms = op_remaining_ms(&c->op, RUN_TIMEOUT_MS);

    return left_ms < 100 ? 100 : left_ms < RUN_TIMEOUT_MS ? left_ms : RUN_TIMEOUT_MS;
}

/* Keep a window. False when the answer cannot go on like this. */
static bool take_window(struct control *c)
{
    if (c->job.truncated && c->job.offset <= c->window.offset) {
        op_fail(&c->op, ERR_UPSTREAM_PROTOCOL, "%s: the output of a job does not advance",
                c->endpoint->peer);
        return false;
    }
    if (c->output.len + c->job.output_len > CONTROL_OUTPUT_MAX) {
        op_fail(&c->op, ERR_UPSTREAM_PROTOCOL, "%s: a control command printed more than %d bytes",
                c->endpoint->peer, CONTROL_OUTPUT_MAX);
        return false;
    }
    c->window.offset = c->job.offset;
    buf_add(&c->output, c->job.output, c->job.output_len);
    return true;
}

static bool is_forgotten(const struct error *err)
{
    return err->code == ERR_UPSTREAM_STATUS && strcmp(err->upstream_code, "job_not_found") == 0;
}

static void judge(struct control *c)
{
    struct op *op = &c->op;

    if (strcmp(c->job.status, "exited") != 0 || !c->job.has_exit_code) {
        op_fail(op, ERR_UPSTREAM_STATUS, "%s: the command did not run to its end: its job is %s",
                c->endpoint->peer, c->job.status);
        op_error_edit(op)->upstream_status = 200;
        op_error_edit(op)->admitted = ADMITTED_UNKNOWN;
        snprintf(op_error_edit(op)->upstream_code, sizeof(op_error(op)->upstream_code), "job_%s",
                 c->job.status);
        return;
    }
    c->ret->exit_code = c->job.exit_code;
    c->ret->output = arena_memdup(op->arena, buf_text(&c->output), c->output.len);
    c->ret->output_len = c->output.len;
}

/* A cut run may have started a job whose id nobody will ever know. */
static void note_lost_job(struct control *c)
{
    const struct error *err = op_error(&c->op);

    if (c->asked && c->job_id == NULL && err->admitted == ADMITTED_UNKNOWN)
        job_delete_failed(c->backend, NULL, err);
}

static enum op_poll control_step(struct op *op)
{
    struct control *c = container_of(op, struct control, op);

    switch ((enum control_state)op->state) {
    case CONTROL_START:
        op_set_deadline_ms(op, c->command.deadline_ms, c->command.phase);
    again:
        c->run.window.timeout_ms = wait_ms(c) * 3 / 4; /* the job's id must come in time */
        c->asked = true;
        AWAIT(op, CONTROL_RUNNING, shellctl_run(c->backend, op, c->endpoint, &c->run, &c->job));
        c->job_id = c->job.job_id;
        if (!take_window(c))
            goto undo;
        while (!c->job.done || c->job.truncated) {
            c->window.timeout_ms = wait_ms(c);
            AWAIT_ANY(op, CONTROL_WAITING,
                      shellctl_wait(c->backend, op, c->endpoint, c->job_id, &c->window, &c->job));
            if (op_failed(op))
                goto undo;
            if (op_last_failed(op) && is_forgotten(op_last(op))) {
                c->job_id = NULL;
                c->window.offset = 0;
                buf_clear(&c->output);
                if (c->command.repeatable && !c->ran_again) {
                    c->ran_again = true;
                    goto again;
                }
                error_wrap(op_last_edit(op), ERR_UPSTREAM_STATUS,
                           "the job vanished before its end%s",
                           c->ran_again ? ", twice: does shellctl restart?" : "");
                op_last_edit(op)->admitted = ADMITTED_UNKNOWN;
            }
            if (op_last_failed(op)) {
                op_fail_with(op, op_last(op));
                goto undo;
            }
            if (!take_window(c))
                goto undo;
        }
        judge(c);
    undo:
        note_lost_job(c);
        if (c->job_id != NULL && c->endpoint->dialer == NULL && !c->command.await_delete) {
            job_delete_later(c->backend, c->endpoint, c->job_id);
        } else if (c->job_id != NULL) {
            op_begin_undo(op, DELETE_BUDGET_MS);
            AWAIT_ANY(op, CONTROL_DELETING,
                      shellctl_delete(c->backend, op, c->endpoint, c->job_id));
            if (op_last_failed(op))
                job_delete_failed(c->backend, c->job_id, op_last(op));
        }
        return OP_DONE;
    }
    unreachable_state(op);
}

static void control_fini(struct op *op)
{
    buf_fini(&container_of(op, struct control, op)->output);
}

static const struct op_type control_type = {"control_command", control_states, 4, control_step,
                                            control_fini};

void control_command_run(struct backend *b, struct op *op, const struct endpoint *endpoint,
                         const struct control_command *command, struct control_result *ret)
{
    struct control *c = OP_CHILD(op, &control_type, control);

    c->backend = b;
    c->endpoint = endpoint;
    c->command = *command;
    c->ret = ret;
    c->window.output_limit = WINDOW;
    c->run = (struct shellctl_run){
        .script = command->script,
        .cwd = command->cwd,
        .env = command->env,
        .mode = command->mode,
        .window.output_limit = WINDOW,
        .repeatable = command->repeatable,
    };
    op_await_child(op, &c->op);
}
