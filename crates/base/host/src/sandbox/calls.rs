//! The seccomp filter for `data`: an allowlist of its system calls.

use crate::error::HostError;
use crate::seccomp::{
    COMMON, OLD, Rules, any_arguments, calls, older, one_of, program, refuse, threads, when,
};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule,
};

/// Calls permitted with any arguments, in addition to those of all processes.
const ALLOWED: &[libc::c_long] = calls![
    SYS_recvmmsg SYS_sendmmsg SYS_epoll_pwait2 SYS_membarrier
    // Signalling a peer without blocking.
    SYS_io_setup SYS_io_submit SYS_io_getevents SYS_io_destroy SYS_tee SYS_splice
    // Memory on the node of a worker.
    SYS_get_mempolicy SYS_set_mempolicy
    // The other filter refuses it.
    SYS_clone3
];

/// Additional calls of a process that accepts connections.
pub(super) const ACCEPTING: &[libc::c_long] = calls![SYS_accept4];

/// The numbers of KVM_RUN, KVM_SET_USER_MEMORY_REGION and KVM_IOEVENTFD, and of KVM_GET_REGS and KVM_GET_SREGS
/// (linux/kvm.h): a monitor runs its guest, maps rings and doorbells as ports come and go, and takes
/// snapshots.
pub(super) const KVM: &[i64] = &[0xae80, 0x4020_ae46, 0x4040_ae79, 0x8090_ae81, 0x8138_ae83];

/// Calls that the process makes only between the two halves of [`Filters::halves`]: it makes its memory, sets limits,
/// and gives up its identity and the file system.
const BETWEEN: &[libc::c_long] = calls![
    SYS_memfd_create SYS_ftruncate SYS_openat SYS_statx SYS_newfstatat SYS_prlimit64 SYS_capget SYS_capset
    SYS_setgroups SYS_setresgid SYS_setresuid SYS_landlock_create_ruleset SYS_landlock_restrict_self
    SYS_seccomp
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
    rules.extend(any_arguments(&[BETWEEN]));
    Ok(rules)
}

/// What [`wide`] permits beyond [`rules`].
fn difference(controls: &[i64]) -> Result<Rules, BackendError> {
    let mut rules = any_arguments(&[BETWEEN]);
    for (call, argument, values) in chosen(controls) {
        rules.insert(call, none_of(argument, &values)?);
    }
    Ok(rules)
}

fn rules(more: &[libc::c_long], controls: &[i64]) -> Result<Rules, BackendError> {
    let mut rules = any_arguments(&[COMMON, OLD[0], ALLOWED, more]);
    // Attack: execution of code written to memory.
    let executable = libc::PROT_EXEC as u64;
    rules.insert(libc::SYS_mmap, when(2, SeccompCmpOp::MaskedEq(executable), 0)?);
    rules.insert(libc::SYS_mprotect, when(2, SeccompCmpOp::MaskedEq(executable), 0)?);
    // For growing malloc's memory: never at an address chosen by the caller.
    let fixed = libc::MREMAP_FIXED as u64;
    rules.insert(libc::SYS_mremap, when(3, SeccompCmpOp::MaskedEq(fixed), 0)?);
    rules.insert(libc::SYS_clone, threads()?);
    rules.insert(libc::SYS_sched_setaffinity, one_of(0, &[0])?);
    // Signals to ourselves, for `abort`.
    rules.insert(libc::SYS_tgkill, one_of(0, &[std::process::id().into()])?);
    for (call, argument, values) in chosen(controls) {
        rules.insert(call, one_of(argument, &values)?);
    }
    Ok(rules)
}

/// The filters of this process, which allow some more calls.
#[derive(Debug)]
pub(super) struct Filters(Vec<BpfProgram>);

impl Filters {
    /// Filters that also allow the calls of `more` and the `ioctl`s of `controls`.
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
