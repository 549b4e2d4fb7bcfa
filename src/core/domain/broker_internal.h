/* What the use cases share among themselves. */
#pragma once

#include "core/domain/broker.h"
#include "core/domain/flight.h"

enum { BROKER_UNDO_MS = 60 * 1000 };

struct broker {
    struct loop *loop;
    struct backend *backend; /* NULL = none */
    struct broker_options options;
    struct lease_key key;
    struct lease_table *leases;
    struct broker_observer observer;
    struct lease_revocations revocations;
    struct flights validating; /* by binding ref */
    struct flights reopening;  /* leases being opened from tokens, by lease id */
};

/** ERR_BACKEND_UNAVAILABLE when there is no backend. */
bool broker_check_backend(const struct broker *broker, struct error *err) MUST_CHECK;

/** The checks on a ref that hold for every backend, then the driver's own: ERR_INVALID_REF. */
bool broker_check_binding_ref(struct broker *broker, const char *ref, struct error *err) MUST_CHECK;
bool broker_check_workspace_ref(const char *ref, struct error *err) MUST_CHECK;
bool broker_check_snapshot_ref(struct broker *broker, const char *ref,
                               struct error *err) MUST_CHECK;
/** An id that a caller made up: 1..255 bytes, nothing that cannot travel in a header. */
bool broker_check_id(const char *what, const char *id, struct error *err) MUST_CHECK;

/** Give an inner error the code of the use case; what a caller can act on keeps its own. */
void broker_wrap_error(struct error *err, enum err_code code);

/** Whether one more lease fits; fails `op` when not. */
bool broker_has_room(struct broker *broker, struct op *op);

/** Open a validated plane of a binding (broker_plane.c): shared by all that acquire. */
void broker_plane_open(struct broker *broker, struct op *op, const char *binding_ref,
                       struct plane **ret);

/** From now on nobody joins a validation of this binding that is in flight already. */
void broker_plane_detach(struct broker *broker, const char *binding_ref);
