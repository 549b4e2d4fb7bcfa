/* The port to one sandbox system. Drivers live in src/backends; docs/adding-a-backend.md explains
 * how to write one.
 *
 * Every asynchronous function starts one wait of `op` (usually a child op) and completes it;
 * results are written on success only, into memory of op->arena unless said otherwise. A function
 * that creates something removes it again on failure, deadline or cancellation, and reports what
 * it could not remove through backend_report_orphan. */
#pragma once

#include "core/domain/binding.h"
#include "core/runtime/http_client.h"
#include "core/runtime/op.h"

struct backend;
struct json_writer;

/** What a backend can do (protocols "runtime backends" 1.5). Decided here, once, for all routes. */
enum backend_caps {
    BACKEND_SHARED_WORKSPACE = 1 << 0, /* create may attach to an existing workspace */
    BACKEND_KEEPS_WORKSPACE = 1 << 1,  /* destroy may leave the workspace */
    BACKEND_SNAPSHOTS = 1 << 2,        /* snapshot_create, snapshot_delete, home_snapshot_ref */
    BACKEND_LISTS = 1 << 3,            /* list: the reconciler can compare */
    BACKEND_FINDS = 1 << 4,            /* find: a lost create can be looked up by binding id */
    BACKEND_COLD_START = 1 << 5,       /* acquire may start a sandbox first: the driver bounds its
                                            phases, the broker's validation deadline is not applied */
};

/** How to reach one binding's shellctl over HTTP. Owned by the plane it is in. */
struct endpoint {
    const char
        *base_url; /* without trailing slash; request paths are appended (shellctl.md 13.1) */
    const char *unix_socket;          /* or NULL */
    const struct http_dialer *dialer; /* or NULL */
    const struct http_dialer
        *poll_dialer;              /* for calls that may wait for minutes; NULL = `dialer` */
    const char *token;             /* bearer of the shellctl; "" = none */
    struct http_header headers[4]; /* routing headers, sent on every request */
    size_t n_headers;
    const char *peer;        /* metric label */
    int64_t call_timeout_ms; /* of a call that does not wait; 0 = shellctl's own (13.2) */
};

/** The dialer for a call that `may_wait` for minutes, or may not. */
static inline const struct http_dialer *endpoint_dialer(const struct endpoint *endpoint,
                                                        bool may_wait)
{
    return may_wait && endpoint->poll_dialer != NULL ? endpoint->poll_dialer : endpoint->dialer;
}

/** A lease's access to one binding: made by acquire or reopen, ended by release. On the heap. */
struct plane {
    struct backend *backend;
    char *binding_ref;
    struct endpoint endpoint;
    struct layout layout;
};

/** One sandbox as the backend lists it. */
struct backend_item {
    const char *binding_ref;
    const char *workspace_ref;
    const char *binding_id; /* or its digest as the backend stores it; NULL = not known */
    bool binding_id_is_digest;
    int64_t created_wall_ms; /* 0 = not known */
};

/** What kind of thing an orphan is. */
enum orphan_kind {
    ORPHAN_BINDING, /* a ref that exists and could not be removed */
    ORPHAN_UNKNOWN, /* a create whose answer was lost: no ref */
    ORPHAN_SNAPSHOT,
};

/** The driver. Slots marked (cap) may be NULL when the cap is not set. */
struct backend_ops {
    const char *name; /* `local`, `enterprise`, `openshell`, `e2b` */

    /** Always a new participant (contract 1.2). Caps were checked before. */
    void (*create_binding)(struct backend *b, struct op *op, const struct binding_spec *spec,
                           struct binding *ret);
    /** Reconnect and verify, never create. Absent → ERR_BINDING_LOST, all else
     * ERR_BINDING_ACQUIRE or a more exact code. The caller owns the plane. */
    void (*acquire)(struct backend *b, struct op *op, const char *binding_ref, struct plane **ret);
    /** A plane for a binding that another replica or an earlier process validated; may verify. */
    void (*reopen)(struct backend *b, struct op *op, const char *binding_ref, struct plane **ret);
    /** End a lease's access; the plane is freed whatever the outcome. Stops nothing. */
    void (*release)(struct backend *b, struct op *op, struct plane *plane);
    /** Absent is success; safe to repeat. */
    void (*destroy_binding)(struct backend *b, struct op *op, const struct destroy_spec *spec);
    /** Immutable copy of the plane's Home. (cap) */
    void (*snapshot_create)(struct backend *b, struct op *op, const struct snapshot_spec *spec,
                            struct plane *plane, const char **ret_ref);
    /** The ref that snapshot_create gives for this spec, whether it exists or not; NULL when only
     * the backend's answer tells (as a NULL slot). Synchronous. */
    const char *(*snapshot_ref_of)(struct backend *b, struct arena *arena,
                                   const struct snapshot_spec *spec);
    /** Idempotent. (cap) */
    void (*snapshot_delete)(struct backend *b, struct op *op, const char *snapshot_ref);
    /** Run one script in the lease to its end; the transient job is always deleted. */
    void (*run_command)(struct backend *b, struct op *op, struct plane *plane,
                        const struct command_spec *spec, struct command_result *ret);
    /** Everything of ours that exists, page by page: *cursor NULL at first, NULL again when
     * complete. A failed page means the list is incomplete. (cap) */
    void (*list)(struct backend *b, struct op *op, const char **cursor, struct backend_item **ret,
                 size_t *ret_n);
    /** Look for what a create with this spec made; ret->binding_ref NULL when nothing. (cap) */
    void (*find)(struct backend *b, struct op *op, const struct binding_spec *spec,
                 struct binding *ret);
    /** The binding_ref that a create with this spec gives, whether it exists or not. Synchronous;
     * needed where `list` has digests only, so that what is being born is no orphan. */
    const char *(*binding_ref_of)(struct backend *b, struct arena *arena,
                                  const struct binding_spec *spec);
    /** Does this data-plane answer (status >= 400) prove that the sandbox is gone? Synchronous; at
     * most the first 4 KiB of the body, NUL-terminated. NULL slot: no answer proves it. */
    bool (*answer_means_lost)(struct backend *b, int status, const char *body, size_t len);
    /** Can a ref with this form have been issued? Synchronous. ERR_INVALID_REF otherwise. */
    bool (*check_binding_ref)(struct backend *b, const char *ref, struct error *err);
    bool (*check_snapshot_ref)(struct backend *b, const char *ref, struct error *err);
    /** Configured and, as far as is known, working; false with the reason. Synchronous. */
    bool (*ready)(struct backend *b, struct error *err);
    /** Extra facts for /readyz and logs: writes one object. May be NULL. */
    void (*describe)(struct backend *b, struct json_writer *w);
    void (*free)(struct backend *b);
};

/** Where a backend reports what it could not clean up. Implemented by the ledger's orphans. */
struct orphan_sink {
    void (*report)(void *ctx, const struct backend *b, enum orphan_kind kind, const char *ref,
                   const struct binding_spec *spec, const struct error *why);
    void *ctx;
};

/** Embedded first in each driver's struct. */
struct backend {
    const struct backend_ops *ops;
    unsigned caps; /* enum backend_caps */
    struct loop *loop;
    struct http_client *http;
    struct orphan_sink orphans;
};

/** Report, and count in the metrics; never fails. `ref` NULL for ORPHAN_UNKNOWN; `spec` may be
 * NULL when the caller did not create. */
void backend_report_orphan(struct backend *b, enum orphan_kind kind, const char *ref,
                           const struct binding_spec *spec, const struct error *why);

/** Check a spec against the caps, before any mutation: ERR_SHARED_WORKSPACE_UNSUPPORTED,
 * ERR_SNAPSHOT_UNSUPPORTED, … */
bool backend_check_create(const struct backend *b, const struct binding_spec *spec,
                          struct error *err) MUST_CHECK;
bool backend_check_destroy(const struct backend *b, const struct destroy_spec *spec,
                           struct error *err) MUST_CHECK;
