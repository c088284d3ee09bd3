//! The seccomp filters of guests: for User-Mode Linux an allowlist of its system calls, for QEMU a list of those
//! that it never needs.
//!
//! The guest's processes are host processes whose system calls User-Mode Linux intercepts (`PTRACE_SYSEMU`);
//! the filter sees only those that it lets through.

use super::Calls;
use crate::error::HostError;
use crate::seccomp::{COMMON, OLD, PROGRAM, Rules, any_arguments, calls, program, refuse, when};
use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompCmpOp};

/// Calls permitted with any arguments, in addition to those of all programs: those of arch/um/os-Linux, of Linux 6.1
/// and newer, and those of the C library for a program with threads.
const ALLOWED: &[libc::c_long] = calls![
    // Its disks, its memory's file, its host file system.
    SYS_mkdirat SYS_unlinkat SYS_ftruncate SYS_fallocate SYS_fsync SYS_fdatasync SYS_fchmod SYS_umask
    SYS_flock SYS_fcntl SYS_ioctl SYS_memfd_create SYS_mmap
    // Its network devices.
    SYS_socketpair SYS_connect SYS_bind SYS_listen SYS_accept4 SYS_setsockopt SYS_sendmmsg SYS_recvmmsg
    // Time.
    SYS_timer_create SYS_timer_settime SYS_timer_gettime SYS_timer_delete
    // Its guest's processes.
    SYS_ptrace SYS_wait4 SYS_waitid SYS_kill SYS_tgkill SYS_execve SYS_execveat SYS_seccomp SYS_prctl
    SYS_personality SYS_setpgid SYS_setsid SYS_getpgid SYS_prlimit64 SYS_set_tid_address
];
/// Calls of `hostfs` that change files, or ask what they are (arch/um/os-Linux, fs/hostfs/hostfs_user.c).
const FILES: &[libc::c_long] = calls![
    SYS_linkat SYS_symlinkat SYS_renameat SYS_renameat2 SYS_mknodat SYS_fchmodat SYS_fchown SYS_fchownat
    SYS_truncate SYS_utimensat SYS_sync_file_range SYS_fsync
];
#[cfg(target_arch = "x86_64")]
const OLD_FILES: &[libc::c_long] = calls![
    SYS_link SYS_symlink SYS_rename SYS_mknod SYS_chmod SYS_chown SYS_lchown SYS_utime SYS_utimes
    SYS_futimesat
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_FILES: &[libc::c_long] = &[];
#[cfg(target_arch = "x86_64")]
const OLD_OF_UML: &[libc::c_long] = calls![
    SYS_mkdir SYS_rmdir SYS_unlink SYS_epoll_create SYS_getpgrp SYS_getrlimit SYS_setrlimit SYS_arch_prctl
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_OF_UML: &[libc::c_long] = &[];

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
const NEVER_OF_QEMU: &[libc::c_long] = calls![
    SYS_unshare SYS_setns SYS_clone3 SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_open_tree
    SYS_move_mount SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick SYS_ptrace SYS_process_vm_readv
    SYS_process_vm_writev SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_keyctl SYS_add_key
    SYS_request_key SYS_io_setup SYS_mq_open SYS_quotactl SYS_open_by_handle_at SYS_init_module
    SYS_finit_module SYS_kexec_load SYS_acct SYS_swapon SYS_syslog
];

/// On x86-64, the bit of system calls with 32-bit pointers, which some kernels have.
const X32: libc::c_long = if cfg!(target_arch = "x86_64") { 0x4000_0000 } else { 0 };

/// The filter for a program, if it has one. Refused calls return ENOSYS, so that the C library falls back to older
/// ones: `clone3`'s flags are in memory, which filters can't read.
pub(super) fn filter(calls: Calls) -> Result<Option<BpfProgram>, HostError> {
    let (rules, other, matched) = match calls {
        Calls::Any => return Ok(None),
        Calls::Uml => (uml(&[]), refuse(libc::ENOSYS), SeccompAction::Allow),
        Calls::UmlWithFiles => (uml(&[FILES, OLD_FILES]), refuse(libc::ENOSYS), SeccompAction::Allow),
        Calls::Qemu => (qemu(), SeccompAction::Allow, refuse(libc::ENOSYS)),
    };
    program(rules, other, matched).map(Some)
}

fn qemu() -> Result<Rules, BackendError> {
    let mut rules = Rules::new();
    for bit in [0, X32] {
        rules.extend(NEVER_OF_QEMU.iter().map(|call| (call | bit, Vec::new())));
        let mut cloned = Vec::new();
        for flag in (0..u32::BITS).map(|shift| 1 << shift).filter(|flag| flag & NAMESPACES as u32 != 0) {
            let flag = u64::from(flag);
            cloned.extend(when(0, SeccompCmpOp::MaskedEq(flag), flag)?);
        }
        rules.insert(libc::SYS_clone | bit, cloned);
        // Attack: some families, such as AF_VSOCK, have no namespaces.
        rules.insert(libc::SYS_socket | bit, when(0, SeccompCmpOp::Ne, libc::AF_UNIX as u64)?);
    }
    Ok(rules)
}

fn uml(more: &[&[libc::c_long]]) -> Result<Rules, BackendError> {
    let mut rules = any_arguments(&[COMMON, PROGRAM, OLD[0], OLD[1], ALLOWED, OLD_OF_UML]);
    rules.extend(any_arguments(more));
    let none = SeccompCmpOp::MaskedEq(NAMESPACES as u32 as u64);
    rules.insert(libc::SYS_clone, when(0, none, 0)?);
    rules.insert(libc::SYS_socket, when(0, SeccompCmpOp::Eq, libc::AF_UNIX as u64)?);
    Ok(rules)
}
