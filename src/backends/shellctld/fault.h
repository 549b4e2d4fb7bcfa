/* Failures as shellctl's clients know them: a wire code and a status beside the error table's code.
 * A fault is a struct error whose `upstream_code` holds the wire code. */
#pragma once

#include "core/runtime/error.h"

/** One of faults.def, in its order. */
enum fault {
#define FAULT(symbol, wire, status, code) FAULT_##symbol,
#include "backends/shellctld/faults.def"
#undef FAULT
    FAULT_COUNT
};

/** Set `err` to a fault with a message for a person. */
void fault_set(struct error *err, enum fault fault, const char *format, ...) PRINTF_LIKE(3, 4);

/** Wire code and HTTP status of any error: its own fault's, else what the error table says. */
const char *fault_code(const struct error *err);
int fault_status(const struct error *err);
