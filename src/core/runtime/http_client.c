/* The pool of the process, and http_fetch: one exchange with its body collected.
 *
 * Happy path: http_fetch → transfer_begin → curl, at the end of the turn → body → over → op_wake.
 * Failures: a request that cannot be sent ends the wait at once; a failed exchange wakes the op
 * with its error; a cancelled op takes the transfer back, which closes its connection. */
#include "core/runtime/http_client.h"

#include "core/runtime/http_client_transfer.h"

#include <stdlib.h>

enum { DEFAULT_TOTAL_MS = 30000, DEFAULT_MAX_BODY = 1024 * 1024 };

struct http_client *http_client_new(struct loop *loop, const struct http_client_options *options)
{
    static const struct http_client_options defaults;
    struct http_client *client = xcalloc(1, sizeof(*client));
    const struct http_client_options *o = options != NULL ? options : &defaults;

    client->loop = loop;
    client->proxy = o->proxy != NULL ? xstrdup(o->proxy) : NULL;
    client->max_idle_s = o->max_idle_ms > 0 ? (long)((o->max_idle_ms + 999) / 1000) : 30;
    client_multi_init(client, o);
    return client;
}

void http_client_free(struct http_client *client)
{
    if (client == NULL)
        return;
    PRE(client->n_running == 0);
    while (client->idle != NULL) {
        struct transfer *t = client->idle;
        client->idle = t->next;
        transfer_free(t);
    }
    client_multi_fini(client);
    for (int i = 0; i < PEERS_MAX; i++)
        free((char *)(uintptr_t)client->peers[i].peer);
    free(client->proxy);
    free(client);
}

/* ---- fetch ---------------------------------------------------------------------------------- */

struct fetch {
    struct op *op;
    struct transfer *transfer;
    struct http_response *ret;
    size_t max_body;
};

static size_t fetch_body(void *ctx, const char *bytes, size_t len)
{
    struct fetch *f = ctx;
    struct buf *body = &f->transfer->collected;

    if (len > f->max_body - body->len) {
        transfer_refuse(f->transfer, ERR_UPSTREAM_PROTOCOL, "the answer is larger than is taken");
        return 0;
    }
    buf_add(body, bytes, len);
    return len;
}

static void fetch_over(void *ctx, const struct error *err)
{
    struct fetch *f = ctx;
    struct transfer *t = f->transfer;
    struct op *op = f->op;

    if (err == NULL) {
        transfer_response(t, op->arena, f->ret);
        f->ret->body = arena_memdup(op->arena, buf_text(&t->collected), t->collected.len);
        f->ret->body_len = t->collected.len;
    }
    transfer_release(t);
    op_wake(op, err);
}

static void fetch_cancel(void *ctx)
{
    struct fetch *f = ctx;
    struct transfer *t = f->transfer;

    if (!t->safe && t->added && transfer_was_sent(t))
        op_note_admitted_unknown(f->op);
    transfer_release(t);
}

static const struct transfer_owner fetch_owner = {
    .body = fetch_body,
    .over = fetch_over,
};

void http_fetch(struct http_client *client, struct op *op, const struct http_request *request,
                struct http_response *ret)
{
    struct fetch *f = ARENA_NEW(op->arena, struct fetch);
    struct error error;

    f->op = op;
    f->ret = ret;
    f->max_body = request->max_body > 0 ? request->max_body : DEFAULT_MAX_BODY;
    f->transfer = transfer_take(client, &fetch_owner, f);
    if (!transfer_begin(f->transfer, request, UPLOAD_NONE, DEFAULT_TOTAL_MS, &error)) {
        transfer_release(f->transfer);
        op_complete(op, &error);
        return;
    }
    op_wait_begin(op, fetch_cancel, f);
}
