/* Messages of an OpenShell gateway: whatever the bytes, a message is read into memory of the arena or refused
 * with an error that a log line can bear, and what was read can be written and read again. The first byte
 * chooses the type. */
#include "fuzz.h"

#include "backends/openshell/messages.h"
#include "core/runtime/quote.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const ProtobufCMessageDescriptor *const types[] = {
        &openshell__sandbox_response__descriptor,
        &openshell__list_sandboxes_response__descriptor,
        &openshell__create_ssh_session_response__descriptor,
        &openshell__exec_sandbox_event__descriptor,
        &openshell__tcp_forward_frame__descriptor,
        &openshell__health_response__descriptor,
        &google__protobuf__struct__descriptor,
    };
    const ProtobufCMessageDescriptor *type;
    struct arena *arena = arena_new();
    const ProtobufCMessage *message;
    struct error err;

    if (len > 0) {
        type = types[bytes[0] % (sizeof(types) / sizeof(types[0]))];
        message = message_unpack(arena, type, bytes + 1, len - 1, "answer", &err);
        if (message == NULL) {
            POST(err.code == ERR_UPSTREAM_PROTOCOL);
            POST(quote_is_utf8(err.message, strlen(err.message)));
        } else {
            size_t again_len;
            const uint8_t *again = message_pack(arena, message, &again_len);
            POST(message_unpack(arena, type, again, again_len, "answer", &err) != NULL);
        }
    }
    arena_free(arena);
    return 0;
}
