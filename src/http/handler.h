/* The usual handler: decode the body, make one call of the broker, encode the answer. */
#pragma once

#include "core/domain/lifecycle.h"
#include "http/app.h"

/** One call made for an exchange; embedded first in a struct of the exchange's arena. */
struct handler_call {
    struct op op;
    struct exchange *x;
    struct broker *broker;
    struct lifecycle *lifecycle; /* NULL: without a ledger */
    /** Begin exactly one wait of `&call->op`. */
    void (*start)(struct handler_call *call);
    /** It succeeded: reply. */
    void (*reply)(struct handler_call *call);
    /** Give a failure the code of this route; NULL: as it is. */
    void (*map_error)(struct error *err);
};

/** A zeroed call of `size` bytes for this exchange; fill it in, then handler_run. */
void *handler_call_new(struct exchange *x, size_t size);
#define HANDLER_CALL(x, struct_) ((struct struct_ *)handler_call_new((x), sizeof(struct struct_)))

/** Run it as the exchange's root operation; the exchange is replied to when it ends. */
void handler_run(struct handler_call *call);

/** Parse the body and begin to read it. False after an error reply. */
bool handler_read(struct exchange *x, struct json_reader *ret) MUST_CHECK;
/** Were there problems? Replies with all of them and returns false. */
bool handler_accept(struct exchange *x, struct json_reader *r) MUST_CHECK;
/** ERR_BACKEND_UNAVAILABLE is replied where no backend is configured: it comes before the fields
 * are looked at (protocols "control plane" section 1.3). */
bool handler_need_backend(struct exchange *x) MUST_CHECK;

/** Reply with a JSON object whose members `write` writes. */
void handler_reply_object(struct exchange *x, int status,
                          void (*write)(struct json_writer *w, const void *ctx), const void *ctx);
