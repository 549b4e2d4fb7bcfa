/* A lookup is a thread that runs getaddrinfo, writes the answer into the lookup's job and rings a
 * bell (an eventfd on the loop). A job that nobody wants any more is freed by its own thread. */
#include "core/runtime/resolver.h"

#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    KEEP_MS = 10000, /* an answer is believed */
    NAMES_MAX = 64,  /* kept; the oldest goes first */
    THREADS_MAX = 16,
    STACK_BYTES = 256 * 1024,
};

/* Shared with a thread, until one side is done with it: whoever comes second frees. */
struct job {
    pthread_mutex_t lock;
    char *host;
    int bell;       /* rung under the lock while not abandoned */
    bool finished;  /* by the thread */
    bool abandoned; /* by the resolver */
    int result;     /* of getaddrinfo */
    struct addresses addresses;
};

struct name {
    struct list link; /* in resolver.names, oldest answer first */
    char *host;
    struct job *job; /* NULL: not being looked up */
    struct list waiters;
    bool known;
    int64_t until_us;
    struct addresses addresses;
};

struct resolver {
    struct loop *loop;
    int bell;
    struct event *ring;
    struct list names;
    int n_names, n_threads;
};

/* ---- the thread ------------------------------------------------------------------------------ */

static void job_free(struct job *job)
{
    pthread_mutex_destroy(&job->lock);
    free(job->host);
    free(job);
}

static void addresses_copy(struct addresses *to, const struct addrinfo *from)
{
    for (; from != NULL && to->n < RESOLVER_ADDRESSES_MAX; from = from->ai_next) {
        if (from->ai_addrlen > sizeof(to->at[0]))
            continue;
        memcpy(&to->at[to->n], from->ai_addr, from->ai_addrlen);
        to->len[to->n++] = from->ai_addrlen;
    }
}

static void *job_run(void *ctx)
{
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct job *job = ctx;
    struct addrinfo *list = NULL;
    int result = getaddrinfo(job->host, NULL, &hints, &list);
    bool abandoned;

    pthread_mutex_lock(&job->lock);
    job->result = result;
    if (result == 0) {
        addresses_copy(&job->addresses, list);
        freeaddrinfo(list);
    }
    job->finished = true;
    abandoned = job->abandoned;
    if (!abandoned)
        eventfd_write(job->bell, 1);
    pthread_mutex_unlock(&job->lock);
    if (abandoned)
        job_free(job);
    return NULL;
}

/* The thread takes no signals: they are for the loop. */
static bool job_start(struct job *job)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    int failed;

    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&thread, &attr, job_run, job);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return failed == 0;
}

static void job_abandon(struct job *job)
{
    bool finished;

    pthread_mutex_lock(&job->lock);
    job->abandoned = true;
    finished = job->finished;
    pthread_mutex_unlock(&job->lock);
    if (finished)
        job_free(job);
}

/* ---- names ----------------------------------------------------------------------------------- */

static struct name *name_of(struct resolver *r, const char *host)
{
    struct name *name;

    for (struct list *node = r->names.next; node != &r->names; node = node->next) {
        name = container_of(node, struct name, link);
        if (strcmp(name->host, host) == 0)
            return name;
    }
    name = xcalloc(1, sizeof(*name));
    name->host = xstrdup(host);
    list_init(&name->waiters);
    list_push(&r->names, &name->link);
    r->n_names++;
    return name;
}

static void name_free(struct resolver *r, struct name *name)
{
    PRE(list_empty(&name->waiters));
    if (name->job != NULL)
        job_abandon(name->job);
    list_remove(&name->link);
    r->n_names--;
    free(name->host);
    free(name);
}

/* Makes room for new names; those being looked up stay. */
static void names_trim(struct resolver *r)
{
    LIST_FOREACH_SAFE (node, next, &r->names) {
        struct name *name = container_of(node, struct name, link);
        if (r->n_names < NAMES_MAX)
            return;
        if (name->job == NULL && list_empty(&name->waiters))
            name_free(r, name);
    }
}

static void name_tell(struct name *name, const struct error *err)
{
    struct addresses addresses = name->addresses; /* a waiter may look up names and let this go */
    struct list waiters = LIST_INIT(waiters);

    list_splice(&waiters, &name->waiters);
    for (struct list *node; (node = list_pop(&waiters)) != NULL;) {
        struct lookup *lookup = container_of(node, struct lookup, link);
        lookup->done(lookup->ctx, err == NULL ? &addresses : NULL, err);
    }
}

static void name_learn(struct resolver *r, struct name *name, const struct addresses *addresses)
{
    name->known = addresses->n > 0;
    name->addresses = *addresses;
    name->until_us = loop_now_us(r->loop) + KEEP_MS * INT64_C(1000);
    list_remove(&name->link);
    list_push(&r->names, &name->link);
}

static void name_found(struct resolver *r, struct name *name)
{
    struct job *job = name->job;
    struct error error;

    name->job = NULL;
    r->n_threads--;
    name_learn(r, name, &job->addresses); /* none when it failed */
    error_set(&error, ERR_UPSTREAM_CONNECT, "no address of %s is to be found: %s", name->host,
              job->result == 0 ? "the name has none" : gai_strerror(job->result));
    job_free(job);
    name_tell(name, name->known ? NULL : &error);
}

static void on_ring(evutil_socket_t fd, short what, void *ctx)
{
    struct resolver *r = ctx;
    eventfd_t rings;

    (void)what;
    loop_touch(r->loop);
    eventfd_read(fd, &rings);
    for (;;) {
        struct name *found = NULL;
        for (struct list *node = r->names.next; node != &r->names; node = node->next) {
            struct name *name = container_of(node, struct name, link);
            bool finished = false;
            if (name->job != NULL) {
                pthread_mutex_lock(&name->job->lock);
                finished = name->job->finished;
                pthread_mutex_unlock(&name->job->lock);
            }
            if (finished)
                found = name;
        }
        if (found == NULL)
            return;
        name_found(r, found);
    }
}

static bool name_ask(struct resolver *r, struct name *name)
{
    struct job *job;

    if (r->n_threads >= THREADS_MAX)
        return false;
    job = xcalloc(1, sizeof(*job));
    pthread_mutex_init(&job->lock, NULL);
    job->host = xstrdup(name->host);
    job->bell = r->bell;
    if (!job_start(job)) {
        job_free(job);
        return false;
    }
    name->job = job;
    r->n_threads++;
    return true;
}

/* ---- for the user ---------------------------------------------------------------------------- */

struct resolver *resolver_new(struct loop *loop)
{
    struct resolver *r = xcalloc(1, sizeof(*r));

    r->loop = loop;
    list_init(&r->names);
    r->bell = -1;
    return r;
}

void resolver_free(struct resolver *r)
{
    if (r == NULL)
        return;
    while (!list_empty(&r->names))
        name_free(r, container_of(r->names.next, struct name, link));
    if (r->ring != NULL)
        event_free(r->ring);
    if (r->bell >= 0)
        close(r->bell);
    free(r);
}

static bool bell_hang(struct resolver *r)
{
    if (r->bell >= 0)
        return true;
    r->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (r->bell < 0)
        return false;
    r->ring = event_new(loop_base(r->loop), r->bell, EV_READ | EV_PERSIST, on_ring, r);
    PRE(r->ring != NULL);
    event_add(r->ring, NULL);
    return true;
}

void resolver_learn(struct resolver *r, const char *host, const struct addresses *addresses)
{
    name_learn(r, name_of(r, host), addresses);
}

void lookup_init(struct lookup *lookup,
                 void (*done)(void *ctx, const struct addresses *addresses,
                              const struct error *err),
                 void *ctx)
{
    list_init(&lookup->link);
    lookup->done = done;
    lookup->ctx = ctx;
}

enum resolver_answer resolver_find(struct resolver *r, const char *host, struct lookup *lookup,
                                   const struct addresses **ret, struct error *err)
{
    struct name *name;

    names_trim(r);
    name = name_of(r, host);
    if (name->known && loop_now_us(r->loop) < name->until_us) {
        *ret = &name->addresses;
        return RESOLVER_KNOWN;
    }
    if (name->job == NULL && (!bell_hang(r) || !name_ask(r, name))) {
        error_set(err, ERR_OVERLOADED, "too many names are being looked up at once to look up %s",
                  host);
        return RESOLVER_FAILED;
    }
    list_push(&name->waiters, &lookup->link);
    return RESOLVER_LATER;
}

void lookup_cancel(struct lookup *lookup)
{
    list_remove(&lookup->link);
}
