#include "core/domain/ledger_watch.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 4096 };

static struct list *bucket_of(struct ledger_watches *watches, const char *key)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

    for (const char *p = key; *p != '\0'; p++)
        hash = (hash ^ (unsigned char)*p) * 0x100000001b3u;
    return &watches->buckets[hash % watches->n_buckets];
}

void ledger_watches_init(struct ledger_watches *watches)
{
    watches->n_buckets = BUCKETS;
    watches->count = 0;
    watches->buckets = xcalloc(BUCKETS, sizeof(*watches->buckets));
    for (size_t i = 0; i < BUCKETS; i++)
        list_init(&watches->buckets[i]);
}

void ledger_watches_fini(struct ledger_watches *watches)
{
    PRE(watches->count == 0);
    free(watches->buckets);
    watches->buckets = NULL;
}

/* ---- one watch ------------------------------------------------------------------------------- */

static void watch_wake(struct ledger_watch *watch)
{
    struct op *op = watch->waiter;

    if (op == NULL)
        return;
    watch->waiter = NULL;
    watch->fired = false;
    timer_cancel(op->loop, &watch->timer);
    op_wake(op, NULL);
}

static void on_watch_timer(void *ctx)
{
    watch_wake(ctx);
}

void watch_begin(struct ledger_watches *watches, struct ledger_watch *watch, const char *key)
{
    PRE(watch->watches == NULL);
    *watch = (struct ledger_watch){.watches = watches, .key = key};
    timer_init(&watch->timer, on_watch_timer, watch);
    list_init(&watch->link);
    list_push(bucket_of(watches, key), &watch->link);
    watches->count++;
}

void watch_end(struct ledger_watch *watch)
{
    if (watch->watches == NULL)
        return;
    PRE(watch->waiter == NULL);
    list_remove(&watch->link);
    watch->watches->count--;
    watch->watches = NULL;
}

static void watch_leave(void *ctx)
{
    struct ledger_watch *watch = ctx;

    timer_cancel(watch->waiter->loop, &watch->timer);
    watch->waiter = NULL;
}

void watch_wait(struct ledger_watch *watch, struct op *op, int64_t at_most_ms)
{
    PRE(watch->watches != NULL && watch->waiter == NULL);
    if (watch->fired) {
        watch->fired = false;
        op_complete(op, NULL);
        return;
    }
    error_clear(&watch->error);
    watch->waiter = op;
    timer_set_ms(op->loop, &watch->timer, at_most_ms);
    op_wait_begin(op, watch_leave, watch);
}

/* ---- telling ----------------------------------------------------------------------------------
 */

static void watch_tell(struct ledger_watch *watch, const struct error *error)
{
    watch->fired = true;
    if (error != NULL)
        watch->error = *error;
    else
        error_clear(&watch->error);
    watch_wake(watch);
}

void watches_tell(struct ledger_watches *watches, const char *key, const struct error *error)
{
    struct list *bucket = bucket_of(watches, key);

    LIST_FOREACH_SAFE (it, next, bucket) {
        struct ledger_watch *watch = container_of(it, struct ledger_watch, link);
        if (strcmp(watch->key, key) == 0)
            watch_tell(watch, error);
    }
}

void watches_tell_all(struct ledger_watches *watches)
{
    for (size_t i = 0; i < watches->n_buckets; i++) {
        LIST_FOREACH_SAFE (it, next, &watches->buckets[i])
            watch_tell(container_of(it, struct ledger_watch, link), NULL);
    }
}

/* ---- between processes -------------------------------------------------------------------------
 */

/* key LF wire code LF admitted LF retry after LF message; nothing behind the key for "it changed".
 */
char *notice_encode(struct arena *arena, const char *key, const struct error *error)
{
    if (error == NULL || !error_is(error))
        return arena_strdup(arena, key);
    return arena_printf(arena, "%s\n%s\n%d\n%lld\n%s", key, err_wire(error->code),
                        (int)error->admitted, (long long)error->retry_after_ms, error->message);
}

static enum err_code code_of_wire(const char *wire)
{
    for (int code = ERR_NONE + 1; code < ERR_COUNT; code++) {
        if (strcmp(err_wire((enum err_code)code), wire) == 0)
            return (enum err_code)code;
    }
    return ERR_NONE;
}

const char *notice_decode(struct arena *arena, const char *text, struct error *ret_error)
{
    char *part[5] = {arena_strdup(arena, text)};
    int n = 1;

    error_clear(ret_error);
    for (char *lf; n < 5 && (lf = strchr(part[n - 1], '\n')) != NULL; n++) {
        *lf = '\0';
        part[n] = lf + 1;
    }
    if (n == 1)
        return part[0];
    if (n < 5 || code_of_wire(part[1]) == ERR_NONE)
        return NULL;
    error_set(ret_error, code_of_wire(part[1]), "%s", part[4]);
    ret_error->admitted = part[2][0] == '0'   ? ADMITTED_NO
                          : part[2][0] == '1' ? ADMITTED_UNKNOWN
                                              : ADMITTED_YES;
    ret_error->retry_after_ms = strtoll(part[3], NULL, 10);
    return part[0];
}
