#include "http/server.h"

#include "core/runtime/buf.h"
#include "core/runtime/log.h"
#include "core/runtime/metrics.h"
#include "http/access_log.h"
#include "http/drain.h"
#include "http/exchange_impl.h"
#include "http/gate.h"
#include "http/listener.h"
#include "http/reply.h"
#include "http/server_impl.h"

#include <errno.h>
#include <evhtp.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ACCEPT_PAUSE_MS = 100, /* without a free descriptor */
    ACCEPT_LOG_MS = 5000,  /* between two lines about that */
    REFUSED_MAX = 8,       /* connections beyond the limit that still hear a proper 503 */
};

/* ---- what the rest of the edge asks ----------------------------------------------------------- */

struct evbuffer *server_scratch(struct http_server *server)
{
    evbuffer_drain(server->scratch, evbuffer_get_length(server->scratch));
    return server->scratch;
}

struct buf *server_reply_buf(struct http_server *server)
{
    buf_clear(&server->reply_buf);
    return &server->reply_buf;
}

struct buf *server_head_buf(struct http_server *server)
{
    buf_clear(&server->head_buf);
    return &server->head_buf;
}

bool server_enter(struct http_server *server)
{
    if (server->in_flight >= server->options.max_in_flight)
        return false;
    server->in_flight++;
    metric_series_add(server->in_flight_gauge, 1);
    return true;
}

static void server_release(void *ptr);

void server_leave(struct http_server *server, bool entered)
{
    if (entered) {
        server->in_flight--;
        metric_series_add(server->in_flight_gauge, -1);
    }
    if (!list_empty(&server->exchanges))
        return;
    if (server->dying)
        loop_defer_free(server->loop, server_release, server);
    else
        drain_requests_over(&server->drain);
}

/* ---- libevhtp --------------------------------------------------------------------------------- */

void server_feeding(struct http_server *server, struct gate *gate)
{
    server->feeding = gate;
}

/* libevhtp has read a head. The work is done by the gate, once libevhtp's frames are gone. */
static void on_request(evhtp_request_t *request, void *ctx)
{
    struct http_server *server = ctx;

    PRE(server->feeding != NULL);
    server->feeding->request = request;
}

static evhtp_res on_request_fini(evhtp_request_t *request, void *ctx)
{
    struct gate *gate = ctx;

    if (gate->request == request)
        gate->request = NULL;
    return EVHTP_RES_OK;
}

static evhtp_res on_connection_fini(evhtp_connection_t *connection, void *ctx)
{
    (void)connection;
    gate_closed(ctx);
    return EVHTP_RES_OK;
}

void server_finish_request(struct gate *gate)
{
    if (gate->keep)
        evhtp_request_enable_flag(gate->request, EVHTP_REQ_FLAG_KEEPALIVE);
    else
        evhtp_request_disable_flag(gate->request, EVHTP_REQ_FLAG_KEEPALIVE);
    evhtp_send_reply_end(gate->request);
    gate->htp_write(gate->bev, gate->htp_ctx);
}

void server_close_connection(struct evhtp_connection *htp)
{
    evhtp_connection_free(htp);
}

const char *server_request_header(const struct evhtp_request *request, const char *name)
{
    return request != NULL ? evhtp_header_find(request->headers_in, name) : NULL;
}

void server_each_header(const struct evhtp_request *request,
                        void (*each)(void *ctx, const char *name, const char *value), void *ctx)
{
    evhtp_kv_t *kv;

    if (request == NULL)
        return;
    TAILQ_FOREACH(kv, request->headers_in, next)
    each(ctx, kv->key, kv->val);
}

/* ---- connections ------------------------------------------------------------------------------ */

void server_write_refusal(struct gate *gate, const struct error *err)
{
    struct http_server *server = gate->server;
    struct buf *body = server_reply_buf(server), *head = server_head_buf(server);
    int status = err_info(err->code)->http_status;
    struct buf headers = {0};
    int retry_after_s = error_retry_after_s(err, status);

    if (retry_after_s > 0)
        buf_addf(&headers, "Retry-After: %d\r\n", retry_after_s);
    error_body_write(body, server->options.errors, err);
    reply_head_write(head, &(struct reply_head){.status = status,
                                                .date = stamps_date(&server->stamps),
                                                .content_type = "application/json",
                                                .content_length = (int64_t)body->len,
                                                .headers = &headers});
    evbuffer_add(gate_output(gate), head->data, head->len);
    evbuffer_add(gate_output(gate), body->data, body->len);
    buf_fini(&headers);
    LOG_WITH(server->options.no_access_log ? LOG_DEBUG : LOG_INFO, "request refused",
             {"peer", gate->peer}, {"code", err_wire(err->code)}, {"why", err->message});
}

void server_gate_closed(struct http_server *server)
{
    server->connections--;
    metric_series_add(server->connections_gauge, -1);
    for (size_t i = 0; i < server->n_listeners; i++) {
        if (timer_armed(&server->listeners[i].resume)) /* a descriptor is free again */
            timer_set_ms(server->loop, &server->listeners[i].resume, 0);
    }
}

static int connections_of(const struct http_server *server, const char *peer)
{
    int n = 0;

    for (const struct list *l = server->gates.next; l != &server->gates; l = l->next)
        n += strcmp(container_of(l, struct gate, link)->peer, peer) == 0;
    return n;
}

/* NULL when the connection is welcome. */
static const char *connection_excess(const struct http_server *server, const struct gate *gate)
{
    if (server->connections > server->max_connections)
        return "too many connections";
    if (server->options.max_connections_per_ip > 0 && strcmp(gate->peer, "unix") != 0 &&
        connections_of(server, gate->peer) > server->options.max_connections_per_ip)
        return "too many connections from this address";
    return NULL;
}

static evhtp_res on_accept(evhtp_connection_t *connection, void *ctx)
{
    struct http_server *server = ctx;
    int fd = bufferevent_getfd(connection->bev);
    struct gate *gate;
    const char *excess;
    struct error err;

    loop_touch(server->loop);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    gate = xcalloc(1, sizeof(*gate));
    listener_peer_name(connection->saddr, gate->peer, sizeof(gate->peer));
    list_push(&server->gates, &gate->link);
    server->connections++;
    metric_series_add(server->connections_gauge, 1);
    evhtp_connection_set_hook(connection, evhtp_hook_on_connection_fini, on_connection_fini, gate);
    evhtp_connection_set_hook(connection, evhtp_hook_on_request_fini, on_request_fini, gate);
    gate_open(gate, server, server->loop, connection->bev, connection);
    excess = connection_excess(server, gate);
    if (excess != NULL) {
        error_set(&err, ERR_OVERLOADED, "%s", excess);
        gate_refuse(gate, &err);
    }
    return EVHTP_RES_OK;
}

/* Last resort, without any state: the client's request is not read, so the answer may be lost. */
static void refuse_raw(int fd)
{
    static const char answer[] = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
                                 "Retry-After: 1\r\nContent-Length: 0\r\n\r\n";

    metric_add(METRIC_HTTP_REJECTED, LABELS("connections"), 1);
    if (send(fd, answer, sizeof(answer) - 1, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        shutdown(fd, SHUT_WR);
}

static evhtp_res on_pre_accept(evhtp_connection_t *connection, void *ctx)
{
    struct http_server *server = ctx;

    if (server->connections < server->max_connections + REFUSED_MAX)
        return EVHTP_RES_OK;
    refuse_raw(connection->sock);
    return EVHTP_RES_ERROR;
}

static void on_accept_resume(void *ctx)
{
    struct bound *bound = ctx;

    if (bound->htp->server != NULL)
        evconnlistener_enable(bound->htp->server);
}

/* accept() failed, most likely for want of a descriptor. The listener is level-triggered: going on
 * at once would spin. One waiting client gets an answer with the descriptor kept for that. */
static void on_accept_error(struct evconnlistener *listener, void *ctx)
{
    struct bound *bound = ((evhtp_t *)ctx)->arg;
    struct http_server *server = bound->server;
    int why = errno, fd;
    int64_t now_ms = loop_now_ms(server->loop);

    loop_touch(server->loop);
    if (why == EMFILE || why == ENFILE) {
        close(server->reserve_fd);
        fd = accept4(evconnlistener_get_fd(listener), NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            refuse_raw(fd);
            close(fd);
        }
        server->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    evconnlistener_disable(listener);
    timer_set_ms(server->loop, &bound->resume, ACCEPT_PAUSE_MS);
    if (server->accept_logged_ms == 0 || now_ms - server->accept_logged_ms >= ACCEPT_LOG_MS) {
        server->accept_logged_ms = now_ms;
        LOG_WITH(LOG_WARN, "cannot accept connections; pausing", {"address", bound->address},
                 {"why", strerror(why)});
    }
}

/* ---- drain ------------------------------------------------------------------------------------ */

void server_stop_listening(struct http_server *server)
{
    for (size_t i = 0; i < server->n_listeners; i++) {
        struct bound *bound = &server->listeners[i];
        const char *path = listener_unix_path(bound->address);
        timer_cancel(server->loop, &bound->resume);
        if (bound->htp->server != NULL && path != NULL)
            unlink(path);
        evhtp_unbind_socket(bound->htp);
    }
}

void http_server_drain(struct http_server *server, int64_t grace_ms, int64_t timeout_ms,
                       int64_t settle_ms, void (*on_drained)(void *ctx, int left), void *ctx)
{
    struct drain *d = &server->drain;

    if (drain_begun(d))
        return;
    d->timeout_ms = timeout_ms;
    d->settle_ms = settle_ms;
    d->on_drained = on_drained;
    d->on_drained_ctx = ctx;
    drain_begin(d, grace_ms);
}

void http_server_hurry(struct http_server *server)
{
    drain_hurry(&server->drain);
}

bool http_server_draining(const struct http_server *server)
{
    return drain_begun(&server->drain);
}

bool server_refuses(const struct http_server *server)
{
    return drain_refuses(&server->drain);
}

int http_server_in_flight(const struct http_server *server)
{
    return server->in_flight;
}

/* ---- making and freeing ----------------------------------------------------------------------- */

#define DEFAULT(field, value)                                                                      \
    do {                                                                                           \
        if (o->field == 0)                                                                         \
            o->field = (value);                                                                    \
    } while (0)

static void fill_defaults(struct http_server_options *o)
{
    DEFAULT(max_connections, 8192);
    DEFAULT(max_in_flight, 4096);
    DEFAULT(max_header_bytes, 32768);
    DEFAULT(header_timeout_ms, 10000);
    DEFAULT(body_timeout_ms, 30000);
    DEFAULT(idle_timeout_ms, 90000);
    DEFAULT(write_timeout_ms, 60000);
    DEFAULT(request_timeout_ms, 600000);
}

/* Connections that descriptors suffice for, with some kept for peers, files and children. */
static int connection_limit(const struct http_server *server)
{
    long files = listener_raise_file_limit();
    long kept = files / 8 < 24 ? 24 : files / 8 > 1024 ? 1024 : files / 8;
    long left = files - listener_open_files() - kept - REFUSED_MAX;
    long room = left > 8 ? left : 8;
    char text[32];

    snprintf(text, sizeof(text), "%ld", files);
    if (room >= server->options.max_connections) {
        LOG_WITH(LOG_DEBUG, "open files", {"limit", text});
        return server->options.max_connections;
    }
    LOG_WITH(LOG_WARN, "the limit of open files bounds the number of connections",
             {"open_files", text});
    return (int)room;
}

static bool listener_add(struct http_server *server, const char *spec, size_t len,
                         struct error *err)
{
    struct bound *bound = &server->listeners[server->n_listeners];
    int fd;

    if (server->n_listeners == LISTENERS_MAX) {
        error_set(err, ERR_BAD_REQUEST, "there are more than %d addresses to listen on",
                  LISTENERS_MAX);
        return false;
    }
    fd = listener_bind(spec, len, bound->address, err);
    if (fd < 0)
        return false;
    bound->server = server;
    bound->htp = evhtp_new(loop_base(server->loop), bound);
    PRE(bound->htp != NULL);
    timer_init(&bound->resume, on_accept_resume, bound);
    server->n_listeners++;
    evhtp_disable_flag(bound->htp, EVHTP_FLAG_ENABLE_100_CONT);
    evhtp_set_pre_accept_cb(bound->htp, on_pre_accept, server);
    evhtp_set_post_accept_cb(bound->htp, on_accept, server);
    evhtp_set_gencb(bound->htp, on_request, server);
    if (evhtp_accept_socket(bound->htp, fd, -1) != 0) {
        close(fd);
        error_set(err, ERR_INTERNAL, "cannot listen on %s: %s", bound->address, strerror(errno));
        return false;
    }
    evconnlistener_set_error_cb(bound->htp->server, on_accept_error);
    LOG_WITH(LOG_INFO, "listening", {"address", bound->address});
    return true;
}

static bool listeners_open(struct http_server *server, const char *specs, struct error *err)
{
    const char *at = specs;

    while (*at != '\0') {
        size_t len;
        at += strspn(at, ", \t");
        len = strcspn(at, ", \t");
        if (len > 0 && !listener_add(server, at, len, err))
            return false;
        at += len;
    }
    if (server->n_listeners > 0)
        return true;
    error_set(err, ERR_BAD_REQUEST, "there is no address to listen on");
    return false;
}

static void server_release(void *ptr)
{
    struct http_server *server = ptr;

    for (size_t i = 0; i < server->n_listeners; i++)
        evhtp_free(server->listeners[i].htp);
    router_free(server->router);
    access_log_free(server->access_log);
    evbuffer_free(server->scratch);
    buf_fini(&server->reply_buf);
    buf_fini(&server->head_buf);
    buf_fini(&server->openapi);
    if (server->reserve_fd >= 0)
        close(server->reserve_fd);
    free(server->title);
    free(server);
}

struct http_server *http_server_new(struct loop *loop, const struct http_server_options *options,
                                    const struct route_set *routes, void *app, struct error *err)
{
    struct http_server *server = xcalloc(1, sizeof(*server));

    signal(SIGPIPE, SIG_IGN);
    server->loop = loop;
    server->options = *options;
    fill_defaults(&server->options);
    server->title = xstrdup(options->title != NULL ? options->title : "Bindery");
    server->options.title = server->title;
    server->options.listen = NULL;
    server->routes = routes;
    server->router = router_new(routes);
    server->access_log = access_log_new(router_count(server->router), !options->no_access_log);
    server->app = app;
    server->scratch = evbuffer_new();
    PRE(server->scratch != NULL);
    server->connections_gauge = metric_series(METRIC_HTTP_CONNECTIONS, NULL);
    server->in_flight_gauge = metric_series(METRIC_HTTP_IN_FLIGHT, NULL);
    server->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    list_init(&server->gates);
    list_init(&server->exchanges);
    drain_init(&server->drain, server);
    stamps_init(&server->stamps, loop);
    server->max_connections = connection_limit(server);
    if (listeners_open(server, options->listen != NULL ? options->listen : "", err))
        return server;
    http_server_free(server);
    return NULL;
}

const char *http_server_address(const struct http_server *server, size_t index)
{
    return index < server->n_listeners ? server->listeners[index].address : NULL;
}

void http_server_free(struct http_server *server)
{
    if (server == NULL)
        return;
    server_stop_listening(server);
    drain_stop(&server->drain);
    LIST_FOREACH_SAFE (it, next, &server->gates)
        gate_drop(container_of(it, struct gate, link));
    if (list_empty(&server->exchanges))
        loop_defer_free(server->loop, server_release, server);
    else
        server->dying = true; /* cancelled operations are still undoing: the last one frees */
}
