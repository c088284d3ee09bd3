//! A program from its start to its end.

use crate::agent::{Agent, Interim, Journal, Served};
use crate::bridge::bridge;
use crate::direct::device::Switch;
use crate::direct::{self, Made, attendant};
use crate::kernel_sockets::KernelSockets;
use crate::limits::{self, Limit};
use crate::linux::{self, Linux, Machine};
use crate::standby::{Attachment, Parts, Standby};
use ringway_host::{
    Clock, EventFd, HostError, Inside, Launch, LaunchError, Launched, SignalFd, TapAddresses, TapSettings,
    Trap, become_subreaper, collect_children, end_by_signal, end_children, launch, pass_signal, random,
    spawn, start_child, wait_readable,
};
use ringway_netstack::{Cidr, Settings};
use ringway_sockets::query::About;
use ringway_sockets::{Config, Device, DeviceError, Host, LentRing, TapDevice};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interface's name in the program's namespace.
const INTERFACE: &str = "eth0";
/// Signals that this process takes. It passes those on to the program that another process has sent; those of a
/// terminal reach the program anyway.
pub(crate) const TAKEN: [i32; 10] = [
    signals::HUP,
    signals::INT,
    signals::QUIT,
    signals::USR1,
    signals::USR2,
    signals::ALRM,
    signals::TERM,
    signals::CONT,
    signals::WINCH,
    // An orphan of the program has ended, and is to be collected.
    signals::CHLD,
];
/// Those that end the wait for peers.
pub(crate) const ENDING: [i32; 3] = [signals::HUP, signals::INT, signals::TERM];
/// Descriptors of the agent, if it may have as many: for all sockets of its table, and its own.
const DESCRIPTORS: u64 = 1 << 17;
/// How long what the program left running may take to end when it is killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// The library that programs preload.
const LIBRARY: &[u8] = include_bytes!(env!("PRELOAD_LIBRARY"));
/// Sockets of name services that ask from the host's network.
const HIDDEN: [&str; 6] = [
    "/run/nscd/socket",
    "/var/run/nscd/socket",
    "/run/avahi-daemon/socket",
    "/var/run/avahi-daemon/socket",
    "/run/systemd/resolve/io.systemd.Resolve",
    "/run/systemd/resolve/io.systemd.Resolve.Monitor",
];

/// Numbers of signals (signal(7)).
pub(crate) mod signals {
    pub const HUP: i32 = 1;
    pub const INT: i32 = 2;
    pub const QUIT: i32 = 3;
    pub const KILL: i32 = 9;
    pub const USR1: i32 = 10;
    pub const USR2: i32 = 12;
    pub const ALRM: i32 = 14;
    pub const TERM: i32 = 15;
    pub const CHLD: i32 = 17;
    pub const CONT: i32 = 18;
    pub const WINCH: i32 = 28;
}

/// Whose TCP serves the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Ringway's.
    Native,
    /// The host kernel's.
    Kernel,
    /// That of User-Mode Linux, in which the program runs.
    Linux,
}

/// Which processes may share a stack, and use their connections without the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// None.
    #[default]
    Off,
    /// Those that ask for it by `ringway-direct`.
    OnRequest,
    /// All that load the C library, by a preloaded library (`ringway-preload`).
    Preloaded {
        /// After how many calls on it a connection moves: those that end soon never do.
        after: u16,
    },
}

impl Direct {
    /// For unmodified programs: a connection of a request and an answer, or of a few, does not move.
    pub const PRELOADED: Direct = Direct::Preloaded { after: 8 };
}

/// A program and its network.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// Whose TCP serves it.
    pub mode: Mode,
    /// Its addresses.
    pub addresses: Vec<Cidr>,
    /// Gateways to other networks.
    pub gateways: Vec<IpAddr>,
    /// Name servers.
    pub dns: Vec<IpAddr>,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Whether the device takes frames without checksums and segmentation.
    pub offloads: bool,
    /// Whether the program is root in its user namespace.
    pub map_root: bool,
    /// Settings of the stack, if it is Ringway's.
    pub settings: Settings,
    /// The secret of sequence numbers and timestamps, which programs that follow each other at an address share.
    pub sequence_secret: Option<[u64; 2]>,
    /// Whether to print how each socket is served.
    pub explain: bool,
    /// Settings of the kernel's network in the namespace: names as of sysctl, and values.
    pub sysctls: Vec<(String, String)>,
    /// Where `ringway stack` asks, if the stack is Ringway's: the first of these at which no program listens.
    pub query: Vec<PathBuf>,
    /// Limits of each of its processes.
    pub limits: Vec<Limit>,
    /// Whether processes may share a stack, and use their connections without the agent.
    pub direct: Direct,
    /// How long the program may go on after SIGTERM, until it is killed; for ever if none.
    pub kill_after: Option<Duration>,
    /// The guest that the program runs in, with [`Mode::Linux`].
    pub linux: Linux,
    /// What the network is attached to, so that another agent can serve the program if the first one is killed, with
    /// [`Mode::Native`]; none: no other one does.
    pub attachment: Option<Attachment>,
}

/// Why a program could not be run.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// It could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A system call failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A folder to prepare files in can't be created.
    #[error("{}: {error}; set TMPDIR to a folder that you may write to", .path.display())]
    Folder {
        /// Its path.
        path: PathBuf,
        /// The kernel's reason.
        error: std::io::Error,
    },
    /// The socket for `ringway stack` can't be made.
    #[error("{}: {error}; `--name NAME` chooses another name for `ringway stack`", .path.display())]
    Query {
        /// Its path.
        path: PathBuf,
        /// The kernel's reason.
        error: std::io::Error,
    },
    /// A process can't be limited so.
    #[error("the limit {0:?}: {1}; only root may set one above that of this shell, see `ulimit -a`")]
    Limit(Limit, #[source] Errno),
    /// Its device can't be used.
    #[error("the program's network: {0}")]
    Device(#[from] DeviceError),
    /// The guest can't be started, or has ended.
    #[error(transparent)]
    Linux(#[from] linux::LinuxError),
    /// A system call of the agent failed.
    #[error("the agent: {0}")]
    Agent(#[from] Errno),
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this exit status.
    Status(u8),
    /// By this signal.
    Signal(i32),
}

impl Ended {
    /// Ends this process as the program has ended; returns the exit status if it does not end by a signal.
    pub fn repeat(self) -> u8 {
        match self {
            Ended::Status(status) => status,
            Ended::Signal(number) => {
                end_by_signal(number);
                // As a shell reports it.
                128_u8.wrapping_add(number as u8)
            }
        }
    }
}

/// A program that is being prepared.
#[derive(Debug)]
pub struct Prepared {
    options: Options,
    started: Started,
    signals: SignalFd,
}

/// What was started for a program.
#[derive(Debug)]
enum Started {
    Process {
        launched: Launched,
        /// The process of the shared stack, and its socket.
        attendant: Option<(Pid, OwnedFd)>,
        standby: Option<Standby>,
    },
    Machine(Box<Machine>),
}

/// Prepares a process for a program. To be called while this process has one thread.
///
/// The preparation goes on beside the caller's: [`Prepared::run`] waits for it, and reports what went wrong.
///
/// # Errors
/// There can't be one more process, or a folder to prepare files in.
pub fn prepare(options: Options) -> Result<Prepared, ExecError> {
    Clock::begin();
    if options.mode == Mode::Linux {
        raise_descriptors();
        // The signals are still delivered to the guest's process.
        let machine = Box::new(Machine::start(&options)?);
        return Ok(Prepared { started: Started::Machine(machine), signals: SignalFd::new(&TAKEN)?, options });
    }
    let (first, more) =
        options.addresses.split_first().map_or((None, &[][..]), |(first, more)| (Some(first), more));
    let pair = |cidr: &Cidr| (cidr.address, cidr.prefix);
    let folder = std::env::temp_dir().join(format!("ringway-exec-{:016x}", random()?));
    let created = DirBuilder::new().mode(0o700).create(&folder);
    created.map_err(|error| ExecError::Folder { path: folder.clone(), error })?;
    let launched = launch(&Launch {
        program: options.program.clone(),
        map_root: options.map_root,
        interface: TapSettings {
            name: INTERFACE.into(),
            queues: 1,
            mtu: options.mtu,
            offloads: options.offloads,
            mac: mac(&options.addresses),
            address: first.map(pair),
            namespace: None,
        },
        addresses: TapAddresses { more: more.iter().map(pair).collect(), gateways: options.gateways.clone() },
        files: files(&options),
        hidden: HIDDEN.map(PathBuf::from).to_vec(),
        folder: folder.clone(),
        sysctls: options.sysctls.clone(),
        preload: match options.direct {
            Direct::Preloaded { .. } if options.mode == Mode::Native => Some(LIBRARY),
            _ => None,
        },
        trap: options.mode == Mode::Native,
    });
    if launched.is_err() {
        // Nobody uses it.
        let _ = std::fs::remove_dir(&folder);
    }
    let launched = launched?;
    let attachment = options.attachment.as_ref().filter(|_| options.mode == Mode::Native);
    let standby = attachment.map(|attachment| Standby::start(&options, attachment)).transpose()?;
    become_subreaper()?;
    raise_descriptors();
    let signals = SignalFd::new(&TAKEN)?;
    let shares = options.direct != Direct::Off && options.mode == Mode::Native;
    let attendant = if shares {
        // The attendant's clock is this process's.
        Clock::new();
        Some(start_child(attendant::run)?)
    } else {
        None
    };
    Ok(Prepared { options, started: Started::Process { launched, attendant, standby }, signals })
}

/// The agent has an end of each of the program's sockets, and a guest each of its open files. Root may have more than
/// the limit of its session.
pub(crate) fn raise_descriptors() {
    let most = getrlimit(Resource::Nofile).maximum;
    let limit = |most| setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    let _ = limit(most.map(|most| most.max(DESCRIPTORS))).or_else(|_| limit(most));
}

/// The link-layer address for a program's first address. Its successor at the address has the same one: neighbours
/// don't replace one that they have confirmed less than a second ago.
pub(crate) fn mac(addresses: &[Cidr]) -> Option<[u8; 6]> {
    let mut hasher = DefaultHasher::new();
    addresses.first()?.address.hash(&mut hasher);
    let [a, b, c, d, e, ..] = hasher.finish().to_ne_bytes();
    // Locally administered, of one station.
    Some([2, a, b, c, d, e])
}

/// The files that a program sees in place of the host's.
pub(crate) fn files(options: &Options) -> Vec<(PathBuf, Vec<u8>)> {
    let mut resolv = String::from("# Written by ringway exec.\n");
    options.dns.iter().for_each(|server| resolv += &format!("nameserver {server}\n"));
    let mut hosts = String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost\n");
    let name = rustix::system::uname();
    if let (Ok(name), Some(cidr)) = (name.nodename().to_str(), options.addresses.first()) {
        hosts += &format!("{} {name}\n", cidr.address);
    }
    vec![("/etc/resolv.conf".into(), resolv.into_bytes()), ("/etc/hosts".into(), hosts.into_bytes())]
}

impl Prepared {
    /// The signals that ask this process to end, for a caller that waits for a device. One that is taken from it does
    /// not reach the program.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn ending(&self) -> Result<SignalFd, ExecError> {
        Ok(SignalFd::new(&ENDING)?)
    }

    /// Runs the program on a device until it has ended. Then what it left running is ended too. With [`Mode::Linux`]
    /// the device must have no offloads.
    ///
    /// # Errors
    /// The kernel does not permit namespaces, there is no such program, or the network can't be used.
    pub fn run(self, device: impl Device + 'static) -> Result<Ended, ExecError> {
        let Prepared { options, started, signals } = self;
        let (launched, attendant, standby) = match started {
            Started::Machine(mut machine) => {
                if let Some(interface) = machine.take_interface() {
                    carry(interface, device)?;
                }
                return machine.attend(&options, &signals);
            }
            Started::Process { launched, attendant, standby } => (launched, attendant, standby),
        };
        let (process, attendant) = attendant.unzip();
        let program = options.program.first().cloned().unwrap_or_default();
        let (agent, _interface) = match options.mode {
            Mode::Kernel | Mode::Linux => {
                let (interface, _) = launched.prepared()?;
                carry(TapDevice::of(interface.try_clone().map_err(|_| Errno::MFILE)?), device)?;
                (None, interface)
            }
            Mode::Native => {
                let (host, sharing) = match attendant {
                    Some(attendant) => share(&options, device, attendant)?,
                    None => (host(&options, device)?, None),
                };
                let (interface, trap) = launched.prepared()?;
                let (trap, inside) = trap.ok_or(Errno::PROTO)?;
                let (journal, file) = Journal::create()?;
                if let Some(standby) = &standby {
                    let program = &launched.end;
                    let number = options.attachment.as_ref().and_then(Attachment::number);
                    standby.give(Parts { trap: &trap, inside: &inside, journal: &file, program, number })?;
                }
                let notes = Notes { journal, is_taken_over: false, has_next: standby.is_some() };
                (Some(serve(&options, (trap, inside), host, sharing, notes)?), interface)
            }
        };
        let sockets = KernelSockets::of(launched.process);
        limits::set(launched.process, &options.limits)?;
        launched.start(&program)?;
        let ended = attend(&launched, &signals, options.kill_after)?;
        drop(standby);
        end_children(KILL_TIMEOUT, process);
        match agent {
            Some(agent) => agent.finish(&signals)?,
            None => drain(sockets, &signals)?,
        }
        Ok(ended)
    }

    /// Runs the program in a guest that is connected to its port by itself ([`Linux::port`]), until it has ended.
    ///
    /// # Errors
    /// The guest has ended, or there is no such program.
    pub fn run_connected(self) -> Result<Ended, ExecError> {
        match self.started {
            Started::Machine(machine) => machine.attend(&self.options, &self.signals),
            Started::Process { .. } => Err(DeviceError::Removed.into()),
        }
    }
}

/// Waits until peers have acknowledged what the program wrote; a signal ends that.
fn drain(mut sockets: KernelSockets, signals: &SignalFd) -> Result<(), Errno> {
    while sockets.is_draining(Instant::now()) {
        wait(&[signals.as_fd()], Some(Duration::from_millis(2)))?;
        if signals.next().is_some_and(|signal| ENDING.contains(&signal.number)) {
            break;
        }
    }
    Ok(())
}

/// Says at once why a program has no network any more. It goes on, and its exit status stays its own.
fn tell(error: &DeviceError) {
    // The program may have closed standard error.
    let _ = writeln!(std::io::stderr(), "ringway: the program's network ended: {error}");
}

/// The stack on a device.
pub(crate) fn host(options: &Options, device: impl Device + 'static) -> Result<Host, DeviceError> {
    Host::new(
        device,
        Config {
            addresses: options.addresses.clone(),
            gateways: options.gateways.clone(),
            mac: mac(&options.addresses),
            mtu: options.mtu.into(),
            offloads: options.offloads,
            settings: options.settings.clone(),
            sequence_secret: options.sequence_secret,
            spin: Duration::ZERO,
        },
    )
}

/// An agent's thread.
pub(crate) struct Serving {
    thread: JoinHandle<()>,
    stop: Arc<EventFd>,
    /// Readable when the thread ends.
    ended: Arc<EventFd>,
}

/// Signals when it is dropped, also by a panic.
pub(crate) struct AtEnd(pub Arc<EventFd>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.signal();
    }
}

/// A stack that is between the device and the agent's.
fn share(
    options: &Options,
    mut device: impl Device + 'static,
    attendant: OwnedFd,
) -> Result<(Host, Option<direct::Shared>), ExecError> {
    let lent = device.lend();
    let Made { ends, rest } = direct::make(device.offloads(), lent.as_ref())?;
    let mut host = host(options, ends.agent)?;
    let configuration = direct::configuration(&mut host);
    let after = match options.direct {
        Direct::Preloaded { after } => after.into(),
        _ => 0,
    };
    let shared = rest.begin(attendant, &configuration, after)?;
    let (mut end, wakes, switch) = (ends.bridge, EventFd::from(ends.wakes), shared.switch.clone());
    spawn("exec-bridge", None, move || {
        let taken_back = match lent {
            Some(lent) => await_loss(&lent, &wakes, &switch).and_then(|()| device.take_back()),
            None => Ok(()),
        };
        let error = match taken_back {
            Ok(()) => bridge(&mut device, &mut end),
            Err(error) => error,
        };
        // The end of the agent is none of the network.
        if !matches!(error, DeviceError::Closed) {
            tell(&error);
        }
    })?;
    Ok((host, Some(shared)))
}

/// Waits until the shared stack is lost. It is lost, too, when the ring to the port is closed.
fn await_loss(lent: &LentRing, wakes: &EventFd, switch: &Switch) -> Result<(), DeviceError> {
    loop {
        wakes.clear();
        if switch.is_lost() {
            return Ok(());
        }
        let ready = wait_readable(&[wakes.as_fd(), lent.socket.as_fd()], None)?;
        if ready.last() == Some(&true) {
            switch.lose();
        }
    }
}

/// The journal that an agent writes.
pub(crate) struct Notes {
    pub journal: Arc<Journal>,
    /// Whether an agent that was killed has written it before.
    pub is_taken_over: bool,
    /// Whether a process waits to be the next agent.
    pub has_next: bool,
}

/// Ends this process if the agent panics, so that the next one serves: it has the calls too, which would wait for ever.
struct AbortAtPanic;

impl Drop for AbortAtPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// Starts the agent.
pub(crate) fn serve(
    options: &Options,
    (trap, inside): (Trap, Inside),
    host: Host,
    sharing: Option<direct::Shared>,
    Notes { journal, is_taken_over, has_next }: Notes,
) -> Result<Serving, ExecError> {
    let (stop, ended) = (Arc::new(EventFd::new()?), Arc::new(EventFd::new()?));
    let addresses = options.addresses.iter().map(|cidr| cidr.address).collect();
    let congestion = options.settings.tcp_congestion_control;
    let served = Served { trap, inside, addresses, congestion, explain: options.explain };
    let network = options.attachment.as_ref().map_or(0, Attachment::descriptors);
    let mut interim = Interim::new(served.trap.as_fd(), journal.clone())?;
    let mut agent = Agent::new(host, served, (journal, network), stop.clone())?;
    if is_taken_over {
        agent.take_over();
    }
    let is_told = sharing.is_some();
    sharing.map(|shared| agent.share(shared)).transpose()?;
    let mut paths = options.query.iter().peekable();
    while let Some(path) = paths.next() {
        match agent.listen_for_queries(path, about(options)) {
            Ok(()) => break,
            Err(error) if error.kind() == ErrorKind::AddrInUse && paths.peek().is_some() => {}
            Err(error) => return Err(ExecError::Query { path: path.clone(), error }),
        }
    }
    let at_end = AtEnd(ended.clone());
    let stopped = stop.clone();
    let thread = spawn("exec-agent", None, move || {
        let _at_end = at_end;
        let _panics = has_next.then_some(AbortAtPanic);
        if let Err(error) = agent.run() {
            // Of a device behind the bridge, the bridge tells.
            if !is_told {
                tell(&error);
            }
            // The next agent's process has the calls too: nobody else answers them.
            interim.serve_until(&stopped);
        }
    })?;
    Ok(Serving { thread, stop, ended })
}

impl Serving {
    /// Stops it, and waits until peers have acknowledged what the program wrote; a signal ends that.
    pub(crate) fn finish(self, signals: &SignalFd) -> Result<(), ExecError> {
        self.stop.signal();
        if wait_for_end(&self.ended, signals)? {
            // Of a panic the reason is printed.
            let _ = self.thread.join();
        }
        Ok(())
    }
}

/// Waits until a thread has signaled its end; whether it has, and no signal came before that asks this process to end.
pub(crate) fn wait_for_end(ended: &EventFd, signals: &SignalFd) -> Result<bool, Errno> {
    while !ended.clear() {
        wait(&[ended.as_fd(), signals.as_fd()], None)?;
        if signals.next().is_some_and(|signal| ENDING.contains(&signal.number)) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn about(options: &Options) -> About {
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    let address = |cidr: &Cidr| format!("{}/{}", cidr.address, cidr.prefix);
    About {
        program: options.program.iter().map(text).collect::<Vec<_>>().join(" "),
        process: std::process::id(),
        addresses: options.addresses.iter().map(address).collect(),
    }
}

/// Moves the frames of the program's interface to the device, and back, until this process ends.
fn carry(mut interface: impl Device + 'static, mut device: impl Device + 'static) -> Result<(), ExecError> {
    spawn("exec-bridge", None, move || {
        let error = bridge(&mut interface, &mut device);
        // A network that was ended after the program.
        if !matches!(error, DeviceError::Closed) {
            tell(&error);
        }
    })?;
    Ok(())
}

/// Waits for a program's end, and passes signals on. Kills it if it goes on for that long after it was asked to end.
fn attend(launched: &Launched, signals: &SignalFd, kill_after: Option<Duration>) -> Result<Ended, ExecError> {
    let mut kill_at: Option<Instant> = None;
    loop {
        let left = kill_at.map(|end| end.saturating_duration_since(Instant::now()));
        wait(&[launched.end.as_fd(), signals.as_fd()], left)?;
        if kill_at.is_some_and(|end| Instant::now() >= end) {
            kill_at = None;
            pass_signal(launched.process, signals::KILL);
        }
        while let Some(signal) = signals.next() {
            // What the kernel sent for a terminal, the program has got too.
            if signal.is_sent {
                pass_signal(launched.process, signal.number);
                if signal.number == signals::TERM {
                    kill_at = kill_at.or(kill_after.map(|time| Instant::now() + time));
                }
            }
        }
        if let Some(status) = collect_children(launched.process) {
            return Ok(match status.terminating_signal() {
                Some(signal) => Ended::Signal(signal),
                None => Ended::Status(status.exit_status().unwrap_or(0) as u8),
            });
        }
    }
}

pub(crate) fn wait(descriptors: &[BorrowedFd<'_>], limit: Option<Duration>) -> Result<(), Errno> {
    let mut polled: Vec<PollFd<'_>> =
        descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    match poll(&mut polled, limit.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}
