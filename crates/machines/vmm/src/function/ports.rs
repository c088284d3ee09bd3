//! The ports of a function in a guest: the monitor attaches to them, and maps their rings into the guest's memory.

use super::{DOORBELLS, FunctionEnd, Ring, SharedMachine, WINDOW, readable, send};
use ringway_host::kvm::Doorbell;
use ringway_host::{HostError, Mapping, PollFd, Window};
use ringway_mem::Region;
use ringway_ring_client::RingError;
use ringway_ring_client::attachment::{Attachment, State};
use ringway_tiny::channel::{Channel, RingPlace, ToGuest};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Attack: a guest that asks for a ring again and again. Nanoseconds between two attempts at least.
const PAUSE: u64 = 1_000_000;
/// Rings begin at multiples of this.
const ALIGNMENT: u64 = 2 << 20;

/// The guest's addresses.
pub(super) struct Addresses {
    pub shared: SharedMachine,
    /// Where rings are mapped: what is mapped there becomes the guest's memory. Adding a slot to a running machine
    /// takes milliseconds, since the kernel waits until its CPU uses the former list of slots no more.
    pub window: Arc<Window>,
}

impl Addresses {
    /// Maps a ring's memory: in the window, if there is room.
    fn map(&self, file: &OwnedFd) -> Result<Region, HostError> {
        match self.window.sealed(file) {
            Ok(Some(region)) => Ok(region),
            // Pages of 1 GB don't fit into a window either.
            Ok(None) | Err(HostError::Call { .. }) => Ok(Mapping::sealed(file)?.region()),
            Err(error) => Err(error),
        }
    }
}

/// A ring in the guest's memory.
struct Placed {
    /// Its own slot, if it has no place in the window.
    slot: Option<u32>,
    /// What the guest uses, until it releases the ring.
    _memory: Region,
    address: u64,
    len: u64,
    doorbell: Doorbell,
    /// Wakes the guest.
    call: OwnedFd,
    /// The guest was told that the ring is lost.
    told: bool,
}

#[derive(Default)]
struct Port {
    attachment: Attachment,
    /// The guest wants a ring.
    wanted: bool,
    /// Time of the last request; none yet.
    asked: Option<u64>,
    /// The ring that the guest has. It stays until the guest releases it.
    placed: Option<Placed>,
    /// The reason that the guest was told last.
    told: String,
}

impl Port {
    /// When the port may be asked for a ring again.
    fn may_ask(&self) -> u64 {
        self.asked.map_or(0, |asked| asked.saturating_add(PAUSE))
    }
}

/// All ports, by number.
pub(super) struct Ports {
    all: Vec<Port>,
    /// Addresses of the guest's machine; `None` in tests.
    addresses: Option<Addresses>,
}

/// Why a ring can't be in the guest's memory.
#[derive(Debug, thiserror::Error)]
enum PlaceError {
    #[error("there is no room for its {0} bytes in the guest's addresses; use fewer ports, or smaller rings")]
    Room(u64),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Ports {
    pub fn new(count: usize, addresses: Option<Addresses>) -> Ports {
        Ports { all: (0..count).map(|_| Port::default()).collect(), addresses }
    }

    fn port(&mut self, number: u16) -> Result<&mut Port, FunctionEnd> {
        self.all.get_mut(usize::from(number)).ok_or(FunctionEnd::Channel("a port that does not exist"))
    }

    /// The guest wants a ring.
    pub fn wanted(&mut self, number: u16, offloads: bool, now: u64) -> Result<(), FunctionEnd> {
        let port = self.port(number)?;
        port.wanted = true;
        port.attachment.want_offloads(offloads, now);
        Ok(())
    }

    /// The guest does not use the ring any more: it is lost, or the guest gave it up.
    pub fn released(&mut self, number: u16, now: u64) -> Result<(), FunctionEnd> {
        let shared = self.addresses.as_ref().map(|addresses| addresses.shared.clone());
        let port = self.port(number)?;
        if let (Some(placed), Some(shared)) = (port.placed.take(), shared) {
            shared.remove_wake(placed.call.as_fd());
            // Neither fails for what was added; an address without memory ends a guest that uses it.
            let _ = shared.space.remove_doorbell(&placed.doorbell);
            if let Some(slot) = placed.slot {
                let _ = shared.space.remove_memory(slot);
            }
            if matches!(port.attachment.state(), State::Up(_)) {
                port.attachment.lose(&RingError::Closed, now);
            }
        }
        Ok(())
    }

    /// Advances all attachments without blocking.
    pub fn advance(
        &mut self,
        now: u64,
        connect: &mut impl FnMut(usize) -> io::Result<UnixStream>,
        channel: &mut Channel,
    ) {
        for number in 0..self.all.len() {
            let port = &mut self.all[number];
            let name = number as u16;
            if let Some(placed) = &mut port.placed {
                port.attachment.check_socket(now);
                if matches!(port.attachment.state(), State::Away) && !placed.told {
                    placed.told = true;
                    send(channel, &ToGuest::PortAway(name, port.attachment.reason()));
                }
                continue;
            }
            if !port.wanted {
                continue;
            }
            if now >= port.may_ask() || !matches!(port.attachment.state(), State::Away) {
                let Port { attachment, asked, .. } = port;
                let addresses = &self.addresses;
                let map = |file: &OwnedFd| match addresses {
                    Some(addresses) => addresses.map(file),
                    None => Ok(Mapping::sealed(file)?.region()),
                };
                let connect = || {
                    *asked = Some(now);
                    connect(number)
                };
                attachment.tend_by(now, connect, &map);
            }
            self.place(number, now, channel);
            let port = &mut self.all[number];
            if matches!(port.attachment.state(), State::Away) && port.told != port.attachment.reason() {
                port.told = port.attachment.reason().into();
                send(channel, &ToGuest::PortAway(name, &port.told));
            }
        }
    }

    /// Maps a port's ring, if there is one, into the guest's memory.
    fn place(&mut self, number: usize, now: u64, channel: &mut Channel) {
        let taken: Vec<(u64, u64)> = self
            .all
            .iter()
            .filter_map(|port| port.placed.as_ref().map(|placed| (placed.address, placed.len)))
            .collect();
        let Port { attachment, placed, told, .. } = &mut self.all[number];
        let (Some(ring), Some(addresses)) = (attachment.ring(), &self.addresses) else { return };
        let is_second = ring.is_second();
        match place(ring, number, &taken, addresses) {
            Ok(new) => {
                let doorbell = doorbell_of(number);
                let place = RingPlace { address: new.address, len: new.len, doorbell, is_second };
                send(channel, &ToGuest::PortUp(number as u16, place));
                told.clear();
                *placed = Some(new);
            }
            Err(error) => {
                attachment.lose(&RingError::Refused(error.to_string()), now);
            }
        }
    }

    /// What to wait for; returns the time of the next attempt.
    pub fn watch(&self, poll_fds: &mut Vec<PollFd>) -> Option<u64> {
        let mut next: Option<u64> = None;
        for port in self.all.iter().filter(|port| port.wanted) {
            match port.attachment.state() {
                State::Away if port.placed.is_none() => {
                    let time = port.attachment.next().max(port.may_ask());
                    next = Some(next.map_or(time, |next| next.min(time)));
                }
                State::Away => {}
                State::Requested(coming) => poll_fds.push(readable(&coming.as_fd())),
                // The guest itself is woken by the ring.
                State::Up(ring) => poll_fds.extend(ring.socket().iter().map(readable)),
            }
        }
        next
    }
}

fn doorbell_of(number: usize) -> u64 {
    DOORBELLS + 8 * (number as u64 + 1)
}

/// Gives the guest a ring's memory, its doorbell and its notification.
fn place(
    ring: &Ring,
    number: usize,
    taken: &[(u64, u64)],
    addresses: &Addresses,
) -> Result<Placed, PlaceError> {
    let Addresses { shared, window } = addresses;
    let mut memory = ring.region().clone();
    let len = memory.len;
    let call = ring.as_fd().try_clone_to_owned()?;
    let kick =
        ring.kick_fd().ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?.try_clone_to_owned()?;
    let slot = match window.offset_of(&memory) {
        Some(offset) => {
            memory.guest = WINDOW + offset;
            None
        }
        None => {
            let from = WINDOW + window.len() as u64;
            memory.guest = free_address(from, len, taken).ok_or(PlaceError::Room(len))?;
            Some(shared.space.add_memory(&memory)?)
        }
    };
    let undo = |error: HostError| {
        // The memory was just added.
        let _ = slot.map(|slot| shared.space.remove_memory(slot));
        error
    };
    let doorbell = shared.space.add_doorbell(doorbell_of(number), kick).map_err(undo)?;
    if let Err(error) = shared.add_wake(call.as_fd()) {
        let _ = shared.space.remove_doorbell(&doorbell);
        return Err(undo(error).into());
    }
    Ok(Placed { slot, address: memory.guest, len, _memory: memory, doorbell, call, told: false })
}

/// The first address, not before `from`, from which `len` bytes are free.
fn free_address(from: u64, len: u64, taken: &[(u64, u64)]) -> Option<u64> {
    let mut taken = taken.to_vec();
    taken.sort_unstable();
    let mut at = from.next_multiple_of(ALIGNMENT);
    for (address, used) in taken.into_iter().filter(|(address, _)| *address >= from) {
        if at.checked_add(len)? <= address {
            break;
        }
        at = address.checked_add(used)?.next_multiple_of(ALIGNMENT);
    }
    (at.checked_add(len)? <= DOORBELLS).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_get_free_addresses() {
        let from = WINDOW + (10 << 20);
        let first = free_address(from, 5 << 20, &[]).unwrap();
        assert!(first >= from && first.is_multiple_of(ALIGNMENT));
        let second = free_address(from, 1 << 20, &[(WINDOW, 1 << 20), (first, 5 << 20)]).unwrap();
        assert_eq!(second, first + (6 << 20));
        let hole = free_address(from, 2 << 20, &[(second, 1 << 20), (first + (2 << 20), 1 << 20)]).unwrap();
        assert_eq!(hole, first, "before both");
        assert_eq!(free_address(from, 2 << 30, &[]), None);
        assert_eq!(free_address(from, u64::MAX, &[]), None);
    }
}
