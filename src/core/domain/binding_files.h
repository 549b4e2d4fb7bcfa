/* Listing and reading files of a binding by a script in its sandbox (protocols "control plane"
 * section 4). Pure: makes scripts and reads their output; broker_run_on_binding runs them.
 *
 * The scripts need a POSIX shell, GNU findutils and GNU coreutils in the sandbox, nothing of ours
 * and no Python. Symbolic links are not followed: the last component must not be one. */
#pragma once

#include "core/domain/binding.h"
#include "core/runtime/arena.h"
#include "core/runtime/error.h"

#include <stdint.h>

enum {
    BINDING_FILES_MAX_ENTRIES = 1000,
    BINDING_FILES_MAX_BYTES = 262144,
    BINDING_FILES_TIMEOUT_MS = 60000,
    BINDING_FILES_MAX_OUTPUT = 1048576,
    BINDING_FILES_MAX_PATH = 4096,
};

/** `~` and `~/x` are below Home, absolute paths stay, others are below the Workspace; then `.` and
 * `..` are removed textually. Nothing confines it: the sandbox is the wall. */
char *binding_file_path(struct arena *arena, const struct layout *layout, const char *path);

/** The script that lists a directory, or reads the first `max_bytes` of a file. */
char *binding_files_list_script(struct arena *arena, const char *absolute_path);
char *binding_files_read_script(struct arena *arena, const char *absolute_path, int64_t max_bytes);

/** One directory entry. */
struct binding_file {
    const char *name;
    size_t name_len;
    const char *type; /* `file`, `dir`, `symlink`, `other` */
    int64_t size;     /* -1 = none: only of files */
    int64_t mtime;    /* seconds since the epoch */
};

struct binding_listing {
    struct binding_file *entries; /* sorted by name, bytewise */
    size_t n_entries;
    bool truncated; /* there were more */
};

struct binding_content {
    int64_t size;
    bool truncated; /* the file goes on behind `text` */
    bool binary;    /* not UTF-8: no text */
    const char *text;
    size_t text_len;
};

/** What came out. ERR_INVALID_BINDING_PATH when the path is not what it must be,
 * ERR_BINDING_UNAVAILABLE when the script did not do its work. Memory of `arena`. */
bool binding_files_parse_list(struct arena *arena, const struct command_result *result,
                              struct binding_listing *ret, struct error *err) MUST_CHECK;
bool binding_files_parse_read(struct arena *arena, const struct command_result *result,
                              int64_t max_bytes, struct binding_content *ret,
                              struct error *err) MUST_CHECK;
