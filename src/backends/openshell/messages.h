/* Protobuf messages to and from bytes, with the checks that protobuf-c leaves out: nesting depth
 * (it recurses without limit), UTF-8 of the strings that we go on to use, and memory, which is the
 * arena's. */
#pragma once

#include "core/runtime/arena.h"
#include "core/runtime/error.h"

#include <openshell.pb-c.h>

enum { MESSAGE_DEPTH_MAX = 100 }; /* the limit of the other protobuf implementations */

struct json_object;

/** Serialise; the bytes are the arena's. */
const uint8_t *message_pack(struct arena *arena, const ProtobufCMessage *message, size_t *ret_len);

/** Parse; everything is the arena's. NULL with ERR_UPSTREAM_PROTOCOL naming `what` when the bytes
 * are no such message or nest too deeply. */
void *message_unpack(struct arena *arena, const ProtobufCMessageDescriptor *type,
                     const uint8_t *bytes, size_t len, const char *what, struct error *err);

/** Does no length-delimited field, read as a message, nest deeper than MESSAGE_DEPTH_MAX? Fields
 * that are strings may look like messages: the scan follows only what parses completely. */
bool message_depth_ok(const uint8_t *bytes, size_t len);

/** A JSON object as google.protobuf.Struct (protocols "OpenShell gateway" section 6). */
Google__Protobuf__Struct *message_struct(struct arena *arena, struct json_object *object);
