//! The channel between a function's guest and its monitor: messages over a second ring, which has the layout of a
//! pipe. Each side treats the other as hostile.
//!
//! Programs connect to the monitor's socket for handlers. The monitor passes their bytes on, and the guest's
//! ControlSocket answers. Of each connection, at most [`WINDOW`] bytes are on the way in each direction:
//! [`ToGuest::Taken`] and [`ToMonitor::Taken`] say how many were taken by the receiver.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use ringway_mem::Region;
use ringway_ring::{
    Broken, Consumer, Geometry, LayoutError, Producer, PushError, RX, RingKind, RingMemory, TX,
};

/// Largest message in bytes: a slot.
pub const MESSAGE: usize = 1024;
/// Bytes of a message before its contents: the kind, a zero, the number of a port or connection.
const HEAD: usize = 4;
/// Most bytes of contents.
pub const CONTENTS: usize = MESSAGE - HEAD;
/// Bytes of a connection on the way in one direction.
pub const WINDOW: u32 = 16 << 10;
/// Largest number of connections at a time.
pub const CONNECTIONS: u16 = 64;

/// Where the ring of a port is in the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlace {
    /// Address of the ring's memory.
    pub address: u64,
    /// Its bytes.
    pub len: u64,
    /// Address whose write notifies the ring's other side.
    pub doorbell: u64,
    /// Whether the guest fills ring 1, as a pipe's second end.
    pub is_second: bool,
}

/// A message to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToGuest<'a> {
    /// A port's ring is here.
    PortUp(u16, RingPlace),
    /// A port's ring is lost, for this reason; the guest answers with [`ToMonitor::Released`] if it had one.
    PortAway(u16, &'a str),
    /// A program connected.
    Opened(u16),
    /// Bytes of a program.
    Data(u16, &'a [u8]),
    /// The program has taken so many bytes.
    Taken(u16, u32),
    /// The program sends nothing more; `true`: it is gone.
    Ended(u16, bool),
    /// The monitor waits for a snapshot.
    Snapshot,
}

/// A message to the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToMonitor<'a> {
    /// The configuration runs. Microseconds for the element classes, for reading the configuration, and for building
    /// it.
    Up([u32; 3]),
    /// A part of the reason why the configuration can't run; `true`: the last one.
    Wrong(bool, &'a [u8]),
    /// A part of a printed line; `true`: the last one.
    Print(bool, &'a [u8]),
    /// A ring of this port is wanted, with these offloads. A ring that the guest has stays until it is released.
    Wanted(u16, bool),
    /// The guest does not use the port's ring any more, for this reason.
    Released(u16, &'a [u8]),
    /// Bytes for a program.
    Data(u16, &'a [u8]),
    /// The guest has taken so many bytes.
    Taken(u16, u32),
    /// The guest has ended the connection: its number may be used again.
    Closed(u16),
}

/// One byte, the number, and the contents.
fn compose(kind: u8, number: u16, contents: &[&[u8]]) -> Vec<u8> {
    let mut message = vec![kind, 0];
    message.extend_from_slice(&number.to_le_bytes());
    for part in contents {
        // What is longer is cut: of text, its end.
        let rest = MESSAGE - message.len();
        message.extend_from_slice(&part[..part.len().min(rest)]);
    }
    message
}

fn parse(message: &[u8]) -> Option<(u8, u16, &[u8])> {
    let (head, contents) = message.split_first_chunk::<HEAD>()?;
    Some((head[0], u16::from_le_bytes([head[2], head[3]]), contents))
}

fn flag(contents: &[u8]) -> Option<(bool, &[u8])> {
    let (first, rest) = contents.split_first()?;
    (*first < 2).then_some((*first == 1, rest))
}

fn count(contents: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(contents.try_into().ok()?))
}

fn stages(contents: &[u8]) -> Option<[u32; 3]> {
    let (stages, []) = contents.as_chunks::<4>() else { return None };
    Some(<[[u8; 4]; 3]>::try_from(stages).ok()?.map(u32::from_le_bytes))
}

impl RingPlace {
    fn to_bytes(self) -> [u8; 25] {
        let mut bytes = [0; 25];
        for (at, number) in [self.address, self.len, self.doorbell].into_iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[24] = self.is_second.into();
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<RingPlace> {
        let (numbers, [second]) = bytes.as_chunks::<8>() else { return None };
        let [address, len, doorbell] = <[[u8; 8]; 3]>::try_from(numbers).ok()?.map(u64::from_le_bytes);
        Some(RingPlace { address, len, doorbell, is_second: *second == 1 })
    }
}

impl<'a> ToGuest<'a> {
    /// The message's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        match *self {
            ToGuest::PortUp(port, place) => compose(1, port, &[&place.to_bytes()]),
            ToGuest::PortAway(port, reason) => compose(2, port, &[reason.as_bytes()]),
            ToGuest::Opened(connection) => compose(3, connection, &[]),
            ToGuest::Data(connection, bytes) => compose(4, connection, &[bytes]),
            ToGuest::Taken(connection, bytes) => compose(5, connection, &[&bytes.to_le_bytes()]),
            ToGuest::Ended(connection, gone) => compose(6, connection, &[&[gone.into()]]),
            ToGuest::Snapshot => compose(7, 0, &[]),
        }
    }

    /// The message with these bytes; `None` if there is none.
    pub fn from_bytes(message: &'a [u8]) -> Option<ToGuest<'a>> {
        let (kind, number, contents) = parse(message)?;
        Some(match kind {
            1 => ToGuest::PortUp(number, RingPlace::from_bytes(contents)?),
            // A reason may be cut within a character.
            2 => ToGuest::PortAway(number, text(contents)),
            3 => ToGuest::Opened(number),
            4 => ToGuest::Data(number, contents),
            5 => ToGuest::Taken(number, count(contents)?),
            6 => ToGuest::Ended(number, flag(contents)?.0),
            7 => ToGuest::Snapshot,
            _ => return None,
        })
    }
}

/// The valid beginning of a text.
fn text(bytes: &[u8]) -> &str {
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => core::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}

impl<'a> ToMonitor<'a> {
    /// The message's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        match *self {
            ToMonitor::Up(stages) => compose(1, 0, &[stages.map(u32::to_le_bytes).as_flattened()]),
            ToMonitor::Wrong(last, part) => compose(2, 0, &[&[last.into()], part]),
            ToMonitor::Print(last, part) => compose(3, 0, &[&[last.into()], part]),
            ToMonitor::Wanted(port, offloads) => compose(4, port, &[&[offloads.into()]]),
            ToMonitor::Released(port, reason) => compose(5, port, &[reason]),
            ToMonitor::Data(connection, bytes) => compose(6, connection, &[bytes]),
            ToMonitor::Taken(connection, bytes) => compose(7, connection, &[&bytes.to_le_bytes()]),
            ToMonitor::Closed(connection) => compose(8, connection, &[]),
        }
    }

    /// The message with these bytes; `None` if there is none.
    pub fn from_bytes(message: &'a [u8]) -> Option<ToMonitor<'a>> {
        let (kind, number, contents) = parse(message)?;
        Some(match kind {
            1 => ToMonitor::Up(stages(contents)?),
            2 | 3 => {
                let (last, part) = flag(contents)?;
                if kind == 2 { ToMonitor::Wrong(last, part) } else { ToMonitor::Print(last, part) }
            }
            4 => ToMonitor::Wanted(number, flag(contents)?.0),
            5 => ToMonitor::Released(number, contents),
            6 => ToMonitor::Data(number, contents),
            7 => ToMonitor::Taken(number, count(contents)?),
            8 => ToMonitor::Closed(number),
            _ => return None,
        })
    }
}

/// One side of a channel.
#[derive(Debug)]
pub struct Channel {
    memory: RingMemory,
    tx: Producer,
    rx: Consumer,
    /// Messages for which there was no room.
    waiting: VecDeque<Vec<u8>>,
    buffer: [u8; MESSAGE],
}

impl Channel {
    /// The ring of a channel.
    pub const GEOMETRY: Geometry = Geometry {
        kind: RingKind::Pipe,
        slots: [64, 64],
        slot_size: MESSAGE as u32,
        extra: 0,
        features: 0,
        largest: 0,
        pool: None,
    };

    /// Bytes of a channel's memory.
    pub fn bytes() -> Result<u64, LayoutError> {
        Ok(Channel::GEOMETRY.header()?.bytes)
    }

    /// The monitor's side, in zeroed memory.
    pub fn create(region: Region) -> Result<Channel, LayoutError> {
        Ok(Channel::over(RingMemory::create(region, &Channel::GEOMETRY)?, [TX, RX]))
    }

    /// The guest's side.
    pub fn attach(region: Region) -> Result<Channel, LayoutError> {
        Ok(Channel::over(RingMemory::attach(region)?, [RX, TX]))
    }

    fn over(memory: RingMemory, [tx, rx]: [usize; 2]) -> Channel {
        let (tx, rx) = (Producer::new(&memory, tx), Consumer::new(&memory, rx));
        Channel { memory, tx, rx, waiting: VecDeque::new(), buffer: [0; MESSAGE] }
    }

    /// Sends a message, or keeps it until there is room.
    pub fn send(&mut self, message: Vec<u8>) {
        self.waiting.push_back(message);
    }

    /// Number of messages for which there was no room.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The next message; `None` if there is none now.
    ///
    /// # Errors
    /// The other side violated the ring's rules.
    pub fn receive(&mut self) -> Result<Option<&[u8]>, Broken> {
        let Some(received) = self.rx.pop(&self.memory, &mut self.buffer)? else { return Ok(None) };
        // Attack: a message longer than the buffer. It is cut, as any message of its sender may be.
        Ok(Some(&self.buffer[..received.len]))
    }

    /// Publishes what was sent and received; returns whether the other side must be notified.
    ///
    /// # Errors
    /// The other side violated the ring's rules.
    pub fn flush(&mut self) -> Result<bool, Broken> {
        while let Some(message) = self.waiting.front() {
            match self.tx.push(&self.memory, message, [0; 10]) {
                Ok(true) => drop(self.waiting.pop_front()),
                Ok(false) => break,
                Err(PushError::Broken(broken)) => return Err(broken),
                // No message is longer than a slot.
                Err(PushError::TooLong { .. }) => drop(self.waiting.pop_front()),
            }
        }
        let sent = self.tx.publish(&self.memory);
        Ok(self.rx.publish(&self.memory) | sent)
    }

    /// Asks to be notified of the next message, and of room if messages wait for it. `false`: there is one already.
    ///
    /// # Errors
    /// The other side violated the ring's rules.
    pub fn arm(&mut self) -> Result<bool, Broken> {
        if !self.waiting.is_empty() && !self.tx.arm(&self.memory, self.tx.slots() / 2)? {
            return Ok(false);
        }
        let armed = self.rx.arm(&self.memory, 1)?;
        if !armed {
            self.disarm();
        }
        Ok(armed)
    }

    /// Cancels [`Channel::arm`].
    pub fn disarm(&mut self) {
        self.tx.disarm(&self.memory);
        self.rx.disarm(&self.memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> [Channel; 2] {
        let region = Region::private(0, 0, Channel::bytes().unwrap() as usize);
        let monitor = Channel::create(region.clone()).unwrap();
        [monitor, Channel::attach(region).unwrap()]
    }

    #[test]
    fn messages_survive_their_bytes() {
        let place = RingPlace { address: 1 << 40, len: 7, doorbell: 3, is_second: true };
        let to_guest = [
            ToGuest::PortUp(1, place),
            ToGuest::PortAway(2, "gone"),
            ToGuest::Opened(3),
            ToGuest::Data(4, b"bytes"),
            ToGuest::Taken(5, 77),
            ToGuest::Ended(6, true),
            ToGuest::Snapshot,
        ];
        for message in to_guest {
            assert_eq!(ToGuest::from_bytes(&message.to_bytes()), Some(message));
        }
        let to_monitor = [
            ToMonitor::Up([1, 2, u32::MAX]),
            ToMonitor::Wrong(true, b"why"),
            ToMonitor::Print(false, b"line"),
            ToMonitor::Wanted(9, true),
            ToMonitor::Released(8, b"why"),
            ToMonitor::Data(7, b""),
            ToMonitor::Taken(6, u32::MAX),
            ToMonitor::Closed(5),
        ];
        for message in to_monitor {
            assert_eq!(ToMonitor::from_bytes(&message.to_bytes()), Some(message));
        }
        let long = ToGuest::Data(1, &[7; 5000]).to_bytes();
        assert_eq!(long.len(), MESSAGE);
        for wrong in [&[][..], &[1, 0, 0], &[0; 4], &[5, 0, 0, 0, 1], &[6, 0, 0, 0, 2], &[9; 30]] {
            assert_eq!(ToGuest::from_bytes(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn messages_without_room_wait_in_order() {
        let [mut monitor, mut guest] = pair();
        for number in 0..200 {
            monitor.send(ToGuest::Opened(number).to_bytes());
        }
        let mut next = 0;
        while next < 200 {
            monitor.flush().unwrap();
            while let Some(message) = guest.receive().unwrap() {
                assert_eq!(ToGuest::from_bytes(message), Some(ToGuest::Opened(next)));
                next += 1;
            }
            guest.flush().unwrap();
        }
        assert_eq!(monitor.waiting(), 0);
        assert!(guest.arm().unwrap(), "nothing is there");
        monitor.send(ToGuest::Opened(7).to_bytes());
        assert!(monitor.flush().unwrap(), "the guest asked to be notified");
        assert!(!guest.arm().unwrap(), "a message is there");
    }
}
