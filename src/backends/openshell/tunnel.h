/* HTTP to a sandbox's shellctl over ForwardTcp streams, without a listening port: each connection
 * that the HTTP client opens is one end of a socket pair, the other end is pumped through a stream.
 *
 * One tunnel per sandbox and process, shared by the leases on it. The gateway allows 3 streams per
 * session token and 20 per sandbox (protocols "OpenShell gateway" 8.12): tokens are made as they are
 * needed and revoked at the end, and connections beyond the limit wait for a slot. A connection
 * serves one exchange, so that an idle one never holds a slot. Long polls have a dialer of their own
 * that never takes the last slots, so that they cannot starve short calls. */
#pragma once

#include "backends/openshell/rpc.h"
#include "core/runtime/http_client.h"

enum {
    TUNNEL_STREAMS_PER_TOKEN = 3,
    TUNNEL_STREAMS_MAX = 20,
    TUNNEL_POLL_STREAMS_MAX = 16,
};

/** Opaque. Held by planes; the last holder's release ends it. */
struct tunnel;

/** Made for one incarnation of a sandbox. `rpc` is borrowed for its life; texts are copied. The
 * caller holds it. */
struct tunnel *tunnel_new(struct loop *loop, struct rpc *rpc, const char *sandbox_name,
                          const char *sandbox_id, int shellctl_port);
void tunnel_hold(struct tunnel *tunnel);

/** Give a hold back. The last one closes every connection, revokes the tokens in the background,
 * and frees the tunnel when that is over. */
void tunnel_release(struct tunnel *tunnel);

/** Dialers for the HTTP client; valid while the tunnel is held. */
const struct http_dialer *tunnel_dialer(struct tunnel *tunnel);
const struct http_dialer *tunnel_poll_dialer(struct tunnel *tunnel);

const char *tunnel_sandbox_id(const struct tunnel *tunnel);

/** The sandbox has come up anew under this id: tokens of before are forgotten. */
void tunnel_reset(struct tunnel *tunnel, const char *sandbox_id);

/** Why the latest stream failed; all-zero when the latest one worked. An HTTP exchange over a
 * broken stream only sees a closed connection: this is the reason behind it. */
const struct error *tunnel_last_error(const struct tunnel *tunnel);

/** Streams open or opening, for metrics and tests. */
int tunnel_streams(const struct tunnel *tunnel);

/** Give up the revocations in the background: at shutdown, before the channel goes. */
void tunnel_cancel_revokes(struct rpc *rpc);
