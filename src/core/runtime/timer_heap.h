/* Armed timers, earliest first. Private to loop.c. */
#pragma once

#include "core/runtime/loop.h"

/** A binary min-heap on due_us. All-zero is an empty one; slots[1..len] are in use. */
struct timer_heap {
    struct timer **slots;
    uint32_t len, cap;
};

/** Frees the memory; the timers are their owners'. */
void timer_heap_fini(struct timer_heap *heap);

/** `timer` must be idle and have its due_us. */
void timer_heap_add(struct timer_heap *heap, struct timer *timer);

/** Idle afterwards; safe on an idle timer. */
void timer_heap_remove(struct timer_heap *heap, struct timer *timer);

/** The earliest, or NULL. Among equals any. */
static inline struct timer *timer_heap_first(const struct timer_heap *heap)
{
    return heap->len == 0 ? NULL : heap->slots[1];
}
