/* Addresses of names, without stopping the loop: getaddrinfo, which alone knows what the system's
 * administrator has set up (nsswitch, /etc/hosts, search domains, a container's DNS), on a thread
 * of its own for each name under way. Lookups of one name are shared, answers are kept for a
 * while. Called on the loop's thread only. */
#pragma once

#include "core/runtime/error.h"
#include "core/runtime/loop.h"

#include <sys/socket.h>

enum { RESOLVER_ADDRESSES_MAX = 16 };

struct resolver;

/** Where a name leads, in the order in which to try; the port is left 0. */
struct addresses {
    int n;
    struct sockaddr_storage at[RESOLVER_ADDRESSES_MAX];
    socklen_t len[RESOLVER_ADDRESSES_MAX];
};

struct resolver *resolver_new(struct loop *loop);

/** Every lookup must be over or cancelled. Threads still at work end by themselves. */
void resolver_free(struct resolver *resolver);

/** One waiter, embedded in its owner. */
struct lookup {
    struct list link;
    void (*done)(void *ctx, const struct addresses *addresses, const struct error *err);
    void *ctx;
};

enum resolver_answer {
    RESOLVER_KNOWN,  /* *ret are the addresses, valid until control is back in the loop */
    RESOLVER_LATER,  /* `done` is called once from the loop */
    RESOLVER_FAILED, /* ERR_OVERLOADED: no thread or descriptor for it */
};

/** Find `host`. `done` gets addresses, valid during the call, or ERR_UPSTREAM_CONNECT. */
enum resolver_answer resolver_find(struct resolver *resolver, const char *host,
                                   struct lookup *lookup, const struct addresses **ret,
                                   struct error *err) MUST_CHECK;

/** Believe this of `host`, as if it had been looked up just now. */
void resolver_learn(struct resolver *resolver, const char *host, const struct addresses *addresses);

void lookup_init(struct lookup *lookup,
                 void (*done)(void *ctx, const struct addresses *addresses,
                              const struct error *err),
                 void *ctx);

/** `done` is not called any more; safe on one that is over. */
void lookup_cancel(struct lookup *lookup);
