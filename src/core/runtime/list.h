/* Intrusive doubly linked list. The node lives in the object; the list owns nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/** A list head or a member. A head points to itself when empty; so does an unlinked member. */
struct list {
    struct list *prev, *next;
};

#define LIST_INIT(name)                                                                            \
    {                                                                                              \
        &(name), &(name)                                                                           \
    }

/** The object that embeds `member` at `ptr`. */
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/** Make `l` an empty head or an unlinked member. */
static inline void list_init(struct list *l)
{
    l->prev = l->next = l;
}

/** True when a head is empty, or a member is in no list. */
static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

/** Append `node` (unlinked) to the end of `head`. */
static inline void list_push(struct list *head, struct list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

/** Take `node` out of whatever list it is in; safe on an unlinked node. */
static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/** Take the first member out of `head`; NULL when it is empty. */
static inline struct list *list_pop(struct list *head)
{
    struct list *node = head->next;

    if (node == head)
        return NULL;
    list_remove(node);
    return node;
}

/** Move every member of `from` to the end of `to`; `from` is empty afterwards. */
static inline void list_splice(struct list *to, struct list *from)
{
    if (list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    list_init(from);
}

/** Iterate over members; the body may remove `it` itself, nothing else. */
#define LIST_FOREACH_SAFE(it, tmp, head)                                                           \
    for (struct list *it = (head)->next, *tmp = it->next; it != (head); it = tmp, tmp = it->next)
