/* The commands that go through a job folder's FIFO: frames of at most PIPE_BUF bytes, so that each
 * write is whole and several daemons' writes never mix. Longer input travels in a file beside the
 * FIFO; its frame names the file. Both ends are the same program on the same machine. */
#pragma once

#include "core/runtime/buf.h"
#include "core/runtime/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum control_type {
    CONTROL_INPUT = 1,  /* payload: bytes for the terminal */
    CONTROL_INPUT_FILE, /* payload: name of a file in the job folder; the runner removes it */
    CONTROL_RESIZE,     /* payload: two int32, columns and rows */
    CONTROL_TERMINATE,  /* payload: int64, grace in milliseconds */
};

enum { CONTROL_INLINE_MAX = 3072, CONTROL_INPUT_MAX = 16 << 20 };

/** One received frame; `payload` is valid until the next call. */
struct control_frame {
    uint32_t type;
    uint32_t len;
    const char *payload;
};

/** Daemon: send one frame. Errors as job_runner.h says. SIGPIPE must be ignored. */
bool control_send(const char *job_dir, uint32_t type, const void *payload, size_t len,
                  struct error *err) MUST_CHECK;

/** Runner: the next whole frame of the bytes received so far; false when there is none yet. Call
 * with the same `*at`, 0 at first, then drain `*at` bytes from the buffer. Bytes that cannot be a
 * frame empty the buffer. */
bool control_next(struct buf *received, size_t *at, struct control_frame *ret);
