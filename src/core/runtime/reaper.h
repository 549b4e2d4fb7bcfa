/* Reaping as process 1 of a container: what loses its parent becomes our child, and stays a zombie
 * until somebody waits for it. Elsewhere this does nothing. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct loop;
struct reaper;

/** `is_ours(ctx, pid)`: a child that somebody in this process waits for itself. NULL when this is not
 * process 1. */
struct reaper *reaper_start(struct loop *loop, bool (*is_ours)(void *ctx, pid_t pid), void *ctx);
void reaper_free(struct reaper *reaper);

/** Reap every ended child but ours; true when one of ours has ended and hides those behind it. */
bool reaper_sweep(bool (*is_ours)(void *ctx, pid_t pid), void *ctx);
