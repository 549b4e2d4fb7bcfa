#include "core/runtime/op.h"

void op_waitlist_init(struct op_waitlist *list)
{
    list_init(&list->waiters);
}

static void waitlist_leave(void *ctx)
{
    struct op *op = ctx;

    list_remove(&op->wait_link);
}

void op_waitlist_wait(struct op_waitlist *list, struct op *op)
{
    list_push(&list->waiters, &op->wait_link);
    op_wait_begin(op, waitlist_leave, op);
}

int op_waitlist_wake_one(struct op_waitlist *list, const struct error *error)
{
    struct list *node = list_pop(&list->waiters);

    if (node == NULL)
        return 0;
    op_wake(container_of(node, struct op, wait_link), error);
    return 1;
}

int op_waitlist_wake_all(struct op_waitlist *list, const struct error *error)
{
    int woken = 0;

    while (op_waitlist_wake_one(list, error) == 1)
        woken++;
    return woken;
}

bool op_waitlist_empty(const struct op_waitlist *list)
{
    return list_empty(&list->waiters);
}
