/* Who a process is, and what descends from it: by /proc and pidfds, never by a bare number, since
 * the kernel gives a pid to someone else as soon as its process has been reaped. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { BOOT_ID_CHARS = 36 };

/** A process of this or an earlier boot. */
struct process_id {
    pid_t pid;
    uint64_t start_ticks; /* field 22 of /proc/<pid>/stat: clock ticks since boot */
    char boot_id[BOOT_ID_CHARS + 1];
};

/** What one line of /proc/<pid>/stat says. */
struct process_stat {
    pid_t pid, parent;
    char state;
    uint64_t start_ticks;
};

/** Parse a stat line; the command's name in it may hold anything, parentheses and newlines too. */
bool process_stat_parse(const char *text, struct process_stat *ret);

/** Of a living (or zombie) process; false when there is none. */
bool process_id_of(pid_t pid, struct process_id *ret);

/** One line, `<pid> <start_ticks> <boot_id>\n`. `size` of at least 80 fits all. */
void process_id_format(const struct process_id *id, char *text, size_t size);
bool process_id_parse(const char *text, struct process_id *ret);

/** A pidfd of exactly this process; -1 when it is gone, whoever has its pid now. Close-on-exec. */
int process_open(const struct process_id *id);

/** Send `sig` to every descendant of `root`, not to `root` itself. Zombies are left out. `spare`
 * and its children are left out too (0 = none): a sandbox's own keepers. Returns how many living
 * descendants there were, spared ones included. A process that is born meanwhile can be missed:
 * repeat until 0 to kill a tree. */
size_t process_signal_descendants(pid_t root, int sig, pid_t spare);

/** How many processes run under the real uid `uid`; for a limit that counts per user. */
size_t process_count_of_uid(uid_t uid);
