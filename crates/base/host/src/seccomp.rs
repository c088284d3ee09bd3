//! System call filters of confined processes: what all of them may call, and how a filter is made.

use crate::error::HostError;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// A list of system calls by their names.
macro_rules! calls {
    ($($name:ident)*) => { &[$(libc::$name),*] };
}
pub(crate) use calls;

/// Calls that every process may make with any arguments.
pub(crate) const COMMON: &[libc::c_long] = calls![
    // Descriptors.
    SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_lseek SYS_fstat SYS_fstatfs
    SYS_close SYS_dup SYS_recvmsg SYS_recvfrom SYS_sendmsg SYS_sendto SYS_getsockopt SYS_getsockname
    SYS_getpeername SYS_shutdown SYS_pipe2 SYS_eventfd2
    // Waiting and time.
    SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_ppoll SYS_futex SYS_nanosleep SYS_clock_nanosleep
    SYS_clock_gettime SYS_gettimeofday SYS_restart_syscall SYS_sched_yield
    // Memory.
    SYS_brk SYS_munmap SYS_madvise SYS_getrandom
    // Threads and signals.
    SYS_set_robust_list SYS_rseq SYS_exit SYS_exit_group SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn
    SYS_sigaltstack
    // Queries.
    SYS_getpid SYS_gettid SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getcpu SYS_getrusage
    SYS_sched_getaffinity SYS_uname
];

/// Further calls of programs of others, which open files.
pub(crate) const PROGRAM: &[libc::c_long] = calls![
    SYS_openat SYS_newfstatat SYS_statx SYS_statfs SYS_faccessat SYS_faccessat2 SYS_readlinkat SYS_getdents64
    SYS_getcwd SYS_chdir SYS_close_range SYS_dup3
    SYS_pselect6 SYS_clock_getres SYS_setitimer SYS_getitimer
    SYS_mprotect SYS_mremap
    SYS_rt_sigpending SYS_rt_sigsuspend
    SYS_getppid SYS_sysinfo
];

/// Calls like those of [`COMMON`] and [`PROGRAM`] that newer architectures don't have.
#[cfg(target_arch = "x86_64")]
pub(crate) const OLD: [&[libc::c_long]; 2] = [
    calls![SYS_poll SYS_epoll_wait],
    calls![
        SYS_open SYS_stat SYS_lstat SYS_access SYS_readlink SYS_dup2 SYS_pipe SYS_select SYS_alarm SYS_pause
        SYS_time
    ],
];
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const OLD: [&[libc::c_long]; 2] = [&[]; 2];

const ARCH: TargetArch = if cfg!(target_arch = "aarch64") { TargetArch::aarch64 } else { TargetArch::x86_64 };

pub(crate) type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Rules that match these calls, whatever their arguments.
pub(crate) fn any_arguments(lists: &[&[libc::c_long]]) -> Rules {
    lists.concat().into_iter().map(|call| (call, Vec::new())).collect()
}

/// A condition on one argument.
pub(crate) fn when(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<Vec<SeccompRule>, BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
    Ok(vec![SeccompRule::new(vec![condition])?])
}

/// Conditions that an argument equals one of several values.
pub(crate) fn one_of(argument: u8, values: &[i64]) -> Result<Vec<SeccompRule>, BackendError> {
    let rules = values.iter().map(|&value| when(argument, SeccompCmpOp::Eq, value as u32 as u64));
    Ok(rules.collect::<Result<Vec<_>, _>>()?.concat())
}

/// The condition on `clone` that it makes a thread, and no process.
pub(crate) fn threads() -> Result<Vec<SeccompRule>, BackendError> {
    let thread = libc::CLONE_THREAD as u64;
    when(0, SeccompCmpOp::MaskedEq(thread), thread)
}

pub(crate) fn refuse(errno: libc::c_int) -> SeccompAction {
    SeccompAction::Errno(errno as u32)
}

/// A filter: `matched` for calls that match the rules, `other` for all others.
pub(crate) fn program(
    rules: Result<Rules, BackendError>,
    other: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, HostError> {
    let filter = rules.and_then(|rules| SeccompFilter::new(rules, other, matched, ARCH));
    filter.and_then(BpfProgram::try_from).map_err(|error| HostError::Sandbox(error.to_string()))
}

/// The flags of `clone3` are in memory, which filters can't read. If the call fails with ENOSYS, the C
/// library uses `clone`.
pub(crate) fn older() -> Result<BpfProgram, HostError> {
    program(Ok(any_arguments(&[calls![SYS_clone3]])), SeccompAction::Allow, refuse(libc::ENOSYS))
}
