#include "core/runtime/timer_heap.h"

#include "core/runtime/check.h"

#include <stdlib.h>

static void place(struct timer_heap *heap, uint32_t at, struct timer *timer)
{
    heap->slots[at] = timer;
    timer->heap_index = at;
}

static void sift_up(struct timer_heap *heap, uint32_t at, struct timer *timer)
{
    while (at > 1 && heap->slots[at / 2]->due_us > timer->due_us) {
        place(heap, at, heap->slots[at / 2]);
        at /= 2;
    }
    place(heap, at, timer);
}

static void sift_down(struct timer_heap *heap, uint32_t at, struct timer *timer)
{
    for (;;) {
        uint32_t child = at * 2;
        if (child > heap->len)
            break;
        if (child < heap->len && heap->slots[child + 1]->due_us < heap->slots[child]->due_us)
            child++;
        if (heap->slots[child]->due_us >= timer->due_us)
            break;
        place(heap, at, heap->slots[child]);
        at = child;
    }
    place(heap, at, timer);
}

void timer_heap_fini(struct timer_heap *heap)
{
    free(heap->slots);
    *heap = (struct timer_heap){0};
}

void timer_heap_add(struct timer_heap *heap, struct timer *timer)
{
    PRE(timer->heap_index == 0);
    if (heap->len + 2 > heap->cap) {
        heap->cap = heap->cap == 0 ? 64 : heap->cap * 2;
        heap->slots = xrealloc(heap->slots, heap->cap * sizeof(*heap->slots));
    }
    sift_up(heap, ++heap->len, timer);
}

void timer_heap_remove(struct timer_heap *heap, struct timer *timer)
{
    uint32_t at = timer->heap_index;
    struct timer *last;

    if (at == 0)
        return;
    PRE(at <= heap->len && heap->slots[at] == timer);
    timer->heap_index = 0;
    last = heap->slots[heap->len--];
    if (last == timer)
        return;
    if (at > 1 && heap->slots[at / 2]->due_us > last->due_us)
        sift_up(heap, at, last);
    else
        sift_down(heap, at, last);
}
