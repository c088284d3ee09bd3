//! The seccomp filters for a plugin's process: an allowlist of the system calls of Python and its libraries.
//! None of them affects another process: no signals, priorities, CPU affinities or descriptor owners.

use crate::error::HostError;
use crate::seccomp::{
    COMMON, OLD, PROGRAM, Rules, any_arguments, calls, older, one_of, program, refuse, threads, when,
};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule,
};

/// Calls permitted with any arguments, in addition to those of all programs. Landlock limits files to Python's and the
/// folder's, to be read.
const ALLOWED: &[libc::c_long] = calls![
    SYS_preadv SYS_pwritev SYS_fadvise64 SYS_fchdir SYS_epoll_pwait2
    SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime SYS_rt_sigtimedwait
    // The other filter refuses it.
    SYS_clone3
    // Queries.
    SYS_getresuid SYS_getresgid SYS_getgroups SYS_getrlimit SYS_getpriority SYS_sched_getscheduler
    SYS_sched_getparam SYS_sched_get_priority_min SYS_sched_get_priority_max SYS_times
];
#[cfg(target_arch = "x86_64")]
const OLD_OF_PYTHON: &[libc::c_long] = calls![SYS_getdents];
#[cfg(not(target_arch = "x86_64"))]
const OLD_OF_PYTHON: &[libc::c_long] = &[];

/// Additional calls of a plugin with network access. Landlock refuses to bind TCP ports.
const CONNECTING: &[libc::c_long] = calls![SYS_connect SYS_setsockopt SYS_sendmmsg SYS_recvmmsg];

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
    let mut rules = any_arguments(&[COMMON, PROGRAM, OLD[0], OLD[1], ALLOWED, OLD_OF_PYTHON]);
    rules.insert(libc::SYS_clone, threads()?);
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
        rules.extend(any_arguments(&[CONNECTING]));
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
