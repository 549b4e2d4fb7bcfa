/* Bytes of a job on their way into its output file: streaming, over any split of the input.
 *
 * Both kinds give valid UTF-8: each maximal ill-formed part becomes U+FFFD (Unicode 15, table 3-8),
 * a character cut by a read boundary is carried over.
 *
 * FILTER_TERMINAL also gives what a person would have read: control sequences (ECMA-48 escape, CSI
 * and string sequences, 7-bit and C1 forms) and control characters other than tab and newline are
 * left out; CR LF is a newline; a lone CR starts its line again, so that of a progress bar the last
 * state remains; a backspace takes the last character of the line back. For this the current line
 * is held, at most FILTER_LINE_MAX bytes: longer ones and, by output_filter_idle, prompts without a
 * newline are let out early; if such a line is started again afterwards, it continues as a new
 * line, since what was put out cannot be taken back. */
#pragma once

#include "core/runtime/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum filter_kind { FILTER_PLAIN, FILTER_TERMINAL };

enum {
    FILTER_LINE_MAX = 16384,     /* bytes of one held line */
    FILTER_SEQUENCE_MAX = 65536, /* an unterminated control string ends here */
};

/** One stream. Initialise with output_filter_init; free with output_filter_fini. */
struct output_filter {
    enum filter_kind kind;
    unsigned char carry[4]; /* beginning of a character */
    size_t carry_len;
    int state;           /* enum filter_state */
    size_t sequence_len; /* bytes of the control string so far */
    struct buf line;     /* terminal: the line that is held */
    bool return_pending; /* a CR came last */
    bool line_begun;     /* part of this line was let out already */
};

void output_filter_init(struct output_filter *f, enum filter_kind kind);
void output_filter_fini(struct output_filter *f);

/** Append to `out` what `len` bytes make certain. */
void output_filter_feed(struct output_filter *f, const char *bytes, size_t len, struct buf *out);

/** Nothing came for a while: let a held line out (a prompt). */
void output_filter_idle(struct output_filter *f, struct buf *out);

/** Something is held that output_filter_idle would let out. */
bool output_filter_holds(const struct output_filter *f);

/** End of the stream: everything still held. */
void output_filter_finish(struct output_filter *f, struct buf *out);
