//! The steps of the child between `clone` and `execve`. Its memory is a snapshot of a multi-threaded process,
//! in which a lock may be held forever. Therefore nothing here allocates, and system calls are made directly,
//! since the C library's wrappers act on all threads.

use crate::process_setup;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};
use seccompiler::BpfProgram;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Path of the host's file system while the new root is set up.
pub(super) const OLD: &str = "/old";

/// A step of the confinement.
#[derive(Debug)]
pub(super) enum Step {
    /// Becomes the leader of a process group.
    Group,
    /// Joins a control group by its `cgroup.procs`.
    Join(OwnedFd),
    /// Makes the files in `/proc/self` writable, which they are not for a non-dumpable process.
    Dumpable,
    /// Writes to an existing file.
    Put(CString, Vec<u8>),
    /// Creates a file with this content and these permissions.
    Make(CString, Vec<u8>, u32),
    /// Creates a folder if it does not exist.
    Folder(CString),
    /// Creates a symbolic link; the second path is its target.
    Link(CString, CString),
    /// Makes all mounts private, so that none propagates to the host.
    Private,
    /// Mounts a tmpfs with these options.
    Memory(CString, CString),
    /// Makes the mount the new root; the host's root moves to [`OLD`] in it.
    Pivot(CString),
    /// Makes a file of the host visible.
    Show(Show),
    /// Unmounts the host's root and makes the new root read-only.
    Seal,
    /// Limits a resource.
    Limit(Resource, u64),
    /// Applies a ruleset of landlock.
    Landlock(OwnedFd),
    /// Drops capabilities from the bounding set.
    Bound,
    /// Changes to this user and group, with these supplementary groups.
    User(u32, Vec<Gid>),
    /// Drops all capabilities.
    Drop,
    /// Ends the process when the parent thread ends.
    ParentDeathSignal,
    /// Restores the signal handling that Rust's runtime changed, and sets the umask.
    Defaults(Mode),
    /// Sets these descriptors, from number 0 on, and closes all others.
    Descriptors(Vec<OwnedFd>),
    /// Sets no_new_privs.
    NoNewPrivileges,
    /// Loads a seccomp filter.
    Filter(BpfProgram),
}

/// A file of the host to make visible.
#[derive(Debug)]
pub(super) struct Show {
    /// Its name below [`OLD`].
    pub from: CString,
    /// Its path in the jail.
    pub to: CString,
    /// Whether the file is writable.
    pub write: bool,
    /// Whether the file is a device.
    pub device: bool,
    /// Whether it must be a socket, in a folder that another user may own.
    pub socket: bool,
    /// Whether what is mounted in the folder is to be restricted too.
    pub tree: bool,
    /// A descriptor number to use, and its path below [`OLD`].
    pub slot: (RawFd, CString),
}

impl Step {
    pub fn run(&self) -> Result<(), Errno> {
        use Step::*;
        match self {
            Group => rustix::process::setpgid(None, None),
            Join(group) => rustix::io::write(group, b"0").map(drop),
            Dumpable => rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable),
            Put(path, content) => put(path, content, OFlags::WRONLY, 0),
            Make(path, content, mode) => put(path, content, OFlags::WRONLY | OFlags::CREATE, *mode),
            Folder(path) => match rustix::fs::mkdirat(CWD, &**path, Mode::from_bits_truncate(0o755)) {
                Err(Errno::EXIST) => Ok(()),
                made => made,
            },
            Link(path, to) => rustix::fs::symlinkat(&**to, CWD, &**path),
            Private => mount(None, c"/", None, libc::MS_REC | libc::MS_PRIVATE, None),
            Memory(path, options) => {
                mount(Some(c"none"), path, Some(c"tmpfs"), libc::MS_NOSUID | libc::MS_NODEV, Some(options))
            }
            Pivot(root) => pivot(root),
            Show(show) => show.run(),
            Seal => seal(),
            Limit(resource, most) => {
                rustix::process::setrlimit(*resource, Rlimit { current: Some(*most), maximum: Some(*most) })
            }
            Landlock(ruleset) => landlock(ruleset.as_fd()),
            Bound => {
                process_setup::bound_capabilities(CapabilitySet::empty());
                Ok(())
            }
            User(user, groups) => become_user(*user, groups),
            Drop => rustix::thread::set_capabilities(None, NONE),
            ParentDeathSignal => rustix::process::set_parent_process_death_signal(Some(Signal::KILL)),
            Defaults(umask) => defaults(*umask),
            Descriptors(descriptors) => take(descriptors),
            NoNewPrivileges => rustix::thread::set_no_new_privs(true),
            Filter(program) => seccompiler::apply_filter(program).map_err(|_| Errno::INVAL),
        }
    }
}

const NONE: CapabilitySets = CapabilitySets {
    effective: CapabilitySet::empty(),
    permitted: CapabilitySet::empty(),
    inheritable: CapabilitySet::empty(),
};

fn put(path: &CStr, content: &[u8], flags: OFlags, mode: u32) -> Result<(), Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(CWD, path, flags, Mode::from_bits_truncate(mode))?;
    let mut rest = content;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(())
}

fn checked(result: libc::c_long) -> Result<(), Errno> {
    if result == 0 {
        return Ok(());
    }
    // SAFETY: it is this thread's, whose copy the child has.
    Err(Errno::from_raw_os_error(unsafe { *libc::__errno_location() }))
}

fn mount(
    from: Option<&CStr>,
    to: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
    options: Option<&CStr>,
) -> Result<(), Errno> {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: each pointer is null or leads to a string that lives until the call is over.
    let result =
        unsafe { libc::mount(pointer(from), to.as_ptr(), pointer(kind), flags, pointer(options).cast()) };
    checked(result.into())
}

fn pivot(root: &CStr) -> Result<(), Errno> {
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    rustix::process::chdir(root)?;
    rustix::fs::mkdirat(CWD, c"old", Mode::RWXU)?;
    rustix::process::pivot_root(c".", c"old")?;
    rustix::process::chdir(c"/")
}

impl Show {
    fn run(&self) -> Result<(), Errno> {
        let nofollow = if self.socket { OFlags::NOFOLLOW } else { OFlags::empty() };
        let flags = OFlags::PATH | OFlags::CLOEXEC | nofollow;
        let found = rustix::fs::openat(CWD, &*self.from, flags, Mode::empty())?;
        // Attack: a different file in place of the socket, to expose it to a guest.
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
        if self.socket && kind != FileType::Socket {
            return Err(Errno::NOTSOCK);
        }
        let (number, name) = &self.slot;
        dup(found.as_fd(), *number)?;
        // A user namespace may bind a mount only together with its submounts.
        mount(Some(name), &self.to, None, libc::MS_BIND | libc::MS_REC, None)?;
        let mut wanted = libc::MS_NOSUID;
        if !self.write {
            wanted |= libc::MS_RDONLY;
        }
        if !self.device {
            wanted |= libc::MS_NODEV;
        }
        // A user namespace may add restrictions only.
        let has = rustix::fs::statvfs(&*self.to)?.f_flag;
        let pairs = [
            (StatVfsMountFlags::RDONLY, libc::MS_RDONLY),
            (StatVfsMountFlags::NODEV, libc::MS_NODEV),
            (StatVfsMountFlags::NOEXEC, libc::MS_NOEXEC),
            (StatVfsMountFlags::NOATIME, libc::MS_NOATIME),
            (StatVfsMountFlags::NODIRATIME, libc::MS_NODIRATIME),
            (StatVfsMountFlags::RELATIME, libc::MS_RELATIME),
        ];
        if !has.intersects(StatVfsMountFlags::NOATIME | StatVfsMountFlags::RELATIME) {
            wanted |= libc::MS_STRICTATIME;
        }
        let kept = pairs.iter().filter(|(flag, _)| has.contains(*flag)).fold(0, |all, (_, flag)| all | flag);
        mount(None, &self.to, None, libc::MS_REMOUNT | libc::MS_BIND | kept | wanted, None)?;
        if self.tree { restrict(&self.to, self.write) } else { Ok(()) }
    }
}

/// Makes a mount and those in it `nosuid` and `nodev`, and read-only unless they may be written (mount_setattr(2)).
fn restrict(path: &CStr, write: bool) -> Result<(), Errno> {
    let set =
        libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | if write { 0 } else { libc::MOUNT_ATTR_RDONLY };
    let settings = libc::mount_attr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let len = size_of_val(&settings);
    // SAFETY: the path ends with a zero, and the kernel reads as many bytes as `settings` has.
    checked(unsafe {
        let (at, flags) = (libc::AT_FDCWD, libc::AT_RECURSIVE);
        libc::syscall(libc::SYS_mount_setattr, at, path.as_ptr(), flags, &raw const settings, len)
    })
}

fn seal() -> Result<(), Errno> {
    // SAFETY: the string is a constant.
    checked(unsafe { libc::umount2(c"/old".as_ptr(), libc::MNT_DETACH) }.into())?;
    rustix::fs::unlinkat(CWD, c"/old", AtFlags::REMOVEDIR)?;
    let flags = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
    mount(None, c"/", None, flags, None)
}

fn landlock(ruleset: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the call takes numbers only.
    checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
}

fn become_user(user: u32, groups: &[Gid]) -> Result<(), Errno> {
    rustix::thread::set_thread_groups(groups)?;
    let (group, user) = (Gid::from_raw(user), Uid::from_raw(user));
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)
}

fn defaults(umask: Mode) -> Result<(), Errno> {
    process_setup::default_signals();
    rustix::process::umask(umask);
    Ok(())
}

fn take(descriptors: &[OwnedFd]) -> Result<(), Errno> {
    for (number, descriptor) in (0..).zip(descriptors) {
        dup(descriptor.as_fd(), number)?;
    }
    let first = descriptors.len() as libc::c_uint;
    // SAFETY: the call takes numbers only, and closes nothing before `execve`.
    let closed = checked(unsafe {
        libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    });
    if closed.is_ok() {
        return Ok(());
    }
    // Linux before 5.11. Closing unused numbers is harmless.
    for number in first.cast_signed()..MOST_DESCRIPTORS {
        // SAFETY: the call takes numbers only.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

/// Largest descriptor number closed on kernels without `close_range`.
const MOST_DESCRIPTORS: RawFd = 65_536;

/// Duplicates a descriptor to the number at which the started program expects it.
fn dup(descriptor: BorrowedFd<'_>, number: RawFd) -> Result<(), Errno> {
    // SAFETY: whatever has that number in this process is given up, which is meant: the numbers from 0 on are those of
    // the program, and the slot is a place-holder.
    let result = unsafe { libc::dup2(descriptor.as_raw_fd(), number) };
    checked(if result == -1 { -1 } else { 0 })
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, path) = match self {
            Step::Group => ("setpgid", None),
            Step::Join(_) => ("joining a control group", None),
            Step::Dumpable => ("PR_SET_DUMPABLE", None),
            Step::Put(path, _) => ("writing", Some(path)),
            Step::Make(path, ..) => ("making the file", Some(path)),
            Step::Folder(path) => ("making the folder", Some(path)),
            Step::Link(path, _) => ("making the link", Some(path)),
            Step::Private => ("making mounts private", None),
            Step::Memory(path, _) => ("mounting a tmpfs at", Some(path)),
            Step::Pivot(_) => ("pivot_root", None),
            Step::Show(show) => ("mounting what is shown at", Some(&show.to)),
            Step::Seal => ("unmounting the host's root", None),
            Step::Limit(..) => ("setrlimit", None),
            Step::Landlock(_) => ("landlock_restrict_self", None),
            Step::Bound => ("PR_CAPBSET_DROP", None),
            Step::User(..) => ("setresuid", None),
            Step::Drop => ("capset", None),
            Step::ParentDeathSignal => ("PR_SET_PDEATHSIG", None),
            Step::Defaults(_) => ("sigprocmask", None),
            Step::Descriptors(_) => ("giving it its descriptors", None),
            Step::NoNewPrivileges => ("no_new_privs", None),
            Step::Filter(_) => ("seccomp", None),
        };
        f.write_str(what)?;
        path.map_or(Ok(()), |path| write!(f, " {}", path.to_string_lossy()))
    }
}
