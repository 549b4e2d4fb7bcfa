#include "backends/shellctld/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* File rights; the comment names the first ABI that knows them. */
#define FS_EXECUTE          (UINT64_C(1) << 0)
#define FS_WRITE_FILE       (UINT64_C(1) << 1)
#define FS_READ_FILE        (UINT64_C(1) << 2)
#define FS_READ_DIR         (UINT64_C(1) << 3)
#define FS_ABI1             ((UINT64_C(1) << 13) - 1)
#define FS_REFER            (UINT64_C(1) << 13) /* 2 */
#define FS_TRUNCATE         (UINT64_C(1) << 14) /* 3 */
#define FS_IOCTL_DEV        (UINT64_C(1) << 15) /* 5 */
#define NET_BIND_TCP        (UINT64_C(1) << 0)  /* 4 */
#define NET_CONNECT_TCP     (UINT64_C(1) << 1)  /* 4 */
#define SCOPE_ABSTRACT_UNIX (UINT64_C(1) << 0)  /* 6 */
#define SCOPE_SIGNAL        (UINT64_C(1) << 1)  /* 6 */

enum { CREATE_RULESET_VERSION = 1, RULE_PATH_BENEATH = 1 };

struct ruleset_attr {
    uint64_t handled_fs, handled_net, scoped;
};

struct path_beneath_attr {
    uint64_t allowed;
    int32_t parent_fd;
} __attribute__((packed));

static int create_ruleset(const struct ruleset_attr *attr, size_t size, uint32_t flags)
{
    return (int)syscall(SYS_landlock_create_ruleset, attr, size, flags);
}

int landlock_abi(void)
{
    int abi = create_ruleset(NULL, 0, CREATE_RULESET_VERSION);

    return abi < 0 ? 0 : abi;
}

static uint64_t handled_fs(int abi)
{
    uint64_t rights = FS_ABI1;

    if (abi >= 2)
        rights |= FS_REFER;
    if (abi >= 3)
        rights |= FS_TRUNCATE;
    if (abi >= 5)
        rights |= FS_IOCTL_DEV;
    return rights;
}

static uint64_t rights_of(enum landlock_access access, int abi)
{
    switch (access) {
    case LANDLOCK_LIST:
        return FS_READ_DIR;
    case LANDLOCK_READ:
        return FS_EXECUTE | FS_READ_FILE | FS_READ_DIR;
    case LANDLOCK_DEVICE:
        return (FS_READ_FILE | FS_WRITE_FILE | FS_READ_DIR | FS_TRUNCATE | FS_IOCTL_DEV) &
               handled_fs(abi);
    case LANDLOCK_WRITE:
        break;
    }
    return handled_fs(abi);
}

static bool add_rule_fd(int ruleset, int fd, uint64_t rights)
{
    struct path_beneath_attr attr = {.allowed = rights, .parent_fd = fd};
    struct stat st;

    /* The kernel refuses rights on a file that only a folder can have. */
    if (fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
        attr.allowed &= FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV;
    return syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &attr, 0) == 0;
}

static bool add_rules(int ruleset, int abi, const struct landlock_rule *rules, size_t n,
                      struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        int fd = open(rules[i].path, O_PATH | O_CLOEXEC);
        if (fd < 0 && !rules[i].required && (errno == ENOENT || errno == EACCES))
            continue;
        bool ok = fd >= 0 && add_rule_fd(ruleset, fd, rights_of(rules[i].access, abi));
        if (!ok)
            error_set(err, ERR_INTERNAL, "no Landlock rule for %s: %s", rules[i].path,
                      strerror(errno));
        if (fd >= 0)
            close(fd);
        if (!ok)
            return false;
    }
    /* So that /dev/stdout and its like can be opened again: the terminal lies outside of every
     * path of the sandbox. Pipes take no rule and need none. */
    for (int fd = 0; fd <= 2; fd++) {
        struct stat st;
        if (fstat(fd, &st) == 0 && S_ISCHR(st.st_mode))
            (void)add_rule_fd(ruleset, fd, rights_of(LANDLOCK_DEVICE, abi));
    }
    return true;
}

static size_t attr_size(int abi)
{
    if (abi >= 6)
        return sizeof(struct ruleset_attr);
    return abi >= 4 ? 2 * sizeof(uint64_t) : sizeof(uint64_t);
}

bool landlock_restrict(int abi, const struct landlock_rule *rules, size_t n, bool no_tcp,
                       struct error *err)
{
    struct ruleset_attr attr = {
        .handled_fs = handled_fs(abi),
        .handled_net = no_tcp && abi >= 4 ? NET_BIND_TCP | NET_CONNECT_TCP : 0,
        .scoped = abi >= 6 ? SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL : 0,
    };
    int ruleset = create_ruleset(&attr, attr_size(abi), 0);
    bool ok;

    if (ruleset < 0) {
        error_set(err, ERR_INTERNAL, "Landlock: no ruleset: %s", strerror(errno));
        return false;
    }
    ok = add_rules(ruleset, abi, rules, n, err);
    if (ok && syscall(SYS_landlock_restrict_self, ruleset, 0) != 0) {
        error_set(err, ERR_INTERNAL, "Landlock: not enforced: %s", strerror(errno));
        ok = false;
    }
    close(ruleset);
    return ok;
}
