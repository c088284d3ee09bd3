//! A function as a virtual machine: the monitor's side.
//!
//! The guest runs on a thread of its own; [`FunctionVm::run`] attaches to the function's ports, maps their rings into
//! the guest's memory, accepts programs on the socket for handlers, and passes their bytes on over the channel.

mod connections;
mod limits;
mod ports;
mod snapshot_handle;

use crate::load::Image;
use crate::snapshot::{Snapshot, SnapshotRequest};
use crate::vm::{End, PreparedVm, SharedMachine, Vm, VmError};
use connections::Connections;
use limits::{Limit, Lines, Text};
use ports::{Addresses, Ports};
use ringway_host::{EventFd, HostError, PollFd, Window, memfd, poll, random, since_1970};
use ringway_ring::{Broken, LayoutError};
use ringway_ring_client::Ring;
use ringway_tiny::FunctionStart;
use ringway_tiny::channel::{Channel, ToGuest, ToMonitor};
use snapshot_handle::SnapshotRequests;
pub use snapshot_handle::{SnapshotError, SnapshotHandle};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Where the guest finds the channel, behind the largest memory of its own, and then rings of ports.
const WINDOW: u64 = 0x8000_0000;
/// Bytes of the window for the channel, for each port, and at most: the kernel needs 10 bytes for each page. Rings that
/// find no room there have slots of their own behind the window, up to the doorbells.
const CHANNEL_ROOM: usize = 2 << 20;
const PORT_ROOM: usize = 8 << 20;
const WINDOW_MOST: usize = 64 << 20;
/// Doorbells: the channel's, then those of ports, 8 bytes each.
const DOORBELLS: u64 = 0xd000_0000;
/// Attack: a guest that sends without end. Messages handled before programs and ports are looked at again.
const MESSAGES: usize = 256;
/// Attack: a guest that sends as fast as it can, for which the monitor needs a core of its own. Messages a second, and
/// at once; the guest waits for room beyond that. They are as many as 50 MB of handlers' values a second need.
const RATE: [u64; 2] = [50_000, 10_000];
/// Attack: a guest that fills the log. Lines a second, and at once; others are counted.
const LINES: [u64; 2] = [100, 200];
/// Attack: an endless line, or reason. Bytes of a line, and of a reason.
const LINE: usize = 4096;
const REASON: usize = 64 << 10;
const HOUR: Duration = Duration::from_secs(3600);

/// Why a function can't run in a virtual machine.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// There is no KVM.
    #[error(
        "a function in a VM needs KVM: {0}; give this user access to /dev/kvm, or use isolation \"process\""
    )]
    NoKvm(HostError),
    /// The machine can't be made.
    #[error("{0}")]
    Vm(VmError),
    /// A system call failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The channel can't be made.
    #[error("the guest's channel: {0}")]
    Channel(#[from] LayoutError),
    /// A descriptor failed.
    #[error("the guest's descriptors failed: {0}")]
    System(#[from] io::Error),
    /// The snapshot is of another program.
    #[error("the snapshot was taken by another version of this program, with another image")]
    Image,
    /// A clone has as many ports as its original.
    #[error("the snapshot is of a function with {0} ports, not {1}")]
    Ports(usize, usize),
    /// The clock's frequency is unknown.
    #[error(
        "the kernel does not tell the frequency of the CPU's time stamp counter, which is a guest's clock"
    )]
    Clock,
}

impl From<VmError> for FunctionError {
    fn from(error: VmError) -> FunctionError {
        match error {
            VmError::Host(error @ HostError::Call { call: "opening /dev/kvm", .. }) => {
                FunctionError::NoKvm(error)
            }
            error => FunctionError::Vm(error),
        }
    }
}

/// Why a function's machine ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FunctionEnd {
    /// The configuration stopped.
    #[error("the configuration stopped")]
    Stopped,
    /// The configuration can't run, as [`FunctionEvent::Wrong`] said.
    #[error("the configuration can't run")]
    Wrong,
    /// The machine ended otherwise; with what the guest printed last.
    #[error("{0}{1}")]
    Guest(End, String),
    /// The guest violated the rules of the channel.
    #[error("the guest broke the rules of its channel: {0}")]
    Channel(&'static str),
    /// A system call failed.
    #[error("the guest can't go on: {0}")]
    System(String),
}

/// What a function's guest says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionEvent {
    /// Its configuration runs. Microseconds for the element classes, for reading the configuration, and for building
    /// it, as the guest says.
    Up([u32; 3]),
    /// The function's configuration can't run.
    Wrong(String),
    /// The function printed a line.
    Line(String),
}

/// A machine that will run a function.
#[derive(Debug)]
pub struct FunctionVm {
    vm: Vm,
    /// The addresses from [`WINDOW`] on.
    window: Arc<Window>,
    channel: Channel,
    /// Signalled by the guest, and by us.
    kick: EventFd,
    call: EventFd,
    ports: usize,
    image: u64,
    snapshot_handle: SnapshotHandle,
    snapshot_requests: SnapshotRequests,
}

impl FunctionVm {
    /// A machine of so many bytes for `start`, whose address and clock are filled in. Nothing of the guest runs yet.
    pub fn new(memory: usize, start: FunctionStart) -> Result<FunctionVm, FunctionError> {
        FunctionVm::on(PreparedVm::new()?, memory, start)
    }

    /// Prepares `prepared` for `start`, whose address and clock are filled in.
    pub fn on(
        prepared: PreparedVm,
        memory: usize,
        start: FunctionStart,
    ) -> Result<FunctionVm, FunctionError> {
        FunctionVm::load(prepared, crate::click(), memory, start)
    }

    /// A machine of so many bytes with another PVH image, which gets the function as its second module.
    pub fn with_image(
        image: Image<'_>,
        memory: usize,
        start: FunctionStart,
    ) -> Result<FunctionVm, FunctionError> {
        FunctionVm::load(PreparedVm::new()?, image, memory, start)
    }

    /// Loads a PVH image and the function, its second module, into `prepared`.
    pub fn load(
        prepared: PreparedVm,
        image: Image<'_>,
        memory: usize,
        start: FunctionStart,
    ) -> Result<FunctionVm, FunctionError> {
        let ports = start.ports.len();
        let mut function = FunctionVm::over(Vm::around(prepared, memory, image.shared)?, ports, image)?;
        let (hz, wall, seed, len) = (function.vm.hz(), since_1970(), random()?, Channel::bytes()?);
        let start = FunctionStart { hz, wall, seed, channel: [WINDOW, len], doorbell: DOORBELLS, ..start };
        function.vm.load_with(image.file, "", &start.to_bytes())?;
        Ok(function)
    }

    /// A machine that resumes from a snapshot, whose memory is in `file`, with `ports` of its own.
    pub fn clone_of(snapshot: &Snapshot, file: OwnedFd, ports: usize) -> Result<FunctionVm, FunctionError> {
        FunctionVm::clone_on(PreparedVm::new()?, snapshot, file, ports)
    }

    /// Makes `prepared` go on from a snapshot, whose memory is in `file`, with `ports` of its own.
    pub fn clone_on(
        prepared: PreparedVm,
        snapshot: &Snapshot,
        file: OwnedFd,
        ports: usize,
    ) -> Result<FunctionVm, FunctionError> {
        fits(snapshot, ports)?;
        FunctionVm::over(
            Vm::clone_of(prepared, snapshot, file, crate::click().shared)?,
            ports,
            crate::click(),
        )
    }

    /// A machine that resumes from a snapshot in its own memory, `file`, which nobody else uses: a function that has
    /// moved.
    pub fn moved(
        prepared: PreparedVm,
        snapshot: &Snapshot,
        file: OwnedFd,
        ports: usize,
    ) -> Result<FunctionVm, FunctionError> {
        fits(snapshot, ports)?;
        FunctionVm::over(Vm::moved(prepared, snapshot, file, crate::click().shared)?, ports, crate::click())
    }

    /// A machine with a channel.
    fn over(vm: Vm, ports: usize, image: Image<'_>) -> Result<FunctionVm, FunctionError> {
        let shared = vm.shared();
        // All memory comes before the first doorbell: behind one, the kernel needs milliseconds for a slot.
        let window = Window::new((ports * PORT_ROOM).min(WINDOW_MOST) + CHANNEL_ROOM)?;
        shared.space.add_window(WINDOW, &window)?;
        let file = memfd("channel", Channel::bytes()? as usize)?;
        // The channel is the first, and so at the window's begin.
        let region = window.sealed(&file)?.ok_or(HostError::TooManyMappings)?;
        let channel = Channel::create(region)?;
        let (kick, call) = (EventFd::new()?, EventFd::new()?);
        shared.space.add_doorbell(DOORBELLS, kick.as_fd().try_clone_to_owned()?)?;
        shared.add_wake(call.as_fd())?;
        if vm.hz() == 0 {
            return Err(FunctionError::Clock);
        }
        let (snapshot_handle, snapshot_requests) =
            SnapshotHandle::new(kick.as_fd().try_clone_to_owned()?.into(), vm.snapshot_request());
        Ok(FunctionVm {
            vm,
            window,
            channel,
            kick,
            call,
            ports,
            image: image.mark,
            snapshot_handle,
            snapshot_requests,
        })
    }

    /// By which other threads take snapshots while it runs.
    pub fn snapshot_handle(&self) -> SnapshotHandle {
        self.snapshot_handle.clone()
    }

    /// Runs the guest until it ends. Programs connect to `listener` for handlers; `connect` connects to a port by its
    /// number.
    pub fn run(
        self,
        listener: &UnixListener,
        connect: impl FnMut(usize) -> io::Result<UnixStream>,
        event: impl FnMut(FunctionEvent),
    ) -> FunctionEnd {
        match Monitor::begin(self, listener, connect, event) {
            Ok(mut monitor) => monitor.run(),
            Err(error) => FunctionEnd::System(error.to_string()),
        }
    }
}

/// Whether a snapshot is of this program, and of a function with so many ports.
fn fits(snapshot: &Snapshot, ports: usize) -> Result<(), FunctionError> {
    if snapshot.image != crate::click().mark {
        return Err(FunctionError::Image);
    }
    if snapshot.ports != ports {
        return Err(FunctionError::Ports(snapshot.ports, ports));
    }
    Ok(())
}

/// The guest's thread: its end, and the last line it printed.
struct Guest {
    ended: Arc<EventFd>,
    result: Receiver<FunctionEnd>,
}

impl Guest {
    fn begin(mut vm: Vm) -> Result<Guest, FunctionError> {
        let ended = Arc::new(EventFd::new()?);
        let (sender, result) = channel();
        let signal = ended.clone();
        std::thread::Builder::new().name("guest".into()).spawn(move || {
            let mut printed = Vec::new();
            let end = vm.run_on(&mut |bytes| {
                let room = LINE.saturating_sub(printed.len());
                printed.extend_from_slice(&bytes[..bytes.len().min(room)]);
            });
            let printed = String::from_utf8_lossy(&printed);
            let printed = match printed.trim() {
                "" => String::new(),
                printed => format!(": {printed}"),
            };
            let end = match end {
                Ok(End::Exit(0)) => FunctionEnd::Stopped,
                Ok(End::Exit(1)) => FunctionEnd::Wrong,
                Ok(end) => FunctionEnd::Guest(end, printed),
                Err(error) => FunctionEnd::System(error.to_string()),
            };
            // The monitor waits for it, or is gone.
            let _ = sender.send(end);
            signal.signal();
        })?;
        Ok(Guest { ended, result })
    }
}

struct Monitor<'a, C, E> {
    conversation: Conversation<'a>,
    kick: Arc<EventFd>,
    call: EventFd,
    guest: Guest,
    connect: C,
    event: E,
    begun: Instant,
    snapshot_requests: SnapshotRequests,
    snapshot_request: Arc<SnapshotRequest>,
    /// Number of ports, stored in snapshots.
    ports: usize,
    image: u64,
}

impl<'a, C: FnMut(usize) -> io::Result<UnixStream>, E: FnMut(FunctionEvent)> Monitor<'a, C, E> {
    fn begin(
        function: FunctionVm,
        listener: &'a UnixListener,
        connect: C,
        event: E,
    ) -> Result<Self, FunctionError> {
        let FunctionVm { vm, window, channel, kick, call, ports, image, snapshot_requests, .. } = function;
        let attached = Ports::new(ports, Some(Addresses { shared: vm.shared(), window }));
        let conversation = Conversation::over(channel, attached, listener)?;
        let (snapshot_request, begun) = (vm.snapshot_request(), Instant::now());
        let guest = Guest::begin(vm)?;
        let kick = Arc::new(kick);
        Ok(Monitor {
            conversation,
            kick,
            call,
            guest,
            connect,
            event,
            begun,
            snapshot_requests,
            snapshot_request,
            ports,
            image,
        })
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn run(&mut self) -> FunctionEnd {
        loop {
            let ended = self.guest.ended.clear();
            self.photograph();
            let now = self.now();
            let more = match self.conversation.round(now, &mut self.connect, &mut self.event) {
                Ok(Round { more, notify }) => {
                    if notify {
                        self.call.signal();
                    }
                    more
                }
                Err(end) => return end,
            };
            // What it has sent before its end counts.
            let more = more || ended && self.conversation.waits.is_some();
            if ended && !more {
                if let Some(suppressed) = self.conversation.lines.suppressed(u64::MAX) {
                    (self.event)(FunctionEvent::Line(suppressed));
                }
                // The sender sent it before the signal.
                return self.guest.result.recv().unwrap_or(FunctionEnd::System("its thread is gone".into()));
            }
            if ended {
                self.guest.ended.signal();
            }
            if !more {
                self.wait();
            }
        }
    }

    /// Answers requests for snapshots.
    fn photograph(&mut self) {
        let (ports, image) = (self.ports, self.image);
        if let Some(taken) = self.snapshot_request.result() {
            self.snapshot_requests.taken(taken.map(|snapshot| Snapshot { ports, image, ..snapshot }));
        }
        if let Some((file, freeze)) = self.snapshot_requests.next() {
            self.snapshot_request.request(file, freeze, self.kick.clone());
            send(&mut self.conversation.channel, &ToGuest::Snapshot);
        }
    }

    /// Sleeps until something happens.
    fn wait(&mut self) {
        let mut poll_fds = vec![readable(&self.guest.ended.as_fd())];
        // A guest that has sent too much can't wake its monitor before it is time.
        if self.conversation.waits.is_none() {
            poll_fds.push(readable(&self.kick.as_fd()));
        }
        let next = self.conversation.watch(&mut poll_fds);
        let most = next.map_or(HOUR, |next| Duration::from_nanos(next.saturating_sub(self.now())));
        poll(&mut poll_fds, most);
        self.kick.clear();
    }
}

/// Result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// There is more to do.
    pub more: bool,
    /// The guest must be notified.
    pub notify: bool,
}

/// What the monitor and the guest say over the channel. The guest is hostile.
pub struct Conversation<'a> {
    channel: Channel,
    ports: Ports,
    connections: Connections<'a>,
    limit: Limit,
    /// Time of the next message, if the guest has sent too many.
    waits: Option<u64>,
    lines: Lines,
    line: Text,
    reason: Text,
    /// The guest said that its configuration runs, and that it can't.
    up: bool,
    wrong: bool,
}

impl<'a> Conversation<'a> {
    /// With a guest that has so many ports, which can't be mapped: for tests of the guest's messages.
    pub fn new(channel: Channel, ports: usize, listener: &'a UnixListener) -> io::Result<Conversation<'a>> {
        Conversation::over(channel, Ports::new(ports, None), listener)
    }

    fn over(channel: Channel, ports: Ports, listener: &'a UnixListener) -> io::Result<Conversation<'a>> {
        let connections = Connections::new(listener)?;
        let (limit, lines) = (Limit::new(RATE[0], RATE[1]), Lines::new(LINES[0], LINES[1]));
        let (line, reason) = (Text::new(LINE), Text::new(REASON));
        let (waits, up, wrong) = (None, false, false);
        Ok(Conversation { channel, ports, connections, limit, waits, lines, line, reason, up, wrong })
    }

    /// Handles messages, connections and frames that have arrived; `now` is the time in nanoseconds. An error ends the
    /// guest.
    pub fn round(
        &mut self,
        now: u64,
        connect: &mut impl FnMut(usize) -> io::Result<UnixStream>,
        event: &mut impl FnMut(FunctionEvent),
    ) -> Result<Round, FunctionEnd> {
        let mut more = self.messages(now, event)?;
        if let Some(suppressed) = self.lines.suppressed(now) {
            event(FunctionEvent::Line(suppressed));
        }
        self.ports.advance(now, connect, &mut self.channel);
        more |= self.connections.serve(&mut self.channel);
        let notify = self.channel.flush().map_err(broken)?;
        // Messages that wait for their time are no reason for another round.
        more |= self.waits.is_none() && !self.channel.arm().map_err(broken)?;
        Ok(Round { more, notify })
    }

    /// Handles messages of the guest; whether there may be more.
    fn messages(&mut self, now: u64, event: &mut impl FnMut(FunctionEvent)) -> Result<bool, FunctionEnd> {
        self.channel.disarm();
        self.waits = None;
        for _ in 0..MESSAGES {
            if let Err(next) = self.limit.take(now) {
                self.waits = Some(next);
                return Ok(false);
            }
            let Some(message) = self.channel.receive().map_err(broken)? else { return Ok(false) };
            let message = ToMonitor::from_bytes(message);
            match message.ok_or(FunctionEnd::Channel("a message that is none"))? {
                ToMonitor::Up(stages) => {
                    once(&mut self.up, "it said twice that it runs")?;
                    event(FunctionEvent::Up(stages));
                }
                ToMonitor::Wrong(last, part) => {
                    if let Some(reason) = self.reason.add(part, last) {
                        once(&mut self.wrong, "it said twice why it can't run")?;
                        event(FunctionEvent::Wrong(reason));
                    }
                }
                ToMonitor::Print(last, part) => {
                    if let Some(line) = self.line.add(part, last).filter(|_| self.lines.allows(now)) {
                        event(FunctionEvent::Line(line));
                    }
                }
                ToMonitor::Wanted(port, offloads) => self.ports.wanted(port, offloads, now)?,
                ToMonitor::Released(port, _) => self.ports.released(port, now)?,
                ToMonitor::Data(number, bytes) => self.connections.data(number, bytes)?,
                ToMonitor::Taken(number, bytes) => self.connections.taken(number, bytes)?,
                ToMonitor::Closed(number) => self.connections.closed(number)?,
            }
        }
        Ok(true)
    }

    /// Adds the descriptors to wait for; returns the time at which to look again.
    fn watch(&self, poll_fds: &mut Vec<PollFd>) -> Option<u64> {
        self.connections.watch(poll_fds);
        [self.ports.watch(poll_fds), self.waits, self.lines.due()].into_iter().flatten().min()
    }
}

/// What a guest may say once. Attack: a guest that says it again and again, each time to the whole fabric.
fn once(said: &mut bool, twice: &'static str) -> Result<(), FunctionEnd> {
    match std::mem::replace(said, true) {
        false => Ok(()),
        true => Err(FunctionEnd::Channel(twice)),
    }
}

fn broken(broken: Broken) -> FunctionEnd {
    match broken {
        Broken::Index => FunctionEnd::Channel("an index moved by more than the ring's slots"),
        Broken::Buffer => FunctionEnd::Channel("a buffer that the ring doesn't have"),
    }
}

fn readable(descriptor: &impl AsRawFd) -> PollFd {
    PollFd { descriptor: descriptor.as_raw_fd(), readable: true, writable: false }
}

/// Sends a message to the guest.
fn send(channel: &mut Channel, message: &ToGuest<'_>) {
    channel.send(message.to_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_mem::Region;

    /// A conversation with a guest that sends what a test wants, in virtual time.
    struct Talk<'a> {
        conversation: Conversation<'a>,
        guest: Channel,
        events: Vec<FunctionEvent>,
    }

    impl Talk<'_> {
        /// Runs a test.
        fn with(name: &str, test: impl FnOnce(Talk<'_>)) {
            let socket = std::env::temp_dir().join(format!("ringway-talk-{name}-{}", std::process::id()));
            let listener = UnixListener::bind(&socket).unwrap();
            std::fs::remove_file(&socket).unwrap();
            let region = Region::private(0, 0, Channel::bytes().unwrap() as usize);
            let monitor = Channel::create(region.clone()).unwrap();
            let conversation = Conversation::new(monitor, 1, &listener).unwrap();
            test(Talk { conversation, guest: Channel::attach(region).unwrap(), events: Vec::new() });
        }

        /// Sends messages, and has the monitor handle them at `now`.
        fn say(&mut self, messages: &[ToMonitor<'_>], now: u64) -> Result<Round, FunctionEnd> {
            messages.iter().for_each(|message| self.guest.send(message.to_bytes()));
            self.guest.flush().unwrap();
            let connect = &mut |_| Err(io::ErrorKind::ConnectionRefused.into());
            self.conversation.round(now, connect, &mut |event| self.events.push(event))
        }
    }

    #[test]
    fn a_guest_says_once_that_it_runs_and_once_why_it_cant() {
        Talk::with("once", |mut talk| {
            let long = [b'x'; 1000];
            let parts = [ToMonitor::Wrong(false, &long); 50];
            talk.say(&[ToMonitor::Up([1, 2, 3])], 1).unwrap();
            talk.say(&parts, 2).unwrap();
            talk.say(&parts, 3).unwrap();
            talk.say(&[ToMonitor::Wrong(true, b"y")], 4).unwrap();
            let [FunctionEvent::Up([1, 2, 3]), FunctionEvent::Wrong(why)] = &talk.events[..] else {
                panic!("{:?}", talk.events)
            };
            assert_eq!((why.len(), why.contains('y')), (REASON, false), "one reason, which is cut");
            let wrong = talk.say(&[ToMonitor::Wrong(true, b"z")], 5);
            assert_eq!(wrong, Err(FunctionEnd::Channel("it said twice why it can't run")));
            let up = talk.say(&[ToMonitor::Up([0; 3])], 6);
            assert_eq!(up, Err(FunctionEnd::Channel("it said twice that it runs")));
            assert_eq!(talk.events.len(), 2);
        });
    }

    #[test]
    fn lines_and_messages_without_end_are_limited_and_counted() {
        const MILLISECOND: u64 = 1_000_000;
        Talk::with("flood", |mut talk| {
            let line = ToMonitor::Print(true, b"line");
            let mut waited = 0;
            // As many messages as there is room for, twenty times in a millisecond.
            for step in 0..20 * 3000 {
                talk.say(&[line; 3], step * MILLISECOND / 20).unwrap();
                waited += u64::from(talk.conversation.waits.is_some());
            }
            let count = |talk: &Talk<'_>| {
                let lines = talk.events.iter().map(|event| match event {
                    FunctionEvent::Line(line) => line.clone(),
                    other => panic!("{other:?}"),
                });
                let more = |line: &str| line.strip_suffix(" more messages suppressed")?.parse::<u64>().ok();
                lines.fold([0, 0, 0], |[plain, notes, told], line| match more(&line) {
                    Some(count) => [plain, notes + 1, told + count],
                    None => [plain + 1, notes, told],
                })
            };
            let [plain, notes, _] = count(&talk);
            assert!((490..=LINES[1] + 3 * LINES[0]).contains(&plain), "{plain} in three seconds");
            assert!((2..=3).contains(&notes), "{notes}");
            assert!(waited > 0, "the guest has waited");
            // The guest is silent from now on: what it has sent is handled, and what was suppressed is told.
            for second in 4..8 {
                (0..600).for_each(|_| {
                    talk.say(&[], second * 1000 * MILLISECOND).unwrap();
                });
            }
            let [plain, _, told] = count(&talk);
            assert_eq!(
                (plain + told, talk.guest.waiting()),
                (3 * 20 * 3000, 0),
                "each is passed on or counted"
            );
        });
    }
}
