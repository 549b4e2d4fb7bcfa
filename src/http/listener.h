/* Listening sockets: addresses of the form `host:port`, `[v6]:port`, `unix:/path`. Internal to http/. */
#pragma once

#include "core/runtime/error.h"

#include <stddef.h>
#include <sys/socket.h>

enum { LISTENER_ADDRESS_MAX = 128 };

/** Bind and listen, non-blocking, close-on-exec, with TCP_NODELAY. `spec` is `len` bytes. Returns
 * the descriptor, or -1 with `err` that names the address and what is wrong with it. `ret_address`
 * says where it really listens. A unix socket that nobody listens on any more is replaced. */
int listener_bind(const char *spec, size_t len, char ret_address[LISTENER_ADDRESS_MAX],
                  struct error *err);

/** The path of a unix socket, for unlinking; NULL for others. `address` as from listener_bind. */
const char *listener_unix_path(const char *address);

/** Address without port, for the log: `127.0.0.1`, `::1`, `unix`. */
void listener_peer_name(const struct sockaddr *address, char *ret_name, size_t size);

/** Raise the soft limit of open files to the hard one. Returns the limit. */
long listener_raise_file_limit(void);

/** Descriptors in use now, as far as they have low numbers. */
int listener_open_files(void);
