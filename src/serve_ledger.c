#include "serve_ledger.h"

#include "core/runtime/json.h"
#include "core/runtime/log.h"
#include "gc/ledger_census.h"
#include "gc/ledger_open.h"

#include <string.h>

static void on_retired(void *ctx)
{
    collector_poke(((struct served_ledger *)ctx)->collector);
}

static void on_refused(void *ctx, const struct error *why)
{
    struct served_ledger *s = ctx;

    if (s->on_refused != NULL)
        s->on_refused(s->refused_ctx, why);
}

bool served_ledger_open(struct served_ledger *ret, struct loop *loop, const struct config *config,
                        struct error *err)
{
    ret->loop = loop;
    ret->ledger = ledger_open(loop,
                              &(struct ledger_open_options){.url = config->ledger_url,
                                                            .data_dir = config->data_dir,
                                                            .on_refused = on_refused,
                                                            .ctx = ret},
                              err);
    return ret->ledger != NULL;
}

/* ---- GET /v1/gc --------------------------------------------------------------------------------------- */

static void control_sweep(void *ctx)
{
    collector_poke(((struct served_ledger *)ctx)->collector);
}

static void member_time(struct json_writer *w, const char *key, int64_t wall_ms)
{
    json_key(w, key);
    if (wall_ms > 0)
        json_time_ms(w, wall_ms);
    else
        json_null(w);
}

static void describe_collector(struct json_writer *w, const struct served_ledger *s)
{
    struct collector_status c;

    collector_status(s->collector, &c);
    json_key(w, "collector");
    json_object_begin(w);
    json_member_bool(w, "sweeping", c.sweeping);
    json_member_int(w, "running", c.running);
    json_member_int(w, "sweeps", c.sweeps);
    json_member_int(w, "done", c.done);
    json_member_int(w, "failed", c.failed);
    member_time(w, "last_sweep_at", c.last_sweep_wall_ms);
    json_member_int(w, "last_sweep_ms", c.last_sweep_ms);
    json_member_string(w, "last_error", c.last_error);
    json_object_finish(w);
}

static void describe_reconciler(struct json_writer *w, const struct served_ledger *s)
{
    struct reconciler_status r;

    reconciler_status(s->reconciler, &r);
    json_key(w, "reconciler");
    json_object_begin(w);
    json_member_bool(w, "supported", r.supported);
    json_member_int(w, "runs", r.runs);
    json_member_int(w, "orphans", r.orphans);
    json_member_int(w, "lost", r.lost);
    json_member_int(w, "incomplete", r.incomplete);
    member_time(w, "last_run_at", r.last_run_wall_ms);
    json_object_finish(w);
}

static void control_describe(void *ctx, struct json_writer *w)
{
    const struct served_ledger *s = ctx;

    describe_collector(w, s);
    describe_reconciler(w, s);
    ledger_census_describe(s->census, w);
}

/* ---- start ------------------------------------------------------------------------------------------------ */

void served_ledger_start(struct served_ledger *s, struct broker *broker,
                         const struct config *config)
{
    s->lifecycle = lifecycle_new(s->loop, broker, s->ledger,
                                 &(struct lifecycle_options){
                                     .claim_ms = config->claim_ms,
                                     .retire_grace_ms = config->retire_grace_ms,
                                     .tenant_max_bindings = config->tenant_max_bindings,
                                     .tenant_max_creates = config->tenant_max_creates,
                                     .retired = on_retired,
                                     .ctx = s,
                                 });
    s->collector = collector_new(s->loop, s->lifecycle,
                                 &(struct collector_options){
                                     .interval_ms = config->gc_interval_ms,
                                     .claim_ms = config->claim_ms,
                                     .retention_ms = config->timeline_retention_ms,
                                     .concurrency = (int)config->gc_concurrency,
                                 });
    s->reconciler = reconciler_new(s->loop, s->lifecycle, s->collector,
                                   &(struct reconciler_options){
                                       .interval_ms = config->reconcile_interval_ms,
                                       .grace_ms = config->reconcile_grace_ms,
                                       .destroy = strcmp(config->reconcile, "destroy") == 0,
                                   });
    s->census = ledger_census_new(s->loop, s->ledger, config->gc_interval_ms);
    s->control = (struct gc_control){control_sweep, control_describe, s};
}

bool served_ledger_ready(void *served_ledger, struct error *err)
{
    struct ledger *ledger = ((struct served_ledger *)served_ledger)->ledger;

    return ledger->ops->ready(ledger, err);
}

void served_ledger_describe(void *served_ledger, struct json_writer *w)
{
    struct ledger *ledger = ((struct served_ledger *)served_ledger)->ledger;

    json_object_begin(w);
    json_member_string(w, "driver", ledger->ops->driver(ledger));
    json_object_finish(w);
}

/* ---- stop ---------------------------------------------------------------------------------------------------- */

static void stop_step(void *ctx)
{
    struct served_ledger *s = ctx;

    switch (s->stage++) {
    case 0:
        reconciler_stop(s->reconciler, &s->step);
        return;
    case 1:
        collector_stop(s->collector, &s->step);
        return;
    case 2:
        ledger_census_stop(s->census, &s->step);
        return;
    case 3:
        lifecycle_flush(s->lifecycle, &s->step);
        return;
    default:
        s->stopped(s->ctx);
    }
}

void served_ledger_stop(struct served_ledger *s, void (*done)(void *ctx), void *ctx)
{
    s->stopped = done;
    s->ctx = ctx;
    s->stage = 0;
    task_init(&s->step, stop_step, s);
    loop_post(s->loop, &s->step);
}

void served_ledger_finish(struct served_ledger *s)
{
    ledger_census_free(s->census);
    reconciler_free(s->reconciler);
    collector_free(s->collector);
    lifecycle_free(s->lifecycle);
}

void served_ledger_close(struct served_ledger *s)
{
    if (s->ledger != NULL)
        s->ledger->ops->close(s->ledger);
}
