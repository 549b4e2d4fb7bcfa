#include "http/handler_ledger.h"

#include "core/runtime/quote.h"
#include "http/codec_ledger.h"
#include "http/handler.h"

#include <string.h>

bool ledger_check_id(struct exchange *x, const char *name, const char *id)
{
    struct error err;

    if (id == NULL || (id[0] != '\0' && strlen(id) <= REF_MAX && quote_is_header_safe(id)))
        return true;
    error_set(&err, ERR_BAD_REQUEST, "%s must have 1 to %d bytes and no control character", name,
              REF_MAX);
    exchange_reply_error(x, &err);
    return false;
}

bool ledger_need_query(struct exchange *x, const char *name, const char **ret)
{
    struct error err;

    *ret = exchange_query(x, name);
    if (*ret != NULL)
        return ledger_check_id(x, name, *ret);
    error_set(&err, ERR_BAD_REQUEST, "the query parameter %s is missing", name);
    exchange_reply_error(x, &err);
    return false;
}

struct retire_call {
    struct handler_call call;
    struct ledger_retire what;
    struct ledger_retired retired;
};

static void retire_start(struct handler_call *call)
{
    struct retire_call *t = container_of(call, struct retire_call, call);

    lifecycle_retire(call->lifecycle, &call->op, &t->what, &t->retired);
}

static void retired_write(struct json_writer *w, const void *ctx)
{
    codec_write_retired(w, ctx);
}

static void retire_reply(struct handler_call *call)
{
    struct retire_call *t = container_of(call, struct retire_call, call);

    handler_reply_object(call->x, 202, retired_write, &t->retired);
}

void ledger_retire_run(struct exchange *x, const struct ledger_retire *what)
{
    struct retire_call *t = HANDLER_CALL(x, retire_call);

    t->what = *what;
    t->call.start = retire_start;
    t->call.reply = retire_reply;
    handler_run(&t->call);
}

const char ledger_binding_schema[] =
    "{\"type\":\"object\",\"required\":[\"binding_id\",\"workspace_id\",\"binding_ref\","
    "\"workspace_ref\",\"status\"],\"properties\":{"
    "\"binding_id\":{\"type\":\"string\"},\"workspace_id\":{\"type\":\"string\"},"
    "\"binding_ref\":{\"type\":[\"string\",\"null\"]},"
    "\"workspace_ref\":{\"type\":[\"string\",\"null\"]},"
    "\"status\":{\"enum\":[\"creating\",\"active\",\"retired\"]},"
    "\"session_snapshot\":{},\"generation\":{\"type\":\"integer\"},"
    "\"waiting\":{\"type\":[\"object\",\"null\"]}}}";
const char ledger_retired_schema[] =
    "{\"type\":\"object\",\"required\":[\"binding_ids\",\"workspace_ids\",\"home_snapshot_ids\"],"
    "\"properties\":{\"binding_ids\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
    "\"workspace_ids\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
    "\"home_snapshot_ids\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}}}";
