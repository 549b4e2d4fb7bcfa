/* Between JSON and the ledger's rows: docs/protocol.md. Writing adds members to an object. */
#pragma once

#include "core/domain/lifecycle.h"
#include "core/runtime/json.h"

void codec_read_owner_request(struct json_reader *r, struct owner_request *ret);
/** The session as text of JSON; pending ids overwritten with what is given, NULL included. */
void codec_read_session(struct json_reader *r, struct arena *arena, struct ledger_session *ret);

void codec_write_ledger_binding(struct json_writer *w, const struct ledger_binding *row);
void codec_write_ledger_workspace(struct json_writer *w, const struct ledger_workspace *row);
void codec_write_ledger_snapshot(struct json_writer *w, const struct ledger_snapshot *row);
void codec_write_ledger_orphan(struct json_writer *w, const struct ledger_orphan *row);
void codec_write_ledger_event(struct json_writer *w, const struct ledger_event *row);
void codec_write_retired(struct json_writer *w, const struct ledger_retired *retired);
