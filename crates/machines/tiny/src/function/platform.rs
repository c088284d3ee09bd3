//! What elements share with the guest's driver: ports, connections, and the channel to the monitor.

use crate::channel::{CONNECTIONS, CONTENTS, Channel, ToGuest, ToMonitor, WINDOW};
use crate::function::ports::Port;
use crate::monitor::Monitor;
use crate::stock::Net;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use ringway_click::OrderedMap;
use ringway_elements::platform::Uses;
use ringway_mem::Region;
use ringway_ring::Broken;

/// Number of the descriptor by which ControlSocket waits for programs that connect.
pub(super) const LISTENER: i32 = 1;
/// Number of the descriptor of the first connection; the others follow.
pub(super) const CONNECTION: i32 = 1 << 8;
/// Number of the descriptor of the first port; the others follow.
pub(super) const PORT: i32 = 1 << 16;
/// Attack: a configuration that prints faster than the monitor reads. Messages that wait for room.
const PRINTS: usize = 1000;

/// How memory that the monitor names is reached.
pub type Map = fn(u64, u64) -> Option<Region>;

/// A program's connection.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// Bytes of the program that ControlSocket has not read.
    pub input: VecDeque<u8>,
    /// The program sends nothing more.
    pub ended: bool,
    /// The program is gone.
    pub gone: bool,
    /// Bytes for the program on the way.
    pub sent: u32,
    /// Whether the connection is the original function's, which the monitor of this clone does not know.
    stale: bool,
}

/// All of it.
pub(crate) struct Platform {
    pub uses: Uses,
    /// Path of the socket for handlers.
    pub handlers: String,
    pub monitor: Monitor,
    pub ports: Vec<Rc<RefCell<Port>>>,
    pub(super) connections: OrderedMap<u16, Connection>,
    /// Connections that ControlSocket has not accepted.
    pub(super) opened: VecDeque<u16>,
    /// Lines that were not printed.
    suppressed: u64,
    /// The monitor waits for a snapshot.
    pub snapshot: bool,
    /// Tells a clone from its original, where it is 0, and from other clones.
    pub generation: u64,
    map: Map,
}

#[cfg(all(feature = "image", not(test)))]
mod place {
    use super::Platform;
    use core::cell::RefCell;

    struct Own(RefCell<Option<Platform>>);
    // SAFETY: the guest has one CPU and no interrupts, and so a single thread.
    unsafe impl Sync for Own {}
    static PLATFORM: Own = Own(RefCell::new(None));

    pub(super) fn with<R>(use_it: impl FnOnce(&mut Option<Platform>) -> R) -> R {
        use_it(&mut PLATFORM.0.borrow_mut())
    }
}

#[cfg(not(all(feature = "image", not(test))))]
mod place {
    use super::Platform;
    use std::cell::RefCell;

    std::thread_local! {
        static PLATFORM: RefCell<Option<Platform>> = const { RefCell::new(None) };
    }

    pub(super) fn with<R>(use_it: impl FnOnce(&mut Option<Platform>) -> R) -> R {
        PLATFORM.with_borrow_mut(use_it)
    }
}

/// Sets the platform up; `nets` are the devices of the ports, as far as the machine has some.
pub(crate) fn begin(monitor: Monitor, uses: Uses, nets: Vec<Net<'static>>, handlers: &str, map: Map) {
    let mut nets = nets.into_iter();
    let port = |at: usize| nets.next().map_or_else(|| Port::new(at), |net| Port::with(at, net));
    let platform = Platform {
        ports: (0..uses.ports.len()).map(port).map(|port| Rc::new(RefCell::new(port))).collect(),
        uses,
        handlers: handlers.into(),
        monitor,
        connections: OrderedMap::new(),
        opened: VecDeque::new(),
        suppressed: 0,
        snapshot: false,
        generation: 0,
        map,
    };
    place::with(|place| *place = Some(platform));
}

/// Uses the platform; `None` before [`begin`].
pub(crate) fn with<R>(use_it: impl FnOnce(&mut Platform) -> R) -> Option<R> {
    place::with(|place| place.as_mut().map(use_it))
}

impl Platform {
    /// Whether programs can connect for handlers.
    pub(super) fn has_programs(&self) -> bool {
        matches!(self.monitor, Monitor::Channel(_))
    }

    pub(super) fn send(&mut self, message: &ToMonitor<'_>) {
        self.monitor.send(message);
    }

    /// Prints a line, in parts.
    pub(super) fn print(&mut self, line: &[u8]) {
        if self.monitor.waiting() > PRINTS {
            self.suppressed += 1;
            return;
        }
        if self.suppressed > 0 {
            let note = alloc::format!("{} more messages suppressed", core::mem::take(&mut self.suppressed));
            self.send(&ToMonitor::Print(true, note.as_bytes()));
        }
        let parts = line.chunks(CONTENTS - 1);
        let last = parts.len().saturating_sub(1);
        if line.is_empty() {
            self.send(&ToMonitor::Print(true, b""));
        }
        for (at, part) in parts.enumerate() {
            self.send(&ToMonitor::Print(at == last, part));
        }
    }

    /// Says why the configuration can't run.
    pub(super) fn wrong(&mut self, why: &str) {
        let parts = why.as_bytes().chunks(CONTENTS - 1);
        let last = parts.len().saturating_sub(1);
        for (at, part) in parts.enumerate() {
            self.send(&ToMonitor::Wrong(at == last, part));
        }
    }

    /// Handles messages of the monitor; whether there were any.
    pub(super) fn receive(&mut self) -> Result<bool, Broken> {
        let Platform {
            monitor: Monitor::Channel(channel), connections, opened, ports, map, snapshot, ..
        } = self
        else {
            return Ok(false);
        };
        let (mut answers, mut any) = (Vec::new(), false);
        while let Some(message) = channel.receive()? {
            any = true;
            match ToGuest::from_bytes(message) {
                Some(ToGuest::PortUp(number, place)) => {
                    let Some(port) = ports.get(usize::from(number)) else { continue };
                    if let Err(why) = port.borrow_mut().arrive(place, *map) {
                        answers.push(ToMonitor::Released(number, why.as_bytes()).to_bytes());
                    }
                }
                Some(ToGuest::PortAway(number, reason)) => {
                    let Some(port) = ports.get(usize::from(number)) else { continue };
                    if port.borrow_mut().leave(reason) {
                        answers.push(ToMonitor::Released(number, b"").to_bytes());
                    }
                }
                Some(ToGuest::Opened(number)) if number < CONNECTIONS => {
                    connections.insert(number, Connection::default());
                    opened.push_back(number);
                }
                Some(ToGuest::Data(number, bytes)) => {
                    if let Some(connection) = connections.get_mut(number) {
                        connection.input.extend(bytes);
                    }
                }
                Some(ToGuest::Taken(number, bytes)) => {
                    if let Some(connection) = connections.get_mut(number) {
                        connection.sent = connection.sent.saturating_sub(bytes);
                    }
                }
                Some(ToGuest::Ended(number, gone)) => {
                    if let Some(connection) = connections.get_mut(number) {
                        connection.ended = true;
                        connection.gone |= gone;
                    }
                }
                Some(ToGuest::Snapshot) => *snapshot = true,
                Some(ToGuest::Opened(_)) | None => {}
            }
        }
        answers.into_iter().for_each(|answer| channel.send(answer));
        Ok(any)
    }

    /// Whether a descriptor is readable and writable: a port's if its ring or its state changed.
    pub(super) fn is_ready(&mut self, descriptor: i32) -> (bool, bool) {
        if descriptor == LISTENER {
            return (!self.opened.is_empty(), false);
        }
        if descriptor >= PORT {
            let port = self.ports.get((descriptor - PORT) as usize);
            return (port.is_some_and(|port| port.borrow_mut().is_ready()), false);
        }
        let number = u16::try_from(descriptor - CONNECTION).unwrap_or(CONNECTIONS);
        let Some(connection) = self.connections.get(number) else { return (false, false) };
        (!connection.input.is_empty() || connection.ended, connection.gone || connection.sent < WINDOW)
    }

    /// This guest is a clone: its channel is a new one, its connections have ended, and its ports are away.
    pub(super) fn begin_clone(&mut self, channel: Channel) {
        self.monitor = Monitor::Channel(channel);
        self.opened.clear();
        for connection in self.connections.values_mut() {
            *connection = Connection { ended: true, gone: true, stale: true, ..Connection::default() };
        }
        self.send(&ToMonitor::Up([0; 3]));
        let wanted = |(number, port): (u16, &Rc<RefCell<Port>>)| {
            Some(ToMonitor::Wanted(number, port.borrow_mut().begin_clone()?))
        };
        let wanted: Vec<ToMonitor<'_>> = (0..).zip(&self.ports).filter_map(wanted).collect();
        wanted.iter().for_each(|message| self.monitor.send(message));
    }

    /// The port of this name.
    pub(super) fn port(&self, name: &str) -> Option<Rc<RefCell<Port>>> {
        let at = self.uses.ports.iter().position(|own| own == name)?;
        self.ports.get(at).cloned()
    }

    /// Reads bytes of a connection; tells the monitor how many.
    pub(super) fn read(&mut self, number: u16, buffer: &mut [u8]) -> Option<usize> {
        let connection = self.connections.get_mut(number)?;
        let count = buffer.len().min(connection.input.len());
        for (to, from) in buffer.iter_mut().zip(connection.input.drain(..count)) {
            *to = from;
        }
        if count == 0 {
            return (!connection.ended).then_some(0);
        }
        self.send(&ToMonitor::Taken(number, count as u32));
        Some(count)
    }

    /// Sends bytes to a program as far as the window permits; returns their number, and whether the program is still
    /// connected.
    pub(super) fn write(&mut self, number: u16, bytes: &[u8]) -> (usize, bool) {
        let Some(connection) = self.connections.get_mut(number).filter(|known| !known.gone) else {
            return (0, false);
        };
        let count = bytes.len().min((WINDOW - connection.sent.min(WINDOW)) as usize);
        connection.sent += count as u32;
        for part in bytes[..count].chunks(CONTENTS) {
            self.send(&ToMonitor::Data(number, part));
        }
        (count, true)
    }

    /// Ends a connection.
    pub(super) fn close(&mut self, number: u16) {
        if let Some(connection) = self.connections.remove(number) {
            self.opened.retain(|own| *own != number);
            if !connection.stale {
                self.send(&ToMonitor::Closed(number));
            }
        }
    }
}
