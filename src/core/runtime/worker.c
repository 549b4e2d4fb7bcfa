#include "core/runtime/worker.h"

#include "core/runtime/check.h"
#include "core/runtime/loop.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct worker {
    struct loop *loop;
    pthread_t thread;
    int back_fd; /* eventfd: something is in `back` */
    struct event *on_back;

    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t more;
    struct list todo;
    struct list back;
    bool ending;
};

/* ---- the worker's thread ----------------------------------------------------------------------- */

static void tell_loop(struct worker *w)
{
    const uint64_t one = 1;
    ssize_t n;

    do {
        n = write(w->back_fd, &one, sizeof(one));
    } while (n < 0 && errno == EINTR);
    PRE(n == sizeof(one) || errno == EAGAIN); /* EAGAIN: the loop has 2^64 reasons to look */
}

/* The next piece of work; NULL when the worker ends and nothing is left to do. */
static struct work *work_take(struct worker *w)
{
    struct list *node;

    pthread_mutex_lock(&w->mutex);
    while (list_empty(&w->todo) && !w->ending)
        pthread_cond_wait(&w->more, &w->mutex);
    node = list_pop(&w->todo);
    pthread_mutex_unlock(&w->mutex);
    return node != NULL ? container_of(node, struct work, link) : NULL;
}

static void work_give_back(struct worker *w, struct work *work)
{
    bool first;

    pthread_mutex_lock(&w->mutex);
    first = list_empty(&w->back);
    list_push(&w->back, &work->link);
    pthread_mutex_unlock(&w->mutex);
    if (first)
        tell_loop(w);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;

    for (struct work *work; (work = work_take(w)) != NULL;) {
        work->run(work->ctx);
        work_give_back(w, work);
    }
    return NULL;
}

/* ---- the loop's thread --------------------------------------------------------------------------- */

static void on_back(evutil_socket_t fd, short what, void *ctx)
{
    struct worker *w = ctx;
    struct list back = LIST_INIT(back);
    uint64_t count;

    (void)what;
    loop_touch(w->loop);
    if (read(fd, &count, sizeof(count)) < 0)
        PRE(errno == EAGAIN || errno == EINTR);
    pthread_mutex_lock(&w->mutex);
    list_splice(&back, &w->back);
    pthread_mutex_unlock(&w->mutex);
    for (struct list *node; (node = list_pop(&back)) != NULL;) {
        struct work *work = container_of(node, struct work, link);
        work->away = false;
        loop_count_away(w->loop, -1);
        work->done(work->ctx);
    }
}

void work_init(struct work *work, void (*run)(void *ctx), void (*done)(void *ctx), void *ctx)
{
    *work = (struct work){.run = run, .done = done, .ctx = ctx};
    list_init(&work->link);
}

struct worker *worker_new(struct loop *loop, const char *name)
{
    struct worker *w = xcalloc(1, sizeof(*w));
    sigset_t all, before;

    w->loop = loop;
    list_init(&w->todo);
    list_init(&w->back);
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->more, NULL);
    w->back_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    PRE(w->back_fd >= 0);
    w->on_back = event_new(loop_base(loop), w->back_fd, EV_READ | EV_PERSIST, on_back, w);
    PRE(w->on_back != NULL && event_add(w->on_back, NULL) == 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    PRE(pthread_create(&w->thread, NULL, worker_main, w) == 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_setname_np(w->thread, name);
    return w;
}

void worker_free(struct worker *w)
{
    if (w == NULL)
        return;
    pthread_mutex_lock(&w->mutex);
    w->ending = true;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    for (struct list *node; (node = list_pop(&w->back)) != NULL;) {
        container_of(node, struct work, link)->away = false;
        loop_count_away(w->loop, -1);
    }
    event_free(w->on_back);
    close(w->back_fd);
    pthread_cond_destroy(&w->more);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

void worker_submit(struct worker *w, struct work *work)
{
    PRE(!work->away);
    work->away = true;
    loop_count_away(w->loop, 1);
    pthread_mutex_lock(&w->mutex);
    list_push(&w->todo, &work->link);
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->mutex);
}
