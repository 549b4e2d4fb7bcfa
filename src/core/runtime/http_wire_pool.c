/* Connections by origin. Who asks gets the one that was used last, or a new one, or, at the limit,
 * the first that becomes free. Idle ones are bounded in number and age; one on which anything
 * arrives is closed. */
#include "core/runtime/http_wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- origins --------------------------------------------------------------------------------- */

static uint32_t hash_of(const char *key, size_t len)
{
    uint32_t hash = 2166136261U; /* FNV-1a */

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)key[i]) * 16777619U;
    return hash;
}

struct wire_origin *wire_origin_hold(struct wire *wire, const char *key, size_t key_len)
{
    uint32_t hash = hash_of(key, key_len);
    struct wire_origin **bucket = &wire->buckets[hash % WIRE_BUCKETS];
    struct wire_origin *o;

    for (o = *bucket; o != NULL; o = o->next) {
        if (o->hash == hash && o->key_len == key_len && memcmp(o->key, key, key_len) == 0) {
            o->users++;
            return o;
        }
    }
    o = xcalloc(1, sizeof(*o) + key_len);
    o->hash = hash;
    o->key_len = key_len;
    memcpy(o->key, key, key_len);
    list_init(&o->idle);
    list_init(&o->waiting);
    o->users = 1;
    o->next = *bucket;
    *bucket = o;
    return o;
}

static void origin_free_unused(struct wire *wire, struct wire_origin *o)
{
    struct wire_origin **at = &wire->buckets[o->hash % WIRE_BUCKETS];

    if (o->users > 0 || o->open > 0)
        return;
    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    free(o);
}

void wire_origin_release(struct wire *wire, struct wire_origin *origin)
{
    origin->users--;
    origin_free_unused(wire, origin);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void conn_close(struct wire_conn *c);

static void on_readable(evutil_socket_t fd, short what, void *ctx)
{
    struct wire_conn *c = ctx;

    (void)fd;
    (void)what;
    loop_touch(c->wire->client->loop);
    if (c->transfer != NULL)
        wire_transfer_readable(c->transfer);
    else /* closed by the peer, or bytes that nobody asked for */
        conn_close(c);
}

static void on_writable(evutil_socket_t fd, short what, void *ctx)
{
    struct wire_conn *c = ctx;

    (void)fd;
    (void)what;
    loop_touch(c->wire->client->loop);
    wire_transfer_writable(c->transfer);
}

void wire_conn_read(struct wire_conn *c, bool on)
{
    if (c->reading == on)
        return;
    c->reading = on;
    if (on)
        event_add(&c->read_event, NULL);
    else
        event_del(&c->read_event);
}

static struct wire_conn *conn_new(struct wire *wire, struct wire_origin *origin, int fd)
{
    struct event_base *base = loop_base(wire->client->loop);
    struct wire_conn *c = xcalloc(1, sizeof(*c));

    c->wire = wire;
    c->origin = origin;
    c->fd = fd;
    list_init(&c->link);
    list_init(&c->age);
    event_assign(&c->read_event, base, fd, EV_READ | EV_PERSIST, on_readable, c);
    event_assign(&c->write_event, base, fd, EV_WRITE | EV_PERSIST, on_writable, c);
    wire_conn_read(c, true);
    client_note_connection(wire->client, 1);
    return c;
}

static void unpool(struct wire_conn *c)
{
    if (list_empty(&c->age))
        return;
    list_remove(&c->link);
    list_remove(&c->age);
    c->wire->n_idle--;
}

static void serve_waiting(struct wire *wire, struct wire_origin *o);

/* The slot is free: somebody may be waiting for it. */
static void slot_freed(struct wire *wire, struct wire_origin *o)
{
    o->users++; /* stays while we look */
    o->open--;
    serve_waiting(wire, o);
    wire_origin_release(wire, o);
}

/* Leaves the slot to the caller. */
static void conn_discard(struct wire_conn *c)
{
    unpool(c);
    wire_conn_read(c, false);
    event_del(&c->write_event);
    close(c->fd);
    client_note_connection(c->wire->client, -1);
    free(c);
}

static void conn_close(struct wire_conn *c)
{
    struct wire *wire = c->wire;
    struct wire_origin *origin = c->origin;

    conn_discard(c);
    slot_freed(wire, origin);
}

static void idle_timer_arm(struct wire *wire)
{
    struct http_client *client = wire->client;
    struct wire_conn *oldest = container_of(wire->idle.next, struct wire_conn, age);

    if (wire->n_idle > 0 && !timer_armed(&wire->idle_timer))
        timer_set_ms(client->loop, &wire->idle_timer,
                     (oldest->idle_since_us - loop_now_us(client->loop)) / 1000 +
                         client->max_idle_ms + 1);
}

static void on_idle_timer(void *ctx)
{
    struct wire *wire = ctx;
    int64_t until_us = loop_now_us(wire->client->loop) - wire->client->max_idle_ms * INT64_C(1000);

    while (wire->n_idle > 0) {
        struct wire_conn *oldest = container_of(wire->idle.next, struct wire_conn, age);
        if (oldest->idle_since_us > until_us)
            break;
        conn_close(oldest);
    }
    idle_timer_arm(wire);
}

void wire_conn_release(struct wire_conn *c, bool reusable)
{
    struct wire *wire = c->wire;
    struct wire_origin *origin = c->origin;

    c->transfer = NULL;
    wire_conn_read(c, true);
    if (!reusable) {
        conn_close(c);
        return;
    }
    c->used = true;
    c->idle_since_us = loop_now_us(wire->client->loop);
    list_push(&origin->idle, &c->link);
    list_push(&wire->idle, &c->age);
    wire->n_idle++;
    idle_timer_arm(wire);
    serve_waiting(wire, origin);
    if (wire->n_idle > wire->client->max_idle)
        conn_close(container_of(wire->idle.next, struct wire_conn, age));
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Whether the peer has closed it, or sent what nobody asked for, in this very turn. Only asked for
 * requests that cannot be repeated. */
static bool is_stale(const struct wire_conn *c)
{
    char byte;

    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

static struct wire_conn *take_idle(struct wire_transfer *t)
{
    struct wire_origin *o = t->origin;

    while (!list_empty(&o->idle) && !t->fresh && !t->repeated) {
        struct wire_conn *c = container_of(o->idle.prev, struct wire_conn, link);
        if (t->base.repeatable || !is_stale(c)) {
            unpool(c);
            c->transfer = t;
            return c;
        }
        conn_close(c);
    }
    return NULL;
}

/* True when `t` needs to wait no longer. */
static bool try_serve(struct wire *wire, struct wire_transfer *t)
{
    struct wire_origin *o = t->origin;
    struct wire_conn *c = take_idle(t);

    if (c != NULL) {
        wire_transfer_connected(t, c);
        return true;
    }
    if (o->open >= wire->client->max_per_host && !list_empty(&o->idle)) {
        conn_discard(container_of(o->idle.next, struct wire_conn, link)); /* for a new one */
        o->open--;
    }
    if (o->open >= wire->client->max_per_host)
        return false;
    o->open++;
    wire_dial_start(t);
    return true;
}

static void serve_waiting(struct wire *wire, struct wire_origin *o)
{
    if (o->serving) /* below ourselves: the loop above goes on */
        return;
    o->serving = true;
    while (!list_empty(&o->waiting)) {
        struct wire_transfer *t = container_of(o->waiting.next, struct wire_transfer, waiting);
        list_remove(&t->waiting);
        if (!try_serve(wire, t)) {
            o->waiting.next->prev = &t->waiting; /* back to the front */
            t->waiting.next = o->waiting.next;
            t->waiting.prev = &o->waiting;
            o->waiting.next = &t->waiting;
            break;
        }
    }
    o->serving = false;
}

void wire_pool_ask(struct wire_transfer *t)
{
    if (!list_empty(&t->origin->waiting) || !try_serve(t->base.client->wire, t))
        list_push(&t->origin->waiting, &t->waiting);
}

void wire_pool_forget(struct wire_transfer *t)
{
    list_remove(&t->waiting);
    if (t->dial != NULL) {
        wire_dial_stop(t);
        slot_freed(t->base.client->wire, t->origin);
    }
}

void wire_dialled(struct wire_transfer *t, int fd)
{
    struct wire_conn *c = conn_new(t->base.client->wire, t->origin, fd);

    c->transfer = t;
    wire_transfer_connected(t, c);
}

void wire_undialled(struct wire_transfer *t, const struct error *err)
{
    wire_transfer_unconnected(t, err);
    slot_freed(t->base.client->wire, t->origin);
}

/* ---- all of them ----------------------------------------------------------------------------- */

void wire_pool_init(struct wire *wire)
{
    list_init(&wire->idle);
    timer_init(&wire->idle_timer, on_idle_timer, wire);
}

void wire_pool_fini(struct wire *wire)
{
    while (wire->n_idle > 0)
        conn_close(container_of(wire->idle.next, struct wire_conn, age));
    timer_cancel(wire->client->loop, &wire->idle_timer);
    for (int i = 0; i < WIRE_BUCKETS; i++)
        PRE(wire->buckets[i] == NULL);
}
