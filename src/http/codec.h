/* Between JSON and the domain's structs. Reading notes every problem in the reader and leaves the
 * verdict to its caller; strings are of the reader's arena. Writing adds members to an object. */
#pragma once

#include "core/domain/broker.h"
#include "core/runtime/json.h"

/* Dify Agent's control plane, section 2 */
void codec_read_binding_spec(struct json_reader *r, struct binding_spec *ret);
void codec_read_destroy_spec(struct json_reader *r, struct destroy_spec *ret);
void codec_read_snapshot_spec(struct json_reader *r, struct snapshot_spec *ret,
                              const char **ret_binding_ref);
void codec_write_binding(struct json_writer *w, const struct binding *binding);

/** Check the shape of a download's execution_context; whether it has user_id and user_from. */
bool codec_read_execution_context(struct json_reader *r);

/* leases: docs/protocol.md */
enum {
    COMMAND_TIMEOUT_DEFAULT_S = 60,
    COMMAND_TIMEOUT_MAX_S = 3600,
    COMMAND_OUTPUT_DEFAULT = 1048576,
    COMMAND_OUTPUT_MAX = 16777216,
};

void codec_read_command(struct json_reader *r, struct command_spec *ret);
void codec_write_command_result(struct json_writer *w, const struct command_result *result,
                                int64_t duration_ms);

/** A TTL in seconds, fractions allowed; 0 when not given. */
int64_t codec_read_ttl_ms(struct json_reader *r);

/** Members of a lease; those that the grant has not (layout, token) are left out. `base_url` is of
 * its data plane. */
void codec_write_lease(struct json_writer *w, const struct lease_grant *grant,
                       const char *base_url);
