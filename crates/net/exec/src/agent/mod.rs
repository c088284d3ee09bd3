//! The agent: serves the sockets of a group of processes with one TCP/IP stack.
//!
//! A program's socket is a UNIX socket whose other end the agent holds; reading, writing, polling and closing are the
//! kernel's own. Only calls that name addresses and options are trapped, and wait for the agent's answer. It never
//! blocks: a call that must wait is parked, and served again when something has happened to its socket.

mod address;
mod adoption;
mod calls;
mod datagram;
mod direct;
mod info;
mod interface;
mod interim;
mod journal;
mod listening;
mod local;
mod message;
mod options;
mod query;
mod report;
mod reserved;
mod stream;
mod table;

pub use interim::Interim;
pub use journal::Journal;
pub use options::algorithm;
pub use table::most_sockets;

use calls::{Parked, UndeliveredResult};
use direct::Direct;
use local::{Connector, Filler, Names};
use query::Queries;
use report::Report;
use ringway_host::{EventFd, Inside, Threads, Trap};
use ringway_netstack::congestion::Algorithm;
use ringway_netstack::{MS, SECOND, SocketId};
use ringway_sockets::query::About;
use ringway_sockets::{DeviceError, Host};
use rustix::event::{PollFlags, Timespec, epoll};
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use table::{Key, Kind, Table};

/// `epoll`'s data of the agent's own descriptors. Sockets have larger numbers.
const HOST: u64 = 0;
const TRAP: u64 = 1;
const WATCHES: u64 = 2;
const STOP: u64 = 3;
const QUERY: u64 = 4;
const ATTENDANT: u64 = 5;
const PROCESSES: u64 = 6;
const FIRST_SOCKET: u64 = 16;
/// Most events of one wait, and most calls that are answered before others are served.
const EVENTS: usize = 64;
const CALLS: usize = 64;
/// How often a datagram socket whose program has ended is served: its queue never holds as many datagrams.
const FINAL_PASSES: usize = 64;
/// Bytes that are moved at once.
const BUFFER: usize = 256 << 10;
/// How long calls are answered before others are served. Attack: threads that make expensive ones.
const CALLS_TIME: u64 = 5 * MS;
/// How often the agent checks whether callers that wait still exist, and whether a full queue has room.
const POLL_INTERVAL: u64 = SECOND / 5;
/// How often the agent checks whether the device has gone or is back. Most of its signals are for frames.
const DEVICE_CHECK_INTERVAL: u64 = SECOND / 50;
/// How long peers may take to acknowledge what programs that have ended had written.
const DRAIN_TIMEOUT: u64 = 60 * SECOND;
/// How long peers of lost connections may take to answer, so that they are reset.
const RESET_TIMEOUT: u64 = SECOND;
/// How long nothing may arrive while peers are to acknowledge.
const SILENCE_TIMEOUT: u64 = 5 * SECOND;

/// The events that an end of ours is watched for, and the one that is added only while its program has no room: each
/// read of a program makes some.
const OBSERVED: epoll::EventFlags =
    epoll::EventFlags::IN.union(epoll::EventFlags::RDHUP).union(epoll::EventFlags::ET);
const ROOM: epoll::EventFlags = epoll::EventFlags::OUT;

/// `epoll`'s data of a socket.
fn event_data(key: Key) -> epoll::EventData {
    epoll::EventData::new_u64(FIRST_SOCKET + u64::from(key))
}

/// What has happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    /// Its program has written.
    ProgramWrote,
    /// The stack reported an event of the connection.
    StackEvent,
    /// Anything: both directions are served.
    Any,
}

impl Activity {
    fn of(flags: epoll::EventFlags) -> Activity {
        if flags == epoll::EventFlags::IN { Activity::ProgramWrote } else { Activity::Any }
    }
}

/// The processes that an agent serves: what the agent's process has of them.
#[derive(Debug)]
pub struct Served {
    /// Their calls.
    pub trap: Trap,
    /// What is in their namespaces.
    pub inside: Inside,
    /// Their addresses.
    pub addresses: Vec<IpAddr>,
    /// Their congestion controller.
    pub congestion: Algorithm,
    /// Whether to print how each socket is served.
    pub explain: bool,
}

/// Whether the last process whose calls are trapped has ended.
pub fn has_no_callers(trap: BorrowedFd<'_>) -> bool {
    local::ready(trap, PollFlags::empty()).contains(PollFlags::HUP)
}

/// Serves the sockets of a group of processes.
#[derive(Debug)]
pub struct Agent {
    host: Host,
    trap: Trap,
    threads: Threads,
    epoll: OwnedFd,
    watches: OwnedFd,
    stop: Arc<EventFd>,
    /// A socket of the programs' network namespace, to ask about interfaces.
    control: OwnedFd,
    names: Names,
    connector: Connector,
    filler: Filler,
    table: Table,
    addresses: Vec<IpAddr>,
    congestion: Algorithm,
    parked: Vec<Parked>,
    /// What the next agent is to know.
    journal: Arc<Journal>,
    /// Listening sockets of the agent before this one, by the numbers in their paths, until a call is about them.
    adopted: HashMap<u64, Key>,
    /// Results that did not reach their calls, for the calls that are made again.
    undelivered: Vec<UndeliveredResult>,
    /// The last result of a call that can't be made twice, by a thread that may have been interrupted.
    last_delivered: Option<UndeliveredResult>,
    /// Until when signals are expected, since one has interrupted a call.
    signals_until: u64,
    /// The datagrams that the present call has received, and their senders.
    received: Vec<(Vec<u8>, SocketAddr)>,
    /// Sockets to serve again in this turn.
    recheck: Vec<Key>,
    /// Listeners of the stack whose programs have no room for a connection.
    stalled: BTreeSet<SocketId>,
    next_port: u16,
    next_poll: u64,
    buffer: Vec<u8>,
    /// The device's descriptors have been signaled, maybe not for a frame.
    is_signaled: bool,
    next_device_check: u64,
    report: Report,
    queries: Option<Queries>,
    /// The stack that programs share, if there is one.
    direct: Option<Direct>,
    /// There is one, or there was, and it is lost.
    has_shared: bool,
    /// Until when peers of connections that were lost with the shared stack may answer, to be reset.
    resets_until: u64,
}

impl Agent {
    /// An agent for processes. `journal`: what the next agent is to know; with it, the descriptors that its network
    /// needs in this process. `stop` ends it when the last process has ended.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(
        host: Host,
        served: Served,
        (journal, network): (Arc<Journal>, usize),
        stop: Arc<EventFd>,
    ) -> Result<Agent, Errno> {
        let Served { trap, inside, addresses, congestion, explain } = served;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watches = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let level = epoll::EventFlags::IN;
        // Its signals are never read, so that only new ones count.
        let edge = level | epoll::EventFlags::ET;
        epoll::add(&epoll, host.as_fd(), epoll::EventData::new_u64(HOST), edge)?;
        epoll::add(&epoll, trap.as_fd(), epoll::EventData::new_u64(TRAP), level)?;
        epoll::add(&epoll, &watches, epoll::EventData::new_u64(WATCHES), level)?;
        epoll::add(&epoll, stop.as_fd(), epoll::EventData::new_u64(STOP), level)?;
        let mut names = Names::new(inside.folder)?;
        let connector = Connector::new(&mut names)?;
        let port = ringway_host::random().map_err(|_| Errno::IO)?;
        Ok(Agent {
            host,
            trap,
            threads: Threads::default(),
            epoll,
            watches,
            stop,
            control: inside.control,
            names,
            connector,
            filler: Filler::new()?,
            table: Table::new(getrlimit(Resource::Nofile).current, network),
            addresses,
            congestion,
            parked: Vec::new(),
            journal,
            adopted: HashMap::new(),
            undelivered: Vec::new(),
            last_delivered: None,
            signals_until: 0,
            received: Vec::new(),
            recheck: Vec::new(),
            stalled: BTreeSet::new(),
            next_port: (port % 28_000) as u16,
            next_poll: 0,
            buffer: vec![0; BUFFER],
            is_signaled: false,
            next_device_check: 0,
            report: Report::new(explain),
            queries: None,
            direct: None,
            has_shared: false,
            resets_until: 0,
        })
    }

    /// Answers questions of `ringway stack` on a UNIX socket at a path.
    ///
    /// # Errors
    /// The socket can't be made, or another program has it.
    pub fn listen_for_queries(&mut self, path: &Path, about: About) -> io::Result<()> {
        let queries = Queries::listen(path, about)?;
        epoll::add(&self.epoll, &queries, epoll::EventData::new_u64(QUERY), epoll::EventFlags::IN)?;
        self.queries = Some(queries);
        Ok(())
    }

    /// Serves until the agent is stopped and peers have acknowledged what was written.
    ///
    /// # Errors
    /// The device can't be used any more.
    pub fn run(mut self) -> Result<(), DeviceError> {
        let result = self.serve_all();
        if result.is_err() {
            for parked in std::mem::take(&mut self.parked) {
                self.trap.answer(parked.call.id, Err(Errno::NETDOWN));
            }
        }
        result
    }

    fn serve_all(&mut self) -> Result<(), DeviceError> {
        let (mut until, mut silent_until) = (None, 0);
        loop {
            let busy = self.turn()?;
            let now = self.host.now();
            let progresses =
                self.direct.as_mut().is_some_and(|direct| std::mem::take(&mut direct.progresses));
            if let Some(until) = until
                && (busy || progresses)
            {
                silent_until = (now + SILENCE_TIMEOUT).min(until);
            }
            if until.is_some() && (now >= silent_until || self.is_drained()) {
                self.host.poll()?;
                self.wait_until_sent();
                self.count_accepted();
                self.report.close();
                return Ok(());
            }
            let events = self.wait(busy, until.is_some())?;
            for (event, flags) in events {
                match event {
                    HOST => self.is_signaled = true,
                    TRAP => self.receive_calls(flags),
                    WATCHES => self.handle_closed(),
                    STOP => {
                        self.stop.clear();
                        self.close_all();
                        let now = self.host.now();
                        (until, silent_until) = (Some(now + DRAIN_TIMEOUT), now + SILENCE_TIMEOUT);
                    }
                    QUERY => {
                        if let Some(queries) = &self.queries {
                            queries.serve(&mut self.host);
                        }
                    }
                    ATTENDANT => self.receive_answers(),
                    PROCESSES => self.remove_ended_processes(),
                    key => self.handle_activity(Key::from(key - FIRST_SOCKET), Activity::of(flags)),
                }
            }
            self.run_timers();
        }
    }

    /// Receives and sends frames, and handles the stack's events. Returns whether there was something to receive.
    fn turn(&mut self) -> Result<bool, DeviceError> {
        let busy = self.host.poll()?;
        self.forward_diverted();
        let now = self.host.now();
        if self.is_signaled && !busy && now >= self.next_device_check {
            (self.is_signaled, self.next_device_check) = (false, now + DEVICE_CHECK_INTERVAL);
            self.host.wait(Some(std::time::Duration::ZERO))?;
        }
        let mut moved = false;
        while let Some((id, ready)) = self.host.stack().next_event() {
            moved = true;
            if ready.acceptable {
                self.deliver_connections(id);
            }
            for key in self.table.keys_of(id).to_vec() {
                self.handle_activity(key, Activity::StackEvent);
            }
        }
        for key in std::mem::take(&mut self.recheck) {
            moved = true;
            self.handle_activity(key, Activity::Any);
        }
        // What programs read opens windows, and what they wrote is to leave.
        Ok(if moved { self.host.poll()? || busy } else { busy })
    }

    /// Waits for events.
    fn wait(&mut self, busy: bool, ends: bool) -> Result<Vec<(u64, epoll::EventFlags)>, DeviceError> {
        let most = if busy || !self.recheck.is_empty() { None } else { self.host.arm()? };
        let mut time = most.map_or(0, |most| most.as_nanos().min(u64::MAX.into()) as u64);
        // While it ends, it must look at the time.
        if !self.parked.is_empty() || !self.stalled.is_empty() || ends || self.has_commands() {
            let soonest = self.parked.iter().filter_map(|parked| parked.until).fold(self.next_poll, u64::min);
            time = time.min(soonest.saturating_sub(self.host.now()));
        }
        if self.is_signaled {
            time = time.min(DEVICE_CHECK_INTERVAL);
        }
        let limit = (time < 3600 * SECOND)
            .then_some(Timespec { tv_sec: (time / SECOND) as i64, tv_nsec: (time % SECOND) as i64 });
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let events = match epoll::wait(&self.epoll, &mut events, limit.as_ref()) {
            Ok((events, _)) => events.iter().map(|event| (event.data.u64(), event.flags)).collect(),
            // A signal.
            Err(_) => Vec::new(),
        };
        self.host.disarm();
        Ok(events)
    }

    fn receive_calls(&mut self, flags: epoll::EventFlags) {
        let end = self.host.now() + CALLS_TIME;
        if flags.contains(epoll::EventFlags::HUP) {
            // The last process has ended; the one who started it says when to stop.
            _ = epoll::delete(&self.epoll, self.trap.as_fd());
            return;
        }
        for number in 0..CALLS {
            // Receiving would block without one. The first was announced.
            let is_ready = |trap: &Trap| local::ready(trap.as_fd(), PollFlags::IN) == PollFlags::IN;
            if number > 0 && (self.host.now() > end || !is_ready(&self.trap)) {
                return;
            }
            if let Ok(Some(call)) = self.trap.next() {
                let record = self.journal.record_call(&call);
                self.serve(call, record, None);
            }
        }
    }

    /// Closes the sockets that programs have closed, as inotify tells.
    fn handle_closed(&mut self) {
        let mut closed = Vec::new();
        let mut bytes = [const { MaybeUninit::uninit() }; 4096];
        let mut reader = inotify::Reader::new(&self.watches, &mut bytes);
        while let Ok(event) = reader.next() {
            closed.push(event.wd());
        }
        for watch in closed {
            match self.table.find_by_watch(watch) {
                Some(key) => self.close(key),
                None => self.forget_watch(watch),
            }
        }
    }

    /// Watches for the last close of a program's socket.
    fn watch(&self, socket: BorrowedFd<'_>) -> Result<i32, Errno> {
        let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let closed = inotify::WatchFlags::CLOSE_WRITE | inotify::WatchFlags::CLOSE_NOWRITE;
        inotify::add_watch(&self.watches, path, closed)
    }

    fn forget_watch(&self, watch: i32) {
        // The watch may have ended by itself.
        let _ = inotify::remove_watch(&self.watches, watch);
    }

    /// Watches for a program's writing to a socket, for room in it, and for its closing.
    fn observe(&self, end: BorrowedFd<'_>, key: Key, what: epoll::EventFlags) -> Result<(), Errno> {
        epoll::add(&self.epoll, end, event_data(key), what)
    }

    /// Serves a socket to which something has happened.
    fn handle_activity(&mut self, key: Key, activity: Activity) {
        match self.table.get(key).map(|socket| &socket.kind) {
            Some(Kind::Stream(_)) => self.handle_stream_activity(key, activity),
            Some(Kind::Datagrams(_)) => self.pump_datagrams(key),
            _ => {}
        }
    }

    /// Serves the calls again that wait for a socket.
    fn wake(&mut self, key: Key) {
        if !self.parked.iter().any(|parked| parked.key == key) {
            return;
        }
        let (woken, others) =
            std::mem::take(&mut self.parked).into_iter().partition(|parked| parked.key == key);
        self.parked = others;
        let woken: Vec<Parked> = woken;
        for parked in woken {
            if self.trap.is_waiting(parked.call.id) {
                self.serve(parked.call, parked.record, parked.until);
            }
        }
    }

    /// Handles what no event tells: callers that have ended or whose timeout has passed, and queues that have room.
    fn run_timers(&mut self) {
        let now = self.host.now();
        let is_over = |parked: &Parked| parked.until.is_some_and(|until| until <= now);
        let looks = now >= self.next_poll;
        if looks {
            self.next_poll = now + POLL_INTERVAL;
            for id in std::mem::take(&mut self.stalled) {
                self.deliver_connections(id);
            }
            self.send_commands();
            self.free_reserved();
            self.ask_for_connections();
        }
        if !looks && !self.parked.iter().any(is_over) {
            return;
        }
        let (late, rest): (Vec<Parked>, Vec<Parked>) = std::mem::take(&mut self.parked)
            .into_iter()
            .filter(|parked| !looks || self.trap.is_waiting(parked.call.id))
            .partition(is_over);
        self.parked = rest;
        late.into_iter().for_each(|parked| self.serve(parked.call, parked.record, parked.until));
    }

    /// Removes a socket that its program has closed or can't have.
    fn close(&mut self, key: Key) {
        let Some(socket) = self.table.remove(key) else { return };
        if let Some(watch) = socket.watch {
            self.forget_watch(watch);
        }
        let now = self.host.now();
        let ids = match socket.kind {
            Kind::Listening(listening) => {
                self.names.remove(&listening.path);
                self.close_shared(key, &listening.sharing, socket.local.map_or(0, |local| local.port()));
                listening.listeners
            }
            Kind::Stream(stream) => vec![stream.tcp],
            Kind::Datagrams(datagrams) => datagrams.udp,
            Kind::Unconnected | Kind::Ended { .. } => Vec::new(),
        };
        for id in ids {
            if self.table.remove_stack_socket(id, key) {
                // A connection that was reset is closed already.
                let _ = self.host.stack().close(now, id);
            }
        }
        self.wake(key);
    }

    /// Closes all sockets, once the stack has what was written to them: the programs have ended.
    fn close_all(&mut self) {
        let all: Vec<Key> = self.table.iter().map(|(key, _)| key).collect();
        for key in all {
            // A datagram socket closes itself after the last one.
            for _ in 0..FINAL_PASSES {
                self.handle_activity(key, Activity::Any);
                if self.table.datagrams(key).is_none() {
                    break;
                }
            }
            // A connection is followed as before, and closed when its last byte has found room.
            if !self.table.stream(key).is_some_and(|stream| stream.is_established && stream.end.is_some()) {
                self.close(key);
            }
        }
    }

    /// Whether all that programs have written was acknowledged.
    fn is_drained(&mut self) -> bool {
        let is_stream = |socket: &table::Socket| matches!(socket.kind, Kind::Stream(_));
        self.host.now() >= self.resets_until
            && self.host.stack().is_drained()
            && !self.table.iter().any(|(_, socket)| is_stream(socket))
            && self.is_shared_drained()
    }
}
