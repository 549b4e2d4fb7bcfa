#include "backends/shellctld/isolation.h"

#include "backends/shellctld/isolation_trial.h"
#include "backends/shellctld/landlock.h"
#include "backends/shellctld/seccomp_filter.h"
#include "backends/shellctld/system_paths.h"

#include <errno.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    UID_COUNT = 65536,
    UID_COUNT_SMALL = 20000,
};

/* Far above what systems give out (systemd's own ranges end below), and, in a user namespace that
 * maps 16 bits only, the largest gap that distributions leave. */
static const uid_t uid_first_wide = 1879048192, uid_first_small = 40000;

/* ---- what there is ----------------------------------------------------------------------------- */

/* Root with capabilities: the one that jobs must not share. Root without any, as in a container
 * that dropped them, is a user like others. */
static bool is_privileged(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};

    if (geteuid() != 0)
        return false;
    return syscall(SYS_capget, &head, data) != 0 || data[0].effective != 0 ||
           data[1].effective != 0;
}

/* Are these ids known in our user namespace? */
static bool ids_mapped(uid_t first, uint32_t count)
{
    FILE *file = fopen("/proc/self/uid_map", "re");
    unsigned long inside, outside, size;
    bool found = false;

    while (file != NULL && !found && fscanf(file, "%lu %lu %lu", &inside, &outside, &size) == 3)
        found = first >= inside && first + (unsigned long)count <= inside + size;
    if (file != NULL)
        fclose(file);
    return found;
}

static void choose_uids(const struct isolation_options *options, struct isolation *iso)
{
    iso->uid_first = options->uid_first;
    iso->uid_count = options->uid_count;
    if (iso->uid_first == 0 || iso->uid_count == 0) {
        iso->uid_first = uid_first_wide;
        iso->uid_count = UID_COUNT;
        if (!ids_mapped(iso->uid_first, iso->uid_count)) {
            iso->uid_first = uid_first_small;
            iso->uid_count = UID_COUNT_SMALL;
        }
    }
    if (ids_mapped(iso->uid_first, iso->uid_count))
        iso->layers |= LAYER_UID;
    else
        snprintf(iso->note_uid, ISOLATION_NOTE_MAX, "the uids from %u are not mapped here",
                 (unsigned)iso->uid_first);
}

/* Other uids must be able to pass through the folders that hold theirs. Those that are ours alone
 * are opened for passing (not for listing); what lies above is the operator's to decide. */
static void open_for_passing(const char *path, char *note)
{
    char part[PATH_MAX];
    struct stat st;

    if (path == NULL || stat(path, &st) != 0)
        return;
    if ((st.st_mode & S_IXOTH) == 0 && st.st_uid == geteuid())
        (void)chmod(path, (st.st_mode & 07777) | S_IXOTH);
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = part; note[0] == '\0' && slash != NULL; slash = strrchr(part, '/')) {
        if (stat(part, &st) == 0 && (st.st_mode & S_IXOTH) == 0)
            snprintf(
                note, ISOLATION_NOTE_MAX,
                "jobs' uids cannot pass through %.120s: chmod o+x it, or choose another folder",
                part);
        *strrchr(part, '/') = '\0';
        if (part[0] == '\0')
            break;
    }
}

static void find_layers(const struct isolation_options *options, struct isolation *iso)
{
    struct error err = {0};

    iso->landlock_abi = landlock_abi();
    if (iso->landlock_abi > 0)
        iso->layers |= LAYER_LANDLOCK;
    else
        snprintf(iso->note_landlock, ISOLATION_NOTE_MAX, "not offered here: %s", strerror(errno));
    if (seccomp_filter_available(&err))
        iso->layers |= LAYER_SECCOMP;
    else
        snprintf(iso->note_seccomp, ISOLATION_NOTE_MAX, "%.190s", err.message);
    if (is_privileged())
        choose_uids(options, iso);
    else
        snprintf(iso->note_uid, ISOLATION_NOTE_MAX, "needs root");
    cgroup_probe(&iso->cgroups, iso->note_cgroup, ISOLATION_NOTE_MAX);
    if (iso->cgroups.memory[0] != '\0')
        iso->layers |= LAYER_MEMORY;
    if (iso->cgroups.pids[0] != '\0')
        iso->layers |= LAYER_PIDS;
    if (iso->cgroups.unified[0] != '\0')
        iso->layers |= LAYER_CGKILL;
}

/* ---- choosing ---------------------------------------------------------------------------------- */

static bool with_bwrap(const struct isolation_options *options, struct isolation *iso)
{
    struct isolation full = *iso;

    if (options->policy == ISOLATION_LANDLOCK) {
        snprintf(iso->note_bwrap, ISOLATION_NOTE_MAX, "switched off by the policy");
        return false;
    }
    full.layers |= LAYER_BWRAP | (options->network ? 0 : LAYER_NETNS);
    if (!isolation_trial(options, &full, iso->note_bwrap))
        return false;
    *iso = full;
    return true;
}

static bool without_bwrap(const struct isolation_options *options, struct isolation *iso)
{
    struct isolation less = *iso;
    char note[ISOLATION_NOTE_MAX] = "";

    if ((less.layers & LAYER_LANDLOCK) == 0)
        return false;
    if (!options->network)
        less.layers |= LAYER_NO_INET;
    if ((less.layers & LAYER_UID) != 0) {
        open_for_passing(options->data_dir, note);
        open_for_passing(options->state_dir, note);
        open_for_passing(options->home_root, note);
        open_for_passing(options->workspace_root, note);
    }
    if (note[0] == '\0' && isolation_trial(options, &less, note)) {
        *iso = less;
        return true;
    }
    snprintf(iso->note_landlock, ISOLATION_NOTE_MAX, "%s", note);
    return false;
}

static bool refuse(const struct isolation *iso, struct error *err)
{
    error_set(
        err, ERR_NOT_IMPLEMENTED,
        "jobs cannot be isolated here (bubblewrap: %s; Landlock: %s%s%s). Mend one of them, or "
        "set BINDERY_LOCAL_ISOLATION=none to run jobs without isolation",
        iso->note_bwrap, iso->note_landlock, iso->note_seccomp[0] != '\0' ? "; seccomp: " : "",
        iso->note_seccomp);
    return false;
}

/* State beneath a folder that every job may read would be open to every job. */
static bool check_places(const struct isolation_options *options, struct error *err)
{
    const char *const places[] = {options->state_dir, options->home_root, options->workspace_root};

    for (size_t i = 0; i < 3; i++) {
        if (places[i] == NULL || !system_paths_cover(places[i]))
            continue;
        error_set(err, ERR_NOT_IMPLEMENTED,
                  "%s lies in a part of the system that every job can read; choose another folder",
                  places[i]);
        return false;
    }
    return true;
}

bool isolation_probe(const struct isolation_options *options, struct isolation *ret,
                     struct error *err)
{
    struct isolation iso = {.policy = options->policy, .network = options->network};

    *ret = iso;
    if (options->policy == ISOLATION_NONE)
        return true;
    if (!check_places(options, err))
        return false;
    find_layers(options, &iso);
    if ((iso.layers & LAYER_SECCOMP) == 0)
        return refuse(&iso, err);
    if (is_privileged() && (iso.layers & LAYER_UID) == 0) {
        error_set(err, ERR_NOT_IMPLEMENTED,
                  "running as root, jobs need uids of their own: %s. Run as another user",
                  iso.note_uid);
        return false;
    }
    if (!with_bwrap(options, &iso) && !without_bwrap(options, &iso))
        return refuse(&iso, err);
    *ret = iso;
    return true;
}

bool isolation_policy_parse(const char *text, enum isolation_policy *ret)
{
    static const char *const names[] = {"auto", "landlock", "none"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i]) == 0) {
            *ret = (enum isolation_policy)i;
            return true;
        }
    }
    return false;
}
