/* A scripted HTTP server on the test's own loop, for clients that must survive any peer. The test
 * gives a function that is called with each request; what it sends, when, and how it ends the
 * connection is up to it. Framing of requests is read (Content-Length, chunked); nothing else. */
#pragma once

#include "core/runtime/buf.h"
#include "core/runtime/loop.h"

struct script_server;
struct script_conn;

struct script_request {
    const char *method, *target;
    const char *head; /* whole head, NUL-terminated */
    const char *body;
    size_t body_len;
    int nth;         /* of the server, from 1 */
    int nth_of_conn; /* of its connection, from 1 */
};

typedef void (*script_fn)(void *ctx, struct script_conn *conn,
                          const struct script_request *request);

/** Listens on 127.0.0.1 (`unix_path` NULL) or on a unix socket. */
struct script_server *script_server_new(struct loop *loop, const char *unix_path, script_fn script,
                                        void *ctx);
void script_server_free(struct script_server *server);

/** `http://127.0.0.1:PORT` + path; valid until the server is freed. */
const char *script_server_url(struct script_server *server, const char *path);

/** Serve a connected descriptor as if accepted. */
void script_server_adopt(struct script_server *server, int fd);

/** Stop listening; new connections are refused, open ones go on. Listen again on the same port. */
void script_server_deafen(struct script_server *server);
void script_server_listen(struct script_server *server);

/** Take request bodies as they arrive instead of whole: `script` is called with an empty body at
 * the head, then `bytes` for each piece and with (NULL, 0) at the end. Content-Length or chunked. */
void script_server_stream_bodies(struct script_server *server,
                                 void (*bytes)(void *ctx, struct script_conn *conn,
                                               const void *data, size_t len));

int script_server_connections(const struct script_server *server); /* accepted so far */
int script_server_open(const struct script_server *server);        /* open now */
int script_server_requests(const struct script_server *server);

/** For answers that come later: a number that is never used again, and whose connection it is; NULL
 * when that has ended. */
uint64_t script_conn_id(const struct script_conn *conn);
struct script_conn *script_server_conn(struct script_server *server, uint64_t id);

void script_send(struct script_conn *conn, const char *text);
void script_send_bytes(struct script_conn *conn, const void *bytes, size_t len);
/** "HTTP/1.1 STATUS x" with Content-Length. */
void script_reply(struct script_conn *conn, int status, const char *headers, const char *body);
/** One byte of `text` every `every_ms`. `text` must stay. */
void script_drip(struct script_conn *conn, const char *text, int every_ms);
/** Call `more` whenever the output is empty, until it returns false. */
void script_pump(struct script_conn *conn, bool (*more)(void *ctx, struct script_conn *conn),
                 void *ctx);
size_t script_unsent(struct script_conn *conn);
void script_read(struct script_conn *conn, bool on);
void script_close(struct script_conn *conn); /* FIN after what was sent */
void script_reset(struct script_conn *conn); /* RST */
