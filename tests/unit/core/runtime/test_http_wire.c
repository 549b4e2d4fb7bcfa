/* Connecting over our own sockets: several addresses of a name, some of which refuse or never answer,
 * and a unix socket whose queue is full. */
#include "core/runtime/http_wire.h"
#include "support/deaf_listener.h"
#include "support/script_server.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct loop *loop;
static struct http_client *client;
static struct script_server *server;
static int port;

static void hello(void *ctx, struct script_conn *c, const struct script_request *r)
{
    (void)ctx;
    (void)r;
    script_reply(c, 200, "", "hello");
}

static void set_up(void)
{
    loop = loop_new(NULL);
    client = http_client_new(loop, NULL);
    server = script_server_new(loop, NULL, hello, NULL); /* on 127.0.0.1 */
    port = atoi(strrchr(script_server_url(server, ""), ':') + 1);
}

static void tear_down(void)
{
    http_client_free(client);
    script_server_free(server);
    loop_turn(loop, false);
    loop_free(loop);
    metrics_reset();
}

TestSuite(http_wire, .init = set_up, .fini = tear_down, .timeout = 30);

struct outcome {
    bool done;
    struct error error;
    int status;
};

struct getter {
    struct op op;
    struct http_request request;
    struct http_response response;
    struct outcome *outcome;
};

enum getter_state { GETTER_START, GETTER_FETCHING };
static const char *const getter_states[] = {"start", "fetching"};

static enum op_poll getter_step(struct op *op)
{
    struct getter *g = container_of(op, struct getter, op);

    switch ((enum getter_state)op->state) {
    case GETTER_START:
        AWAIT(op, GETTER_FETCHING, http_fetch(client, op, &g->request, &g->response));
        g->outcome->status = g->response.status;
    undo:
        return OP_DONE;
    }
    unreachable_state(op);
}

static const struct op_type getter_type = {"getter", getter_states, 2, getter_step, NULL};

static void note_done(struct op *op, void *ctx)
{
    struct outcome *o = ctx;

    o->error = *op_error(op);
    o->done = true;
}

static struct getter *start(struct http_request request, struct outcome *o)
{
    struct getter *g = OP_ROOT(loop, &getter_type, getter, NULL);

    *o = (struct outcome){0};
    g->request = request;
    g->request.peer = "test";
    g->request.method = "GET";
    g->outcome = o;
    op_start(&g->op, note_done, o);
    return g;
}

static void finish(struct outcome *o)
{
    while (!o->done)
        loop_turn(loop, true);
}

/* ---- several addresses ----------------------------------------------------------------------- */

static const char name_url[] = "http://many.test";

/* Up to the first NULL; of the port that the server has on 127.0.0.1. */
static void name_leads_to(const char *const hosts[])
{
    struct addresses all = {0};

    for (int i = 0; hosts[i] != NULL; i++) {
        struct sockaddr_in *in = (struct sockaddr_in *)&all.at[i];
        in->sin_family = AF_INET;
        cr_assert(eq(int, inet_pton(AF_INET, hosts[i], &in->sin_addr), 1));
        all.len[i] = sizeof(*in);
        all.n = i + 1;
    }
    resolver_learn(client->wire->resolver, "many.test", &all);
}

static struct getter *ask(struct outcome *o, int64_t connect_ms)
{
    static char url[64];

    snprintf(url, sizeof(url), "%s:%d/", name_url, port);
    return start((struct http_request){.url = url, .connect_timeout_ms = connect_ms}, o);
}

static int open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

#define REFUSES  "127.0.0.2" /* nobody listens there */
#define SILENT   "127.0.0.3"
#define ANSWERS  "127.0.0.1"
#define SILENT_2 "127.0.0.4"

Test(http_wire, addresses_are_tried_until_one_answers)
{
    static const char *const names[][8] = {
        {ANSWERS},
        {REFUSES, ANSWERS},
        {REFUSES, REFUSES, REFUSES, REFUSES, REFUSES, ANSWERS},
        {SILENT, ANSWERS},
        {ANSWERS, SILENT},
        {SILENT, REFUSES, ANSWERS},
        {SILENT, SILENT_2, REFUSES, SILENT, SILENT_2, SILENT, ANSWERS},
    };
    struct deaf_listener silent, silent_2;

    deaf_listener_tcp(&silent, SILENT, port);
    deaf_listener_tcp(&silent_2, SILENT_2, port);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct outcome o;
        int before;
        http_client_free(client);
        client = http_client_new(loop, NULL);
        while (script_server_open(server) > 0)
            loop_turn(loop, true);
        loop_turn(loop, false); /* the deferred free that closes it */
        before = open_descriptors();
        name_leads_to(names[i]);
        ask(&o, 10000);
        finish(&o);
        cr_assert(eq(int, o.status, 200), "name %zu: %s", i, o.error.message);
        cr_assert(eq(int, open_descriptors(), before + 2), "name %zu: both ends of one", i);
    }
    deaf_listener_close(&silent);
    deaf_listener_close(&silent_2);
}

Test(http_wire, when_all_refuse_the_last_is_named)
{
    struct outcome o;

    name_leads_to((const char *const[]){"127.0.0.5", REFUSES, NULL});
    ask(&o, 10000);
    finish(&o);
    cr_assert(eq(int, o.error.code, ERR_UPSTREAM_CONNECT));
    cr_assert_not_null(strstr(o.error.message, REFUSES " port "), "%s", o.error.message);
}

Test(http_wire, when_none_answers_patience_ends)
{
    struct deaf_listener silent;
    struct outcome o;
    int before = open_descriptors();

    deaf_listener_tcp(&silent, SILENT, port);
    name_leads_to((const char *const[]){SILENT, REFUSES, SILENT, NULL});
    ask(&o, 300);
    finish(&o);
    cr_assert(eq(int, o.error.code, ERR_DEADLINE), "%s", o.error.message);
    cr_assert(eq(int, o.error.admitted, ADMITTED_NO));
    deaf_listener_close(&silent);
    cr_assert(eq(int, open_descriptors(), before));
}

Test(http_wire, cancel_while_several_are_being_tried)
{
    struct deaf_listener silent;
    int before = open_descriptors();
    struct outcome o;
    struct getter *g;

    deaf_listener_tcp(&silent, SILENT, port);
    name_leads_to((const char *const[]){SILENT, SILENT, SILENT, ANSWERS, NULL});
    g = ask(&o, 10000);
    for (int i = 0; i < 3; i++)
        loop_turn(loop, i > 0); /* the second turn waits for the second address's turn */
    op_cancel(&g->op, "enough");
    finish(&o);
    cr_assert(eq(int, o.error.code, ERR_CANCELLED));
    deaf_listener_close(&silent);
    cr_assert(eq(int, open_descriptors(), before));
}

/* ---- unix sockets ----------------------------------------------------------------------------- */

Test(http_wire, a_full_queue_is_waited_for)
{
    char dir[] = "/tmp/http_wire.XXXXXX", path[64];
    struct deaf_listener deaf;
    struct outcome o;

    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/sock", dir);
    deaf_listener_unix(&deaf, path);
    start((struct http_request){.url = "http://sandbox/", .unix_socket = path}, &o);
    for (int i = 0; i < 20; i++)
        loop_turn(loop, i % 4 == 3);
    cr_assert_not(o.done, "%s", o.error.message);
    while (!o.done) {
        int fd = accept(deaf.listener, NULL, NULL);
        if (fd >= 0)
            script_server_adopt(server, fd);
        loop_turn(loop, true);
    }
    cr_assert(eq(int, o.status, 200), "%s", o.error.message);
    deaf_listener_close(&deaf);
    unlink(path);
    rmdir(dir);
}

Test(http_wire, a_queue_that_stays_full_is_a_timeout)
{
    char dir[] = "/tmp/http_wire.XXXXXX", path[64];
    struct deaf_listener deaf;
    struct outcome o;

    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/sock", dir);
    deaf_listener_unix(&deaf, path);
    start((struct http_request){.url = "http://sandbox/",
                                .unix_socket = path,
                                .connect_timeout_ms = 30},
          &o);
    finish(&o);
    cr_assert(eq(int, o.error.code, ERR_DEADLINE), "%s", o.error.message);
    deaf_listener_close(&deaf);
    unlink(path);
    rmdir(dir);
}
