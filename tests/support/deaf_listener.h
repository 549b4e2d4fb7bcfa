/* A listener that accepts nothing and whose queue is full: connections to it neither come about nor
 * fail. */
#pragma once

struct deaf_listener {
    int listener;
    int fillers[4];
};

/** On `host`, a numeric IPv4 address; port 0 = any. Returns the port. */
int deaf_listener_tcp(struct deaf_listener *deaf, const char *host, int port);
void deaf_listener_unix(struct deaf_listener *deaf, const char *path);
void deaf_listener_close(struct deaf_listener *deaf);
