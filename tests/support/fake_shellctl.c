#include "support/fake_shellctl.h"

#include "core/runtime/json.h"

#include <fcntl.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POLL_MS = 1 };

struct fake_job {
    struct list link;
    char id[17];
    pid_t pid;
    bool done;
    int exit_code;
    const char *status;
    FILE *output;     /* a temporary file, also the job's stdout */
    uint64_t waiting; /* the connection of the request that waits for it; 0 = none */
    int64_t offset, limit, until_ms;
    bool terminating;
};

/* ---- jobs ----------------------------------------------------------------------------------- */

static struct fake_job *job_find(struct fake_shellctl *f, const char *id)
{
    for (struct list *it = f->jobs.next; it != &f->jobs; it = it->next) {
        struct fake_job *job = container_of(it, struct fake_job, link);
        if (strcmp(job->id, id) == 0)
            return job;
    }
    return NULL;
}

static void job_reap(struct fake_shellctl *f, struct fake_job *job, bool block)
{
    int status;

    if (job->done || waitpid(job->pid, &status, block ? 0 : WNOHANG) != job->pid)
        return;
    job->done = true;
    job->status = job->terminating ? "terminated" : "exited";
    job->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (f->status_instead != NULL) {
        job->status = f->status_instead;
        job->exit_code = 0;
    }
}

static void job_free(struct fake_shellctl *f, struct fake_job *job)
{
    if (!job->done) {
        kill(-job->pid, SIGKILL);
        job_reap(f, job, true);
    }
    list_remove(&job->link);
    f->live_jobs--;
    fclose(job->output);
    free(job);
}

static void child_exec(struct fake_job *job, const char *script, const char *cwd,
                       struct json_object *env)
{
    setpgid(0, 0);
    dup2(fileno(job->output), 1);
    dup2(open("/dev/null", O_RDWR), 0);
    dup2(1, 2);
    close_range(3, ~0U, 0);
    if (chdir(cwd) != 0)
        _exit(111);
    if (env != NULL) {
        json_object_object_foreach(env, key, value) setenv(key, json_object_get_string(value), 1);
    }
    execl("/bin/sh", "sh", "-c", script, (char *)NULL);
    _exit(127);
}

static struct fake_job *job_start(struct fake_shellctl *f, const char *script, const char *cwd,
                                  struct json_object *env)
{
    static unsigned counter;
    struct fake_job *job = calloc(1, sizeof(*job));

    job->output = tmpfile();
    fcntl(fileno(job->output), F_SETFL, O_APPEND);
    snprintf(job->id, sizeof(job->id), "%016x", ++counter);
    job->status = "running";
    list_init(&job->link);
    list_push(&f->jobs, &job->link);
    f->live_jobs++;
    job->pid = fork();
    if (job->pid == 0)
        child_exec(job, script, cwd, env);
    setpgid(job->pid, job->pid);
    return job;
}

/* ---- answers -------------------------------------------------------------------------------- */

static void reply_json(struct script_conn *c, int status, struct buf *json)
{
    script_reply(c, status, "Content-Type: application/json\r\n", buf_text(json));
    buf_fini(json);
}

static void reply_fault(struct script_conn *c, int status, const char *code)
{
    struct buf b = {0};

    buf_addf(&b, "{\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}\n", code, code);
    reply_json(c, status, &b);
}

static void reply_job(struct fake_shellctl *f, struct fake_job *job, struct script_conn *c)
{
    int64_t size = lseek(fileno(job->output), 0, SEEK_END);
    int64_t n = size - job->offset < job->limit ? size - job->offset : job->limit;
    char *bytes = malloc((size_t)n + 1);
    struct buf b = {0};
    struct json_writer w = {.out = &b};

    n = pread(fileno(job->output), bytes, (size_t)n, job->offset);
    if (f->stuck_window)
        n = 0;
    json_object_begin(&w);
    json_member_string(&w, "job_id", job->id);
    json_member_bool(&w, "done", job->done);
    json_member_string(&w, "status", job->status);
    if (job->done)
        json_member_int(&w, "exit_code", job->exit_code);
    else
        json_member_null(&w, "exit_code");
    json_member_string(&w, "output_path", "/x/output.log");
    json_key(&w, "output");
    json_string_n(&w, bytes, (size_t)n);
    json_member_int(&w, "offset", job->offset + n);
    json_member_bool(&w, "truncated", f->stuck_window || job->offset + n < size);
    json_member_string(&w, "a_newer_field", "ignored");
    json_object_finish(&w);
    free(bytes);
    reply_json(c, 200, &b);
}

static void reply_view(struct fake_job *job, struct script_conn *c)
{
    struct buf b = {0};

    buf_addf(&b,
             "{\"job_id\":\"%s\",\"status\":\"%s\",\"done\":%s,\"exit_code\":%d,"
             "\"created_at\":\"2026-01-01T00:00:00Z\",\"started_at\":null,\"ended_at\":null,"
             "\"offset\":0}",
             job->id, job->status, job->done ? "true" : "false", job->exit_code);
    reply_json(c, 200, &b);
}

/* ---- requests ------------------------------------------------------------------------------- */

static bool take_fault(struct fake_shellctl *f, enum fake_route route, enum fake_fault *ret)
{
    *ret = FAULT_NONE;
    if (f->fault_times[route] == 0)
        return false;
    if (f->fault_times[route] > 0)
        f->fault_times[route]--;
    *ret = f->fault[route];
    return true;
}

static const char *head_value(const char *head, const char *name, char *to, size_t room)
{
    const char *at = strcasestr(head, name);

    if (at == NULL || at[strlen(name)] != ':')
        return NULL;
    at += strlen(name) + 1;
    at += strspn(at, " ");
    snprintf(to, room, "%.*s", (int)strcspn(at, "\r"), at);
    return to;
}

static bool scope_exists(const char *head, const char **ret_workspace)
{
    static char home[512], workspace[512];
    struct stat st;

    *ret_workspace = NULL;
    if (head_value(head, "X-Bindery-Home", home, sizeof(home)) == NULL)
        return true;
    *ret_workspace = head_value(head, "X-Bindery-Workspace", workspace, sizeof(workspace));
    return *ret_workspace != NULL && stat(home, &st) == 0 && S_ISDIR(st.st_mode) &&
           stat(workspace, &st) == 0 && S_ISDIR(st.st_mode);
}

static void wait_for(struct fake_shellctl *f, struct fake_job *job, struct script_conn *c,
                     struct json_object *body)
{
    struct json_object *v;

    job->offset = json_object_object_get_ex(body, "offset", &v) ? json_object_get_int64(v) : 0;
    job->limit =
        json_object_object_get_ex(body, "output_limit", &v) ? json_object_get_int64(v) : 16384;
    job->until_ms = loop_now_ms(f->loop) + (json_object_object_get_ex(body, "timeout", &v)
                                                ? (int64_t)(json_object_get_double(v) * 1000)
                                                : 0);
    job->waiting = script_conn_id(c);
    timer_set_ms(f->loop, &f->poll, POLL_MS);
}

static void on_run(struct fake_shellctl *f, struct script_conn *c, const struct script_request *r,
                   enum fake_fault fault)
{
    struct json_object *body = json_tokener_parse(r->body), *script, *cwd = NULL, *env = NULL;
    const char *workspace, *dir;
    struct fake_job *job;
    struct stat st;

    snprintf(f->last_head, sizeof(f->last_head), "%s", r->head);
    if (body == NULL || !json_object_object_get_ex(body, "script", &script)) {
        reply_fault(c, 400, "invalid_request");
        json_object_put(body);
        return;
    }
    json_object_object_get_ex(body, "cwd", &cwd);
    json_object_object_get_ex(body, "env", &env);
    if (!scope_exists(r->head, &workspace)) {
        reply_fault(c, 404, "sandbox_not_found");
        json_object_put(body);
        return;
    }
    dir = cwd != NULL ? json_object_get_string(cwd) : workspace != NULL ? workspace : "/tmp";
    snprintf(f->last_cwd, sizeof(f->last_cwd), "%s", dir);
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode)) {
        reply_fault(c, 400, "invalid_cwd");
        json_object_put(body);
        return;
    }
    job = job_start(f, json_object_get_string(script), dir, env);
    if (fault == FAULT_LOSE)
        script_reset(c);
    else if (fault != FAULT_HANG && f->run_answers_early) {
        job->limit = 16384;
        reply_job(f, job, c);
    } else if (fault != FAULT_HANG) {
        wait_for(f, job, c, body);
    }
    json_object_put(body);
}

static void on_job(struct fake_shellctl *f, struct script_conn *c, const struct script_request *r,
                   enum fake_route route, const char *id, enum fake_fault fault)
{
    struct fake_job *job = job_find(f, id);
    struct json_object *body;
    struct buf b = {0};

    if (route == FAKE_WAIT_JOB && f->forget_waits > 0) {
        f->forget_waits--;
        if (job != NULL)
            job_free(f, job);
        job = NULL;
    }
    if (job == NULL) {
        reply_fault(c, 404, "job_not_found");
        return;
    }
    if (route == FAKE_WAIT_JOB) {
        body = json_tokener_parse(r->body);
        if (fault == FAULT_LOSE)
            script_reset(c);
        else if (fault != FAULT_HANG)
            wait_for(f, job, c, body);
        json_object_put(body);
        return;
    }
    if (!job->done) {
        job->terminating = true;
        kill(-job->pid, SIGKILL);
        job_reap(f, job, true);
    }
    if (route == FAKE_TERMINATE_JOB) {
        reply_view(job, c);
        return;
    }
    job_free(f, job);
    buf_addf(&b, "{\"job_id\":\"%s\",\"deleted\":true}", id);
    if (fault == FAULT_LOSE)
        script_reset(c);
    else if (fault != FAULT_HANG)
        script_reply(c, 200, "", b.data);
    buf_fini(&b);
}

static void on_request(void *ctx, struct script_conn *c, const struct script_request *r)
{
    struct fake_shellctl *f = ctx;
    const char *jobs = strstr(r->target, "/v1/jobs/");
    enum fake_route route = FAKE_DELETE_JOB;
    enum fake_fault fault;
    char id[64] = "", tail[64] = "";

    if (jobs == NULL) {
        script_reply(c, 404, "Content-Type: text/plain\r\n", "404 page not found\n");
        return;
    }
    sscanf(jobs, "/v1/jobs/%63[^/?]%63s", id, tail);
    if (strcmp(id, "run") == 0)
        route = FAKE_RUN_JOB;
    else if (strcmp(tail, "/wait") == 0)
        route = FAKE_WAIT_JOB;
    else if (strcmp(tail, "/terminate") == 0)
        route = FAKE_TERMINATE_JOB;
    f->calls[route]++;
    if (take_fault(f, route, &fault) && fault == FAULT_REPLY) {
        script_send(c, f->fault_reply);
        return;
    }
    if (fault == FAULT_RESET)
        script_reset(c);
    else if (route == FAKE_RUN_JOB)
        on_run(f, c, r, fault);
    else
        on_job(f, c, r, route, id, fault);
}

static void on_poll(void *ctx)
{
    struct fake_shellctl *f = ctx;
    bool more = false;

    LIST_FOREACH_SAFE (it, tmp, &f->jobs) {
        struct fake_job *job = container_of(it, struct fake_job, link);
        job_reap(f, job, false);
        if (job->waiting != 0 && (job->done || loop_now_ms(f->loop) >= job->until_ms)) {
            struct script_conn *c = script_server_conn(f->server, job->waiting);
            job->waiting = 0;
            if (c != NULL) /* else the caller has gone */
                reply_job(f, job, c);
        }
        more = more || job->waiting != 0;
    }
    if (more)
        timer_set_ms(f->loop, &f->poll, POLL_MS);
}

/* ---- for tests ------------------------------------------------------------------------------ */

struct fake_shellctl *fake_shellctl_new(struct loop *loop, const char *unix_path)
{
    struct fake_shellctl *f = calloc(1, sizeof(*f));

    f->loop = loop;
    list_init(&f->jobs);
    timer_init(&f->poll, on_poll, f);
    f->server = script_server_new(loop, unix_path, on_request, f);
    return f;
}

void fake_shellctl_free(struct fake_shellctl *f)
{
    while (!list_empty(&f->jobs))
        job_free(f, container_of(f->jobs.next, struct fake_job, link));
    timer_cancel(f->loop, &f->poll);
    script_server_free(f->server);
    free(f);
}

const char *fake_shellctl_url(struct fake_shellctl *f)
{
    return script_server_url(f->server, "");
}

void fake_shellctl_fail(struct fake_shellctl *f, enum fake_route route, enum fake_fault fault,
                        int times, const char *reply)
{
    f->fault[route] = fault;
    f->fault_times[route] = times;
    f->fault_reply = reply;
}

void fake_shellctl_reset_calls(struct fake_shellctl *f)
{
    memset(f->calls, 0, sizeof(f->calls));
}
