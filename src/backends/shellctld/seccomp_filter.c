#include "backends/shellctld/seccomp_filter.h"

#include <errno.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Refused with EPERM. Names that this libseccomp or this machine does not know are skipped. */
static const char *const refused[] = {
    /* other namespaces and mounts: the way out of the sandbox */
    "mount",
    "umount",
    "umount2",
    "pivot_root",
    "chroot",
    "move_mount",
    "open_tree",
    "open_tree_attr",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "setns",
    "unshare",
    "statmount",
    "listmount",
    "quotactl",
    "quotactl_fd",
    /* other processes' memory and descriptors */
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "kcmp",
    "pidfd_getfd",
    "process_madvise",
    /* kernel surface */
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "keyctl",
    "add_key",
    "request_key",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "open_by_handle_at",
    "lookup_dcookie",
    "fanotify_init",
    "vmsplice",
    "nfsservctl",
    "uselib",
    "modify_ldt",
    "vm86",
    "vm86old",
    /* the machine */
    "acct",
    "reboot",
    "swapon",
    "swapoff",
    "settimeofday",
    "stime",
    "clock_settime",
    "clock_settime64",
    "clock_adjtime",
    "clock_adjtime64",
    "adjtimex",
    "syslog",
    "vhangup",
    "iopl",
    "ioperm",
    "sethostname",
    "setdomainname",
    "_sysctl",
    "sysfs",
};

static int refuse(scmp_filter_ctx ctx, const char *name)
{
    int nr = seccomp_syscall_resolve_name(name);

    return nr == __NR_SCMP_ERROR || nr < 0 ? 0
                                           : seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), nr, 0);
}

/* New namespaces by clone; clone3 hides its flags in memory, so it is absent and libc falls back. */
static int refuse_namespaces(scmp_filter_ctx ctx)
{
    static const uint64_t flags[] = {CLONE_NEWNS,  CLONE_NEWUSER, CLONE_NEWPID,   CLONE_NEWNET,
                                     CLONE_NEWIPC, CLONE_NEWUTS,  CLONE_NEWCGROUP};
    int rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);

    for (size_t i = 0; rc == 0 && i < sizeof flags / sizeof *flags; i++)
        rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                              SCMP_A0(SCMP_CMP_MASKED_EQ, flags[i], flags[i]));
    return rc;
}

static int refuse_terminal_injection(scmp_filter_ctx ctx)
{
    int rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
                              SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, TIOCSTI));

    if (rc == 0)
        rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
                              SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, TIOCLINUX));
    return rc;
}

static bool family_allowed(int family, unsigned flags)
{
    switch (family) {
    case AF_UNIX:
        return (flags & SECCOMP_NO_UNIX) == 0;
    case AF_INET:
    case AF_INET6:
    case AF_NETLINK: /* what interfaces there are: getifaddrs */
        return (flags & SECCOMP_NO_INET) == 0;
    default: /* vsock reaches the hypervisor past every network namespace, alg the crypto code, … */
        return false;
    }
}

static int refuse_sockets(scmp_filter_ctx ctx, unsigned flags)
{
    enum { FAMILIES = 64 }; /* more than AF_MAX of any kernel so far; the rest by comparison */
    int rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                              SCMP_A0(SCMP_CMP_GE, FAMILIES, 0));

    for (int family = 0; rc == 0 && family < FAMILIES; family++) {
        if (!family_allowed(family, flags))
            rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                                  SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)family, 0));
    }
    return rc;
}

bool seccomp_filter_load(unsigned flags, struct error *err)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
    int rc = ctx == NULL ? -ENOMEM : 0;

    for (size_t i = 0; rc == 0 && i < sizeof refused / sizeof *refused; i++)
        rc = refuse(ctx, refused[i]);
    if (rc == 0)
        rc = refuse_namespaces(ctx);
    if (rc == 0)
        rc = refuse_terminal_injection(ctx);
    if (rc == 0)
        rc = refuse_sockets(ctx, flags);
    if (rc == 0)
        rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP, 0); /* set by the caller */
    if (rc == 0)
        rc = seccomp_load(ctx);
    if (ctx != NULL)
        seccomp_release(ctx);
    if (rc != 0)
        error_set(err, ERR_INTERNAL, "seccomp: filter not loaded: %s", strerror(-rc));
    return rc == 0;
}

bool seccomp_filter_available(struct error *err)
{
    /* A NULL filter faults where filters exist and is an unknown mode where they do not. */
    if (prctl(PR_SET_SECCOMP, 2 /* SECCOMP_MODE_FILTER */, NULL) == -1 && errno == EFAULT)
        return true;
    error_set(err, ERR_NOT_IMPLEMENTED, "the kernel has no seccomp filters: %s", strerror(errno));
    return false;
}
