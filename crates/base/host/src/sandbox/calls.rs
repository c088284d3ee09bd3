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
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
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

/// Calls that the process makes only between the two halves of [`Filters::halves`]: it makes its memory, sets limits,
/// and gives up its identity and the file system.
const BETWEEN: &[libc::c_long] = &[
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_openat,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_prlimit64,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_setgroups,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_seccomp,
];

/// What `prctl` and `fcntl` may do.
const OPTIONS: [libc::c_int; 2] = [libc::PR_SET_NAME, libc::PR_SET_VMA];
const COMMANDS: [libc::c_int; 7] = [
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GET_SEALS,
    libc::F_GETPIPE_SZ,
];

/// The calls of which an argument is one of some values: its number, and those values.
fn chosen(controls: &[i64]) -> [(libc::c_long, u8, Vec<i64>); 3] {
    [
        (libc::SYS_prctl, 0, OPTIONS.map(i64::from).to_vec()),
        (libc::SYS_fcntl, 1, COMMANDS.map(i64::from).to_vec()),
        (libc::SYS_ioctl, 1, [&[libc::FIONBIO as i64], controls].concat()),
    ]
}

/// Calls that newer architectures don't have.
#[cfg(target_arch = "x86_64")]
const OLD: &[libc::c_long] = &[libc::SYS_poll, libc::SYS_epoll_wait];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[libc::c_long] = &[];

const ARCH: TargetArch = if cfg!(target_arch = "aarch64") { TargetArch::aarch64 } else { TargetArch::x86_64 };

pub(super) type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// A condition on one argument.
pub(super) fn when(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<Vec<SeccompRule>, BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
    Ok(vec![SeccompRule::new(vec![condition])?])
}

/// Conditions that an argument equals one of several values.
pub(super) fn one_of(argument: u8, values: &[i64]) -> Result<Vec<SeccompRule>, BackendError> {
    let rules = values.iter().map(|&value| when(argument, SeccompCmpOp::Eq, value as u32 as u64));
    Ok(rules.collect::<Result<Vec<_>, _>>()?.concat())
}

/// Conditions that an argument differs from each of several values.
fn none_of(argument: u8, values: &[i64]) -> Result<Vec<SeccompRule>, BackendError> {
    let condition = |&value: &i64| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value as u32 as u64)
    };
    Ok(vec![SeccompRule::new(values.iter().map(condition).collect::<Result<_, _>>()?)?])
}

/// As [`rules`], with all that the process calls before the second half.
fn wide(more: &[libc::c_long], controls: &[i64]) -> Result<Rules, BackendError> {
    let mut rules = rules(more, controls)?;
    rules.extend(chosen(controls).map(|(call, ..)| (call, Vec::new())));
    rules.extend(BETWEEN.iter().map(|&call| (call, Vec::new())));
    Ok(rules)
}

/// What [`wide`] permits beyond [`rules`].
fn difference(controls: &[i64]) -> Result<Rules, BackendError> {
    let mut rules: Rules = BETWEEN.iter().map(|&call| (call, Vec::new())).collect();
    for (call, argument, values) in chosen(controls) {
        rules.insert(call, none_of(argument, &values)?);
    }
    Ok(rules)
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
    rules.insert(libc::SYS_sched_setaffinity, one_of(0, &[0])?);
    // Signals to ourselves, for `abort`.
    rules.insert(libc::SYS_tgkill, one_of(0, &[std::process::id().into()])?);
    for (call, argument, values) in chosen(controls) {
        rules.insert(call, one_of(argument, &values)?);
    }
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
pub(super) struct Filters(Vec<BpfProgram>);

impl Filters {
    /// They allow the calls of `more` and the `ioctl`s of `controls` too.
    pub fn new(more: &[libc::c_long], controls: &[i64]) -> Result<Filters, HostError> {
        let main = program(rules(more, controls), refuse(libc::EPERM), SeccompAction::Allow)?;
        // The stricter filter is loaded last: it forbids loading further ones.
        Ok(Filters(vec![older()?, main]))
    }

    /// Filters in two halves. The kernel tries a filter with each system call, which takes long for the first half;
    /// between the halves the process may set itself up and give up its privileges.
    pub fn halves(more: &[libc::c_long], controls: &[i64]) -> Result<[Filters; 2], HostError> {
        let first = program(wide(more, controls), refuse(libc::EPERM), SeccompAction::Allow)?;
        let second = program(difference(controls), SeccompAction::Allow, refuse(libc::EPERM))?;
        Ok([Filters(vec![older()?, first]), Filters(vec![second])])
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What a filter says about a call.
    fn verdict(program: &BpfProgram, call: i64, arguments: [u64; 6]) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let step = &program[at];
            at += 1;
            let choose = |yes: bool| usize::from(if yes { step.jt } else { step.jf });
            match step.code {
                0x20 => {
                    value = match step.k {
                        0 => call as u32,
                        4 if cfg!(target_arch = "x86_64") => 0xc000_003e,
                        4 => 0xc000_00b7,
                        field => {
                            let argument = arguments[(field as usize - 16) / 8];
                            (argument >> ((field as usize - 16) % 8 * 8)) as u32
                        }
                    }
                }
                0x05 => at += step.k as usize,
                0x15 => at += choose(value == step.k),
                0x25 => at += choose(value > step.k),
                0x35 => at += choose(value >= step.k),
                0x54 => value &= step.k,
                0x06 => return step.k,
                code => panic!("an instruction that no filter has: {code:#x}"),
            }
        }
    }

    #[test]
    fn both_halves_permit_together_what_the_whole_permits() {
        const ALLOW: u32 = 0x7fff_0000;
        let whole = Filters::new(ACCEPTING, KVM).unwrap();
        let [first, second] = Filters::halves(ACCEPTING, KVM).unwrap();
        let all = |filters: &[&Filters], call, arguments| {
            let mut programs = filters.iter().flat_map(|filters| &filters.0);
            programs.all(|program| verdict(program, call, arguments) == ALLOW)
        };
        let mut permitted = [0; 2];
        for call in 0..600 {
            for word in 0..256 {
                // Small numbers, one bit each, and the requests of KVM and of sockets.
                let request = [&[0x5421, 0xae01, 0xae80], KVM].concat();
                let word = match word {
                    0..64 => word,
                    64..96 => 1 << (word - 64),
                    other => request[other as usize % request.len()] as u64,
                };
                let arguments = [word; 6];
                let is_allowed = all(&[&whole], call, arguments);
                assert_eq!(all(&[&first, &second], call, arguments), is_allowed, "{call} {word:#x}");
                assert!(all(&[&first], call, arguments) || !is_allowed, "{call} {word:#x}");
                permitted[usize::from(is_allowed)] += 1;
            }
        }
        assert!(permitted.iter().all(|count| *count > 10_000), "{permitted:?}");
        for call in BETWEEN {
            assert!(all(&[&first], *call, [1; 6]) && !all(&[&whole], *call, [1; 6]), "{call}");
        }
    }
}
