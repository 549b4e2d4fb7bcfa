/* Happy path: run, wait until done and all output is read, delete.
 * Bounds: at the time limit, or with more output than asked for, the job is stopped with a grace
 *   and the answer to that says how it ended.
 * Failures: the caller goes away, or an answer is lost: the job is deleted by force where its id is
 *   known. */
#include "backends/shellctl/run_command.h"

#include "backends/shellctl/job_delete.h"
#include "core/runtime/buf.h"

#include <string.h>

enum {
    WAIT_MAX_MS = 60000,
    WINDOW_MAX = 262144,
    GRACE_MS = 10000,
    DEFAULT_TIMEOUT_MS = 30000,
    DEFAULT_OUTPUT = 1048576,
    DELETE_BUDGET_MS = 15000,
};

struct command {
    struct op op;
    struct backend *backend;
    const struct endpoint *endpoint;
    const struct command_spec *spec;
    struct command_result *ret;
    struct shellctl_run run;
    struct shellctl_window window;
    struct shellctl_job job;
    struct shellctl_view view;
    const char *job_id;
    const char *stop_reason;
    struct buf output;
    size_t max_output;
    int64_t end_ms;
    bool truncated, asked;
};

enum command_state {
    COMMAND_START,
    COMMAND_RUNNING,
    COMMAND_WAITING,
    COMMAND_STOPPING,
    COMMAND_DELETING,
};
static const char *const command_states[] = {"start", "running", "waiting", "stopping", "deleting"};

/* ---- cwd and environment (section 14) -------------------------------------------------------- */

/* `.` and `..` removed by text; the result has no slash at its end. */
static char *normalise(struct arena *arena, const char *path)
{
    size_t len = strlen(path);
    char *out = arena_alloc(arena, len + 2);
    size_t n = 0;

    for (const char *p = path; *p != '\0';) {
        size_t part = strcspn(p, "/");
        if (part == 2 && p[0] == '.' && p[1] == '.') {
            while (n > 0 && out[--n] != '/')
                ;
        } else if (part > 0 && !(part == 1 && p[0] == '.')) {
            out[n++] = '/';
            memcpy(out + n, p, part);
            n += part;
        }
        p += part;
        p += strspn(p, "/");
    }
    if (n == 0)
        out[n++] = '/';
    out[n] = '\0';
    return out;
}

static bool is_inside(const char *path, const char *dir)
{
    size_t len = strlen(dir);

    while (len > 1 && dir[len - 1] == '/')
        len--;
    return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

const char *shellctl_resolve_cwd(struct arena *arena, const struct layout *layout, const char *cwd,
                                 struct error *err)
{
    const char *path;

    if (cwd == NULL || cwd[0] == '\0')
        return layout->workspace_dir;
    if (cwd[0] == '~' && (cwd[1] == '\0' || cwd[1] == '/'))
        path = arena_printf(arena, "%s/%s", layout->home_dir, cwd + 1);
    else if (cwd[0] != '/')
        path = arena_printf(arena, "%s/%s", layout->workspace_dir, cwd);
    else
        path = cwd;
    path = normalise(arena, path);
    if (is_inside(path, layout->home_dir) || is_inside(path, layout->workspace_dir))
        return path;
    error_set(err, ERR_BAD_REQUEST, "cwd: the folder is outside Home and Workspace");
    return NULL;
}

static const char *const *with_home(struct arena *arena, const char *const *env, const char *home)
{
    size_t n = 0, at = 0;
    const char **out;

    while (env != NULL && env[n] != NULL)
        n += 2;
    out = arena_alloc(arena, (n + 3) * sizeof(*out));
    for (size_t i = 0; i < n; i += 2) {
        if (strcmp(env[i], "HOME") == 0)
            continue;
        out[at++] = env[i];
        out[at++] = env[i + 1];
    }
    out[at++] = "HOME";
    out[at] = home;
    return out;
}

/* ---- output --------------------------------------------------------------------------------- */

static size_t cut_at_character(const char *bytes, size_t len)
{
    while (len > 0 && ((unsigned char)bytes[len] & 0xC0) == 0x80)
        len--;
    return len;
}

/* Keep what fits of a window; false when the answer cannot go on like this. */
static bool take_window(struct command *c)
{
    size_t room = c->max_output - c->output.len;
    size_t len = c->job.output_len;

    if (c->job.truncated && c->job.offset <= c->window.offset) {
        op_fail(&c->op, ERR_UPSTREAM_PROTOCOL, "%s: the output of a job does not advance",
                c->endpoint->peer);
        return false;
    }
    if (len > room) {
        len = cut_at_character(c->job.output, room);
        c->truncated = true;
    }
    buf_add(&c->output, c->job.output, len);
    c->window.offset = c->job.offset;
    if (c->truncated || (c->output.len == c->max_output && c->job.truncated)) {
        c->truncated = true;
        c->stop_reason = "output_limit";
    }
    return true;
}

static int64_t left_ms(const struct command *c)
{
    int64_t left = c->end_ms - loop_now_ms(c->op.loop);

    return left > WAIT_MAX_MS ? WAIT_MAX_MS : left;
}

/* One byte more than fits shows that there is more. */
static int64_t window_limit(const struct command *c)
{
    size_t room = c->max_output - c->output.len + 1;

    return room < WINDOW_MAX ? (int64_t)room : WINDOW_MAX;
}

static bool goes_on(struct command *c)
{
    if (c->stop_reason != NULL || (c->job.done && !c->job.truncated))
        return false;
    if (!c->job.done && left_ms(c) <= 0)
        c->stop_reason = "timeout";
    return c->stop_reason == NULL;
}

static void prepare_wait(struct command *c)
{
    c->window.timeout_ms = c->job.done ? 0 : left_ms(c);
    c->window.output_limit = window_limit(c);
}

static void give_result(struct command *c)
{
    bool stopped = c->view.status != NULL;

    *c->ret = (struct command_result){
        .status = stopped ? c->view.status : c->job.status,
        .exit_code = stopped ? c->view.exit_code : c->job.exit_code,
        .output = arena_memdup(c->op.arena, buf_text(&c->output), c->output.len),
        .output_len = c->output.len,
        .stop_reason = c->stop_reason,
        .truncated = c->truncated,
    };
}

/* ---- the operation -------------------------------------------------------------------------- */

static enum op_poll command_step(struct op *op)
{
    struct command *c = container_of(op, struct command, op);

    switch ((enum command_state)op->state) {
    case COMMAND_START:
        c->run.window.timeout_ms = left_ms(c);
        c->run.window.output_limit = window_limit(c);
        c->asked = true;
        AWAIT(op, COMMAND_RUNNING, shellctl_run(c->backend, op, c->endpoint, &c->run, &c->job));
        c->job_id = c->job.job_id;
        if (!take_window(c))
            goto undo;
        while (goes_on(c)) {
            prepare_wait(c);
            AWAIT(op, COMMAND_WAITING,
                  shellctl_wait(c->backend, op, c->endpoint, c->job_id, &c->window, &c->job));
            if (!take_window(c))
                goto undo;
        }
        if (!c->job.done)
            AWAIT(op, COMMAND_STOPPING,
                  shellctl_terminate(c->backend, op, c->endpoint, c->job_id, GRACE_MS, &c->view));
        give_result(c);
    undo:
        if (c->asked && c->job_id == NULL && op_error(op)->admitted == ADMITTED_UNKNOWN)
            job_delete_failed(c->backend, NULL, op_error(op));
        if (shellctl_says_gone(op_error(op)))
            error_wrap(op_error_edit(op), ERR_BINDING_LOST, "the sandbox is gone");
        if (c->job_id != NULL && c->endpoint->dialer == NULL) {
            job_delete_later(c->backend, c->endpoint, c->job_id);
        } else if (c->job_id != NULL) {
            op_begin_undo(op, DELETE_BUDGET_MS);
            AWAIT_ANY(op, COMMAND_DELETING,
                      shellctl_delete(c->backend, op, c->endpoint, c->job_id));
            if (op_last_failed(op))
                job_delete_failed(c->backend, c->job_id, op_last(op));
        }
        return OP_DONE;
    }
    unreachable_state(op);
}

static void command_fini(struct op *op)
{
    buf_fini(&container_of(op, struct command, op)->output);
}

static const struct op_type command_type = {"run_command", command_states, 5, command_step,
                                            command_fini};

void shellctl_run_command(struct backend *b, struct op *op, const struct endpoint *endpoint,
                          const struct layout *layout, const struct command_spec *spec,
                          struct command_result *ret)
{
    struct command *c = OP_CHILD(op, &command_type, command);
    int64_t timeout_ms = spec->timeout_ms > 0 ? spec->timeout_ms : DEFAULT_TIMEOUT_MS;
    struct error error;

    c->backend = b;
    c->endpoint = endpoint;
    c->spec = spec;
    c->ret = ret;
    c->max_output = spec->max_output > 0 ? spec->max_output : DEFAULT_OUTPUT;
    c->end_ms = loop_now_ms(op->loop) + timeout_ms;
    c->run.script = spec->script;
    c->run.env = with_home(op->arena, spec->env, layout->home_dir);
    c->run.mode = spec->stdio ? SHELLCTL_MODE_STDIO : SHELLCTL_MODE_UNSAID;
    c->run.cwd = shellctl_resolve_cwd(op->arena, layout, spec->cwd, &error);
    if (c->run.cwd == NULL) {
        op_complete(op, &error);
        return;
    }
    op_await_child(op, &c->op);
}
