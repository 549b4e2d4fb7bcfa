/* libpq looks host names up blocking; so it is given addresses, and the names only for the check of
 * certificates. Numeric hosts and socket folders need no lookup. */
#include "gc/db_postgres.h"

#include "core/runtime/buf.h"

#include <arpa/inet.h>
#include <event2/dns.h>
#include <event2/util.h>
#include <stdlib.h>
#include <string.h>

/* One lookup. It outlives a cancellation: libevent calls back later all the same. */
struct pg_lookup {
    struct pg_target *target; /* NULL once cancelled */
    struct loop *loop;
    struct evdns_base *dns;
    struct evdns_getaddrinfo_request *request;
};

static const char *option(const struct pg_target *target, const char *keyword)
{
    for (const PQconninfoOption *o = target->options; o->keyword != NULL; o++) {
        if (strcmp(o->keyword, keyword) == 0)
            return o->val;
    }
    return NULL;
}

static void target_set(struct pg_target *target, const char *keyword, const char *value)
{
    PRE(target->n < 46);
    target->keywords[target->n] = keyword;
    target->values[target->n++] = value;
    target->keywords[target->n] = target->values[target->n] = NULL;
}

static void target_default(struct pg_target *target, const char *keyword, const char *value)
{
    if (option(target, keyword) == NULL)
        target_set(target, keyword, value);
}

static bool is_address(const char *host)
{
    unsigned char address[16];

    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

static void split_hosts(struct pg_target *target, const char *hosts)
{
    char *copy = xstrdup(hosts);
    char *save = NULL;

    for (char *p = strtok_r(copy, ",", &save); p != NULL; p = strtok_r(NULL, ",", &save)) {
        target->names = xrealloc(target->names, (size_t)(target->n_names + 1) * sizeof(char *));
        target->names[target->n_names++] = xstrdup(p);
    }
    free(copy);
}

bool pg_target_init(struct pg_target *target, struct loop *loop, const char *url, struct error *err)
{
    char *why = NULL;
    const char *hosts;

    target->loop = loop;
    target->options = PQconninfoParse(url, &why);
    if (target->options == NULL) {
        /* libpq's words may repeat the URL, password and all */
        error_set(err, ERR_LEDGER, "BINDERY_LEDGER_URL is not a PostgreSQL connection string");
        PQfreemem(why);
        return false;
    }
    for (const PQconninfoOption *o = target->options; o->keyword != NULL; o++) {
        if (o->val != NULL && strcmp(o->keyword, "hostaddr") != 0)
            target_set(target, o->keyword, o->val);
    }
    target_default(target, "application_name", "bindery");
    target_default(target, "gssencmode", "disable"); /* Kerberos blocks */
    target_default(target, "client_encoding", "UTF8");
    hosts = option(target, "host");
    if (option(target, "hostaddr") != NULL)
        target->hostaddr = xstrdup(option(target, "hostaddr"));
    else if (hosts != NULL && hosts[0] != '/')
        split_hosts(target, hosts);
    return true;
}

void pg_target_fini(struct pg_target *target)
{
    pg_target_cancel(target);
    for (int i = 0; i < target->n_names; i++)
        free(target->names[i]);
    free(target->names);
    free(target->hostaddr);
    if (target->options != NULL)
        PQconninfoFree(target->options);
}

static void target_finish(struct pg_target *target, const struct error *err)
{
    void (*done)(void *ctx, const struct error *err) = target->done;

    target->done = NULL;
    if (err == NULL && done != NULL && target->n_names > 0) {
        free(target->hostaddr);
        target->hostaddr = target->resolved;
        target->resolved = NULL;
    }
    free(target->resolved);
    target->resolved = NULL;
    if (done != NULL)
        done(target->ctx, err);
}

void pg_target_cancel(struct pg_target *target)
{
    struct pg_lookup *lookup = target->lookup;

    target->done = NULL;
    target->lookup = NULL;
    target_finish(target, NULL);
    if (lookup == NULL)
        return;
    lookup->target = NULL;
    evdns_getaddrinfo_cancel(lookup->request);
}

static void add_address(struct pg_target *target, const char *address)
{
    struct buf all = {0};

    if (target->resolved != NULL)
        buf_addf(&all, "%s,", target->resolved);
    buf_adds(&all, address);
    free(target->resolved);
    target->resolved = all.data;
}

static void resolve_next(struct pg_target *target);

static void lookup_free(void *ptr)
{
    struct pg_lookup *lookup = ptr;

    evdns_base_free(lookup->dns, 0);
    free(lookup);
}

/* Another one of the name's addresses at each attempt. */
static void take_address(struct pg_target *target, const struct evutil_addrinfo *found)
{
    char address[INET6_ADDRSTRLEN];
    unsigned n = 0;

    for (const struct evutil_addrinfo *a = found; a != NULL; a = a->ai_next)
        n++;
    for (unsigned skip = target->rotation % n; skip > 0; skip--)
        found = found->ai_next;
    if (found->ai_family == AF_INET)
        inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)found->ai_addr)->sin_addr, address,
                  sizeof(address));
    else
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)(void *)found->ai_addr)->sin6_addr, address,
                  sizeof(address));
    add_address(target, address);
}

static void on_looked_up(int result, struct evutil_addrinfo *found, void *ctx)
{
    struct pg_lookup *lookup = ctx;
    struct pg_target *target = lookup->target;
    struct error err;

    loop_touch(lookup->loop);
    loop_defer_free(lookup->loop, lookup_free, lookup); /* libevent is still in it */
    if (target != NULL) {
        target->lookup = NULL;
        if (result == 0 && found != NULL) {
            take_address(target, found);
            target->at++;
            resolve_next(target);
        } else {
            error_set(&err, ERR_LEDGER, "the ledger's host %s cannot be looked up: %s",
                      target->names[target->at], evutil_gai_strerror(result));
            target_finish(target, &err);
        }
    }
    if (found != NULL)
        evutil_freeaddrinfo(found);
}

static void lookup_start(struct pg_target *target)
{
    const struct evutil_addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    struct pg_lookup *lookup = xcalloc(1, sizeof(*lookup));
    struct error err;

    lookup->target = target;
    lookup->loop = target->loop;
    lookup->dns = evdns_base_new(loop_base(target->loop), EVDNS_BASE_INITIALIZE_NAMESERVERS);
    if (lookup->dns == NULL) {
        free(lookup);
        error_set(&err, ERR_LEDGER, "the ledger's host %s cannot be looked up: no name server",
                  target->names[target->at]);
        target_finish(target, &err);
        return;
    }
    target->lookup = lookup;
    /* It may call back at once, and `lookup` is freed only at the end of the turn. */
    lookup->request = evdns_getaddrinfo(lookup->dns, target->names[target->at], NULL, &hints,
                                        on_looked_up, lookup);
}

static void resolve_next(struct pg_target *target)
{
    while (target->at < target->n_names && is_address(target->names[target->at]))
        add_address(target, target->names[target->at++]);
    if (target->at == target->n_names)
        target_finish(target, NULL);
    else
        lookup_start(target);
}

void pg_target_resolve(struct pg_target *target, void (*done)(void *ctx, const struct error *err),
                       void *ctx)
{
    target->done = done;
    target->ctx = ctx;
    target->at = 0;
    target->rotation++;
    if (target->n_names == 0)
        target_finish(target, NULL);
    else
        resolve_next(target);
}
