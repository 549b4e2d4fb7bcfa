/* The client of the process, and http_fetch: one exchange with its body collected.
 *
 * Happy path: http_fetch → transfer_begin → the transport → body → over → op_wake.
 * Failures: a request that cannot be sent ends the wait at once; a failed exchange wakes the op
 * with its error; a cancelled op takes the transfer back, which closes its connection. */
#include "core/runtime/http_client.h"

#include "core/runtime/http_client_curl.h"
#include "core/runtime/http_client_transfer.h"
#include "core/runtime/http_wire.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_TOTAL_MS = 30000, DEFAULT_MAX_BODY = 1024 * 1024 };

struct http_client *http_client_new(struct loop *loop, const struct http_client_options *options)
{
    static const struct http_client_options defaults;
    struct http_client *client = xcalloc(1, sizeof(*client));
    const struct http_client_options *o = options != NULL ? options : &defaults;

    client->loop = loop;
    client->proxy = o->proxy != NULL ? xstrdup(o->proxy) : NULL;
    client->curl_only = o->curl_only;
    client->max_idle_ms = o->max_idle_ms > 0 ? o->max_idle_ms : 30000;
    client->max_per_host = o->max_connections_per_host > 0 ? o->max_connections_per_host : 512;
    client->max_idle = o->max_idle_connections > 0   ? o->max_idle_connections
                       : client->max_per_host > 1024 ? client->max_per_host
                                                     : 1024;
    client->wire = wire_new(client);
    return client;
}

void http_client_free(struct http_client *client)
{
    if (client == NULL)
        return;
    PRE(client->n_running == 0);
    wire_free(client->wire);
    curl_multi_free(client->curl);
    for (int i = 0; i < PEERS_MAX; i++)
        free((char *)(uintptr_t)client->peers[i].peer);
    free(client->proxy);
    free(client);
}

void client_note_connection(struct http_client *client, int change)
{
    client->connections += change;
    metric_set(METRIC_HTTP_CLIENT_CONNECTIONS, NULL, client->connections);
}

const char *http_response_header(const struct http_response *response, const char *name)
{
    for (size_t i = 0; i < response->n_headers; i++) {
        if (strcmp(response->headers[i].name, name) == 0)
            return response->headers[i].value;
    }
    return NULL;
}

/* ---- fetch ---------------------------------------------------------------------------------- */

struct fetch {
    struct op *op;
    struct transfer *transfer;
    struct http_response *ret;
    size_t max_body;
};

static bool fetch_body(void *ctx, const char *bytes, size_t len)
{
    struct fetch *f = ctx;
    struct buf *body = &f->transfer->collected;

    if (len > f->max_body - body->len) {
        transfer_refuse(f->transfer, ERR_UPSTREAM_PROTOCOL, "the answer is larger than is taken");
        return false;
    }
    buf_add(body, bytes, len);
    return true;
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

    if (!t->safe && t->attempting && transfer_was_sent(t))
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
    f->transfer = transfer_take(client, request, &fetch_owner, f);
    if (!transfer_begin(f->transfer, request, UPLOAD_NONE, DEFAULT_TOTAL_MS, &error)) {
        transfer_release(f->transfer);
        op_complete(op, &error);
        return;
    }
    op_wait_begin(op, fetch_cancel, f);
}
