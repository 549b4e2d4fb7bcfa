#include "support/script_server.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct script_server {
    struct loop *loop;
    struct evconnlistener *listener;
    script_fn script;
    void (*bytes)(void *ctx, struct script_conn *conn, const void *data, size_t len);
    void *ctx;
    char unix_path[108];
    int port;
    int connections, open, requests;
    struct list conns;
    struct buf url;
};

struct script_conn {
    struct script_server *server;
    struct list link;
    uint64_t id;
    struct bufferevent *bev;
    int requests;
    bool closing, gone;
    int64_t body_left; /* streamed body: bytes of this piece; -1 = chunk head is next */
    bool in_body, chunked;
    bool (*more)(void *ctx, struct script_conn *conn);
    void *more_ctx;
    const char *drip;
    int drip_ms;
    struct timer drip_timer;
};

static void conn_free(void *ptr)
{
    struct script_conn *c = ptr;

    bufferevent_free(c->bev);
    free(c);
}

static void conn_end(struct script_conn *c)
{
    if (c->gone)
        return;
    c->gone = true;
    list_remove(&c->link);
    timer_cancel(c->server->loop, &c->drip_timer);
    bufferevent_disable(c->bev, EV_READ | EV_WRITE);
    bufferevent_setcb(c->bev, NULL, NULL, NULL, NULL);
    c->server->open--;
    loop_defer_free(c->server->loop, conn_free, c);
}

/* ---- reading requests ----------------------------------------------------------------------- */

static const char *header_of(const char *head, const char *name)
{
    static char value[1024];
    size_t len = strlen(name);

    for (const char *line = head; (line = strstr(line, "\r\n")) != NULL;) {
        line += 2;
        if (strncasecmp(line, name, len) == 0 && line[len] == ':') {
            const char *v = line + len + 1 + strspn(line + len + 1, " ");
            snprintf(value, sizeof(value), "%.*s", (int)strcspn(v, "\r"), v);
            return value;
        }
    }
    return NULL;
}

/* Decode a complete chunked body at `text`; false when it has not all arrived. */
static bool read_chunked(const char *text, size_t len, struct buf *body, size_t *ret_used)
{
    size_t at = 0;

    for (;;) {
        const char *eol = memmem(text + at, len - at, "\r\n", 2);
        size_t n;
        if (eol == NULL)
            return false;
        n = strtoul(text + at, NULL, 16);
        at = (size_t)(eol - text) + 2;
        if (len - at < n + 2)
            return false;
        buf_add(body, text + at, n);
        at += n + 2;
        if (n == 0)
            break;
    }
    *ret_used = at;
    return true;
}

static bool stream_piece(struct script_conn *c, struct evbuffer *in)
{
    struct script_server *s = c->server;
    size_t have = evbuffer_get_length(in);
    size_t n = (size_t)c->body_left < have ? (size_t)c->body_left : have;

    if (c->body_left < 0) { /* a chunk's head, or the line break behind a chunk and the head */
        char *line = evbuffer_readln(in, NULL, EVBUFFER_EOL_CRLF);
        if (line == NULL)
            return false;
        if (line[0] != '\0')
            c->body_left = (int64_t)strtoul(line, NULL, 16);
        if (line[0] != '\0' && c->body_left == 0) {
            free(evbuffer_readln(in, NULL, EVBUFFER_EOL_CRLF));
            c->in_body = false;
            s->bytes(s->ctx, c, NULL, 0);
        }
        free(line);
        return true;
    }
    if (n == 0)
        return false;
    s->bytes(s->ctx, c, evbuffer_pullup(in, (ev_ssize_t)n), n);
    if (c->gone)
        return false;
    evbuffer_drain(in, n);
    c->body_left -= (int64_t)n;
    if (c->body_left == 0 && c->chunked) {
        c->body_left = -1;
    } else if (c->body_left == 0) {
        c->in_body = false;
        s->bytes(s->ctx, c, NULL, 0);
    }
    return true;
}

static bool read_request(struct script_conn *c)
{
    struct script_server *s = c->server;
    struct evbuffer *in = bufferevent_get_input(c->bev);
    size_t len = evbuffer_get_length(in);
    const char *text, *end, *length;
    struct script_request r = {0};
    struct buf body = {0};
    char *head, *save;
    size_t used;
    bool chunked;

    if (c->in_body)
        return stream_piece(c, in);
    text = len > 0 ? (const char *)evbuffer_pullup(in, -1) : NULL;
    end = text != NULL ? memmem(text, len, "\r\n\r\n", 4) : NULL;
    if (end == NULL)
        return false;
    used = (size_t)(end - text) + 4;
    head = strndup(text, used);
    length = header_of(head, "content-length");
    chunked = header_of(head, "transfer-encoding") != NULL;
    if (s->bytes != NULL) {
        length = header_of(head, "content-length");
        c->chunked = chunked;
        c->body_left = chunked ? -1 : length != NULL ? atoll(length) : 0;
        c->in_body = c->body_left != 0;
    } else if (chunked) {
        size_t body_used = 0;
        if (!read_chunked(text + used, len - used, &body, &body_used)) {
            buf_fini(&body);
            free(head);
            return false;
        }
        used += body_used;
    } else if ((length = header_of(head, "content-length")) != NULL) {
        size_t n = strtoul(length, NULL, 10);
        if (len - used < n) {
            free(head);
            return false;
        }
        buf_add(&body, text + used, n);
        used += n;
    }
    evbuffer_drain(in, used);
    r.head = head;
    r.body = buf_text(&body);
    r.body_len = body.len;
    r.nth = ++s->requests;
    r.nth_of_conn = ++c->requests;
    char *line = strndup(head, strcspn(head, "\r"));
    r.method = strtok_r(line, " ", &save);
    r.target = strtok_r(NULL, " ", &save);
    s->script(s->ctx, c, &r);
    if (s->bytes != NULL && !c->in_body && !c->gone)
        s->bytes(s->ctx, c, NULL, 0);
    free(line);
    free(head);
    buf_fini(&body);
    return !c->gone && !c->closing;
}

static void on_read(struct bufferevent *bev, void *ctx)
{
    struct script_conn *c = ctx;

    (void)bev;
    loop_touch(c->server->loop);
    while (read_request(c))
        ;
}

static void on_write(struct bufferevent *bev, void *ctx)
{
    struct script_conn *c = ctx;

    loop_touch(c->server->loop);
    if (c->more != NULL && !c->more(c->more_ctx, c))
        c->more = NULL;
    if (!c->gone && c->closing && evbuffer_get_length(bufferevent_get_output(bev)) == 0)
        conn_end(c);
}

static void on_event(struct bufferevent *bev, short what, void *ctx)
{
    struct script_conn *c = ctx;

    (void)bev;
    loop_touch(c->server->loop);
    if ((what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) != 0)
        conn_end(c);
}

/* ---- the server ----------------------------------------------------------------------------- */

static void on_drip(void *ctx)
{
    struct script_conn *c = ctx;

    if (*c->drip == '\0')
        return;
    script_send_bytes(c, c->drip++, 1);
    timer_set_ms(c->server->loop, &c->drip_timer, c->drip_ms);
}

void script_server_adopt(struct script_server *s, int fd)
{
    struct script_conn *c = calloc(1, sizeof(*c));

    c->server = s;
    evutil_make_socket_nonblocking(fd);
    c->bev = bufferevent_socket_new(loop_base(s->loop), fd, BEV_OPT_CLOSE_ON_FREE);
    timer_init(&c->drip_timer, on_drip, c);
    list_init(&c->link);
    list_push(&s->conns, &c->link);
    bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
    c->id = (uint64_t)++s->connections;
    s->open++;
}

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *a, int len,
                      void *ctx)
{
    struct script_server *s = ctx;

    (void)l;
    (void)a;
    (void)len;
    loop_touch(s->loop);
    script_server_adopt(s, fd);
}

void script_server_listen(struct script_server *s)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    bool is_unix = s->unix_path[0] != '\0';

    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    snprintf(un.sun_path, sizeof(un.sun_path), "%s", s->unix_path);
    if (is_unix)
        unlink(s->unix_path);
    s->listener = evconnlistener_new_bind(loop_base(s->loop), on_accept, s,
                                          LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE, -1,
                                          is_unix ? (struct sockaddr *)&un : (struct sockaddr *)&in,
                                          is_unix ? (int)sizeof(un) : (int)sizeof(in));
    PRE(s->listener != NULL);
    if (!is_unix) {
        socklen_t len = sizeof(in);
        getsockname(evconnlistener_get_fd(s->listener), (struct sockaddr *)&in, &len);
        s->port = ntohs(in.sin_port);
    }
}

void script_server_deafen(struct script_server *s)
{
    evconnlistener_free(s->listener);
    s->listener = NULL;
}

struct script_server *script_server_new(struct loop *loop, const char *unix_path, script_fn script,
                                        void *ctx)
{
    struct script_server *s = calloc(1, sizeof(*s));

    s->loop = loop;
    s->script = script;
    s->ctx = ctx;
    list_init(&s->conns);
    if (unix_path != NULL)
        snprintf(s->unix_path, sizeof(s->unix_path), "%s", unix_path);
    script_server_listen(s);
    return s;
}

void script_server_free(struct script_server *s)
{
    while (!list_empty(&s->conns))
        conn_end(container_of(s->conns.next, struct script_conn, link));
    if (s->listener != NULL)
        evconnlistener_free(s->listener);
    loop_turn(s->loop, false); /* the connections' deferred frees */
    if (s->unix_path[0] != '\0')
        unlink(s->unix_path);
    buf_fini(&s->url);
    free(s);
}

void script_server_stream_bodies(struct script_server *s,
                                 void (*bytes)(void *ctx, struct script_conn *conn,
                                               const void *data, size_t len))
{
    s->bytes = bytes;
}

const char *script_server_url(struct script_server *s, const char *path)
{
    buf_clear(&s->url);
    buf_addf(&s->url, "http://127.0.0.1:%d%s", s->port, path);
    return s->url.data;
}

int script_server_connections(const struct script_server *s)
{
    return s->connections;
}

uint64_t script_conn_id(const struct script_conn *c)
{
    return c->id;
}

struct script_conn *script_server_conn(struct script_server *s, uint64_t id)
{
    for (struct list *node = s->conns.next; node != &s->conns; node = node->next) {
        struct script_conn *c = container_of(node, struct script_conn, link);
        if (c->id == id)
            return c;
    }
    return NULL;
}

int script_server_open(const struct script_server *s)
{
    return s->open;
}

int script_server_requests(const struct script_server *s)
{
    return s->requests;
}

/* ---- what a script can do ------------------------------------------------------------------- */

void script_send(struct script_conn *c, const char *text)
{
    script_send_bytes(c, text, strlen(text));
}

void script_send_bytes(struct script_conn *c, const void *bytes, size_t len)
{
    if (!c->gone)
        bufferevent_write(c->bev, bytes, len);
}

void script_reply(struct script_conn *c, int status, const char *headers, const char *body)
{
    struct buf b = {0};

    buf_addf(&b, "HTTP/1.1 %d Status\r\nContent-Length: %zu\r\n%s\r\n%s", status, strlen(body),
             headers, body);
    script_send_bytes(c, b.data, b.len);
    buf_fini(&b);
}

void script_drip(struct script_conn *c, const char *text, int every_ms)
{
    c->drip = text;
    c->drip_ms = every_ms;
    on_drip(c);
}

void script_pump(struct script_conn *c, bool (*more)(void *ctx, struct script_conn *conn),
                 void *ctx)
{
    c->more = more;
    c->more_ctx = ctx;
    on_write(c->bev, c);
}

size_t script_unsent(struct script_conn *c)
{
    return evbuffer_get_length(bufferevent_get_output(c->bev));
}

void script_read(struct script_conn *c, bool on)
{
    if (on)
        bufferevent_enable(c->bev, EV_READ);
    else
        bufferevent_disable(c->bev, EV_READ);
}

void script_close(struct script_conn *c)
{
    if (c->gone)
        return;
    c->closing = true;
    bufferevent_disable(c->bev, EV_READ);
    if (script_unsent(c) == 0)
        conn_end(c);
}

void script_reset(struct script_conn *c)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};

    if (c->gone)
        return;
    setsockopt(bufferevent_getfd(c->bev), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    conn_end(c);
}
