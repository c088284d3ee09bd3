//! The program runs in a guest: User-Mode Linux over the host's files (`hostfs`), which are read-only but for named
//! folders. Linux's own TCP, `ip`, `ss`, `tc` and `sysctl` are the guest's.
//!
//! The guest is a process of this user in a jail. Its first process is this program again (`first.rs`), which reads an
//! [`Order`] and runs the program. A serial line carries what the program reads and writes (`message.rs`).

mod first;
mod interface;
mod message;
mod modules;
mod order;
mod relay;
mod setup;
mod terminal;

pub use first::be_first_process;

use crate::run::{Ended, ExecError, Options, files, mac};
use interface::Interface;
use order::Order;
use ringway_host::jail::{Calls, Fence, Jail, JailError, Jailed, Pipes, Program, fence};
use ringway_host::{SignalFd, ptrace_library, uml_needs_ptrace_library};
use rustix::io::Errno;
use rustix::termios::isatty;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::FileType;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use terminal::size_of;

/// The word by which the first process knows that it is one.
const FIRST: &str = "exec-first-process";
/// The guest's end of its serial line.
const LINE: &str = "/dev/ttyS0";
/// The name that the program knows its interface by.
const INTERFACE: &str = "eth0";
const CONTROL: &str = "net.ipv4.tcp_congestion_control";
/// A folder in memory for the guest's memory, the order and a library. The guest has its own `/run` there.
const SCRATCH: &str = "/run/ringway";
/// Links in the jail: the first process's program, and the port's socket. The kernel's command line has no quotes.
const PROGRAM: &str = "/ringway-init";
const PORT: &str = "/ringway-port";
/// Bytes that the folder may have besides the guest's memory.
const OVERHEAD: u64 = 32 << 20;
/// MiB that a guest has by default. The host gives them when they are used.
pub const MEMORY: u32 = 512;
/// Top folders of the host that the guest does not see: it has its own.
const OWN: [&str; 5] = ["dev", "proc", "run", "sys", "tmp"];
/// The program of the package `user-mode-linux`.
const KERNEL: &str = "linux.uml";

/// A guest for a program.
#[derive(Clone, Debug)]
pub struct Linux {
    /// User-Mode Linux; the installed one if none.
    pub kernel: Option<PathBuf>,
    /// Folders of the host that may be written.
    pub writable: Vec<PathBuf>,
    /// Its memory in MiB.
    pub memory: u32,
    /// The socket of a vhost-user port that it connects to by itself; none: frames pass a device.
    pub port: Option<PathBuf>,
}

impl Default for Linux {
    fn default() -> Linux {
        Linux { kernel: None, writable: Vec::new(), memory: MEMORY, port: None }
    }
}

/// Why a guest can't be started, or its program not run.
#[derive(Debug, thiserror::Error)]
pub enum LinuxError {
    /// There is no User-Mode Linux.
    #[error(
        "{0} is not there: --stack linux needs User-Mode Linux; install the package user-mode-linux, or name \
         such a kernel by --kernel FILE"
    )]
    Kernel(PathBuf),
    /// A folder that is to be writable can't be.
    #[error("--writable {}: {error}", .path.display())]
    Writable {
        /// Its path.
        path: PathBuf,
        /// The kernel's reason.
        error: io::Error,
    },
    /// The guest's code would have all of the user's rights.
    #[error(
        "--stack linux needs namespaces of users, mounts and processes, which this user may not make here; \
         `ringway doctor` says more"
    )]
    Unconfined,
    /// The jail can't be made.
    #[error("starting {program}: {error}", program = .program.display())]
    Jail {
        /// The kernel.
        program: PathBuf,
        /// The jail's error.
        error: JailError,
    },
    /// A file of this host can't be read.
    #[error("{}: {error}", .path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The kernel's reason.
        error: io::Error,
    },
    /// A system call failed.
    #[error("{call}: {error}")]
    Call {
        /// What was tried.
        call: &'static str,
        /// The kernel's reason.
        error: Errno,
    },
    /// The first process could not prepare the guest.
    #[error("{0}")]
    Prepare(String),
    /// The guest has ended before its program.
    #[error("the guest's kernel has ended ({status}): {last}")]
    Ended {
        /// Its status.
        status: String,
        /// The last line of its console.
        last: String,
    },
    /// The guest sent what no first process sends.
    #[error("the guest sends what is no message; its kernel may be broken: {last}")]
    Message {
        /// The last line of its console.
        last: String,
    },
}

/// A guest that starts, or runs.
#[derive(Debug)]
pub struct Machine {
    jailed: Jailed,
    pipes: Pipes,
    interface: Option<Interface>,
    terminal: [bool; 3],
}

impl Machine {
    /// Starts a guest for a program. The caller's thread must live as long as the guest.
    ///
    /// # Errors
    /// There is no kernel, no namespaces, or a folder is not there.
    pub fn start(options: &Options) -> Result<Machine, LinuxError> {
        if fence() != Fence::Namespaces {
            return Err(LinuxError::Unconfined);
        }
        let kernel = kernel(options.linux.kernel.as_deref())?;
        let own = Path::new("/proc/self/exe");
        let own = own.read_link().map_err(|error| LinuxError::File { path: own.into(), error })?;
        let writable = writable(&options.linux.writable)?;
        let terminal = [isatty(io::stdin()), isatty(io::stdout()), isatty(io::stderr())];
        let order = order(options, &writable, terminal)?.to_bytes();
        let (interface, theirs) = match &options.linux.port {
            Some(_) => (None, None),
            None => Interface::new()
                .map(|(ours, theirs)| (Some(ours), Some(theirs)))
                .map_err(|error| LinuxError::Call { call: "socketpair", error })?,
        };
        let jail = jail(options, &kernel, &own, &writable, &order, theirs.as_ref().map(OwnedFd::as_fd))?;
        let library = uml_needs_ptrace_library().then(|| ("LD_PRELOAD".into(), in_scratch("ptrace.so")));
        let environment: Vec<(String, String)> =
            [("TMPDIR".into(), SCRATCH.into())].into_iter().chain(library).collect();
        let arguments = arguments(&options.linux);
        let program = Program { path: &kernel, arguments: &arguments, environment: &environment };
        let started = jail.start(&program);
        let (jailed, pipes) = started.map_err(|error| LinuxError::Jail { program: kernel.clone(), error })?;
        Ok(Machine { jailed, pipes, interface, terminal })
    }

    /// The end of the guest's interface, unless its port has it.
    pub fn take_interface(&mut self) -> Option<Interface> {
        self.interface.take()
    }

    /// Serves the program until it has ended, and ends the guest.
    ///
    /// # Errors
    /// The guest has ended, or there is no such program.
    pub fn attend(self, options: &Options, signals: &SignalFd) -> Result<Ended, ExecError> {
        relay::Relay::new(self, options, signals)?.run()
    }
}

fn in_scratch(name: &str) -> String {
    format!("{SCRATCH}/{name}")
}

/// The kernel's file.
fn kernel(named: Option<&Path>) -> Result<PathBuf, LinuxError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/usr/local/bin"].map(PathBuf::from);
    let found = match named {
        Some(named) => Some(named.to_path_buf()),
        None => std::env::split_paths(&path)
            .chain(usual)
            .map(|folder| folder.join(KERNEL))
            .find(|path| path.is_file()),
    };
    let missing = || LinuxError::Kernel(named.unwrap_or(Path::new(KERNEL)).into());
    found.and_then(|path| path.canonicalize().ok()).filter(|path| path.is_file()).ok_or_else(missing)
}

/// Folders that may be written, as the guest knows them.
fn writable(folders: &[PathBuf]) -> Result<Vec<PathBuf>, LinuxError> {
    let whole = |path: &PathBuf| {
        let failed = |error| LinuxError::Writable { path: path.clone(), error };
        let whole = path.canonicalize().map_err(failed)?;
        match whole.is_dir() && whole.parent().is_some() {
            true => Ok(whole),
            false => Err(failed(io::ErrorKind::NotADirectory.into())),
        }
    };
    folders.iter().map(whole).collect()
}

fn order(options: &Options, writable: &[PathBuf], terminal: [bool; 3]) -> Result<Order, LinuxError> {
    let folder = std::env::current_dir().map_err(|error| LinuxError::File { path: ".".into(), error })?;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let id = |id: u32| if options.map_root { 0 } else { id };
    let groups = rustix::process::getgroups().unwrap_or_default();
    let variable = |(name, value): (OsString, OsString)| [name, value].join(OsStr::new("="));
    // The call that tells it also sets it.
    let umask = rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    rustix::process::umask(umask);
    let is_virtio = options.linux.port.is_some();
    Ok(Order {
        words: options.program.clone(),
        variables: std::env::vars_os().map(variable).collect(),
        folder,
        user: id(user.as_raw()),
        group: id(group.as_raw()),
        groups: groups.iter().map(|group| group.as_raw()).collect(),
        umask: umask.bits(),
        limits: options.limits.clone(),
        machine: OsString::from(rustix::system::uname().nodename().to_string_lossy().into_owned()),
        interface: if is_virtio { INTERFACE } else { "vec0" }.into(),
        modules: if is_virtio { vec!["virtio_net".into()] } else { Vec::new() },
        addresses: options.addresses.clone(),
        gateways: options.gateways.clone(),
        mac: mac(&options.addresses),
        mtu: options.mtu,
        sysctls: options.sysctls.clone(),
        files: files(options),
        writable: writable.to_vec(),
        terminal,
        size: size_of(terminal),
    })
}

/// The kernel's command line.
fn arguments(linux: &Linux) -> Vec<String> {
    let mut words = vec![
        format!("mem={}M", linux.memory),
        "root=/dev/root".into(),
        "rootfstype=hostfs".into(),
        "rootflags=/".into(),
        "ro".into(),
        format!("init={PROGRAM}"),
        "umid=ringway".into(),
        format!("uml_dir={SCRATCH}"),
        "con=null".into(),
        "con0=null,fd:2".into(),
        "ssl=null".into(),
        "ssl0=fd:0,fd:1".into(),
        "console=tty0".into(),
        "quiet".into(),
        // A panic ends the process instead of waiting.
        "panic=-1".into(),
    ];
    words.push(match &linux.port {
        Some(_) => format!("virtio_uml.device={PORT}:1"),
        None => "vec0:transport=fd,fd=4,depth=128".into(),
    });
    words.extend(["--".into(), FIRST.into(), in_scratch("order")]);
    words
}

/// The host's files, read-only but for folders, and nothing else of the host.
fn jail<'a>(
    options: &'a Options,
    kernel: &Path,
    own: &Path,
    writable: &[PathBuf],
    order: &'a [u8],
    interface: Option<BorrowedFd<'a>>,
) -> Result<Jail<'a>, LinuxError> {
    let (mut trees, mut links) = (Vec::new(), Vec::new());
    for (path, kind) in top_folders()? {
        if kind.is_symlink() {
            let to = path.read_link().map_err(|error| LinuxError::File { path: path.clone(), error })?;
            links.push((path, to));
        } else if kind.is_dir() {
            trees.push(path);
        }
    }
    links.push(("/proc/self/exe".into(), kernel.into()));
    links.push((PROGRAM.into(), own.into()));
    links.extend(options.linux.port.iter().map(|socket| (PORT.into(), socket.clone())));
    let devices = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"].map(PathBuf::from);
    let library = uml_needs_ptrace_library().then(|| (in_scratch("ptrace.so").into(), ptrace_library()));
    Ok(Jail {
        // Those that are in a folder which the guest does not see.
        read: vec![kernel.into(), own.into(), "/proc/cpuinfo".into()],
        trees,
        folders: OWN.iter().map(|name| Path::new("/").join(name)).collect(),
        write: devices.into_iter().chain(writable.iter().cloned()).collect(),
        sockets: options.linux.port.iter().cloned().collect(),
        links,
        scratch: Some((SCRATCH.into(), OVERHEAD + (u64::from(options.linux.memory) << 20))),
        files: [(in_scratch("order").into(), order)].into_iter().chain(library).collect(),
        calls: Calls::UmlWithFiles,
        descriptors: interface.into_iter().collect(),
        ..Jail::default()
    })
}

/// What is in the root folder of the host, and the guest sees.
fn top_folders() -> Result<BTreeMap<PathBuf, FileType>, LinuxError> {
    let failed = |error| LinuxError::File { path: "/".into(), error };
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir("/").map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !OWN.iter().any(|own| entry.file_name() == *own) {
            all.insert(entry.path(), entry.file_type().map_err(failed)?);
        }
    }
    Ok(all)
}
