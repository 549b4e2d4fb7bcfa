#include "core/domain/broker_internal.h"

#include "core/runtime/log.h"
#include "core/runtime/quote.h"

#include <stdlib.h>
#include <string.h>

struct broker *broker_new(struct loop *loop, struct backend *backend,
                          const struct broker_options *options)
{
    struct broker *b = xcalloc(1, sizeof(*b));

    b->loop = loop;
    b->backend = backend;
    b->options = *options;
    b->options.lease_secret = NULL;
    lease_key_derive(&b->key, options->lease_secret);
    b->leases = lease_table_new(loop, &options->leases);
    flights_init(&b->validating);
    flights_init(&b->reopening);
    return b;
}

void broker_free(struct broker *b)
{
    if (b == NULL)
        return;
    lease_table_free(b->leases);
    lease_key_fini(&b->key);
    free(b);
}

struct backend *broker_backend(struct broker *b)
{
    return b->backend;
}

struct lease_table *broker_leases(struct broker *b)
{
    return b->leases;
}

void broker_set_observer(struct broker *b, const struct broker_observer *observer)
{
    b->observer = *observer;
}

void broker_set_revocations(struct broker *b, const struct lease_revocations *revocations)
{
    b->revocations = *revocations;
}

bool broker_check_backend(const struct broker *b, struct error *err)
{
    if (b->backend != NULL)
        return true;
    error_set(err, ERR_BACKEND_UNAVAILABLE, "runtime backend is not configured");
    return false;
}

bool broker_ready(struct broker *b, struct error *err)
{
    return broker_check_backend(b, err) && b->backend->ops->ready(b->backend, err);
}

void broker_drain(struct broker *b, struct task *task)
{
    lease_end_all(b->leases, LEASE_DRAINED);
    lease_table_idle(b->leases, task);
}

void broker_binding_lost(struct broker *b, const char *binding_ref, const struct error *why)
{
    int ended = lease_end_binding(b->leases, binding_ref, LEASE_LOST);

    LOG_WITH(LOG_WARN, "binding lost", {"binding_ref", binding_ref},
             {"why", why != NULL ? why->message : NULL}, {"leases", ended > 0 ? "ended" : NULL});
    if (b->observer.binding_lost != NULL)
        b->observer.binding_lost(b->observer.ctx, binding_ref, why);
}

/* ---- checks
 * -------------------------------------------------------------------------------------- */

static bool check_text(const char *what, const char *text, enum err_code code, struct error *err)
{
    size_t len = strlen(text);

    if (len == 0 || len > REF_MAX) {
        error_set(err, code, "%s must have 1 to %d bytes, it has %zu", what, REF_MAX, len);
        return false;
    }
    if (!quote_is_header_safe(text)) {
        error_set(err, code, "%s holds a control character", what);
        return false;
    }
    return true;
}

bool broker_check_id(const char *what, const char *id, struct error *err)
{
    return check_text(what, id, ERR_BAD_REQUEST, err);
}

static bool is_path_trick(const char *ref)
{
    return strcmp(ref, ".") == 0 || strcmp(ref, "..") == 0;
}

static bool check_ref(const char *what, const char *ref, struct error *err)
{
    if (!check_text(what, ref, ERR_INVALID_REF, err))
        return false;
    if (is_path_trick(ref)) {
        error_set(err, ERR_INVALID_REF, "%s \"%s\" was never issued", what, ref);
        return false;
    }
    return true;
}

bool broker_check_binding_ref(struct broker *b, const char *ref, struct error *err)
{
    return check_ref("the binding ref", ref, err) &&
           b->backend->ops->check_binding_ref(b->backend, ref, err);
}

bool broker_check_workspace_ref(const char *ref, struct error *err)
{
    return check_ref("the workspace ref", ref, err);
}

bool broker_check_snapshot_ref(struct broker *b, const char *ref, struct error *err)
{
    return check_ref("the snapshot ref", ref, err) &&
           (b->backend->ops->check_snapshot_ref == NULL ||
            b->backend->ops->check_snapshot_ref(b->backend, ref, err));
}

bool broker_has_room(struct broker *b, struct op *op)
{
    struct error err;

    if (lease_table_check_room(b->leases, &err))
        return true;
    op_fail_with(op, &err);
    return false;
}

void broker_wrap_error(struct error *err, enum err_code code)
{
    switch ((int)err->code) {
    case ERR_UPSTREAM_LOST:
        if (err->admitted == ADMITTED_UNKNOWN && code == ERR_BINDING_CREATE)
            code = ERR_BACKEND_OUTCOME_UNKNOWN;
        err->code = code;
        break;
    case ERR_UPSTREAM_STATUS:
    case ERR_UPSTREAM_PROTOCOL:
    case ERR_UPSTREAM_CONNECT:
        err->code = code;
        break;
    default:
        break;
    }
}
