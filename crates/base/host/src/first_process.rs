//! What the first process of a guest does: it mounts file systems, names its interface, and starts a program with
//! another user's rights. To be called while the process has one thread.

use crate::error::{HostError, Named};
use crate::tap::{Request, control_socket, last_error};
use crate::{TapAddresses, TapSettings};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, WaitOptions, setrlimit};
use rustix::thread::{Gid, Uid};
use std::ffi::{CString, OsStr, OsString};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// `SIOCSIFNAME`.
const SET_NAME: libc::Ioctl = 0x8923;

/// Mounts a new file system of a kind, with its options, without set-user-id bits and, but for `devpts`, devices.
///
/// # Errors
/// There is no such kind or folder, or the process may not.
pub fn mount_new(kind: &str, at: &Path, options: &str) -> Result<(), Errno> {
    let devices = if kind == "devpts" { 0 } else { libc::MS_NODEV };
    mount(Some(OsStr::new("none")), at, Some(kind), libc::MS_NOSUID | devices, Some(options))
}

/// Shows a file or folder in place of another one.
///
/// # Errors
/// One of them does not exist, or the process may not.
pub fn mount_in_place(from: &Path, at: &Path) -> Result<(), Errno> {
    mount(Some(from.as_os_str()), at, None, libc::MS_BIND, None)
}

fn mount(
    from: Option<&OsStr>,
    at: &Path,
    kind: Option<&str>,
    flags: libc::c_ulong,
    options: Option<&str>,
) -> Result<(), Errno> {
    let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(|_| Errno::INVAL);
    let (from, at) = (from.map(text).transpose()?, text(at.as_os_str())?);
    let kind = kind.map(OsStr::new).map(text).transpose()?;
    let options = options.map(OsStr::new).map(text).transpose()?;
    let pointer = |text: &Option<CString>| text.as_deref().map_or(std::ptr::null(), std::ffi::CStr::as_ptr);
    // SAFETY: each pointer is null or leads to a string that lives until the call is over.
    let done =
        unsafe { libc::mount(pointer(&from), at.as_ptr(), pointer(&kind), flags, pointer(&options).cast()) };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

/// Gives the interface `from` its name and its Ethernet address, sets its addresses, and brings it up, and the loopback
/// interface.
///
/// # Errors
/// There is no such interface, or it can't have these addresses.
pub fn configure_interface(
    from: &str,
    settings: &TapSettings,
    addresses: &TapAddresses,
) -> Result<(), HostError> {
    crate::tap::bring_up("lo")?;
    if from != settings.name {
        let was = TapSettings { name: from.into(), ..settings.clone() };
        Request::new(&was)?.rename(&settings.name)?;
    }
    let request = Request::new(settings)?;
    request.configure()?;
    request.add(addresses)
}

impl Request<'_> {
    fn rename(&self, to: &str) -> Result<(), HostError> {
        let control = control_socket(rustix::net::AddressFamily::INET)?;
        let mut request = self.ifreq();
        let mut name = [0; libc::IFNAMSIZ];
        name.iter_mut().zip(to.bytes()).for_each(|(to, from)| *to = from as libc::c_char);
        request.ifr_ifru.ifru_newname = name;
        self.ioctl(&control, SET_NAME, &mut request, "naming it")
    }
}

/// A pseudo-terminal (pty(7)).
#[derive(Debug)]
pub struct Terminal {
    /// The end that shows and types.
    pub screen: OwnedFd,
    /// The end that programs have.
    pub program: OwnedFd,
}

/// Opens a pseudo-terminal.
///
/// # Errors
/// There is no `/dev/ptmx`, or no `/dev/pts`.
pub fn open_terminal() -> Result<Terminal, HostError> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let screen = rustix::fs::open("/dev/ptmx", flags, Mode::empty()).named("opening /dev/ptmx")?;
    let (mut number, unlocked): (libc::c_int, libc::c_int) = (0, 0);
    // SAFETY: both calls take the address of a number, which lives until they are over.
    let done = unsafe {
        libc::ioctl(screen.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked)
            | libc::ioctl(screen.as_raw_fd(), libc::TIOCGPTN, &raw mut number)
    };
    if done < 0 {
        return Err(last_error()).named("unlocking a pseudo-terminal");
    }
    let program = rustix::fs::open(format!("/dev/pts/{number}"), flags, Mode::empty());
    Ok(Terminal { screen, program: program.named("opening a pseudo-terminal")? })
}

/// A program to start, and what it is to have.
#[derive(Clone, Debug, Default)]
pub struct ProgramStart {
    /// The program and its arguments. It is searched for as by execvp.
    pub words: Vec<OsString>,
    /// Its environment, each variable as `NAME=value`.
    pub variables: Vec<OsString>,
    /// The folder that it starts in.
    pub folder: PathBuf,
    /// Its user, group and supplementary groups.
    pub user: u32,
    /// Its group.
    pub group: u32,
    /// Its supplementary groups.
    pub groups: Vec<u32>,
    /// Limits, for both of them.
    pub limits: Vec<(Resource, u64)>,
    /// The permissions that files which it makes do not have.
    pub umask: u32,
    /// Which of its standard descriptors is its controlling terminal.
    pub terminal: Option<usize>,
}

/// Starts a program in a session of its own, with these standard descriptors. Returns when it runs.
///
/// # Errors
/// The kernel's reason why it can't be executed.
pub fn start_program(start: &ProgramStart, standard: [BorrowedFd<'_>; 3]) -> Result<Pid, Errno> {
    let strings = |all: &[OsString]| -> Result<Vec<CString>, Errno> {
        all.iter().map(|text| CString::new(text.as_bytes()).map_err(|_| Errno::INVAL)).collect()
    };
    let (words, variables) = (strings(&start.words)?, strings(&start.variables)?);
    let (mut reader, writer) = std::io::pipe().map_err(|_| Errno::MFILE)?;
    // SAFETY: the child has one thread, a copy of this one; the C library's fork leaves its allocator usable there.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(reader);
        let error = become_program(start, standard, &words, &variables);
        // If the parent is gone, nobody is to be told.
        let _ = rustix::io::write(&writer, &error.raw_os_error().to_ne_bytes());
        // SAFETY: it ends this process, without what the parent has registered to be run at its end.
        unsafe { libc::_exit(127) }
    }
    drop(writer);
    let process = Pid::from_raw(child).filter(|_| child > 0).ok_or_else(last_error)?;
    let mut number = [0; 4];
    if reader.read_exact(&mut number).is_err() {
        // The pipe was closed as the program was executed.
        return Ok(process);
    }
    let _ = rustix::process::waitpid(Some(process), WaitOptions::empty());
    Err(Errno::from_raw_os_error(i32::from_ne_bytes(number)))
}

/// Becomes the program; returns only if that fails.
fn become_program(
    start: &ProgramStart,
    standard: [BorrowedFd<'_>; 3],
    words: &[CString],
    variables: &[CString],
) -> Errno {
    if let Err(error) = change(start, standard) {
        return error;
    }
    let list = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (words, variables) = (list(words), list(variables));
    if words[0].is_null() {
        return Errno::INVAL;
    }
    unsafe extern "C" {
        static mut environ: *const *const libc::c_char;
    }
    // SAFETY: this process has one thread. Both lists end with a null pointer, and they and their strings live until
    // the call is over; execvp looks for PATH in the environment.
    unsafe {
        environ = variables.as_ptr();
        libc::execvp(words[0], words.as_ptr());
    }
    last_error()
}

fn change(start: &ProgramStart, standard: [BorrowedFd<'_>; 3]) -> Result<(), Errno> {
    rustix::process::setsid()?;
    // The originals may have the numbers that are to be taken.
    let copies = [0, 1, 2].map(|at| rustix::io::fcntl_dupfd_cloexec(standard[at], 10));
    for (number, copy) in (0..).zip(&copies) {
        let copy = copy.as_ref().map_err(|error| *error)?;
        // SAFETY: the call takes numbers; what had the number belongs to values that this process never uses or drops,
        // since it becomes the program or ends.
        if unsafe { libc::dup2(copy.as_raw_fd(), number) } < 0 {
            return Err(last_error());
        }
    }
    if let Some(copy) = start.terminal.and_then(|at| copies.get(at)?.as_ref().ok()) {
        rustix::process::ioctl_tiocsctty(copy.as_fd())?;
    }
    for (resource, most) in &start.limits {
        setrlimit(*resource, Rlimit { current: Some(*most), maximum: Some(*most) })?;
    }
    let groups: Vec<Gid> = start.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    rustix::thread::set_thread_groups(&groups)?;
    let (group, user) = (Gid::from_raw(start.group), Uid::from_raw(start.user));
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)?;
    rustix::process::umask(Mode::from_bits_truncate(start.umask));
    rustix::process::chdir(&start.folder)?;
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: a set of signals is numbers, all of whose values are valid; the calls read and write it only.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
    Ok(())
}

/// Sends a signal by its number to all other processes.
pub fn signal_all(number: i32) {
    // SAFETY: the call takes numbers only. There may be no other process.
    unsafe { libc::kill(-1, number) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn start(words: &[&str]) -> ProgramStart {
        ProgramStart {
            words: words.iter().map(OsString::from).collect(),
            variables: vec!["PATH=/usr/bin:/bin".into(), "MARK=here".into()],
            folder: "/usr".into(),
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
            limits: vec![(Resource::Nofile, 40)],
            umask: 0o27,
            ..ProgramStart::default()
        }
    }

    #[test]
    fn a_program_has_what_it_is_to_have() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (mut out, writer) = std::io::pipe().unwrap();
        let (input, mut typed) = std::io::pipe().unwrap();
        let words =
            ["sh", "-c", "read x; echo $x $MARK $PWD $(ulimit -n) $(umask) $$ $(ps -o sid= $$); exit 3"];
        let process = start_program(&start(&words), [input.as_fd(), writer.as_fd(), writer.as_fd()]).unwrap();
        drop(writer);
        typed.write_all(b"typed\n").unwrap();
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        let (_, status) = rustix::process::waitpid(Some(process), WaitOptions::empty()).unwrap().unwrap();
        let number = process.as_raw_nonzero();
        assert_eq!(text.trim_end(), format!("typed here /usr 40 0027 {number} {number}"));
        assert_eq!(status.exit_status(), Some(3));
    }

    #[test]
    fn a_program_that_is_not_there_is_told() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let null = std::fs::File::open("/dev/null").unwrap();
        let standard = [null.as_fd(); 3];
        assert_eq!(start_program(&start(&["no-such-program"]), standard), Err(Errno::NOENT));
        assert_eq!(start_program(&start(&["/usr"]), standard), Err(Errno::ACCESS));
        assert_eq!(start_program(&start(&[]), standard), Err(Errno::INVAL));
    }

    #[test]
    fn a_terminal_has_two_ends() {
        let Ok(terminal) = open_terminal() else { return };
        rustix::io::write(&terminal.screen, b"typed\n").unwrap();
        let mut bytes = [0; 10];
        assert_eq!(rustix::io::read(&terminal.program, &mut bytes), Ok(6));
        assert!(rustix::termios::isatty(&terminal.program));
    }
}
