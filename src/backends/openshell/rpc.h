/* The gateway's calls, one wait each. Names key some calls, ids others (protocols "OpenShell
 * gateway" 4.1); mixing them up gives NOT_FOUND, so the parameters say which.
 *
 * Errors are those of core/runtime/grpc.h with a person's prefix; what a status means to an
 * operation is decided by rpc_judge. */
#pragma once

#include "backends/openshell/messages.h"
#include "core/runtime/grpc.h"
#include "core/runtime/op.h"

enum {
    RPC_TIMEOUT_MS = 30000,
    RPC_SLOW_TIMEOUT_MS = 60000, /* create, stop: the driver's grace is inside */
    RPC_EXEC_OUTPUT_MAX = 262144,
};

/** What the operations need of a sandbox record; texts are the op's arena's. */
struct sandbox_view {
    const char *name, *id;
    int phase;                    /* Openshell__SandboxPhase, or a number of a newer gateway */
    const char *instance_id;      /* of the main process; "" before 0.0.111 */
    const char *reason, *message; /* of the Ready condition; "" when none */
    const char *marker;           /* annotation `bindery.create`; "" when none */
    const char *binding_digest;   /* label `dify.binding` */
    const char *instance_label;   /* label `bindery.instance` */
    int64_t created_at_ms;
};

/** Where calls go. Embedded in the backend. */
struct rpc {
    struct grpc_channel *channel;
    const char *workspace;
    struct list revokes; /* session revocations in the background */
    bool auth_failed;    /* the latest call that needs credentials was refused for them */
};

/** Note what a call that needs credentials says of them; NULL = it worked. */
void rpc_note_auth(struct rpc *rpc, const struct error *err);

void rpc_health(struct rpc *rpc, struct op *op, const char **ret_version);
/** Held: once it is sent, its answer is waited for (within its timeout) even when the op is given up. A
 * create that took place and whose op was given up is an error with ADMITTED_YES, and *ret is filled. */
void rpc_create(struct rpc *rpc, struct op *op, const Openshell__CreateSandboxRequest *request,
                struct sandbox_view *ret);
void rpc_get(struct rpc *rpc, struct op *op, const char *name, struct sandbox_view *ret);
void rpc_start(struct rpc *rpc, struct op *op, const char *name, struct sandbox_view *ret);
void rpc_stop(struct rpc *rpc, struct op *op, const char *name, struct sandbox_view *ret);
/** Absent is success. */
void rpc_delete(struct rpc *rpc, struct op *op, const char *name);
/** One page, oldest first. */
void rpc_list(struct rpc *rpc, struct op *op, const char *label_selector, uint32_t offset,
              uint32_t limit, struct sandbox_view **ret, size_t *ret_n);
/** Held, as rpc_create. */
void rpc_session_create(struct rpc *rpc, struct op *op, const char *sandbox_id,
                        const char **ret_token, int64_t *ret_expires_at_ms);
void rpc_session_revoke(struct rpc *rpc, struct op *op, const char *token);

/** Result of an exec; output is stdout and stderr as they came, bounded. */
struct exec_result {
    int exit_code;
    const char *output;
};

/** Run `/bin/sh -s` in the sandbox with the script on stdin: the gateway logs argv. 124 is its own
 * timeout; the process then goes on (protocols "OpenShell gateway" 8.8). */
void rpc_exec(struct rpc *rpc, struct op *op, const char *sandbox_id, const char *script,
              int timeout_s, struct exec_result *ret);

/** Change an error of a call into what it is to the caller: UNAUTHENTICATED and PERMISSION_DENIED
 * are ERR_BACKEND_AUTH, RESOURCE_EXHAUSTED is ERR_RATE_LIMITED, NOT_FOUND is `if_absent`, a lost
 * outcome of a write stays unknown, everything else becomes `code`. */
void rpc_judge(struct error *err, enum err_code code, enum err_code if_absent);

static inline bool rpc_is(const struct error *err, enum grpc_code code)
{
    return err->code == ERR_UPSTREAM_STATUS && err->upstream_status == (int)code;
}
