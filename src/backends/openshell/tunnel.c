#include "backends/openshell/tunnel_internal.h"

#include "core/runtime/log.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    EXPIRY_MARGIN_MS = 60000, /* a token this close to its end opens no new stream */
    MINT_TIMEOUT_MS = 30000,
};

static void tunnel_free(void *ptr);

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Background operation: make one session token and hand it to the tunnel. The tunnel is alive as
 * long as it runs: it is freed only when no minter is left. */
struct mint {
    struct op op;
    struct tunnel *tunnel;
    const char *text;
    int64_t expires_at_ms;
};

enum mint_state { MINT_START, MINT_CALLING };
static const char *const mint_states[] = {"start", "calling"};

static enum op_poll mint_step(struct op *op)
{
    struct mint *m = container_of(op, struct mint, op);

    switch ((enum mint_state)op->state) {
    case MINT_START:
        AWAIT(op, MINT_CALLING,
              rpc_session_create(m->tunnel->rpc, op, m->tunnel->sandbox_id, &m->text,
                                 &m->expires_at_ms));
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type mint_type = {"openshell_mint", mint_states, 2, mint_step, NULL};

/* Background operation: revoke one token; a failure is only logged, the gateway reaps it in time. */
struct revoke {
    struct op op;
    struct list link;
    struct rpc *rpc;
    const char *text;
};

enum revoke_state { REVOKE_START, REVOKE_CALLING };
static const char *const revoke_states[] = {"start", "calling"};

static enum op_poll revoke_step(struct op *op)
{
    struct revoke *r = container_of(op, struct revoke, op);

    switch ((enum revoke_state)op->state) {
    case REVOKE_START:
        AWAIT_ANY(op, REVOKE_CALLING, rpc_session_revoke(r->rpc, op, r->text));
        if (op_last_failed(op))
            log_warn("an OpenShell session was not revoked: %s", op_last(op)->message);
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type revoke_type = {"openshell_revoke", revoke_states, 2, revoke_step, NULL};

static void on_revoked(struct op *op, void *ctx)
{
    (void)ctx;
    list_remove(&container_of(op, struct revoke, op)->link);
}

void tunnel_cancel_revokes(struct rpc *rpc)
{
    LIST_FOREACH_SAFE (node, tmp, &rpc->revokes)
        op_cancel(&container_of(node, struct revoke, link)->op, "shutting down");
}

static void token_revoke(struct tunnel *t, const char *text)
{
    struct revoke *r = OP_ROOT(t->loop, &revoke_type, revoke, NULL);

    r->rpc = t->rpc;
    r->text = arena_strdup(r->op.arena, text);
    op_set_deadline_ms(&r->op, MINT_TIMEOUT_MS, "revoking a session");
    list_push(&t->rpc->revokes, &r->link);
    op_start(&r->op, on_revoked, NULL);
}

static void token_free(struct tunnel *t, struct tunnel_token *token, bool revoke)
{
    list_remove(&token->link);
    if (revoke)
        token_revoke(t, token->text);
    free(token->text);
    free(token);
}

static void on_minted(struct op *op, void *ctx)
{
    struct mint *m = container_of(op, struct mint, op);
    struct tunnel *t = ctx;
    struct tunnel_token *token;
    struct list *node;

    t->minting = false;
    t->minter = NULL;
    if (op_failed(op)) {
        t->last_error = *op_error(op);
        if (m->text != NULL) /* made all the same */
            token_revoke(t, m->text);
        while ((node = t->waiting.next) != &t->waiting)
            pump_abort(pump_of(node), op_error(op));
    } else {
        token = xcalloc(1, sizeof(*token));
        token->text = xstrdup(m->text);
        token->usable_until_wall_ms =
            m->expires_at_ms == 0 ? INT64_MAX : m->expires_at_ms - EXPIRY_MARGIN_MS;
        list_push(&t->tokens, &token->link);
    }
    if (t->closing)
        tunnel_free(t);
    else
        tunnel_dispatch(t);
}

static void tunnel_mint(struct tunnel *t)
{
    struct mint *m = OP_ROOT(t->loop, &mint_type, mint, NULL);

    m->tunnel = t;
    t->minting = true;
    t->minter = &m->op;
    op_set_deadline_ms(&m->op, MINT_TIMEOUT_MS, "making a session");
    op_start(&m->op, on_minted, t);
}

/* A token with a free stream; outworn ones without streams go. */
static struct tunnel_token *token_find(struct tunnel *t)
{
    int64_t now_ms = loop_wall_ms(t->loop);
    struct tunnel_token *found = NULL;

    LIST_FOREACH_SAFE (node, tmp, &t->tokens) {
        struct tunnel_token *token = container_of(node, struct tunnel_token, link);
        if (now_ms >= token->usable_until_wall_ms) {
            if (token->streams == 0)
                token_free(t, token, true);
        } else if (found == NULL && token->streams < TUNNEL_STREAMS_PER_TOKEN) {
            found = token;
        }
    }
    return found;
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* The first waiting pump that may have a slot now. */
static struct pump *pump_next(struct tunnel *t)
{
    if (t->n_streams >= TUNNEL_STREAMS_MAX)
        return NULL;
    LIST_FOREACH_SAFE (node, tmp, &t->waiting) {
        struct pump *pump = pump_of(node);
        if (!pump_is_poll(pump) || t->n_poll_streams < TUNNEL_POLL_STREAMS_MAX)
            return pump;
    }
    return NULL;
}

static void on_dispatch(void *ctx)
{
    struct tunnel *t = ctx;
    struct pump *pump;

    while (!t->closing && (pump = pump_next(t)) != NULL) {
        struct tunnel_token *token = token_find(t);
        if (token == NULL) {
            if (!t->minting)
                tunnel_mint(t);
            return;
        }
        pump_start(pump, token);
    }
}

void tunnel_dispatch(struct tunnel *tunnel)
{
    if (!tunnel->closing)
        loop_post(tunnel->loop, &tunnel->dispatch);
}

/* ---- life ------------------------------------------------------------------------------------ */

static int dial(void *ctx, struct error *err)
{
    return pump_open(ctx, false, err);
}

static int dial_poll(void *ctx, struct error *err)
{
    return pump_open(ctx, true, err);
}

static const struct error *why(void *ctx)
{
    return tunnel_last_error(ctx);
}

struct tunnel *tunnel_new(struct loop *loop, struct rpc *rpc, const char *sandbox_name,
                          const char *sandbox_id, int shellctl_port)
{
    static uint64_t serial; /* keys are never reused: a connection of before must not be found */
    struct tunnel *t = xcalloc(1, sizeof(*t));

    t->loop = loop;
    t->rpc = rpc;
    t->sandbox_name = xstrdup(sandbox_name);
    t->sandbox_id = xstrdup(sandbox_id);
    t->port = shellctl_port;
    t->holds = 1;
    list_init(&t->tokens);
    list_init(&t->waiting);
    list_init(&t->pumps);
    task_init(&t->dispatch, on_dispatch, t);
    serial++;
    snprintf(t->key, sizeof(t->key), "t%llu.%s", (unsigned long long)serial, sandbox_name);
    snprintf(t->poll_key, sizeof(t->poll_key), "p%llu.%s", (unsigned long long)serial,
             sandbox_name);
    t->dialer = (struct http_dialer){t->key, dial, why, t, true};
    t->poll_dialer = (struct http_dialer){t->poll_key, dial_poll, why, t, true};
    return t;
}

void tunnel_hold(struct tunnel *tunnel)
{
    PRE(!tunnel->closing);
    tunnel->holds++;
}

static void tunnel_free(void *ptr)
{
    struct tunnel *t = ptr;

    PRE(list_empty(&t->waiting) && list_empty(&t->pumps) && !t->minting);
    task_cancel(&t->dispatch);
    LIST_FOREACH_SAFE (node, tmp, &t->tokens)
        token_free(t, container_of(node, struct tunnel_token, link), true);
    free(t->sandbox_name);
    free(t->sandbox_id);
    free(t);
}

void tunnel_release(struct tunnel *tunnel)
{
    PRE(tunnel->holds > 0);
    if (--tunnel->holds > 0)
        return;
    tunnel->closing = true;
    while (!list_empty(&tunnel->waiting))
        pump_abort(pump_of(tunnel->waiting.next), NULL);
    while (!list_empty(&tunnel->pumps))
        pump_abort(pump_of(tunnel->pumps.next), NULL);
    if (tunnel->minting)
        op_cancel(tunnel->minter, "the tunnel was closed"); /* on_minted frees */
    else
        loop_defer_free(tunnel->loop, tunnel_free, tunnel);
}

const struct http_dialer *tunnel_dialer(struct tunnel *tunnel)
{
    return &tunnel->dialer;
}

const struct http_dialer *tunnel_poll_dialer(struct tunnel *tunnel)
{
    return &tunnel->poll_dialer;
}

const char *tunnel_sandbox_id(const struct tunnel *tunnel)
{
    return tunnel->sandbox_id;
}

void tunnel_tokens_gone(struct tunnel *tunnel)
{
    LIST_FOREACH_SAFE (node, tmp, &tunnel->tokens) {
        struct tunnel_token *token = container_of(node, struct tunnel_token, link);
        token->usable_until_wall_ms = 0;
        if (token->streams == 0)
            token_free(tunnel, token, false);
    }
}

/* Streams of before end by themselves: the gateway has cut them. Their tokens are gone there. */
void tunnel_reset(struct tunnel *tunnel, const char *sandbox_id)
{
    free(tunnel->sandbox_id);
    tunnel->sandbox_id = xstrdup(sandbox_id);
    tunnel_tokens_gone(tunnel);
    error_clear(&tunnel->last_error);
}

const struct error *tunnel_last_error(const struct tunnel *tunnel)
{
    return &tunnel->last_error;
}

int tunnel_streams(const struct tunnel *tunnel)
{
    return tunnel->n_streams;
}
