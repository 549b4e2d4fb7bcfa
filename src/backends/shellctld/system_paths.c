#include "backends/shellctld/system_paths.h"

#include "core/runtime/check.h"

#include <string.h>

const char *const system_folders[] = {
    "/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32", "/opt", NULL,
};

const char *const system_etc[] = {
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/perl",
    "/etc/pki",
    "/etc/profile",
    "/etc/profile.d",
    "/etc/protocols",
    "/etc/python3",

    "/etc/resolv.conf",
    "/etc/rpc",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
    NULL,
};

static const char *const devices[] = {
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", NULL,
};

static size_t add(struct landlock_rule *rules, size_t n, size_t max, const char *const *paths,
                  enum landlock_access access)
{
    for (size_t i = 0; paths[i] != NULL; i++) {
        PRE(n < max);
        rules[n++] = (struct landlock_rule){.path = paths[i], .access = access};
    }
    return n;
}

size_t system_paths_rules(struct landlock_rule *rules, size_t max)
{
    static const char *const proc[] = {"/proc", NULL};
    size_t n = add(rules, 0, max, system_folders, LANDLOCK_READ);

    n = add(rules, n, max, system_etc, LANDLOCK_READ);
    n = add(rules, n, max, proc, LANDLOCK_READ);
    return add(rules, n, max, devices, LANDLOCK_DEVICE);
}

bool system_paths_cover(const char *path)
{
    static const char *const others[] = {"/etc", "/proc", "/dev", "/sys", NULL};
    const char *const *lists[] = {system_folders, others};

    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; lists[k][i] != NULL; i++) {
            size_t len = strlen(lists[k][i]);
            if (strncmp(path, lists[k][i], len) == 0 && (path[len] == '/' || path[len] == '\0'))
                return true;
        }
    }
    return false;
}
