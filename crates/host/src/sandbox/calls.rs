//! The seccomp filter for `data`: an allowlist of its system calls.

use crate::error::HostError;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// Calls permitted with any arguments.
const ALLOWED: &[libc::c_long] = &[
    // Descriptors we have: frames, rings, messages, the log.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_getsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_shutdown,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_lseek,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_eventfd2,
    // Signalling a peer without blocking.
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_io_getevents,
    libc::SYS_io_destroy,
    libc::SYS_pipe2,
    libc::SYS_tee,
    libc::SYS_splice,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_getrusage,
    libc::SYS_gettimeofday,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_membarrier,
    // Memory, in addition to the conditions below.
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_getrandom,
    // Threads, in addition to the conditions below. The other filter refuses `clone3`.
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getcpu,
    libc::SYS_uname,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_sched_getaffinity,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
];

/// Additional calls of a process that accepts connections.
pub(super) const ACCEPTING: &[libc::c_long] = &[libc::SYS_accept4];

/// The numbers of KVM_RUN, KVM_SET_USER_MEMORY_REGION and KVM_IOEVENTFD, and of KVM_GET_REGS and KVM_GET_SREGS
/// (linux/kvm.h): a monitor runs its guest, maps rings and doorbells as ports come and go, and takes
/// snapshots.
pub(super) const KVM: &[i64] = &[0xae80, 0x4020_ae46, 0x4040_ae79, 0x8090_ae81, 0x8138_ae83];

/// Calls that newer architectures don't have.
#[cfg(target_arch = "x86_64")]
const OLD: &[libc::c_long] = &[libc::SYS_poll, libc::SYS_epoll_wait];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[libc::c_long] = &[];

const ARCH: TargetArch = if cfg!(target_arch = "aarch64") { TargetArch::aarch64 } else { TargetArch::x86_64 };

pub(super) type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// One condition on one argument.
pub(super) fn when(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<Vec<SeccompRule>, BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
    Ok(vec![SeccompRule::new(vec![condition])?])
}

/// One argument is one of several values.
pub(super) fn one_of(argument: u8, values: &[i64]) -> Result<Vec<SeccompRule>, BackendError> {
    let rules = values.iter().map(|&value| when(argument, SeccompCmpOp::Eq, value as u32 as u64));
    Ok(rules.collect::<Result<Vec<_>, _>>()?.concat())
}

fn rules(more: &[libc::c_long], controls: &[i64]) -> Result<Rules, BackendError> {
    let mut rules: Rules = ALLOWED.iter().chain(OLD).chain(more).map(|&call| (call, Vec::new())).collect();
    // Attack: execution of code written to memory.
    let executable = libc::PROT_EXEC as u64;
    rules.insert(libc::SYS_mmap, when(2, SeccompCmpOp::MaskedEq(executable), 0)?);
    rules.insert(libc::SYS_mprotect, when(2, SeccompCmpOp::MaskedEq(executable), 0)?);
    // For growing malloc's memory: never at an address chosen by the caller.
    let fixed = libc::MREMAP_FIXED as u64;
    rules.insert(libc::SYS_mremap, when(3, SeccompCmpOp::MaskedEq(fixed), 0)?);
    // Threads, but no processes.
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, when(0, SeccompCmpOp::MaskedEq(thread), thread)?);
    rules.insert(libc::SYS_prctl, one_of(0, &[libc::PR_SET_NAME.into(), libc::PR_SET_VMA.into()])?);
    rules.insert(libc::SYS_sched_setaffinity, one_of(0, &[0])?);
    // Signals to ourselves, for `abort`.
    rules.insert(libc::SYS_tgkill, one_of(0, &[std::process::id().into()])?);
    let commands = [
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_SETFL,
        libc::F_DUPFD_CLOEXEC,
        libc::F_GET_SEALS,
        libc::F_GETPIPE_SZ,
    ];
    rules.insert(libc::SYS_fcntl, one_of(1, &commands.map(i64::from))?);
    rules.insert(libc::SYS_ioctl, one_of(1, &[&[libc::FIONBIO as i64], controls].concat())?);
    Ok(rules)
}

pub(super) fn refuse(errno: libc::c_int) -> SeccompAction {
    SeccompAction::Errno(errno as u32)
}

/// A filter: `matched` for calls that match the rules, `other` for all others.
pub(super) fn program(
    rules: Result<Rules, BackendError>,
    other: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, HostError> {
    let filter = rules.and_then(|rules| SeccompFilter::new(rules, other, matched, ARCH));
    filter.and_then(BpfProgram::try_from).map_err(|error| HostError::Sandbox(error.to_string()))
}

/// The flags of `clone3` are in memory, which filters can't read. If the call fails with ENOSYS, the C
/// library uses `clone`.
pub(super) fn older() -> Result<BpfProgram, HostError> {
    let rules = Rules::from([(libc::SYS_clone3, Vec::new())]);
    program(Ok(rules), SeccompAction::Allow, refuse(libc::ENOSYS))
}

/// The filters of this process, which allow some more calls.
#[derive(Debug)]
pub(super) struct Filters([BpfProgram; 2]);

impl Filters {
    /// They allow the calls of `more` and the `ioctl`s of `controls` too.
    pub fn new(more: &[libc::c_long], controls: &[i64]) -> Result<Filters, HostError> {
        let main = program(rules(more, controls), refuse(libc::EPERM), SeccompAction::Allow)?;
        // The stricter filter is loaded last: it forbids loading further ones.
        Ok(Filters([older()?, main]))
    }

    /// Applies them to every thread of this process.
    pub fn apply(self) -> Result<(), HostError> {
        for program in &self.0 {
            seccompiler::apply_filter_all_threads(program).map_err(|error| {
                HostError::Sandbox(format!("{error}; the kernel needs CONFIG_SECCOMP_FILTER"))
            })?;
        }
        Ok(())
    }
}
