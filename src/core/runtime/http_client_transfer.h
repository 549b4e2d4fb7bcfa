/* Inside of the HTTP client: one exchange, whichever transport carries it, with its clocks, its
 * repeated connection attempts and its counting. What differs between a collected answer and a
 * streamed one is behind `struct transfer_owner`; what differs between libcurl and our own sockets,
 * behind `struct transport`. */
#pragma once

#include "core/runtime/buf.h"
#include "core/runtime/http_client_internal.h"

enum {
    HEAD_MAX = 64 * 1024, /* bytes of an answer's head, interim ones included */
    RETRY_AFTER_CAP_MS = 3600000,
};

#define HTTP_USER_AGENT "bindery/" BINDERY_VERSION

/** How the body of the request goes out. */
enum transfer_form {
    FORM_BARE,   /* no body */
    FORM_MEMORY, /* `body`, may be of length 0 */
    FORM_UPLOAD, /* from the owner */
};

/** Callbacks; all but `over` may run below a library's frame and only buffer and post. */
struct transfer_owner {
    void (*head)(void *ctx); /* NULL allowed */
    /** Takes all of it; false after transfer_refuse. To get no more for a while: transfer_hold. */
    bool (*body)(void *ctx, const char *bytes, size_t len);
    /** Up to `room` bytes of the request body; 0 = it is over, UPLOAD_WAIT = none now, and
     * transfer_more_upload says when. NULL unless uploading. */
    size_t (*upload)(void *ctx, char *to, size_t room);
    /** The exchange is over and its connection taken care of; ends with transfer_release. */
    void (*over)(void *ctx, const struct error *err);
};

enum { UPLOAD_NONE = -2 };
#define UPLOAD_WAIT ((size_t)-1)

struct transport;

struct transfer {
    struct http_client *client;
    const struct transport *via;
    struct transfer *next; /* in the transport's pool */
    const struct transfer_owner *owner;
    void *owner_ctx;

    /* the request */
    const char *peer, *method, *url_path; /* borrowed, for messages */
    int url_path_len;
    enum transfer_form form;
    const char *body;
    size_t body_len;
    int64_t upload_len; /* -1 = chunked */
    int64_t connect_ms;
    bool safe;         /* by its method: has no effect at the peer */
    bool head_request; /* the answer has no body */
    bool repeatable;   /* may be sent again on a stale pooled connection */
    int retries_left, attempt;
    int64_t started_us, deadline_us, idle_us, active_us; /* deadline 0, idle 0 = none */
    struct timer clock;                                  /* total and idle timeout */
    struct timer retry;

    /* the answer */
    int status;
    struct buf head; /* lower-case names and values, NUL behind each */
    size_t n_headers;
    bool head_complete;
    bool holding; /* our own side takes nothing now: the peer is not to blame for silence */
    bool attempting;
    struct buf collected;
    struct error refused; /* by the owner or the head's limits; wins over what the transport says */
};

/** One way to carry an exchange. */
struct transport {
    /** Translate the request, after the common part has done its own. False with `err`. */
    bool (*prepare)(struct transfer *t, const struct http_request *request, struct error *err);
    /** Begin an attempt. It ends with transfer_attempt_over, never from inside this call. */
    void (*start)(struct transfer *t);
    /** Give up the attempt in progress; its connection is closed. */
    void (*stop)(struct transfer *t);
    /** Whether any byte of the request may have reached the peer. */
    bool (*was_sent)(const struct transfer *t);
    /** `holding` is off again: go on reading. */
    void (*go_on)(struct transfer *t);
    /** The owner has more to upload, or has ended it. */
    void (*more_upload)(struct transfer *t);
    /** Into the pool of the transport, or freed. */
    void (*give_back)(struct transfer *t);
};

/** For transports: what a new transfer of theirs starts with, and what it ends with. */
void transfer_init(struct transfer *t, struct http_client *client, const struct transport *via);
void transfer_fini(struct transfer *t);

/** A transfer of the transport that this request goes by. */
struct transfer *transfer_take(struct http_client *client, const struct http_request *request,
                               const struct transfer_owner *owner, void *owner_ctx);

/** Back into the pool; an unfinished exchange is given up first, which closes its connection. */
void transfer_release(struct transfer *t);

/** Translate and begin. `upload_len` as http_stream_open, or UPLOAD_NONE. False with `err`: nothing
 * was begun, release it. The request and its strings must live until the exchange is over. */
bool transfer_begin(struct transfer *t, const struct http_request *request, int64_t upload_len,
                    int64_t default_total_ms, struct error *err) MUST_CHECK;

/** Take no more of the answer until transfer_go_on; what is under way still comes. */
void transfer_hold(struct transfer *t);
void transfer_go_on(struct transfer *t);
void transfer_more_upload(struct transfer *t);

/** From a callback: fail the exchange with this error in place of the transport's. */
void transfer_refuse(struct transfer *t, enum err_code code, const char *why);

bool transfer_was_sent(const struct transfer *t);

/** Status, headers and Retry-After of a complete head, in `arena`; no body. */
void transfer_response(struct transfer *t, struct arena *arena, struct http_response *ret);

/* ---- for transports --------------------------------------------------------------------------- */

/** A header of the answer; the value's outer blanks are left out. False after transfer_refuse. */
bool transfer_add_header(struct transfer *t, const char *name, size_t name_len, const char *value,
                         size_t value_len) MUST_CHECK;
/** The final head is complete; `t->status` is set. */
void transfer_head_over(struct transfer *t);
/** Forget the head so far: an interim answer, or a repeated attempt. */
void transfer_head_restart(struct transfer *t);
/** Bytes went by, in either direction. */
void transfer_touch(struct transfer *t);
/** The attempt is over and the transport has let go: `err` NULL for a complete answer. */
void transfer_attempt_over(struct transfer *t, const struct error *err);
/** "PEER: METHOD PATH: WHAT" with the honest `admitted`. */
void transfer_describe(const struct transfer *t, enum err_code code, const char *what,
                       struct error *ret);

/** Header syntax of a request: a token; a value without control characters. */
bool http_is_token(const char *text);
bool http_is_value(const char *text);

struct http_header_text {
    const char *name, *value;
    size_t name_len, value_len;
};

/** The i-th header of a request, checked. */
bool http_header_read(const struct http_request *request, size_t i, struct http_header_text *ret,
                      struct error *err) MUST_CHECK;

/** Headers that are the client's own to say. */
bool http_is_own_header(const char *name);
