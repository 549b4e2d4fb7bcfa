#include "core/runtime/op_trouble.h"

#include <stdio.h>
#include <string.h>

static struct {
    enum op_torture what;
    uint32_t k, also;
    uint32_t waits;
    int hits;
    const struct op *victim;  /* the op in its k-th wait */
    const char *type, *state; /* of the victim, for messages */
    bool suspended;
} torture;

bool trouble_begins(struct op *op, struct error *ret)
{
    bool first;

    if (torture.suspended)
        return false;
    first = ++torture.waits == torture.k;
    if (first) {
        torture.type = op->type->name;
        torture.state = op_state_name(op);
        torture.victim = op;
    }
    if (!(first && torture.what == OP_TORTURE_FAIL) && torture.waits != torture.also)
        return false;
    torture.hits++;
    if (torture.victim == op)
        torture.victim = NULL;
    error_set(ret, ERR_INTERNAL, "injected failure of wait %u", torture.waits);
    return true;
}

static bool strikes(const struct op *op, enum op_torture what)
{
    if (torture.victim != op || torture.what != what)
        return false;
    torture.victim = NULL;
    torture.hits++;
    return true;
}

bool trouble_cancels(const struct op *op)
{
    return strikes(op, OP_TORTURE_CANCEL);
}

bool trouble_loses(const struct op *op, struct error *ret)
{
    if (!strikes(op, OP_TORTURE_LOSE))
        return false;
    error_set(ret, ERR_UPSTREAM_LOST, "injected loss of an answer");
    ret->admitted = ADMITTED_UNKNOWN;
    return true;
}

bool trouble_ends(const struct op *op)
{
    if (strikes(op, OP_TORTURE_CANCEL_LATE))
        return true;
    if (torture.victim == op)
        torture.victim = NULL; /* its wait failed by itself: nothing to lose */
    return false;
}

/* ---- for the harness ------------------------------------------------------------------------- */

void op_torture_arm(enum op_torture what, uint32_t k)
{
    memset(&torture, 0, sizeof(torture));
    torture.what = what;
    torture.k = k;
}

void op_torture_also_fail(uint32_t k)
{
    torture.also = k;
}

void op_torture_suspend(bool suspended)
{
    torture.suspended = suspended;
}

uint32_t op_torture_waits(void)
{
    return torture.waits;
}

int op_torture_hits(void)
{
    return torture.hits;
}

const char *op_torture_where(void)
{
    static char text[128];

    if (torture.type == NULL)
        return "nowhere";
    snprintf(text, sizeof(text), "%s.%s", torture.type, torture.state);
    return text;
}
