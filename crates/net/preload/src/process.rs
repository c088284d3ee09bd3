//! Other processes that get this one's sockets: all that are open leave direct mode before.

use crate::deferral;
use crate::group::close_follower_sets;
use crate::guard::{self, StateGuard};
use crate::listening;
use crate::moving::{Keeps, disable, leave_all};
use crate::real::{Real, syscall};
use crate::signals;
use libc::{c_int, c_long};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI32, AtomicU64};

/// The process that the library's tables belong to; 0: not known yet.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The signal mask of the thread that forks.
static MASK: AtomicU64 = AtomicU64::new(0);

fn current() -> i32 {
    // SAFETY: the call takes nothing.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) as i32 }
}

/// The process that the library's tables belong to.
pub fn owner() -> i32 {
    OWNER.load(SeqCst)
}

/// Makes all connections leave, since another process gets the sockets, and maybe another program, or this process
/// becomes another program.
pub fn leave_for_others() {
    leave_keeping(Keeps::CloseOnExec);
}

/// As [`leave_for_others`], where a program is started whose descriptors may be any.
pub fn leave_for_any() {
    leave_keeping(Keeps::Nothing);
}

/// As [`leave_for_others`], where this process becomes another program.
pub fn leave_for_exec() {
    if owner() == current() {
        leave_all(&mut StateGuard::lock(), Keeps::CloseOnExec);
        listening::unshare_all();
    }
}

/// As [`leave_for_others`], before a process is made that has this library.
pub fn leave_for_child() {
    leave_keeping(Keeps::Listening);
}

fn leave_keeping(keeps: Keeps) {
    if owner() == current() {
        leave_all(&mut StateGuard::lock(), keeps);
    }
}

/// After `_Fork`, for which the child did nothing yet.
pub fn after_plain_fork(child: libc::pid_t) -> libc::pid_t {
    if child == 0 {
        OWNER.store(current(), SeqCst);
        listening::forget_process();
        close_follower_sets();
    }
    child
}

extern "C" fn before_fork() {
    let mut guard = StateGuard::lock();
    leave_all(&mut guard, Keeps::Listening);
    MASK.store(guard.signals.as_ref().and_then(|signals| signals.mask).unwrap_or(0), SeqCst);
    // The lock is held until after the fork, so that the child's memory is consistent.
    let _ = ManuallyDrop::new(guard);
}

fn after_fork() {
    guard::release();
    drop(guard::SignalsHeld { mask: Some(MASK.load(SeqCst)) });
}

extern "C" fn in_parent() {
    after_fork();
}

extern "C" fn in_child() {
    OWNER.store(current(), SeqCst);
    listening::forget_process();
    close_follower_sets();
    after_fork();
}

extern "C" fn begin() {
    OWNER.store(current(), SeqCst);
    // SAFETY: the functions stay, as the library does.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
}

/// Runs when the library is loaded.
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
#[used]
static BEGIN: extern "C" fn() = begin;

/// Before `prctl`: a filter of the program's own may forbid what the library does.
pub fn before_prctl(option: c_int) {
    if option == libc::PR_SET_SECCOMP {
        disable(&mut StateGuard::lock());
    }
}

/// Before `pthread_cancel`, whose thread may be within the library: only the kernel's calls can be cancelled.
pub fn before_pthread_cancel() {
    deferral::never();
    disable(&mut StateGuard::lock());
}

/// Before `syscall`, by which a program makes any call itself; what comes next.
///
/// # Safety
/// As of the kernel.
pub unsafe extern "C" fn before_syscall(number: c_long, first: c_long, second: c_long) -> *mut c_void {
    static NEXT: Real = Real::new(c"syscall");
    let fd = first as c_int;
    match number {
        libc::SYS_read | libc::SYS_write | libc::SYS_readv | libc::SYS_writev | libc::SYS_recvfrom => {
            crate::epoll::exclude(fd);
        }
        libc::SYS_sendto | libc::SYS_recvmsg | libc::SYS_sendmsg | libc::SYS_ioctl | libc::SYS_fcntl => {
            crate::epoll::exclude(fd);
        }
        libc::SYS_recvmmsg | libc::SYS_sendmmsg | libc::SYS_preadv2 | libc::SYS_pwritev2 => {
            crate::epoll::exclude(fd);
        }
        libc::SYS_sendfile | libc::SYS_splice | libc::SYS_dup | libc::SYS_close | libc::SYS_shutdown => {
            crate::epoll::exclude(fd);
            crate::epoll::exclude(second as c_int);
        }
        libc::SYS_dup2 | libc::SYS_dup3 => {
            crate::epoll::exclude(fd);
            crate::epoll::exclude(second as c_int);
        }
        libc::SYS_rt_sigaction => {
            deferral::never();
            signals::invalidate();
        }
        // What follows may be anything; calls that nothing else concerns are more frequent.
        libc::SYS_poll
        | libc::SYS_ppoll
        | libc::SYS_select
        | libc::SYS_pselect6
        | libc::SYS_epoll_ctl
        | libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2
        | libc::SYS_seccomp
        | libc::SYS_close_range
        | libc::SYS_unshare => disable(&mut StateGuard::lock()),
        libc::SYS_clone
        | libc::SYS_clone3
        | libc::SYS_fork
        | libc::SYS_vfork
        | libc::SYS_execve
        | libc::SYS_execveat => leave_for_any(),
        libc::SYS_accept | libc::SYS_accept4 | libc::SYS_listen | libc::SYS_getsockname => {
            crate::epoll::exclude(fd);
        }
        libc::SYS_getpeername | libc::SYS_setsockopt | libc::SYS_getsockopt => {
            crate::epoll::exclude(fd);
        }
        libc::SYS_prctl => before_prctl(fd),
        _ => {}
    }
    NEXT.get()
}

/// Makes what is called before a function that may return twice, or whose arguments are not known: it returns the
/// address of the function.
macro_rules! before {
    ($($name:ident: $text:literal, $leave:ident;)*) => {$(
        pub extern "C" fn $name() -> *mut c_void {
            static NEXT: Real = Real::new($text);
            $leave();
            NEXT.get()
        }
    )*};
}

/// Makes what is called before a function of the C library that writes to a descriptor by itself.
macro_rules! before_writing {
    ($($name:ident: $text:literal;)*) => {$(
        pub extern "C" fn $name(fd: c_int) -> *mut c_void {
            static NEXT: Real = Real::new($text);
            crate::epoll::exclude(fd);
            NEXT.get()
        }
    )*};
}

before_writing! {
    before_dprintf: c"dprintf";
    before_vdprintf: c"vdprintf";
    before_dprintf_chk: c"__dprintf_chk";
    before_vdprintf_chk: c"__vdprintf_chk";
}

before! {
    before_vfork: c"vfork", leave_for_others;
    before_clone: c"clone", leave_for_any;
    before_execl: c"execl", leave_for_exec;
    before_execle: c"execle", leave_for_exec;
    before_execlp: c"execlp", leave_for_exec;
}
