#include "http/lease_door.h"

#include "core/runtime/buf.h"
#include "core/runtime/config.h"
#include "http/app.h"

struct lease_caller lease_caller_of(const struct exchange *x)
{
    return (struct lease_caller){exchange_param(x, "id"), x->bearer, x->authorized};
}

/* ---- opening by token ------------------------------------------------------------------------ */

struct door_call {
    struct op op;
    struct exchange *x;
    struct lease_claims claims;
    void (*then)(struct exchange *x, struct lease *lease, void *ctx);
    void *ctx;
};

enum door_state { DOOR_START, DOOR_REOPENING };
static const char *const door_states[] = {"start", "reopening"};

static enum op_poll door_step(struct op *op)
{
    struct door_call *t = container_of(op, struct door_call, op);

    switch ((enum door_state)op->state) {
    case DOOR_START:
        AWAIT(op, DOOR_REOPENING, broker_reopen(exchange_app(t->x)->broker, op, &t->claims));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type door_type = {"lease_door", door_states, 2, door_step, NULL};

static void on_opened(struct exchange *x, struct op *root)
{
    struct door_call *t = container_of(root, struct door_call, op);
    struct lease *lease = NULL;

    if (!op_failed(root)) {
        lease = lease_find(broker_leases(exchange_app(x)->broker), t->claims.id);
        if (lease == NULL)
            error_set(op_error_edit(root), ERR_LEASE_GONE,
                      "the lease has ended: acquire a new one");
    }
    if (lease == NULL)
        exchange_reply_error(x, op_error(root));
    else
        t->then(x, lease, t->ctx);
}

void lease_door_refuse(struct exchange *x, const struct error *err)
{
    if (err->code == ERR_UNAUTHORIZED)
        exchange_add_header(x, "WWW-Authenticate", "Bearer");
    exchange_reply_error(x, err);
}

void lease_door_enter(struct exchange *x, const struct lease_caller *caller,
                      void (*then)(struct exchange *x, struct lease *lease, void *ctx), void *ctx)
{
    struct lease_claims claims;
    struct lease *lease;
    struct door_call *t;
    struct error err = {0};

    switch (broker_lease_door(exchange_app(x)->broker, x->arena, caller, &lease, &claims, &err)) {
    case DOOR_CLOSED:
        lease_door_refuse(x, &err);
        return;
    case DOOR_OPEN:
        then(x, lease, ctx);
        return;
    case DOOR_TOKEN:
        t = OP_ROOT(x->loop, &door_type, door_call, x->arena);
        t->x = x;
        t->claims = claims;
        t->then = then;
        t->ctx = ctx;
        exchange_run(x, &t->op, on_opened);
        return;
    }
}

const char *lease_base_url(const struct exchange *x, const char *lease_id)
{
    const char *base = exchange_app(x)->config->public_url;
    const char *host = exchange_header(x, "host");
    struct buf url = {0};
    const char *copy;

    if (base == NULL) {
        buf_adds(&url, "http://");
        base = host != NULL ? host : "localhost";
    }
    buf_adds(&url, base);
    while (url.len > 0 && url.data[url.len - 1] == '/')
        url.len--;
    buf_adds(&url, "/v1/leases/");
    buf_adds(&url, lease_id);
    buf_adds(&url, "/shellctl");
    copy = arena_memdup(x->arena, url.data, url.len);
    buf_fini(&url);
    return copy;
}
