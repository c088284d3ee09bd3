//! Starts programs that run untrusted code, such as guests, with access only to what they are given.
//!
//! Attack: a guest's kernel is taken over, or malicious from the start. User-Mode Linux is an ordinary
//! process, so its guest's kernel can make any system call that the process may make.

mod calls;
mod control_group;
mod dynamic_user;
mod plan;
mod step;

pub use control_group::{ControlGroup, Limits};
pub use dynamic_user::dynamic_user;

use crate::error::HostError;
use plan::Plan;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};
use rustix::thread::CapabilitySet;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::OnceLock;

/// How a confined program is kept from the host's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fence {
    /// No confinement.
    None,
    /// Landlock: it opens no other files, but sees processes, and can connect to its user's UNIX sockets.
    Landlock,
    /// Namespaces: other files, processes and networks don't exist for it.
    Namespaces,
}

/// The system calls that a program may make, as far as its user and its namespaces permit them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calls {
    /// Any.
    #[default]
    Any,
    /// System calls of User-Mode Linux.
    Uml,
    /// Those, and the ones that change files, for its `hostfs`.
    UmlWithFiles,
    /// Not those that QEMU never needs. QEMU's own `-sandbox` refuses some of them too, after its start.
    Qemu,
}

/// Why a program was not started confined.
#[derive(Debug, thiserror::Error)]
pub enum JailError {
    /// A step towards its confinement was refused.
    #[error("confining it failed at {step}: {error}")]
    Step {
        /// The step.
        step: String,
        /// The operating system's error.
        error: Errno,
    },
    /// The program itself can't be executed.
    #[error("{0}")]
    Execute(Errno),
    /// A requested resource is unavailable.
    #[error("{what}: {error}")]
    Given {
        /// The resource.
        what: String,
        /// The operating system's error.
        error: Errno,
    },
    /// A resource that this process needs is unavailable.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// The resources of a confined program.
#[derive(Debug, Default)]
pub struct Jail<'a> {
    /// Its user and group; ours if none.
    pub user: Option<u32>,
    /// Its supplementary groups.
    pub groups: Vec<u32>,
    /// Readable files and folders of this host.
    pub read: Vec<PathBuf>,
    /// Readable folders with all that is mounted in them. What is writable may be in them.
    pub trees: Vec<PathBuf>,
    /// Folders that are empty, to mount something there.
    pub folders: Vec<PathBuf>,
    /// Files, folders and devices that it may write, if its user may.
    pub write: Vec<PathBuf>,
    /// Sockets that it may connect to, if its user may; they may be in folders of other owners.
    pub sockets: Vec<PathBuf>,
    /// Symbolic links and their targets. Files below the targets must be visible.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// A private folder of limited size in bytes, removed with the program.
    pub scratch: Option<(PathBuf, u64)>,
    /// Files in that folder, with their contents.
    pub files: Vec<(PathBuf, &'a [u8])>,
    /// Whether the program uses the host's network interfaces.
    pub network: bool,
    /// The system calls that it may make.
    pub calls: Calls,
    /// Largest number of processes of its user.
    pub processes: Option<u64>,
    /// The control group that limits its memory and its share of CPU time.
    pub group: Option<&'a ControlGroup>,
    /// Whether it goes on when the thread that started it ends.
    pub outlives: bool,
    /// Its descriptors from number 4 on.
    pub descriptors: Vec<BorrowedFd<'a>>,
}

/// A program to start. Its descriptor 3 is a copy of its standard error, for programs that can't use
/// descriptors 0 to 2 by number.
#[derive(Debug)]
pub struct Program<'a> {
    /// Its path in the jail.
    pub path: &'a Path,
    /// Its arguments, without its name.
    pub arguments: &'a [String],
    /// All of its environment.
    pub environment: &'a [(String, String)],
}

/// A running program. It ends when the thread that started it ends, unless [`Jail::outlives`].
#[derive(Debug)]
pub struct Jailed {
    pid: Pid,
    /// A folder to remove after it has ended.
    scratch: Option<PathBuf>,
}

/// Our ends of a program's standard input and outputs.
#[derive(Debug)]
pub struct Pipes {
    /// Its standard input.
    pub input: PipeWriter,
    /// Its standard output.
    pub output: PipeReader,
    /// Its standard error.
    pub errors: PipeReader,
}

impl Jail<'_> {
    /// Starts a program in the jail.
    pub fn start(&self, program: &Program<'_>) -> Result<(Jailed, Pipes), JailError> {
        let pipe = || std::io::pipe().map_err(|error| given("a pipe", &error));
        let (input, output, errors) = (pipe()?, pipe()?, pipe()?);
        let standard = [input.0.as_fd(), output.1.as_fd(), errors.1.as_fd(), errors.1.as_fd()];
        let given: Vec<BorrowedFd<'_>> =
            standard.into_iter().chain(self.descriptors.iter().copied()).collect();
        let fence = fence();
        let scratch =
            self.scratch.as_ref().filter(|_| fence != Fence::Namespaces).map(|(path, _)| path.clone());
        // From here on the folder is removed on drop.
        let made = Scratch(scratch);
        if let Some(path) = &made.0 {
            self.make_scratch(path)?;
        }
        let plan = Plan::new(self, fence, &given)?;
        let pid = clone(&plan, Some(program))?;
        let pipes = Pipes { input: input.1, output: output.0, errors: errors.0 };
        Ok((Jailed { pid, scratch: made.keep() }, pipes))
    }

    /// Creates its private folder in the host's file system, if nothing can be mounted.
    fn make_scratch(&self, path: &Path) -> Result<(), JailError> {
        let failed = |error: std::io::Error| given(path.display(), &error);
        // Attack: a folder of another user already exists there.
        std::fs::DirBuilder::new().create(path).map_err(failed)?;
        let folder = File::open(path).map_err(failed)?;
        for (file, content) in &self.files {
            std::fs::write(file, content).map_err(failed)?;
        }
        let named = |error| JailError::Given { what: path.display().to_string(), error };
        rustix::fs::fchmod(&folder, Mode::RWXU).map_err(named)?;
        let (user, group) =
            (self.user.map(rustix::fs::Uid::from_raw), self.user.map(rustix::fs::Gid::from_raw));
        rustix::fs::fchown(&folder, user, group).map_err(named)
    }
}

fn given(what: impl ToString, error: &std::io::Error) -> JailError {
    JailError::Given { what: what.to_string(), error: Errno::from_io_error(error).unwrap_or(Errno::IO) }
}

/// A folder that is removed.
struct Scratch(Option<PathBuf>);

impl Scratch {
    fn keep(mut self) -> Option<PathBuf> {
        self.0.take()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Usually the folder is gone already.
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

/// The wait status of a process whose status is unknown: exit code 1.
const UNKNOWN: i32 = 1 << 8;

impl Jailed {
    /// A program that another process has started, with the folder that is to be removed after its end.
    pub fn adopted(pid: Pid, scratch: Option<PathBuf>) -> Jailed {
        Jailed { pid, scratch }
    }

    /// A folder that is removed after its end.
    pub fn scratch(&self) -> Option<&Path> {
        self.scratch.as_deref()
    }

    /// Its process, which leads a process group.
    pub fn process(&self) -> Pid {
        self.pid
    }

    /// Waits for its end, if this process is its parent.
    pub fn wait(&self) -> ExitStatus {
        loop {
            match rustix::process::waitpid(Some(self.pid), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
                Ok(Some((_, status))) => return ExitStatus::from_raw(status.as_raw()),
                _ => return ExitStatus::from_raw(UNKNOWN),
            }
        }
    }
}

impl Drop for Jailed {
    fn drop(&mut self) {
        drop(Scratch(self.scratch.take()));
    }
}

/// The available confinement, determined once by trying.
pub fn fence() -> Fence {
    static FENCE: OnceLock<Fence> = OnceLock::new();
    *FENCE.get_or_init(|| {
        let works = |fence| {
            let plan = Plan::new(&Jail::default(), fence, &[]).ok()?;
            let child = Jailed { pid: clone(&plan, None).ok()?, scratch: None };
            child.wait().success().then_some(fence)
        };
        // A process that may change users needs no user namespace, which would contain only its own user.
        let namespaces =
            if plan::can_mount() || !can_change_user() { works(Fence::Namespaces) } else { None };
        namespaces.or_else(|| works(Fence::Landlock)).unwrap_or(Fence::None)
    })
}

/// Whether programs can run as another user than ours.
pub fn can_change_user() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::CHOWN;
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Forks a process that confines itself; without a program it then exits. Waits until the program runs.
fn clone(plan: &Plan, program: Option<&Program<'_>>) -> Result<Pid, JailError> {
    let strings = |texts: Vec<&OsStr>| -> Vec<CString> {
        // The kernel ends a string at the first NUL.
        let until = |text: &OsStr| {
            text.as_encoded_bytes().split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
        };
        texts.into_iter().filter_map(|text| CString::new(until(text)).ok()).collect()
    };
    let words = program.map_or_else(Vec::new, |program| {
        let arguments = program.arguments.iter().map(OsStr::new);
        strings([program.path.as_os_str()].into_iter().chain(arguments).collect())
    });
    let variables: Vec<String> = program.map_or_else(Vec::new, |program| {
        program.environment.iter().map(|(name, value)| format!("{name}={value}")).collect()
    });
    let variables = strings(variables.iter().map(OsStr::new).collect());
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (words, variables) = (&words, &variables);
    let (argv, envp) = (pointers(words), pointers(variables));
    let (mut report_reader, report_writer) = std::io::pipe().map_err(|error| given("a pipe", &error))?;
    // Its number must differ from the program's descriptors. The original is closed, since otherwise the reader would
    // never see the end of file.
    let report_writer = {
        let first = report_writer;
        above(first.as_fd(), plan.descriptors).map_err(|error| given("a pipe", &error.into()))?
    };
    let flags = plan.flags | libc::SIGCHLD;
    // SAFETY: without CLONE_VM the child has a copy of this process's memory, and of its threads this one only. It
    // neither allocates nor returns from here.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags as libc::c_long, 0, 0, 0, 0) };
    if pid == 0 {
        child(plan, &argv, &envp, report_writer.as_fd());
    }
    let error = std::io::Error::last_os_error();
    drop(report_writer);
    // `waitpid` and `kill` take -1 for all processes.
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0).and_then(Pid::from_raw);
    let Some(pid) = pid else {
        return Err(given("a process in namespaces of its own", &error));
    };
    let mut report = [0; 8];
    if report_reader.read_exact(&mut report).is_err() {
        return Ok(pid);
    }
    // The child exits after reporting.
    Jailed { pid, scratch: None }.wait();
    let [number, code] =
        [[report[0], report[1], report[2], report[3]], [report[4], report[5], report[6], report[7]]];
    let error = Errno::from_raw_os_error(i32::from_ne_bytes(code));
    Err(match plan.steps.get(u32::from_ne_bytes(number) as usize) {
        Some(step) => JailError::Step { step: step.to_string(), error },
        None => JailError::Execute(error),
    })
}

/// A copy of a descriptor with a number of at least `least`.
fn above(descriptor: BorrowedFd<'_>, least: usize) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(descriptor, i32::try_from(least).unwrap_or(i32::MAX))
}

/// The child: confines itself and executes the program. It reports errors on `report_writer`.
fn child(
    plan: &Plan,
    argv: &[*const libc::c_char],
    envp: &[*const libc::c_char],
    report_writer: BorrowedFd<'_>,
) -> ! {
    let mut failed = None;
    for (number, step) in (0_u32..).zip(&plan.steps) {
        if let Err(error) = step.run() {
            failed = Some((number, error));
            break;
        }
    }
    let path = argv.first().copied().unwrap_or(std::ptr::null());
    if failed.is_none() && path.is_null() {
        // SAFETY: the call ends this process, which is the child.
        unsafe { libc::_exit(0) };
    }
    let (number, error) = failed.unwrap_or_else(|| {
        // SAFETY: path and lists of strings live in the child's copy of its parent's memory, and the lists end in null.
        unsafe { libc::execve(path, argv.as_ptr(), envp.as_ptr()) };
        // SAFETY: it is this thread's.
        (u32::MAX, Errno::from_raw_os_error(unsafe { *libc::__errno_location() }))
    });
    let [a, b, c, d] = number.to_ne_bytes();
    let [e, f, g, h] = error.raw_os_error().to_ne_bytes();
    // Without a parent the report is not needed.
    let _ = rustix::io::write(report_writer, &[a, b, c, d, e, f, g, h]);
    // SAFETY: as above.
    unsafe { libc::_exit(127) }
}
