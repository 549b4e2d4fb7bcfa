/* Inside of the HTTP client: the transport for plain http on sockets of our own (docs/adr/0010).
 *
 *   http_wire.c          an exchange on its connection: send, read, end
 *   http_wire_pool.c     connections by origin: idle ones, limits, who waits for one
 *   http_wire_dial.c     a new connection: name, addresses, connect
 *   http_wire_request.c  which requests go this way, and their heads
 *
 * A connection has one persistent read event for as long as it lives, also while it is idle: the
 * peer's close is seen at once. An exchange costs one sendmsg, one recv and no epoll_ctl. */
#pragma once

#include "core/runtime/http_reply.h"
#include "core/runtime/resolver.h"

#include <event2/event.h>
#include <event2/event_struct.h>

enum { WIRE_BUCKETS = 256, WIRE_HOST_MAX = 255 };

/** Where connections lead; those of one origin are alike. Lives while anything refers to it. */
struct wire_origin {
    struct wire_origin *next; /* in its bucket */
    uint32_t hash;
    int open;            /* connections, those being made included */
    int users;           /* transfers that refer to it */
    bool serving;        /* those who wait are being served */
    struct list idle;    /* connections; latest used last */
    struct list waiting; /* transfers, first come first */
    size_t key_len;
    char key[]; /* kind, then host:port, path or dialer key */
};

struct wire_conn {
    struct wire *wire;
    struct wire_origin *origin;
    struct wire_transfer *transfer; /* NULL = idle */
    struct list link;               /* in origin->idle */
    struct list age;                /* in wire->idle */
    int64_t idle_since_us;
    int fd;
    bool used;    /* has served an exchange: the peer may have closed it meanwhile */
    bool reading; /* its read event is registered */
    struct event read_event, write_event;
};

/** One address being tried. */
struct dial_try {
    struct wire_dial *dial;
    int fd; /* -1 = not under way */
    struct event event;
};

/** A connection being made. */
struct wire_dial {
    struct wire_transfer *transfer;
    struct lookup lookup;
    struct addresses addresses;
    int next;                                      /* address to try */
    struct dial_try tries[RESOLVER_ADDRESSES_MAX]; /* by address */
    struct timer timer;                            /* the next address, or the end of patience */
    int64_t until_us;
    struct error error; /* of the latest try */
    bool again;         /*  the peer's queue was full: the same address once more */
};

struct wire_transfer {
    struct transfer base;
    struct wire_origin *origin;
    struct wire_conn *conn;
    struct wire_dial *dial; /* while connecting */
    struct list waiting;    /* in origin->waiting */
    struct task failed_task;
    struct error failed; /* of an attempt that failed within start */

    /* the target; strings of the request */
    const struct http_dialer *dialer;
    const char *unix_socket;
    const char *host; /* not terminated */
    size_t host_len;
    uint16_t port;
    bool fresh;

    struct buf out; /* the head, then pieces of an upload */
    size_t out_at, body_at;
    int64_t uploaded; /* bytes taken from the owner */
    bool upload_over; /* all of the upload is in `out` */
    bool write_wanted;
    bool write_broken; /* the peer takes nothing more; it may have answered */
    bool sent;
    bool repeated; /* on a new connection, after a stale one */
    struct http_reply reply;
};

struct wire {
    struct http_client *client;
    struct resolver *resolver;
    struct wire_origin *buckets[WIRE_BUCKETS];
    struct list idle; /* connections, oldest first */
    int n_idle;
    struct timer idle_timer;
    struct transfer *pool; /* linked by their next */
    int n_pool;
    char read_buffer[32 * 1024];
};

struct wire *wire_new(struct http_client *client);
/** NULL allowed. */
void wire_free(struct wire *wire);

/** Whether this transport takes the request: plain http, no proxy on the way, a host that is written
 * plainly. */
bool wire_carries(const struct http_client *client, const struct http_request *request);
struct transfer *wire_transfer_take(struct http_client *client);

/* ---- http_wire.c ------------------------------------------------------------------------------ */

/** A connection for a transfer that has none: send. */
void wire_transfer_connected(struct wire_transfer *t, struct wire_conn *conn);
/** There will be none. Told to the owner from the ready queue. */
void wire_transfer_unconnected(struct wire_transfer *t, const struct error *err);
/** Bytes, or the end, have arrived on the connection of a transfer. */
void wire_transfer_readable(struct wire_transfer *t);
void wire_transfer_writable(struct wire_transfer *t);

/* ---- http_wire_request.c ---------------------------------------------------------------------- */

/** Target and head. */
bool wire_prepare(struct transfer *t, const struct http_request *request,
                  struct error *err) MUST_CHECK;

/* ---- http_wire_pool.c ------------------------------------------------------------------------- */

/** The origin called `key`, made if need be; released by wire_origin_release. */
struct wire_origin *wire_origin_hold(struct wire *wire, const char *key, size_t key_len);
void wire_origin_release(struct wire *wire, struct wire_origin *origin);

/** A connection for `t`: at once, or dialled, or when another ends. */
void wire_pool_ask(struct wire_transfer *t);
/** Give up asking. */
void wire_pool_forget(struct wire_transfer *t);

void wire_pool_init(struct wire *wire);
/** Closes the idle connections; there must be no other. */
void wire_pool_fini(struct wire *wire);

/** The connection has served; it stays open only if `reusable`. */
void wire_conn_release(struct wire_conn *conn, bool reusable);
/** Register or unregister the read event; while unregistered TCP holds the peer. */
void wire_conn_read(struct wire_conn *conn, bool on);

/** For the dialler: `fd` is connected. Or it failed for good: the slot is free again. */
void wire_dialled(struct wire_transfer *t, int fd);
void wire_undialled(struct wire_transfer *t, const struct error *err);

/* ---- http_wire_dial.c ------------------------------------------------------------------------- */

/** Make a connection for `t`; ends with wire_dialled or wire_undialled, perhaps inside the call. */
void wire_dial_start(struct wire_transfer *t);
void wire_dial_stop(struct wire_transfer *t);
