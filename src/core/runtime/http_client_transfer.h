/* Inside of the HTTP client: one exchange on a pooled easy handle, with its clocks, its repeated
 * connection attempts and the translation of curl's results. What differs between a collected
 * answer and a streamed one is behind `struct transfer_owner`. */
#pragma once

#include "core/runtime/buf.h"
#include "core/runtime/http_client_curl.h"

enum {
    HEAD_MAX = 64 * 1024, /* bytes of an answer's head */
    RETRY_AFTER_CAP_MS = 3600000,
};

/** How the body of the request is given to curl; decides whether curl can repeat it. */
enum transfer_form {
    FORM_NONE,
    FORM_BARE, /* no body */
    FORM_HEAD,
    FORM_FIELDS, /* from memory, repeatable */
    FORM_ONCE,   /* from memory through a callback that cannot rewind: never sent twice */
    FORM_UPLOAD, /* from the owner */
};

/** Callbacks; all but `over` run below a curl frame and may only buffer and post. */
struct transfer_owner {
    void (*head)(void *ctx);
    /** Returns `len`, CURL_WRITEFUNC_PAUSE, or 0 after transfer_refuse. */
    size_t (*body)(void *ctx, const char *bytes, size_t len);
    /** As CURLOPT_READFUNCTION; NULL unless uploading. */
    size_t (*upload)(void *ctx, char *to, size_t room);
    /** The exchange is over and curl has let go; the owner ends with transfer_release. */
    void (*over)(void *ctx, const struct error *err);
};

struct transfer {
    struct http_client *client;
    struct transfer *next; /* in the pool */
    CURL *easy;
    const struct transfer_owner *owner;
    void *owner_ctx;

    /* the request */
    const char *peer, *method, *url_path; /* borrowed, for messages */
    int url_path_len;
    const struct http_dialer *dialer;
    const char *body;
    size_t body_len, body_sent;
    struct buf lines; /* header lines, NUL-separated */
    struct curl_slist *nodes;
    size_t cap_nodes;
    bool safe;       /* by its method: has no effect at the peer */
    bool repeatable; /* libcurl may send it again */
    int retries_left, attempt;
    int64_t started_us, deadline_us, idle_us, active_us; /* deadline 0, idle 0 = none */
    struct timer clock;                                  /* total and idle timeout */
    struct timer retry;

    /* the answer */
    struct buf head; /* raw header lines of the latest response */
    bool head_complete;
    bool paused; /* by our own side: the peer is not to blame for silence */
    bool added;
    size_t received; /* body bytes */
    struct buf collected;
    struct error refused, open_error;
    char errbuf[CURL_ERROR_SIZE];

    /* what the easy handle is set to */
    enum transfer_form form;
    struct buf url, socket_path, custom_method, tls;
    int64_t connect_timeout_ms;
    bool fresh;
};

/** From the pool, or new. */
struct transfer *transfer_take(struct http_client *client, const struct transfer_owner *owner,
                               void *owner_ctx);

/** Back into the pool; takes an unfinished exchange from curl first, which closes its connection. */
void transfer_release(struct transfer *t);
void transfer_free(struct transfer *t);

/** Translate and begin. `upload_len` as http_stream_open, or UPLOAD_NONE. False with `err`: nothing
 * was begun, release it. The request and its strings must live until the exchange is over. */
enum { UPLOAD_NONE = -2 };
bool transfer_begin(struct transfer *t, const struct http_request *request, int64_t upload_len,
                    int64_t default_total_ms, struct error *err) MUST_CHECK;

/** Called by the multi glue when curl is done with it. */
void transfer_over(struct transfer *t, CURLcode result);

/** From a body callback: fail the exchange with this error in place of curl's. */
void transfer_refuse(struct transfer *t, enum err_code code, const char *why);

/** Whether any byte of the request may have reached the peer. */
bool transfer_was_sent(const struct transfer *t);

/** Status, headers and Retry-After of a complete head, in `arena`; no body. */
void transfer_response(struct transfer *t, struct arena *arena, struct http_response *ret);

/* ---- parts, in http_client_request.c ---------------------------------------------------------- */

/** How the body goes out; sets `form`, `repeatable` and `fresh`. Before transfer_set_headers. */
void transfer_set_form(struct transfer *t, const struct http_request *request, int64_t upload_len);
bool transfer_set_headers(struct transfer *t, const struct http_request *request, bool no_expect,
                          struct error *err) MUST_CHECK;
bool transfer_set_target(struct transfer *t, const struct http_request *request,
                         struct error *err) MUST_CHECK;
void transfer_set_tls(struct transfer *t, const struct http_tls *tls);

/* ---- parts, in http_client_outcome.c ---------------------------------------------------------- */

bool transfer_is_status_line(const char *line, size_t len);
enum err_code transfer_code_of(CURLcode result, bool sent);
void transfer_describe(struct transfer *t, CURLcode result, struct error *ret);
/** Count an exchange that is over. */
void transfer_count(struct transfer *t, enum err_code code);
