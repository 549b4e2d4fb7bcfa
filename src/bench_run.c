/* The run: make the bindings (or the sandbox) that cycles use, keep cycles going until time or
 * count is up, let the last ones finish, remove what was made. */
#include "bench_cycle.h"

#include "core/runtime/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BINDINGS_MAX = 1024, PROGRESS_MS = 1000 };

/* A binding, or with a gateway a sandbox (no workspace_ref). Texts are heap copies. */
struct target {
    char *ref, *workspace_ref;
};

struct run {
    struct bench bench;
    struct bench_result *result;
    struct target targets[BINDINGS_MAX];
    int n_targets, next_target;
    int running;
    uint64_t started;
    int64_t start_us, measure_from_us, end_us;
    int64_t next_arrival_us; /* open loop */
    int64_t last_done_us;
    struct timer arrivals, progress;
    uint64_t shown;
};

/* ---- making and removing what cycles use ----------------------------------------------------- */

struct fixture {
    struct op op;
    struct run *run;
    bool remove;
    int wanted, i;
    struct http_response response;
};

enum fixture_state { FIXTURE_START, FIXTURE_MAKING, FIXTURE_REMOVING };
static const char *const fixture_states[] = {"start", "making", "removing"};

static bool on_gateway(const struct run *run)
{
    return run->bench.options->scenario == BENCH_GATEWAY;
}

static void begin_make(struct fixture *f)
{
    struct bench *b = &f->run->bench;
    struct buf body = {0};
    char id[64];

    snprintf(id, sizeof(id), "bench-%" PRIx64 "-%d", (uint64_t)loop_wall_ms(b->loop), f->i);
    if (on_gateway(f->run))
        buf_adds(&body, "{\"tenantId\":\"bench\"}");
    else
        buf_addf(&body,
                 "{\"tenant_id\":\"bench\",\"agent_id\":\"bench\",\"binding_id\":\"%s\","
                 "\"workspace_id\":\"%s\"}",
                 id, id);
    bench_fetch(b, &f->op, "POST", on_gateway(f->run) ? "/v1/sandboxes" : "/execution-bindings",
                arena_memdup(f->op.arena, body.data, body.len), &f->response);
    buf_fini(&body);
}

static void begin_remove(struct fixture *f)
{
    const struct target *target = &f->run->targets[f->i];
    const char *body;

    if (on_gateway(f->run)) {
        bench_fetch(&f->run->bench, &f->op, "DELETE",
                    arena_printf(f->op.arena, "/v1/sandboxes/%s", target->ref), NULL, &f->response);
        return;
    }
    body = arena_printf(f->op.arena,
                        "{\"binding_ref\":\"%s\",\"workspace_ref\":\"%s\","
                        "\"destroy_workspace\":true}",
                        target->ref, target->workspace_ref);
    bench_fetch(&f->run->bench, &f->op, "POST", "/execution-bindings/destroy", body, &f->response);
}

static void fixture_check(struct fixture *f, const char *what)
{
    char code[48];

    if (f->response.status >= 200 && f->response.status < 300)
        return;
    bench_failure_code(&f->op, &f->response, err_wire(op_last(&f->op)->code), code);
    op_fail(&f->op, ERR_UPSTREAM_STATUS, "%s at %s failed: %s%s%s", what,
            f->run->bench.options->url, code, op_last(&f->op)->message[0] != '\0' ? ": " : "",
            op_last(&f->op)->message);
}

static enum op_poll fixture_step(struct op *op)
{
    struct fixture *f = container_of(op, struct fixture, op);
    struct run *run = f->run;
    const char *ref, *workspace_ref;

    switch ((enum fixture_state)op->state) {
    case FIXTURE_START:
        for (; !f->remove && f->i < f->wanted; f->i++) {
            AWAIT_ANY(op, FIXTURE_MAKING, begin_make(f));
            fixture_check(f, on_gateway(run) ? "creating a sandbox" : "creating a binding");
            ref = bench_answer_string(op, &f->response,
                                      on_gateway(run) ? "sandboxId" : "binding_ref");
            workspace_ref =
                on_gateway(run) ? "" : bench_answer_string(op, &f->response, "workspace_ref");
            if (ref == NULL || workspace_ref == NULL) {
                op_fail(op, ERR_UPSTREAM_PROTOCOL, "the answer of a create names nothing");
                return OP_DONE;
            }
            run->targets[run->n_targets++] = (struct target){xstrdup(ref), xstrdup(workspace_ref)};
        }
        for (; f->remove && f->i < run->n_targets; f->i++) {
            AWAIT_ANY(op, FIXTURE_REMOVING, begin_remove(f));
            fixture_check(f, "removing what the benchmark made");
        }
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type fixture_type = {"bench_fixture", fixture_states, 3, fixture_step, NULL};

static void fixture_done(struct op *op, void *ctx)
{
    struct error *err = ctx;

    if (op_failed(op) && !error_is(err))
        *err = *op_error(op);
    loop_stop(op->loop);
}

static void fixture_run(struct run *run, bool remove, int wanted, struct error *err)
{
    struct fixture *f = OP_ROOT(run->bench.loop, &fixture_type, fixture, NULL);

    f->run = run;
    f->remove = remove;
    f->wanted = wanted;
    op_start(&f->op, fixture_done, err);
    loop_run(run->bench.loop);
}

/* ---- cycles ---------------------------------------------------------------------------------- */

static void cycle_start(struct run *run, int64_t intended_us);

static void count_error(struct bench_result *result, const char *code)
{
    int i = 0;

    while (i < result->n_errors && strcmp(result->errors[i].code, code) != 0)
        i++;
    if (i == BENCH_ERROR_KINDS)
        i--; /* the last kind takes whatever does not fit */
    if (i == result->n_errors) {
        snprintf(result->errors[i].code, sizeof(result->errors[i].code), "%s", code);
        result->n_errors++;
    }
    result->errors[i].count++;
}

static bool may_start(const struct run *run)
{
    const struct bench_options *o = run->bench.options;

    return loop_now_us(run->bench.loop) < run->end_us &&
           (o->max_cycles == 0 || run->started < (uint64_t)o->max_cycles);
}

static void cycle_done(struct op *op, void *ctx)
{
    struct run *run = ctx;
    struct bench_cycle *c = container_of(op, struct bench_cycle, op);
    struct bench_result *result = run->result;
    int64_t now_us = loop_now_us(run->bench.loop);

    run->running--;
    run->last_done_us = now_us;
    if (c->intended_us >= run->measure_from_us) {
        if (c->failure[0] != '\0') {
            result->failed++;
            count_error(result, c->failure);
        } else {
            result->cycles++;
            bench_histogram_add(&result->cycle, now_us - c->intended_us);
            bench_histogram_add(&result->first, c->first_us - c->intended_us);
        }
    }
    if (run->bench.options->rate == 0 && may_start(run))
        cycle_start(run, now_us);
    if (run->running == 0 && !may_start(run))
        loop_stop(run->bench.loop);
}

static void cycle_start(struct run *run, int64_t intended_us)
{
    const char *target =
        run->n_targets == 0 ? NULL : run->targets[run->next_target++ % run->n_targets].ref;
    struct bench_cycle *c = bench_cycle_new(&run->bench, intended_us, target);

    run->running++;
    run->started++;
    op_start(&c->op, cycle_done, run);
}

/* Open loop: start every arrival that is due. When `connections` are busy the arrival waits, and
 * its waiting counts: the intended time does not move. */
static void on_arrivals(void *ctx)
{
    struct run *run = ctx;
    const struct bench_options *o = run->bench.options;
    int64_t now_us = loop_now_us(run->bench.loop);
    int64_t step_us = (int64_t)(1000000.0 / o->rate);

    while (run->next_arrival_us <= now_us && run->running < o->connections && may_start(run)) {
        cycle_start(run, run->next_arrival_us);
        run->next_arrival_us += step_us > 0 ? step_us : 1;
    }
    if (may_start(run))
        timer_set_ms(run->bench.loop, &run->arrivals, 1);
    else if (run->running == 0)
        loop_stop(run->bench.loop);
}

static void on_progress(void *ctx)
{
    struct run *run = ctx;
    uint64_t done = run->result->cycles + run->result->failed;

    fprintf(stderr,
            "%s%6.1f s  %8" PRIu64 " cycles  %8" PRIu64 "/s  %" PRIu64 " failed  %d running%s",
            isatty(STDERR_FILENO) ? "\r" : "",
            (double)(loop_now_us(run->bench.loop) - run->start_us) / 1e6, done, done - run->shown,
            run->result->failed, run->running, isatty(STDERR_FILENO) ? " " : "\n");
    run->shown = done;
    timer_set_ms(run->bench.loop, &run->progress, PROGRESS_MS);
}

static void run_cycles(struct run *run)
{
    const struct bench_options *o = run->bench.options;
    struct loop *loop = run->bench.loop;

    run->start_us = loop_now_us(loop);
    run->measure_from_us = run->start_us + o->warmup_ms * 1000;
    run->end_us = run->measure_from_us + o->duration_ms * 1000;
    run->next_arrival_us = run->start_us;
    timer_set_ms(loop, &run->progress, PROGRESS_MS);
    if (o->rate > 0) {
        timer_set_ms(loop, &run->arrivals, 0);
    } else {
        for (int i = 0; i < o->connections && may_start(run); i++)
            cycle_start(run, run->start_us);
    }
    loop_run(loop);
    timer_cancel(loop, &run->progress);
    timer_cancel(loop, &run->arrivals);
    run->result->elapsed_us = run->last_done_us - run->measure_from_us;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%78s\r", "");
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void run_headers(struct run *run, const struct bench_options *o)
{
    struct bench *b = &run->bench;

    b->headers[b->n_headers++] = (struct http_header){"Content-Type", "application/json"};
    if (o->token != NULL && o->token[0] != '\0') {
        char *bearer = xmalloc(strlen(o->token) + 8);
        snprintf(bearer, strlen(o->token) + 8, "Bearer %s", o->token);
        b->headers[b->n_headers++] = (struct http_header){"Authorization", bearer};
        if (o->scenario == BENCH_GATEWAY)
            b->headers[b->n_headers++] = (struct http_header){"X-Inner-Api-Key", o->token};
    }
}

static int targets_wanted(const struct bench_options *o)
{
    if (o->target != NULL || o->scenario == BENCH_LIFECYCLE)
        return 0;
    if (o->scenario == BENCH_CHURN)
        return o->connections < BINDINGS_MAX ? o->connections : BINDINGS_MAX;
    return 1;
}

bool bench_run(const struct bench_options *options, struct bench_result *ret, struct error *err)
{
    struct run run = {.result = ret};
    bool own = options->target == NULL;

    *ret = (struct bench_result){0};
    error_clear(err);
    run.bench.options = options;
    run.bench.loop = loop_new(NULL);
    run.bench.http =
        http_client_new(run.bench.loop, &(struct http_client_options){
                                            .max_connections_per_host = options->connections + 1,
                                            .max_idle_connections = options->connections + 1,
                                        });
    timer_init(&run.arrivals, on_arrivals, &run);
    timer_init(&run.progress, on_progress, &run);
    run_headers(&run, options);
    if (!own)
        run.targets[run.n_targets++] = (struct target){xstrdup(options->target), xstrdup("")};
    fixture_run(&run, false, targets_wanted(options), err);
    if (!error_is(err)) {
        if (on_gateway(&run))
            run.bench.headers[run.bench.n_headers++] =
                (struct http_header){"X-Sandbox-Id", run.targets[0].ref};
        run_cycles(&run);
    }
    if (own)
        fixture_run(&run, true, 0, err);
    for (int i = 0; i < run.n_targets; i++) {
        free(run.targets[i].ref);
        free(run.targets[i].workspace_ref);
    }
    if (run.bench.n_headers > 1)
        free((char *)run.bench.headers[1].value);
    http_client_free(run.bench.http);
    loop_free(run.bench.loop);
    return !error_is(err);
}
