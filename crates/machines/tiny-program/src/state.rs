//! What tasks share with the turn.

use crate::executor::Job;
use crate::network::{Budget, NetworkState};
use crate::port::PortState;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::sync::atomic::AtomicBool;
use core::task::Waker;
use ringway_mem::Region;
use ringway_ring::Broken;
use ringway_tiny::channel::{CONTENTS, ToGuest, ToMonitor};
use ringway_tiny::stock::Net;
use ringway_tiny::{FunctionStart, GuestTime, Monitor};

/// Attack: a peer that makes the program print faster than the monitor reads. Messages that wait for room.
const PRINTS: usize = 1000;
/// Memory for each task that may exist, and the least number of them.
const TASK: u64 = 64 << 10;
const TASKS: usize = 64;

/// How memory that the monitor names is reached.
pub(crate) type Map = fn(u64, u64) -> Option<Region>;

/// What all tasks have.
pub(crate) struct Shared {
    pub state: RefCell<State>,
    pub start: FunctionStart,
    pub time: GuestTime,
    /// Bytes of the machine's memory.
    pub memory: u64,
    /// Memory for buffers of streams.
    pub budget: Rc<Budget>,
    /// Set when a task was woken.
    pub woken: Arc<AtomicBool>,
}

impl Shared {
    /// The most tasks.
    pub fn task_limit(&self) -> usize {
        usize::try_from(self.memory / TASK).unwrap_or(usize::MAX).max(TASKS)
    }
}

/// What changes.
pub(crate) struct State {
    pub monitor: Monitor,
    pub map: Map,
    /// Time of the turn in nanoseconds.
    pub now: u64,
    pub ports: Vec<PortState>,
    pub networks: Vec<NetworkState>,
    /// Deadlines of tasks, each with a number of its own.
    pub timers: BTreeMap<(u64, u64), Waker>,
    next_timer: u64,
    /// Tasks that were spawned in this turn.
    pub spawned: Vec<Job>,
    /// All tasks, those included.
    pub tasks: usize,
    /// Lines that were not printed.
    suppressed: u64,
    /// A buffer for one frame.
    pub frame: Vec<u8>,
}

impl State {
    /// The state of a program, with `nets` as the devices of the first ports.
    pub fn new(monitor: Monitor, map: Map, ports: usize, nets: Vec<Net<'static>>) -> State {
        let mut nets = nets.into_iter();
        let port = |at: usize| nets.next().map_or_else(|| PortState::new(at), |net| PortState::with(at, net));
        State {
            monitor,
            map,
            now: 0,
            ports: (0..ports).map(port).collect(),
            networks: Vec::new(),
            timers: BTreeMap::new(),
            next_timer: 0,
            spawned: Vec::new(),
            tasks: 0,
            suppressed: 0,
            frame: vec![0; ringway_frame::LARGEST as usize],
        }
    }

    pub fn send(&mut self, message: &ToMonitor<'_>) {
        self.monitor.send(message);
    }

    /// Prints lines, each in parts.
    pub fn print(&mut self, text: &str) {
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            if self.monitor.waiting() > PRINTS {
                self.suppressed += 1;
                continue;
            }
            if self.suppressed > 0 {
                let count = core::mem::take(&mut self.suppressed);
                let note = alloc::format!("{count} more messages suppressed");
                self.send(&ToMonitor::Print(true, note.as_bytes()));
            }
            self.parts(line, |last, part| ToMonitor::Print(last, part));
        }
    }

    /// Says why the program can't run.
    pub fn wrong(&mut self, why: &str) {
        self.parts(why, |last, part| ToMonitor::Wrong(last, part));
    }

    fn parts(&mut self, text: &str, message: for<'a> fn(bool, &'a [u8]) -> ToMonitor<'a>) {
        let mut parts = text.as_bytes().chunks(CONTENTS - 1).peekable();
        if parts.peek().is_none() {
            self.send(&message(true, b""));
        }
        while let Some(part) = parts.next() {
            self.send(&message(parts.peek().is_none(), part));
        }
    }

    /// Has a waker called at a time; returns the timer's key.
    pub fn set_timer(&mut self, due: u64, waker: &Waker) -> (u64, u64) {
        self.next_timer += 1;
        self.timers.insert((due, self.next_timer), waker.clone());
        (due, self.next_timer)
    }

    /// Handles messages of the monitor; whether there were any.
    pub fn receive(&mut self) -> Result<bool, Broken> {
        let State { monitor, ports, map, .. } = self;
        let (mut answers, mut any) = (Vec::new(), false);
        while let Some(message) = monitor.receive()? {
            any = true;
            match ToGuest::from_bytes(message) {
                Some(ToGuest::PortUp(number, place)) => {
                    let Some(port) = ports.get_mut(usize::from(number)) else { continue };
                    if let Err(why) = port.arrive(place, *map) {
                        answers.push((number, Some(why)));
                    }
                }
                Some(ToGuest::PortAway(number, reason)) => {
                    let Some(port) = ports.get_mut(usize::from(number)) else { continue };
                    if port.leave(reason) {
                        answers.push((number, Some(String::new())));
                    }
                }
                // A program has no handlers.
                Some(ToGuest::Opened(number)) => answers.push((number, None)),
                // Bytes that came before the monitor knew that, and snapshots, which `control` does not ask for.
                Some(ToGuest::Data(..) | ToGuest::Taken(..) | ToGuest::Ended(..) | ToGuest::Snapshot) => {}
                None => {}
            }
        }
        for (number, released) in answers {
            match released {
                Some(why) => monitor.send(&ToMonitor::Released(number, why.as_bytes())),
                None => monitor.send(&ToMonitor::Closed(number)),
            }
        }
        Ok(any)
    }

    /// Takes what came on the ports, and tells tasks; whether anything came.
    pub fn take(&mut self) -> bool {
        let mut any = false;
        while let Some(first) = self.timers.first_entry().filter(|first| first.key().0 <= self.now) {
            first.remove().wake();
            any = true;
        }
        let State { ports, networks, now, frame, .. } = self;
        for network in networks {
            any |= network.take(&mut ports[network.port], *now, frame);
        }
        for port in ports {
            any |= port.tell();
        }
        self.give_up();
        any
    }

    /// Sends what tasks have written, publishes it, and tells tasks of what became ready meanwhile.
    pub fn put(&mut self) {
        let State { ports, networks, now, .. } = self;
        for network in networks {
            network.put(&mut ports[network.port], *now);
        }
        ports.iter_mut().for_each(PortState::publish);
        self.give_up();
    }

    /// Gives rings up that were closed or broken.
    fn give_up(&mut self) {
        let lost = |port: &mut PortState| Some((port.number, port.lost()?));
        let lost: Vec<(u16, String)> = self.ports.iter_mut().filter_map(lost).collect();
        for (number, reason) in lost {
            self.send(&ToMonitor::Released(number, reason.as_bytes()));
        }
    }

    /// When the next turn is due although nothing comes.
    pub fn deadline(&self) -> Option<u64> {
        let networks = self.networks.iter().filter_map(NetworkState::deadline);
        let timer = self.timers.first_key_value().map(|(key, _)| key.0);
        networks.chain(timer).min()
    }

    /// Asks all ports to wake the machine. `false`: there is something already.
    pub fn arm(&mut self) -> bool {
        let State { ports, networks, .. } = self;
        let is_full = |port: &PortState| {
            networks.iter().any(|network| network.port == usize::from(port.number) && network.is_full())
        };
        ports.iter_mut().all(|port| {
            let full = is_full(port);
            port.arm(full)
        })
    }

    /// Cancels [`State::arm`].
    pub fn disarm(&mut self) {
        self.ports.iter_mut().for_each(PortState::disarm);
    }
}
