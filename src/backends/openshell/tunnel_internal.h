/* What tunnel.c and pump.c share. */
#pragma once

#include "backends/openshell/tunnel.h"

/** A session token and the streams that use it. */
struct tunnel_token {
    struct list link;
    char *text;
    int64_t usable_until_wall_ms; /* INT64_MAX = no expiry */
    int streams;
};

struct tunnel {
    struct loop *loop;
    struct rpc *rpc;
    char *sandbox_name, *sandbox_id;
    int port;
    int holds;
    bool closing;
    struct list tokens;
    int n_streams, n_poll_streams;
    struct list waiting; /* pumps without a stream */
    struct list pumps;   /* pumps with one */
    bool minting;
    struct op *minter;
    struct task dispatch;
    struct error last_error;
    struct http_dialer dialer, poll_dialer;
    char key[64], poll_key[64];
};

/** One connection: the near end of a socket pair and its stream. */
struct pump;

/** A pump on the tunnel's waiting list; returns the far end for the HTTP client, or -1. */
int pump_open(struct tunnel *tunnel, bool poll, struct error *err);
bool pump_is_poll(const struct pump *pump);
struct pump *pump_of(struct list *link);

/** Give the waiting pump a stream under this token. */
void pump_start(struct pump *pump, struct tunnel_token *token);

/** Close both ends, with the reason. */
void pump_abort(struct pump *pump, const struct error *why);

/** The gateway knows the tokens of before no longer: none opens another stream. */
void tunnel_tokens_gone(struct tunnel *tunnel);

/** Ask the tunnel to look for slots and tokens again. */
void tunnel_dispatch(struct tunnel *tunnel);
