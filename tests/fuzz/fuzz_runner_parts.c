/* What the runner and its jail read: files of /proc, their own encodings, the command FIFO. None of it
 * comes from a job, but a damaged disk or a stranger's file must not take the daemon down. */
#include "fuzz.h"

#include "backends/shellctld/cgroup.h"
#include "backends/shellctld/jail.h"
#include "backends/shellctld/process.h"
#include "backends/shellctld/runner_control.h"

#include <string.h>

static void frames(const char *bytes, size_t len)
{
    struct buf received = {0};
    struct control_frame frame;
    size_t at = 0;

    buf_add(&received, bytes, len);
    while (control_next(&received, &at, &frame))
        POST(frame.payload + frame.len == received.data + at && at <= received.len);
    buf_fini(&received);
}

static void encoded_jail(const char *bytes, size_t len)
{
    struct arena *arena = arena_new();
    struct jail jail;

    if (jail_decode(bytes, len, arena, &jail)) {
        struct buf again = {0};
        struct jail back;
        jail_encode(&jail, &again);
        POST(jail_decode(again.data, again.len, arena, &back));
        POST(strcmp(back.cwd, jail.cwd) == 0 && back.layers == jail.layers);
        buf_fini(&again);
    }
    arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct arena *arena = arena_new();
    const char *text = arena_memdup(arena, bytes, len);
    struct process_stat stat;
    struct process_id id;
    struct cgroup_roots roots;

    (void)process_stat_parse(text, &stat);
    if (process_id_parse(text, &id))
        POST(id.pid > 0);
    cgroup_locate(text, text, &roots);
    POST(strstr(roots.unified, "..") == NULL || strstr(text, "..") != NULL);
    frames((const char *)bytes, len);
    encoded_jail((const char *)bytes, len);
    arena_free(arena);
    return 0;
}
