//! The seccomp filters for a plugin's process: an allowlist of the system calls of Python and its libraries.
//! None of them affects another process: no signals, priorities, CPU affinities or descriptor owners.

use super::calls::{Rules, older, one_of, program, refuse, when};
use crate::error::HostError;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule,
};

/// Calls permitted with any arguments.
const ALLOWED: &[libc::c_long] = &[
    // Files, which landlock limits to Python's and the folder's, to be read.
    libc::SYS_openat,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_statfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_fadvise64,
    // Descriptors: the channel, output, and those created by libraries.
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_getsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_shutdown,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_setitimer,
    libc::SYS_getitimer,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    // Memory; libraries are mapped to be run.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_getrandom,
    // Threads, in addition to the condition below. The other filter refuses `clone3`.
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // Queries.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_getcpu,
    libc::SYS_getrusage,
    libc::SYS_getpriority,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_getparam,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_get_priority_max,
    libc::SYS_times,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// Calls that newer architectures don't have.
#[cfg(target_arch = "x86_64")]
const OLD: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_getdents,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_alarm,
    libc::SYS_pause,
    libc::SYS_time,
    libc::SYS_getrlimit,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[libc::c_long] = &[libc::SYS_getrlimit];

/// Additional calls of a plugin with network access. Landlock refuses to bind TCP ports.
const CONNECTING: &[libc::c_long] =
    &[libc::SYS_connect, libc::SYS_setsockopt, libc::SYS_sendmmsg, libc::SYS_recvmmsg];

/// Bits of a socket's type that are not flags (`SOCK_TYPE_MASK` of Linux).
const TYPE: u64 = 0xf;

/// A rule that requires all conditions: an argument, masked, equals a value.
fn all(conditions: &[(u8, u64, u64)]) -> Result<SeccompRule, BackendError> {
    let condition = |&(argument, mask, value): &(u8, u64, u64)| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask), value)
    };
    SeccompRule::new(conditions.iter().map(condition).collect::<Result<_, _>>()?)
}

/// A socket of a family, and of a type.
fn socket(family: libc::c_int, kind: libc::c_int) -> Result<SeccompRule, BackendError> {
    all(&[(0, u32::MAX.into(), family as u64), (1, TYPE, kind as u64)])
}

fn rules(network: bool) -> Result<Rules, BackendError> {
    let mut rules: Rules = ALLOWED.iter().chain(OLD).map(|&call| (call, Vec::new())).collect();
    // Threads, but no processes.
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, when(0, SeccompCmpOp::MaskedEq(thread), thread)?);
    rules.insert(libc::SYS_prctl, one_of(0, &[libc::PR_SET_NAME.into(), libc::PR_SET_VMA.into()])?);
    // Attack: use of the host's huge pages, which ports and guests need; locked memory.
    let special = (libc::MAP_HUGETLB | libc::MAP_LOCKED) as u64;
    rules.insert(libc::SYS_mmap, when(3, SeccompCmpOp::MaskedEq(special), 0)?);
    // Limits may only be read: those of the process itself, without a new value.
    let none = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
    let oneself = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![oneself, none])?]);
    // Attack: setting a descriptor's owner, which receives signals; leases and locks, which block other
    // processes.
    let commands = [
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_SETFL,
        libc::F_DUPFD,
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETPIPE_SZ,
    ];
    rules.insert(libc::SYS_fcntl, one_of(1, &commands.map(i64::from))?);
    let requests =
        [libc::FIONBIO, libc::FIOCLEX, libc::FIONCLEX, libc::FIONREAD, libc::TCGETS, libc::TIOCGWINSZ];
    rules.insert(libc::SYS_ioctl, one_of(1, &requests.map(|request| request as i64))?);
    // Attack: a pair of datagram sockets can send to any UNIX socket by name.
    rules.insert(libc::SYS_socketpair, vec![socket(libc::AF_UNIX, libc::SOCK_STREAM)?]);
    if network {
        rules.extend(CONNECTING.iter().map(|&call| (call, Vec::new())));
        let mut sockets = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            sockets.push(socket(family, libc::SOCK_STREAM)?);
            sockets.push(socket(family, libc::SOCK_DGRAM)?);
        }
        // Name resolution reads this host's addresses (`NETLINK_ROUTE`, 0).
        sockets.push(all(&[(0, u32::MAX.into(), libc::AF_NETLINK as u64), (2, u32::MAX.into(), 0)])?);
        rules.insert(libc::SYS_socket, sockets);
    }
    Ok(rules)
}

/// The filters in the kernel's format, as arrays of `struct sock_filter`, in loading order.
pub(super) fn programs(network: bool) -> Result<Vec<Vec<u8>>, HostError> {
    let stricter = program(rules(network), refuse(libc::EPERM), SeccompAction::Allow)?;
    Ok([older()?, stricter].iter().map(bytes).collect())
}

fn bytes(program: &BpfProgram) -> Vec<u8> {
    let bytes = |it: &seccompiler::sock_filter| {
        let [a, b] = it.code.to_ne_bytes();
        let [c, d, e, f] = it.k.to_ne_bytes();
        [a, b, it.jt, it.jf, c, d, e, f]
    };
    program.iter().flat_map(bytes).collect()
}
