//! Guests: small Linux virtual machines behind ports, started from a description, with a channel for
//! commands.
//!
//! A guest's file system is created at its start from programs of this host; only the log of its console
//! outlives it. A guest ends with the process that started it, unless a [`Holder`] has what another process needs to go
//! on with it. [`Guest`] is the main type; read this file first, then `uml.rs` or `qemu.rs`.
mod agent;
mod confine;
mod console;
mod facts;
mod fetch;
pub mod image;
mod leftover_processes;
mod outlive;
mod qemu;
mod qmp;
mod rate_limit;
mod supervise;
mod uml;
mod uncompressed;
mod user;

pub use console::{last_line, last_lines};
pub use facts::Facts;
pub use fetch::fetching;
pub use leftover_processes::end_left_over;
pub use outlive::{HeldGuest, Holder};
pub use qemu::{facts, kvm_known};
pub use qmp::{Monitor, MonitorError, steady_now};
pub use user::{Lease, USERS};

use ringway_host::jail::{Jail, JailError};
use ringway_host::listener::OpenError;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, PipeWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use supervise::Supervised;

/// Time in which a User-Mode Linux guest whose kernel panicked may write the rest of its trace and end by itself.
const TRACE: Duration = Duration::from_secs(1);
/// Time limit of a command that does nothing.
const PROBE: Duration = Duration::from_secs(5);

/// The program that runs the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    /// User-Mode Linux.
    Uml,
    /// QEMU.
    Qemu,
}

/// The other end of the guest's network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attachment {
    /// A vhost-user socket; the guest listens on it, or connects to it.
    VhostUser {
        /// The socket's path.
        socket: PathBuf,
        /// Whether the guest listens. User-Mode Linux can't.
        listen: bool,
    },
    /// A vfio-user socket, which QEMU connects to: the interface is an emulated PCI card.
    VfioUser {
        /// The socket's path.
        socket: PathBuf,
        /// The card's driver in Linux, such as `e1000e`.
        driver: String,
    },
    /// A TAP interface of the host, which exists already.
    Tap {
        /// The interface's name.
        interface: String,
    },
}

/// A network interface of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its other end.
    pub attachment: Attachment,
    /// Its address with prefix length, such as `10.0.0.1/24`.
    pub address: Option<String>,
    /// Its MAC address; without one, the back-end's, or a random one.
    pub mac: Option<String>,
    /// Queue pairs; User-Mode Linux has only one.
    pub queues: u16,
    /// One of QEMU's own emulated cards, named after its driver, such as `e1000`, instead of virtio-net.
    pub card: Option<String>,
    /// Further properties of QEMU's device, such as `packed=on`.
    pub options: Vec<String>,
}

impl Interface {
    /// An interface with one queue pair and no address.
    pub fn new(attachment: Attachment) -> Interface {
        Interface { attachment, address: None, mac: None, queues: 1, card: None, options: Vec::new() }
    }
}

/// A guest to start.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// The program that runs it.
    pub kind: Runner,
    /// Memory in MiB.
    pub memory: u64,
    /// Size of huge pages for QEMU's memory in KiB; ordinary pages if none.
    pub huge: Option<u64>,
    /// Virtual processors; User-Mode Linux has only one.
    pub processors: u32,
    /// Its network interfaces, `eth0` first.
    pub interfaces: Vec<Interface>,
    /// Its kernel, and the folder with its modules; one that fits the kind if none.
    pub kernel: Option<PathBuf>,
    /// The folder of the kernel's modules.
    pub modules: Option<PathBuf>,
    /// Its initial file system; ours if none. Another than ours answers no commands.
    pub initrd: Option<PathBuf>,
    /// A shell script that runs in it once its network is up.
    pub script: Option<PathBuf>,
    /// Words to add to its kernel's command line.
    pub append: Vec<String>,
    /// The program that runs QEMU, if not the one that is installed.
    pub program: Option<PathBuf>,
    /// The IOMMU in front of a QEMU guest's interfaces, used strictly by its kernel: each buffer is mapped
    /// when it is given to the device, and unmapped when it is returned.
    pub iommu: Option<Iommu>,
    /// Further words of QEMU's command line.
    pub words: Vec<String>,
    /// Additional kernel modules, loaded in this order before those of the network. A missing one is assumed
    /// to be built in.
    pub drivers: Vec<String>,
    /// Programs and libraries of this host to copy to the same paths, with the libraries that they need.
    pub carried: Vec<PathBuf>,
    /// The user of the process that runs it; a unique one if none, if this process can change users.
    pub user: Option<Arc<Lease>>,
    /// Files and folders of this host that this program sees, and writes to as far as its user may.
    pub shared: Vec<PathBuf>,
    /// Set if a QEMU guest does not boot, but is taken over from another QEMU, and then waits to be told to go on.
    pub arrival: Option<Arrival>,
}

/// What a QEMU needs to take over another QEMU's guest, besides its description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The other one's machine type, such as `pc-q35-7.2`.
    pub machine: String,
    /// The addresses of the guest's interfaces, which it announces.
    pub macs: Vec<String>,
}

/// The IOMMU of a QEMU guest's devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Iommu {
    /// VT-d.
    Intel,
    /// virtio-iommu (virtio 1.3, 5.13); the guest's kernel must have its driver.
    Virtio,
}

impl Spec {
    /// A guest with 192 MiB and one processor.
    pub fn new(name: &str, kind: Runner, interfaces: Vec<Interface>) -> Spec {
        Spec {
            name: name.to_string(),
            kind,
            memory: 192,
            huge: None,
            processors: 1,
            interfaces,
            kernel: None,
            modules: None,
            initrd: None,
            script: None,
            append: Vec::new(),
            program: None,
            iommu: None,
            words: Vec::new(),
            drivers: Vec::new(),
            carried: Vec::new(),
            user: None,
            shared: Vec::new(),
            arrival: None,
        }
    }
}

/// Errors of guests.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its kernel or file system could not be created.
    #[error(transparent)]
    Image(#[from] image::Error),
    /// The name is invalid as a folder name or a kernel argument.
    #[error("guest {0:?}: a name is at most 32 letters, digits, '-' and '_'")]
    Name(String),
    /// The program did not start.
    #[error("guest {name}: {program} did not start: {source}")]
    Start {
        /// The guest.
        name: String,
        /// The program.
        program: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The program did not start in its jail.
    #[error("guest {name}: {program} did not start: {source}")]
    Jail {
        /// The guest.
        name: String,
        /// The program.
        program: PathBuf,
        /// The jail's error.
        source: JailError,
    },
    /// No user is available for the guest.
    #[error("guest {name}: no user to run as: {source}")]
    User {
        /// The guest.
        name: String,
        /// The error.
        source: io::Error,
    },
    /// The guest's code would have its user's rights.
    #[error(
        "guest {0}: User-Mode Linux runs its guest's code as a program of this host, which can't be confined \
         here; run Ringway as root, let its user make user namespaces (`ringway doctor` says more), or use \
         kind = \"qemu\""
    )]
    Unconfined(String),
    /// Its listening socket can't be created.
    #[error("guest {name}: {source}")]
    Socket {
        /// The guest.
        name: String,
        /// The error.
        source: OpenError,
    },
    /// User-Mode Linux only connects.
    #[error("guest {0}: User-Mode Linux cannot listen on a vhost-user socket; let the port listen")]
    CannotListen(String),
    /// User-Mode Linux has no PCI devices.
    #[error("guest {0}: User-Mode Linux has no PCI cards; use kind = \"qemu\", or vhost-user ports")]
    NoCards(String),
    /// QEMU is too old for an emulated card.
    #[error(
        "guest {name}: {program} ({version}) has no device vfio-user-pci, which its emulated card needs and \
         QEMU has from 10.1 on; name a newer QEMU in [guest.{name}] by \
         program = \"/path/to/qemu-system-x86_64\" (scripts/newer-qemu.sh fetches one on Debian and prints \
         its path), or give it a vhost-user port"
    )]
    NoVfioUser {
        /// The guest.
        name: String,
        /// The program.
        program: PathBuf,
        /// Its version, if it is a QEMU.
        version: String,
    },
    /// The guest ended.
    #[error("guest {name} ended ({status}): {last}; its console is in {console}")]
    Ended {
        /// The guest.
        name: String,
        /// Its exit status.
        status: String,
        /// The last line of its console.
        last: String,
        /// The console's log.
        console: PathBuf,
    },
    /// The guest did not answer in time.
    #[error("guest {name} did not answer within {seconds} s to: {command}; see {console}")]
    Timeout {
        /// The guest.
        name: String,
        /// The time limit in seconds.
        seconds: u64,
        /// The command.
        command: String,
        /// The console's log.
        console: PathBuf,
    },
    /// Its kernel restarted, and the command was lost.
    #[error("guest {name} was restarted before it answered: {command}")]
    BeganAnew {
        /// The guest.
        name: String,
        /// The command.
        command: String,
    },
    /// A command that can't be sent.
    #[error("guest {0}: a command is one line of at most 3500 bytes")]
    Command(String),
}

/// Output and exit status of a command in a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit status of the shell; 143 or 124 after the time limit.
    pub status: i32,
    /// Standard output and error.
    pub text: String,
}

/// The program to start for a kind of guest.
struct Launch {
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// Files and folders of this host that it reads.
    reads: Vec<PathBuf>,
    /// Symbolic links of this host, with their targets.
    links: Vec<(PathBuf, PathBuf)>,
    /// Devices that it needs; it gets their groups.
    devices: Vec<PathBuf>,
    /// A private folder.
    scratch: PathBuf,
    /// Path of the preloaded library.
    preloaded: Option<PathBuf>,
    /// A writable folder of this host for its sockets, and the names under which ports find them.
    sockets: Option<PathBuf>,
    names: Vec<confine::Named>,
    note: String,
}

/// Checks that this host has the program that runs the guest, with the devices that the guest's interfaces need.
/// Nothing is started but a QEMU that is asked for its devices, once.
///
/// # Errors
/// What is missing, and the remedy.
pub fn check(spec: &Spec) -> Result<(), Error> {
    match spec.kind {
        Runner::Qemu => qemu::suitable(spec).map(drop),
        Runner::Uml if spec.kernel.is_some() && spec.modules.is_some() => Ok(()),
        Runner::Uml => Ok(image::uml().map(drop)?),
    }
}

/// The guest's kernel, of which `prepared` makes what is booted, its initial file system, and the kernel's command
/// line.
fn image(
    spec: &Spec,
    folder: &Path,
    agent: &str,
    user: Option<&Lease>,
    prepared: impl Fn(PathBuf) -> PathBuf,
) -> Result<(image::Kernel, PathBuf, Vec<String>), Error> {
    let cards = spec.interfaces.iter().filter_map(|interface| match &interface.attachment {
        Attachment::VfioUser { driver, .. } => Some(driver.as_str()),
        _ => interface.card.as_deref(),
    });
    let drivers: Vec<&str> = cards.collect();
    let found = match (&spec.kernel, &spec.modules) {
        (Some(image), Some(modules)) => image::Kernel { image: image.clone(), modules: modules.clone() },
        (kernel, modules) => {
            let usual = if spec.kind == Runner::Uml { image::uml()? } else { image::qemu(&drivers)? };
            image::Kernel {
                image: kernel.clone().unwrap_or(usual.image),
                modules: modules.clone().unwrap_or(usual.modules),
            }
        }
    };
    let found = image::Kernel { image: confine::readable(&prepared(found.image), folder, user)?, ..found };
    let initrd = match &spec.initrd {
        Some(initrd) => confine::readable(initrd, folder, user)?,
        None => {
            let path = folder.join("initramfs.cpio");
            let more = spec.drivers.iter().map(String::as_str).chain(qemu::modules(spec));
            let more = image::More {
                script: spec.script.as_deref(),
                modules: more.chain(image::with_dependencies(&drivers)).collect(),
                carried: &spec.carried,
            };
            image::write(&found, &more, &path)?;
            let owned = user.map_or(Ok(()), |user| confine::give_to_user(&path, 0o400, user));
            owned.map_err(|source| image::Error::File { path: path.clone(), source })?;
            path
        }
    };
    let mut words = vec![format!("ringway.name={}", spec.name), format!("ringway.agent={agent}")];
    for (index, interface) in spec.interfaces.iter().enumerate() {
        let (address, mac) = (interface.address.as_deref(), interface.mac.as_deref());
        let (address, mac, queues) = (address.unwrap_or("-"), mac.unwrap_or("-"), interface.queues);
        words.push(format!("ringway.eth{index}={address},{mac},{queues}"));
    }
    words.extend(spec.append.iter().cloned());
    Ok((found, initrd, words))
}

/// State shared by the threads of a guest.
#[derive(Default)]
struct Known {
    /// Number of times that it reported to be ready; more than one after a reboot.
    boots: u64,
    ended: Option<ExitStatus>,
    /// What the kernel of a User-Mode Linux guest said when it panicked.
    panic: Option<String>,
    requests: u64,
    answers: HashMap<u64, Output>,
}

#[derive(Default)]
struct Shared {
    known: Mutex<Known>,
    changed: Condvar,
}

impl Known {
    fn reason(&self, status: ExitStatus, console: &Path) -> String {
        match &self.panic {
            Some(panic) => panic.clone(),
            // Whoever killed it, its console does not say why.
            None if status.signal().is_some() => {
                format!("{status}: the end of its console: {}", console::last_line(console))
            }
            None => format!("{status}: {}", console::last_line(console)),
        }
    }
}

impl Shared {
    /// Kills a guest's process, unless it ends within `grace`, and waits until it is gone.
    fn end(&self, process: Pid, grace: Duration) {
        let kill = Instant::now() + grace;
        let mut known = self.lock();
        while known.ended.is_none() {
            let mut wait = kill.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                // The process group still exists, since its leader has not been waited for.
                let _ = kill_process_group(process, Signal::KILL);
                wait = Duration::from_secs(1);
            }
            known = self.changed.wait_timeout(known, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A kernel panicked. User-Mode Linux is told to end then, but may spin for ever if it is early in its boot, or has
    /// no memory. Only the first panic counts.
    fn panicked(self: &Arc<Shared>, spec: &Spec, process: Pid, said: String) {
        if spec.kind != Runner::Uml || self.lock().panic.is_some() {
            return;
        }
        tracing::error!(guest = spec.name, said, "its kernel panicked");
        self.lock().panic = Some(said);
        let shared = Arc::clone(self);
        std::thread::spawn(move || shared.end(process, TRACE));
    }

    /// Records the end of the process. Once it is known, the guest may be started again.
    fn ended(&self, status: ExitStatus, holder: Option<&dyn Holder>, console: &Path) {
        let reason = self.lock().reason(status, console);
        holder.into_iter().for_each(|holder| holder.ended(&reason));
        self.lock().ended = Some(status);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running guest; dropping it ends it.
pub struct Guest {
    spec: Spec,
    note: String,
    console: PathBuf,
    process: Pid,
    input: Mutex<PipeWriter>,
    shared: Arc<Shared>,
}

impl Guest {
    /// Starts a guest with its files in `folder`, which is created. It boots in the background; see
    /// [`Guest::ready`].
    pub fn start(spec: Spec, folder: &Path) -> Result<Guest, Error> {
        Guest::start_held(spec, folder, None)
    }

    /// As [`Guest::start`]; with a holder, the guest outlives this process.
    pub fn start_held(
        mut spec: Spec,
        folder: &Path,
        holder: Option<Arc<dyn Holder>>,
    ) -> Result<Guest, Error> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if spec.name.is_empty() || spec.name.len() > 32 || !spec.name.chars().all(plain) {
            return Err(Error::Name(spec.name));
        }
        confine::suffices(&spec)?;
        confine::resolve(&mut spec);
        let folder = &std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
        let at = |source| image::Error::File { path: folder.to_path_buf(), source };
        std::fs::create_dir_all(folder).map_err(at)?;
        let user = confine::user(&spec)?;
        let launch = match spec.kind {
            Runner::Uml => uml::launch(&spec, folder, user.as_deref())?,
            Runner::Qemu => qemu::launch(&spec, folder, user.as_deref())?,
        };
        let console = folder.join("console.log");
        let log = File::create(&console).map_err(at)?;
        let shared = Arc::new(Shared::default());
        let (started, child) = channel();
        let (program, note) = (launch.program.clone(), launch.note.clone());
        let jail = Jail { outlives: holder.is_some(), ..confine::jail(&spec, &launch, user.as_deref()) };
        let supervised =
            Supervised { spec: spec.clone(), shared: Arc::clone(&shared), holder, console: console.clone() };
        std::thread::spawn(move || {
            supervised.start(jail, &launch, log, &started);
            // Only now may another guest use the user and the folder.
            drop((launch, user));
        });
        let jail_error = |source| Error::Jail { name: spec.name.clone(), program: program.clone(), source };
        let gone = || Error::Start {
            name: spec.name.clone(),
            program: program.clone(),
            source: io::Error::other("its thread is gone"),
        };
        let (process, input) = child.recv().map_err(|_| gone())?.map_err(jail_error)?;
        leftover_processes::record(folder, process);
        Ok(Guest { spec, note, console, process, input: Mutex::new(input), shared })
    }

    /// Finds out whether it has booted, which another process may have heard: it answers then. Blocks if the guest
    /// reads no commands.
    pub fn probe(&self) {
        // Without an answer it counts as not booted.
        let _ = self.send("true", PROBE);
    }

    /// Its description.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The program that runs it: "User-Mode Linux", "QEMU 7 with KVM", "QEMU 11 with TCG".
    pub fn note(&self) -> &str {
        &self.note
    }

    /// The log of its console.
    pub fn console(&self) -> &Path {
        &self.console
    }

    /// Id of its process.
    pub fn process(&self) -> i32 {
        self.process.as_raw_nonzero().get()
    }

    /// Whether its process runs, and how often it has booted.
    pub fn state(&self) -> (bool, u64) {
        let known = self.shared.lock();
        (known.ended.is_none(), known.boots)
    }

    /// Its process's exit status, if it has ended.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.shared.lock().ended
    }

    /// Why it has ended, if it has: its process's exit status, and what its kernel or its console said last.
    pub fn reason(&self) -> Option<String> {
        let known = self.shared.lock();
        Some(known.reason(known.ended?, &self.console))
    }

    /// Waits until it has booted and its network is up.
    pub fn ready(&self, bound: Duration) -> Result<(), Error> {
        self.booted(1, bound)
    }

    /// Marks it as booted, after it was migrated here by QEMU.
    pub fn arrived(&self) {
        let mut known = self.shared.lock();
        known.boots = known.boots.max(1);
        self.shared.changed.notify_all();
    }

    /// Waits until it has booted `boots` times.
    pub fn booted(&self, boots: u64, bound: Duration) -> Result<(), Error> {
        self.wait(bound, "be ready", |known| (known.boots >= boots).then_some(()))
    }

    /// Runs a shell command in it, for at most `bound`, once it has booted. Several may run at once.
    pub fn run(&self, command: &str, bound: Duration) -> Result<Output, Error> {
        self.ready(bound)?;
        let boots = self.state().1;
        let id = self.send(command, bound)?;
        // The guest ends the command at its bound; its answer takes a moment longer.
        let answer = self.wait(bound + Duration::from_secs(5), command, |known| {
            let answer = known.answers.remove(&id).map(Ok);
            answer.or_else(|| (known.boots > boots).then_some(Err(())))
        });
        self.shared.lock().answers.remove(&id);
        let (name, command) = (self.spec.name.clone(), command.to_string());
        answer?.map_err(|()| Error::BeganAnew { name, command })
    }

    /// Starts a shell command in it without waiting; its answer is ignored.
    fn send(&self, command: &str, bound: Duration) -> Result<u64, Error> {
        let id = {
            let mut known = self.shared.lock();
            known.requests += 1;
            known.requests
        };
        let seconds = bound.as_secs().max(1);
        let line =
            agent::request(id, seconds, command).ok_or_else(|| Error::Command(self.spec.name.clone()))?;
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        // If the guest is gone, waiting for the answer fails.
        let _ = input.write_all(line.as_bytes()).and_then(|()| input.flush());
        Ok(id)
    }

    /// Asks it to power off; kills it if it hasn't after `bound`.
    pub fn stop(&self, bound: Duration) {
        // The result is checked below.
        let _ = self.send("poweroff -f", bound);
        let end = Instant::now() + bound;
        let mut known = self.shared.lock();
        while known.ended.is_none() && Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            known = self.shared.changed.wait_timeout(known, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(known);
        self.kill();
    }

    /// Kills it, like a power failure, and waits until its process is gone.
    pub fn kill(&self) {
        self.shared.end(self.process, Duration::ZERO);
    }

    /// Restarts its kernel and waits until it is ready again.
    pub fn reboot(&self, bound: Duration) -> Result<(), Error> {
        let boots = self.state().1;
        self.send("reboot -f", bound)?;
        self.booted(boots + 1, bound)
    }

    /// Waits until `found` returns a value from the shared state, the guest ends, or the time limit expires.
    fn wait<T>(
        &self,
        bound: Duration,
        what: &str,
        found: impl Fn(&mut Known) -> Option<T>,
    ) -> Result<T, Error> {
        let end = Instant::now() + bound;
        let mut known = self.shared.lock();
        loop {
            if let Some(value) = found(&mut known) {
                return Ok(value);
            }
            let name = self.spec.name.clone();
            let console = self.console.clone();
            if let Some(status) = known.ended {
                let last = known.panic.clone().unwrap_or_else(|| console::last_line(&console));
                return Err(Error::Ended { name, status: status.to_string(), last, console });
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Timeout {
                    name,
                    seconds: bound.as_secs(),
                    command: what.to_string(),
                    console,
                });
            }
            known = self.shared.changed.wait_timeout(known, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let process = self.process();
        f.debug_struct("Guest")
            .field("name", &self.spec.name)
            .field("process", &process)
            .finish_non_exhaustive()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
    }
}
