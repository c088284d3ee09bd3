//! The seccomp filters of guests: for User-Mode Linux an allowlist of its system calls, for QEMU a list of those
//! that it never needs.
//!
//! The guest's processes are host processes whose system calls User-Mode Linux intercepts (`PTRACE_SYSEMU`);
//! the filter sees only those that it lets through.

use super::Calls;
use crate::error::HostError;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// Calls permitted with any arguments: those of arch/um/os-Linux, of Linux 6.1 and newer, and those of the C
/// library for a program with threads.
const ALLOWED: &[libc::c_long] = &[
    // Its disks, its memory's file, its host file system.
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
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
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fchmod,
    libc::SYS_umask,
    libc::SYS_flock,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_memfd_create,
    // Its network devices.
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_shutdown,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    // Waiting and time.
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_delete,
    libc::SYS_setitimer,
    libc::SYS_getitimer,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_getrandom,
    // Its guest's processes.
    libc::SYS_ptrace,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_seccomp,
    libc::SYS_prctl,
    libc::SYS_personality,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_setpgid,
    libc::SYS_setsid,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_prlimit64,
    libc::SYS_getrusage,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigpending,
    libc::SYS_sigaltstack,
];

/// Calls that newer architectures don't have.
#[cfg(target_arch = "x86_64")]
const OLD: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_arch_prctl,
    libc::SYS_alarm,
    libc::SYS_pause,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[libc::c_long] = &[];

const ARCH: TargetArch = if cfg!(target_arch = "aarch64") { TargetArch::aarch64 } else { TargetArch::x86_64 };

/// Attack: new namespaces give a program access to mounts and other parts of the kernel that are otherwise
/// unreachable.
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// Attack: a guest that took over QEMU goes on to the kernel: by new namespaces, other processes' memory, parts of
/// the kernel where most errors are found, or by taking what is limited system-wide (`fs.aio-max-nr`).
const NEVER_OF_QEMU: &[libc::c_long] = &[
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_clone3,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_io_setup,
    libc::SYS_mq_open,
    libc::SYS_quotactl,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_kexec_load,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_syslog,
];

/// On x86-64, the bit of system calls with 32-bit pointers, which some kernels have.
const X32: libc::c_long = if cfg!(target_arch = "x86_64") { 0x4000_0000 } else { 0 };

/// The filter for a program, if it has one. Refused calls return ENOSYS, so that the C library falls back to older
/// ones: `clone3`'s flags are in memory, which filters can't read.
pub(super) fn filter(calls: Calls) -> Result<Option<BpfProgram>, HostError> {
    let program = match calls {
        Calls::Any => return Ok(None),
        Calls::Uml => uml(),
        Calls::Qemu => qemu(),
    };
    program.map(Some).map_err(|error| HostError::Sandbox(error.to_string()))
}

const REFUSE: SeccompAction = SeccompAction::Errno(libc::ENOSYS as u32);

fn qemu() -> Result<BpfProgram, BackendError> {
    let mut rules = BTreeMap::new();
    for bit in [0, X32] {
        rules.extend(NEVER_OF_QEMU.iter().map(|call| (call | bit, Vec::new())));
        let mut cloned = Vec::new();
        for flag in (0..u32::BITS).map(|shift| 1 << shift).filter(|flag| flag & NAMESPACES as u32 != 0) {
            let flag = u64::from(flag);
            cloned.extend(when(SeccompCmpOp::MaskedEq(flag), flag)?);
        }
        rules.insert(libc::SYS_clone | bit, cloned);
        // Attack: some families, such as AF_VSOCK, have no namespaces.
        rules.insert(libc::SYS_socket | bit, when(SeccompCmpOp::Ne, libc::AF_UNIX as u64)?);
    }
    SeccompFilter::new(rules, SeccompAction::Allow, REFUSE, ARCH)?.try_into()
}

fn uml() -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().chain(OLD).map(|&call| (call, Vec::new())).collect();
    let none = SeccompCmpOp::MaskedEq(NAMESPACES as u32 as u64);
    rules.insert(libc::SYS_clone, when(none, 0)?);
    rules.insert(libc::SYS_socket, when(SeccompCmpOp::Eq, libc::AF_UNIX as u64)?);
    SeccompFilter::new(rules, REFUSE, SeccompAction::Allow, ARCH)?.try_into()
}

/// A condition on the first argument.
fn when(operator: SeccompCmpOp, value: u64) -> Result<Vec<SeccompRule>, BackendError> {
    let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, value)?;
    Ok(vec![SeccompRule::new(vec![condition])?])
}
