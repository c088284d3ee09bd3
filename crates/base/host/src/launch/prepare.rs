//! What the child does between `fork` and `execve`.

use super::{Launch, filter, preload};
use crate::error::HostError;
use crate::tap::{bring_up, control_socket, last_error, last_with_namespace};
use crate::{TapSettings, open_tap_with, send_with};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::AddressFamily;
use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `MOUNT_ATTR_NOSUID`.
const NO_SUID: u64 = 2;
const MOUNT_ATTR_SIZE: usize = 32;

/// In a network of its own a program may have any port, and ask for echoes. Its addresses of IPv6 are usable at once,
/// without a second in which it is asked whether others have them.
const OPEN: [(&str, &[u8]); 3] = [
    ("/proc/sys/net/ipv4/ip_unprivileged_port_start", b"0"),
    ("/proc/sys/net/ipv4/ping_group_range", b"0 2147483647"),
    ("/proc/sys/net/ipv6/conf/default/accept_dad", b"0"),
];

/// Sockets that another agent serves change no interface.
const WITHIN: &str = "this is a program of ringway exec already, whose sockets change no interface: \
    run the outer one with --stack kernel";

/// Why a step failed: what was tried, and the kernel's answer.
pub(super) struct Failed(String);

pub(super) fn failed(what: &str, error: impl std::fmt::Display) -> Failed {
    Failed(format!("{what}: {error}"))
}

/// Becomes the program. It tells the parent about failures, and ends.
pub(super) fn become_program(launch: &Launch, talk: &OwnedFd) -> ! {
    let code = match prepare(launch, talk) {
        Err(Failed(text)) => {
            // If the parent is gone, nobody is to be told.
            let _ = rustix::io::write(talk, &text.as_bytes()[..text.len().min(super::MESSAGE)]);
            125
        }
        Ok(()) => {
            let error = execute(&launch.program);
            let _ = rustix::io::write(talk, &error.raw_os_error().to_ne_bytes());
            127
        }
    };
    // SAFETY: it ends this process, without what the parent has registered to be run at its end.
    unsafe { libc::_exit(code) }
}

fn prepare(launch: &Launch, talk: &OwnedFd) -> Result<(), Failed> {
    separate(launch)?;
    let folder = files(launch);
    // The folder is empty again, and used by nobody.
    let _ = std::fs::remove_dir(&launch.folder);
    let folder = folder?;
    without_suid()?;
    bring_up("lo").map_err(|error| match error {
        HostError::Tap { error: Errno::OPNOTSUPP, .. } => Failed(WITHIN.into()),
        error => failed("bringing up the loopback interface", error),
    })?;
    for (path, value) in OPEN {
        // Only a convenience, and a file system of a container may be read-only.
        let _ = put(path, value);
    }
    for (name, value) in &launch.sysctls {
        put(&format!("/proc/sys/{}", name.replace('.', "/")), value.as_bytes())?;
    }
    let settings = TapSettings { namespace: None, queues: 1, ..launch.interface.clone() };
    let queues = open_tap_with(&settings, &launch.addresses);
    let queues = queues.map_err(|error| failed("creating the program's interface", error))?;
    let queue = queues.first().ok_or_else(|| failed("creating the program's interface", Errno::NODEV))?;
    last_with_namespace(queue).map_err(|error| failed("keeping the program's interface", error))?;
    let control = control_socket(AddressFamily::INET).map_err(|error| failed("a socket", error))?;
    let inside = [queue.as_fd(), control.as_fd(), folder.as_fd()];
    send_with(talk, b"interface", &inside).map_err(|error| failed("handing over", error))?;
    drop((queues, control, folder));
    rustix::thread::set_no_new_privs(true).map_err(|error| failed("no_new_privs", error))?;
    crate::process_setup::default_signals();
    if launch.trap {
        trap(talk)?;
    }
    // The parent answers when it is ready to serve the program.
    match rustix::io::read(talk, &mut [0; 2]) {
        Ok(2) => Ok(()),
        _ => Err(failed("waiting to be started", Errno::CONNRESET)),
    }
}

/// Enters new namespaces. Without root that takes a user namespace, in which the user stays who it is.
fn separate(launch: &Launch) -> Result<(), Failed> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let own = !user.is_root() || launch.map_root;
    let flags = libc::CLONE_NEWNET | libc::CLONE_NEWNS | if own { libc::CLONE_NEWUSER } else { 0 };
    // SAFETY: the call takes a number; this process has one thread.
    if unsafe { libc::unshare(flags) } != 0 {
        let what = "creating namespaces (unshare; `ringway doctor` says whether users may)";
        return Err(failed(what, last_error()));
    }
    if own {
        let inside = |id: u32| if launch.map_root { 0 } else { id };
        let map = |id: u32| format!("{} {id} 1\n", inside(id));
        // Without it the group can't be mapped.
        put("/proc/self/setgroups", b"deny")?;
        put("/proc/self/uid_map", map(user.as_raw()).as_bytes())?;
        put("/proc/self/gid_map", map(group.as_raw()).as_bytes())?;
    }
    let (flags, none) = (libc::MS_REC | libc::MS_PRIVATE, std::ptr::null());
    // SAFETY: the strings are constants.
    let made = unsafe { libc::mount(c"none".as_ptr(), c"/".as_ptr(), none, flags, none.cast()) };
    if made == 0 { Ok(()) } else { Err(failed("making mounts private", last_error())) }
}

fn put(path: &str, content: &[u8]) -> Result<(), Failed> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    let written = file.and_then(|file| rustix::io::write(&file, content));
    written.map(drop).map_err(|error| failed(&format!("writing {path}"), error))
}

/// Shows files in place of the host's. They lie in a memory file system that has no other name afterwards. Returns its
/// folder.
fn files(launch: &Launch) -> Result<OwnedFd, Failed> {
    let folder = &launch.folder;
    mount(Some(c"tmpfs"), None, folder, libc::MS_NOSUID | libc::MS_NODEV, "mounting a tmpfs")?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(folder, flags, Mode::empty());
    let opened = opened.map_err(|error| failed("opening a tmpfs", error))?;
    let private = rustix::fs::chmod(folder, Mode::RWXU);
    private.map_err(|error| failed("closing a tmpfs to others", error))?;
    if let Some(library) = launch.preload {
        preload::show(folder, library)?;
    }
    let empty = (folder.join("empty"), Vec::new());
    let numbered = |(number, (path, content)): (usize, &(_, Vec<u8>))| {
        let (path, content): (&std::path::PathBuf, _) = (path, content);
        ((folder.join(number.to_string()), content.clone()), path.clone())
    };
    let shown = launch.files.iter().enumerate().map(numbered);
    let hidden = launch.hidden.iter().map(|path| (empty.clone(), path.clone()));
    for ((source, content), target) in shown.chain(hidden) {
        if !target.exists() {
            continue;
        }
        std::fs::write(&source, content).map_err(|error| failed("writing a file to show", error))?;
        mount(None, Some(&source), &target, libc::MS_BIND, "showing a file")?;
    }
    let target = in_c(folder)?;
    // SAFETY: the path ends with a zero and outlives the call. What was bound from there stays.
    if unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) } != 0 {
        return Err(failed("unmounting a tmpfs", last_error()));
    }
    Ok(opened)
}

pub(super) fn in_c(path: &Path) -> Result<CString, Failed> {
    CString::new(path.as_os_str().as_bytes()).map_err(|error| failed("a path", error))
}

fn mount(
    kind: Option<&std::ffi::CStr>,
    from: Option<&Path>,
    to: &Path,
    flags: libc::c_ulong,
    what: &str,
) -> Result<(), Failed> {
    let from = from.map(in_c).transpose()?;
    let target = in_c(to)?;
    let from = from.as_deref().or(kind).map_or(std::ptr::null(), std::ffi::CStr::as_ptr);
    let kind = kind.map_or(std::ptr::null(), std::ffi::CStr::as_ptr);
    // SAFETY: each pointer is null or leads to a string that lives until the call is over.
    match unsafe { libc::mount(from, target.as_ptr(), kind, flags, std::ptr::null()) } {
        0 => Ok(()),
        _ => Err(failed(&format!("{what} at {}", to.display()), last_error())),
    }
}

/// Makes set-user-id bits and file capabilities void, so that such programs run as the user too.
fn without_suid() -> Result<(), Failed> {
    let mut settings = [0_u64; MOUNT_ATTR_SIZE / 8];
    settings[0] = NO_SUID;
    // SAFETY: the path is a constant, and the kernel reads as many bytes as `settings` has.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            c"/".as_ptr(),
            libc::AT_RECURSIVE,
            settings.as_ptr(),
            MOUNT_ATTR_SIZE,
        )
    };
    // Before Linux 5.12 no_new_privs alone does it.
    match set {
        0 => Ok(()),
        _ if last_error() == Errno::NOSYS => Ok(()),
        _ => Err(failed("making mounts nosuid", last_error())),
    }
}

/// Loads the filter, and tells the parent the number of the descriptor with the trapped calls, which `execve` closes.
fn trap(talk: &OwnedFd) -> Result<(), Failed> {
    let mut steps = filter::filter();
    let program = libc::sock_fprog { len: steps.len() as libc::c_ushort, filter: steps.as_mut_ptr() };
    let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
    // SAFETY: `program` describes `steps`, which outlive the call.
    let listener = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
    if listener < 0 {
        let what = match last_error() {
            Errno::BUSY => "trapping system calls, which another process does already; use --stack kernel",
            _ => "trapping system calls (seccomp; Linux 5.0 or later)",
        };
        return Err(failed(what, last_error()));
    }
    // `sendmsg` would be trapped.
    let number = (listener as i32).to_ne_bytes();
    rustix::io::write(talk, &number).map(drop).map_err(|error| failed("handing over", error))
}

/// Executes a program as execvp does. Returns only if that fails.
fn execute(program: &[OsString]) -> Errno {
    let words: Vec<CString> = program.iter().filter_map(|word| CString::new(word.as_bytes()).ok()).collect();
    if words.len() != program.len() || words.is_empty() {
        return Errno::INVAL;
    }
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: the list ends with a null pointer; the strings live until the call is over.
    unsafe { libc::execvp(pointers[0], pointers.as_ptr()) };
    last_error()
}
