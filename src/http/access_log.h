/* One log line and the request metrics for each exchange that ends. Internal to http/. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct access_log;
struct exchange_impl;

/** `n_routes` rows, by exchange_impl.route_index; `lines` false: metrics only. */
struct access_log *access_log_new(size_t n_routes, bool lines);
void access_log_free(struct access_log *log);

/** The reply was written, or the client went away before (`gone`). */
void access_log_write(struct exchange_impl *x, bool gone);

/** What exchange_impl.started_us is read from: finer than the loop's once a turn. */
int64_t access_log_clock_us(void);
