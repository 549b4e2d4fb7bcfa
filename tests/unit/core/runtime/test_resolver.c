/* Names and their addresses: found, shared, kept, not found, and given up at any moment. Only names
 * that need no server: /etc/hosts, and one that no server can know. */
#include "core/runtime/resolver.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

static struct loop *loop;
static struct resolver *resolver;

static void set_up(void)
{
    loop = loop_new(NULL);
    resolver = resolver_new(loop);
}

static void tear_down(void)
{
    resolver_free(resolver);
    loop_free(loop);
}

TestSuite(resolver, .init = set_up, .fini = tear_down, .timeout = 30);

struct asker {
    struct lookup lookup;
    int answers, n;
    struct error error;
    struct lookup *cancels; /* another one, given up from inside the answer */
};

static void on_done(void *ctx, const struct addresses *addresses, const struct error *err)
{
    struct asker *a = ctx;

    a->answers++;
    if (err != NULL)
        a->error = *err;
    else
        a->n = addresses->n;
    if (a->cancels != NULL)
        lookup_cancel(a->cancels);
}

static enum resolver_answer ask(struct asker *a, const char *host)
{
    const struct addresses *known;
    enum resolver_answer answer;

    lookup_init(&a->lookup, on_done, a);
    answer = resolver_find(resolver, host, &a->lookup, &known, &a->error);
    if (answer == RESOLVER_KNOWN)
        a->n = known->n;
    return answer;
}

static void wait_for(const struct asker *a)
{
    while (a->answers == 0)
        loop_turn(loop, true);
}

Test(resolver, a_name_is_found_then_known)
{
    struct asker first = {0}, second = {0};

    cr_assert(eq(int, ask(&first, "localhost"), RESOLVER_LATER));
    cr_assert(eq(int, first.answers, 0), "never inside the call");
    wait_for(&first);
    cr_assert(gt(int, first.n, 0), "%s", first.error.message);
    cr_assert(eq(int, ask(&second, "localhost"), RESOLVER_KNOWN));
    cr_assert(eq(int, second.n, first.n));
}

Test(resolver, those_who_wait_for_a_name_share_the_answer)
{
    struct asker askers[50] = {0};

    for (int i = 0; i < 50; i++) /* more than there are threads */
        cr_assert(eq(int, ask(&askers[i], "localhost"), RESOLVER_LATER));
    askers[3].cancels = &askers[7].lookup;
    lookup_cancel(&askers[5].lookup);
    wait_for(&askers[49]);
    for (int i = 0; i < 50; i++)
        cr_assert(eq(int, askers[i].answers, i == 5 || i == 7 ? 0 : 1), "asker %d", i);
}

Test(resolver, a_name_that_cannot_be_is_told_and_not_kept)
{
    struct asker a = {0}, again = {0};
    char host[128];

    memset(host, 'a', 70); /* a label has at most 63 characters */
    strcpy(host + 70, ".invalid");
    cr_assert(eq(int, ask(&a, host), RESOLVER_LATER));
    wait_for(&a);
    cr_assert(eq(int, a.error.code, ERR_UPSTREAM_CONNECT));
    cr_assert_not_null(strstr(a.error.message, host));
    cr_assert(eq(int, ask(&again, host), RESOLVER_LATER));
    wait_for(&again);
}

Test(resolver, it_can_be_freed_while_a_thread_is_at_work)
{
    for (int i = 0; i < 50; i++) {
        struct asker a = {0};
        cr_assert(eq(int, ask(&a, "localhost"), RESOLVER_LATER));
        lookup_cancel(&a.lookup);
        if (i % 2 == 0)
            loop_turn(loop, false);
        resolver_free(resolver);
        resolver = resolver_new(loop);
    }
}

Test(resolver, many_names_at_once_are_our_own_overload)
{
    struct asker askers[200] = {0};
    int later = 0, failed = 0;

    for (int i = 0; i < 200; i++) {
        char host[80];
        snprintf(host, sizeof(host), "%064d.invalid", i);
        if (ask(&askers[i], host) == RESOLVER_LATER) {
            later++;
        } else {
            failed++;
            cr_assert(eq(int, askers[i].error.code, ERR_OVERLOADED));
        }
    }
    cr_assert(eq(int, later, 16));
    cr_assert(eq(int, failed, 184));
    for (int i = 0; i < 16; i++)
        wait_for(&askers[i]);
    cr_assert(eq(int, ask(&askers[0], "localhost"), RESOLVER_LATER), "there is room again");
    lookup_cancel(&askers[0].lookup);
}
