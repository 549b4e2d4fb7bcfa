/* The engine's side of the torture harness: which wait is struck, and how. Private to op.c. */
#pragma once

#include "core/runtime/op.h"

/** Count a wait that begins on `op`. True when it is to fail without being started, with `*ret`. */
bool trouble_begins(struct op *op, struct error *ret);

/** Whether the root of `op` is to be cancelled now, after its wait began. True once. */
bool trouble_cancels(const struct op *op);

/** Whether the success of the leaf that `op` waited for is to become `*ret`. True once. */
bool trouble_loses(const struct op *op, struct error *ret);

/** The wait of `op` is over. True when its root is to be cancelled now. */
bool trouble_ends(const struct op *op);
