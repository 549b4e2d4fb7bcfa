#include "backends/shellctld/output_filter.h"

#include "backends/shellctld/window.h"

#include <string.h>

enum filter_state {
    TEXT,
    ESCAPE,       /* behind ESC */
    ESCAPE_INTER, /* behind ESC and intermediates: one final byte ends it */
    CSI,          /* parameters; ends with 0x40…0x7E */
    OSC,          /* string that BEL, ST or a newline ends */
    STRING,       /* DCS, SOS, PM, APC: string that ST ends */
    OSC_ESCAPE,   /* ESC inside: a backslash makes it ST */
    STRING_ESCAPE,
};

enum { BEL = 0x07, BACKSPACE = 0x08, CANCEL = 0x18, SUBSTITUTE = 0x1a, ESC = 0x1b, DELETE = 0x7f };

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

void output_filter_init(struct output_filter *f, enum filter_kind kind)
{
    *f = (struct output_filter){.kind = kind, .state = TEXT};
}

void output_filter_fini(struct output_filter *f)
{
    buf_fini(&f->line);
}

/* ---- the line of a terminal -------------------------------------------------------------------- */

static void line_let_out(struct output_filter *f, struct buf *out)
{
    if (f->line.len == 0)
        return;
    buf_add(out, f->line.data, f->line.len);
    buf_clear(&f->line);
    f->line_begun = true;
}

static void line_end(struct output_filter *f, struct buf *out)
{
    line_let_out(f, out);
    buf_addc(out, '\n');
    f->line_begun = false;
    f->return_pending = false;
}

/* Text behind a lone CR starts the line again. */
static void line_restart(struct output_filter *f, struct buf *out)
{
    f->return_pending = false;
    buf_clear(&f->line);
    if (f->line_begun)
        buf_addc(out, '\n');
    f->line_begun = false;
}

/* One character. */
static void line_add(struct output_filter *f, const char *bytes, size_t len, struct buf *out)
{
    if (f->return_pending)
        line_restart(f, out);
    if (f->line.len + len > FILTER_LINE_MAX)
        line_let_out(f, out);
    buf_add(&f->line, bytes, len);
}

/* Many characters of one byte, with the same result as one by one. */
static void line_add_run(struct output_filter *f, const char *bytes, size_t len, struct buf *out)
{
    if (f->return_pending)
        line_restart(f, out);
    while (len > 0) {
        if (f->line.len >= FILTER_LINE_MAX)
            line_let_out(f, out);
        size_t room = FILTER_LINE_MAX - f->line.len, n = len < room ? len : room;
        buf_add(&f->line, bytes, n);
        bytes += n;
        len -= n;
    }
}

static void line_backspace(struct output_filter *f)
{
    while (f->line.len > 0) {
        unsigned char last = (unsigned char)f->line.data[--f->line.len];
        if ((last & 0xc0) != 0x80)
            break;
    }
}

/* ---- control sequences ------------------------------------------------------------------------- */

static void control_in_text(struct output_filter *f, unsigned code, struct buf *out)
{
    switch (code) {
    case '\n':
        line_end(f, out);
        break;
    case '\r':
        f->return_pending = true;
        break;
    case '\t':
        line_add(f, "\t", 1, out);
        break;
    case BACKSPACE:
        line_backspace(f);
        break;
    case ESC:
        f->state = ESCAPE;
        break;
    default: /* every other control character is without meaning in a file */
        break;
    }
}

/* The 8-bit forms of ESC [, ESC ], ESC P, …: C1 controls, U+0080…U+009F. */
static void control_c1(struct output_filter *f, unsigned code)
{
    f->sequence_len = 0;
    if (code == 0x9b)
        f->state = CSI;
    else if (code == 0x9d)
        f->state = OSC;
    else if (code == 0x90 || code == 0x98 || code == 0x9e || code == 0x9f)
        f->state = STRING;
}

static void escape_next(struct output_filter *f, unsigned code)
{
    f->sequence_len = 0;
    if (code == '[')
        f->state = CSI;
    else if (code == ']')
        f->state = OSC;
    else if (code == 'P' || code == 'X' || code == '^' || code == '_')
        f->state = STRING;
    else if (code >= 0x20 && code <= 0x2f)
        f->state = ESCAPE_INTER;
    else if (code != ESC)
        f->state = TEXT;
}

/* Inside a string: true when `code` ended it. A string that never ends must not swallow the rest
 * of the output. */
static bool string_next(struct output_filter *f, unsigned code, struct buf *out)
{
    bool osc = f->state == OSC || f->state == OSC_ESCAPE;

    if (f->state == OSC_ESCAPE || f->state == STRING_ESCAPE) {
        f->state = osc ? OSC : STRING;
        if (code == '\\')
            return true;
    }
    if (code == ESC) {
        f->state = osc ? OSC_ESCAPE : STRING_ESCAPE;
        return false;
    }
    if (code == CANCEL || code == SUBSTITUTE || code == 0x9c || (osc && code == BEL))
        return true;
    if (osc && code == '\n') {
        line_end(f, out);
        return true;
    }
    return ++f->sequence_len > FILTER_SEQUENCE_MAX;
}

/* One code point (or one byte of it when the value does not matter) inside a control sequence. */
static void sequence_next(struct output_filter *f, unsigned code, struct buf *out)
{
    switch ((enum filter_state)f->state) {
    case ESCAPE:
        escape_next(f, code);
        break;
    case ESCAPE_INTER:
        if (code == ESC)
            f->state = ESCAPE;
        else if (code < 0x20 || code > 0x2f)
            f->state = TEXT;
        break;
    case CSI:
        if (code == ESC)
            f->state = ESCAPE;
        else if (code == '\n' || code == '\r')
            control_in_text(f, code, out); /* executed in the midst of it, ECMA-48 leaves it open */
        else if ((code >= 0x40 && code <= 0x7e) || code == CANCEL || code == SUBSTITUTE ||
                 ++f->sequence_len > FILTER_SEQUENCE_MAX)
            f->state = TEXT;
        break;
    case OSC:
    case STRING:
    case OSC_ESCAPE:
    case STRING_ESCAPE:
        if (string_next(f, code, out))
            f->state = TEXT;
        break;
    case TEXT:
        break;
    }
}

/* ---- characters -------------------------------------------------------------------------------- */

/* One character, or U+FFFD, to where it goes. */
static void put_char(struct output_filter *f, const char *bytes, size_t len, struct buf *out)
{
    unsigned char first = (unsigned char)bytes[0];
    unsigned code = first;

    if (f->kind == FILTER_PLAIN) {
        buf_add(out, bytes, len);
        return;
    }
    if (len == 2 && first == 0xc2)
        code = (unsigned char)bytes[1]; /* U+0080…U+00BF, where the C1 controls are */
    else if (len > 1)
        code = 0xffff; /* nothing that a sequence could look for */

    if (f->state != TEXT)
        sequence_next(f, code, out);
    else if (code < 0x20 || code == DELETE)
        control_in_text(f, code, out);
    else if (code >= 0x80 && code <= 0x9f && len == 2)
        control_c1(f, code);
    else
        line_add(f, bytes, len, out);
}

static size_t plain_run(const struct output_filter *f, const char *bytes, size_t len)
{
    size_t n = 0;

    if (f->kind == FILTER_PLAIN) {
        while (n < len && (unsigned char)bytes[n] < 0x80)
            n++;
    } else if (f->state == TEXT) {
        while (n < len && bytes[n] >= 0x20 && bytes[n] != DELETE)
            n++;
    }
    return n;
}

static void put_run(struct output_filter *f, const char *bytes, size_t len, struct buf *out)
{
    if (f->kind == FILTER_PLAIN)
        buf_add(out, bytes, len);
    else
        line_add_run(f, bytes, len, out);
}

/* One unit of at most four bytes; returns how many were taken, 0 when more are needed. */
static size_t take_unit(struct output_filter *f, const char *bytes, size_t len, struct buf *out)
{
    bool valid, partial;
    size_t n = utf8_unit((const unsigned char *)bytes, len, &valid, &partial);

    if (partial)
        return 0;
    if (valid)
        put_char(f, bytes, n, out);
    else
        put_char(f, replacement, 3, out);
    return n;
}

/* Complete the carried character with new bytes; returns how many of them were used. */
static size_t feed_carry(struct output_filter *f, const char *bytes, size_t len, struct buf *out)
{
    size_t used = 0;

    while (f->carry_len > 0 && used < len) {
        f->carry[f->carry_len++] = (unsigned char)bytes[used++];
        size_t n = take_unit(f, (const char *)f->carry, f->carry_len, out);
        if (n == 0)
            continue;
        /* An ill-formed part ends in front of the byte that shows it: give that byte back. */
        used -= f->carry_len - n;
        f->carry_len = 0;
    }
    return used;
}

void output_filter_feed(struct output_filter *f, const char *bytes, size_t len, struct buf *out)
{
    size_t at = feed_carry(f, bytes, len, out);

    while (at < len) {
        size_t run = plain_run(f, bytes + at, len - at);
        if (run > 0) {
            put_run(f, bytes + at, run, out);
            at += run;
            continue;
        }
        size_t n = take_unit(f, bytes + at, len - at, out);
        if (n == 0) {
            f->carry_len = len - at;
            memcpy(f->carry, bytes + at, f->carry_len);
            return;
        }
        at += n;
    }
}

void output_filter_idle(struct output_filter *f, struct buf *out)
{
    line_let_out(f, out);
}

bool output_filter_holds(const struct output_filter *f)
{
    return f->line.len > 0;
}

void output_filter_finish(struct output_filter *f, struct buf *out)
{
    if (f->carry_len > 0)
        put_char(f, replacement, 3, out);
    f->carry_len = 0;
    f->state = TEXT;
    line_let_out(f, out);
    f->return_pending = false;
    f->line_begun = false;
}
