//! A ring between two programs without a port, and a ring with which another process goes on.

use crate::ring::Origin;
use crate::shared::Shared;
use crate::{PendingRing, Ring, RingError, Rx, Tx};
use ringway_host::{EventFd, Mapping, memfd, send_with};
use ringway_mem::Region;
use ringway_ring::{Geometry, RX, RingKind, RingMemory, TX, Welcome};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// The descriptors of a ring that came over a socket. A process that has copies of them goes on with the ring.
#[derive(Debug)]
pub struct RingParts {
    /// The memory, a sealed memfd.
    pub memory: OwnedFd,
    /// The eventfd that notifies the other side.
    pub kick: OwnedFd,
    /// The eventfd that the other side writes.
    pub call: OwnedFd,
    /// The socket, which hangs up when the ring is closed.
    pub socket: UnixStream,
    /// Whether this is a pipe's second end.
    pub is_second: bool,
}

impl RingParts {
    /// Makes the memory of a pipe, and passes the first end over `socket` to a program that waits for it
    /// ([`PendingRing::offered`]). The parts are the second end's.
    pub fn offer(socket: UnixStream, slots: u32, slot_size: u32) -> Result<RingParts, RingError> {
        let geometry =
            Geometry { kind: RingKind::Pipe, slots: [slots; 2], slot_size, extra: 0, ..Geometry::default() };
        let memory = memfd("ringway-pipe", geometry.header()?.bytes as usize)?;
        RingMemory::create(Mapping::sealed(&memory)?.region(), &geometry)?;
        let [kick, call] = [EventFd::new()?, EventFd::new()?];
        // What one side writes, the other reads.
        let descriptors = [memory.as_fd(), call.as_fd(), kick.as_fd()];
        // The message is far shorter than a socket's buffer.
        send_with(&socket, &Welcome::ring(0).to_bytes(), &descriptors)?;
        Ok(RingParts { memory, kick: kick.into_fd(), call: call.into_fd(), socket, is_second: true })
    }
}

impl PendingRing {
    /// A ring that the program at the other end of `socket` offers without being asked ([`RingParts::offer`]).
    pub fn offered(socket: UnixStream) -> PendingRing {
        PendingRing { socket, pool: None }
    }
}

impl Ring {
    /// Goes on with a ring where its last process stopped after a `sync`.
    pub fn from_parts(parts: RingParts) -> Result<Ring, RingError> {
        Ring::from_parts_with(parts, None)
    }

    /// As [`Ring::from_parts`]. `pool` is the memory of the program's buffers, if the ring's may be there.
    pub fn from_parts_with(parts: RingParts, pool: Option<Region>) -> Result<Ring, RingError> {
        let RingParts { memory, kick, call, socket, is_second } = parts;
        let memory = RingMemory::attach_with(Mapping::sealed(&memory)?.region(), pool)?;
        let is_second = is_second && memory.kind() == RingKind::Pipe;
        let shared = Arc::new(Shared::new(memory, kick, call, &socket)?);
        let [tx, rx] = if is_second { [RX, TX] } else { [TX, RX] };
        let (tx, rx) = (Tx::new(shared.clone(), tx), Rx::new(shared.clone(), rx));
        Ok(Ring { tx, rx, shared, origin: Origin::Socket(socket, None), spin: Duration::ZERO, is_second })
    }

    /// Takes the positions up to which another process of this side has synced. What this one has not synced is
    /// forgotten.
    pub fn reload(&mut self) {
        let [tx, rx] = if self.is_second { [RX, TX] } else { [TX, RX] };
        self.tx = Tx::new(self.shared.clone(), tx);
        self.rx = Rx::new(self.shared.clone(), rx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wait;

    fn pipe() -> (Ring, RingParts) {
        let (own, other) = UnixStream::pair().unwrap();
        let second = RingParts::offer(own, 64, 2048).unwrap();
        (PendingRing::offered(other).ring(None).unwrap(), second)
    }

    #[test]
    fn frames_pass_both_ways_without_a_port() {
        let (mut first, second) = pipe();
        let mut second = Ring::from_parts(second).unwrap();
        assert_eq!((first.is_second(), second.is_second()), (false, true));
        let mut out = [0; 64];
        for number in 0..200_u8 {
            assert!(first.tx.push(&[number; 60]).unwrap() && second.tx.push(&[number + 1; 60]).unwrap());
            first.sync().unwrap();
            second.sync().unwrap();
            assert!(second.wait(Wait::RX, None).unwrap() && first.wait(Wait::RX, None).unwrap());
            assert_eq!(second.rx.pop(&mut out).unwrap().map(|frame| (frame.len, out[0])), Some((60, number)));
            assert_eq!(
                first.rx.pop(&mut out).unwrap().map(|frame| (frame.len, out[0])),
                Some((60, number + 1))
            );
        }
        drop(second);
        assert!(first.is_hung_up());
    }

    #[test]
    fn another_process_goes_on_after_the_last_sync() {
        let (mut first, second) = pipe();
        let copy = || RingParts {
            memory: second.memory.try_clone().unwrap(),
            kick: second.kick.try_clone().unwrap(),
            call: second.call.try_clone().unwrap(),
            socket: second.socket.try_clone().unwrap(),
            is_second: true,
        };
        let (mut one, mut two) = (Ring::from_parts(copy()).unwrap(), Ring::from_parts(copy()).unwrap());
        let mut out = [0; 64];
        let mut expected = 0;
        for turn in 0..100 {
            let ring = if turn % 2 == 0 { &mut one } else { &mut two };
            ring.reload();
            assert!(ring.tx.push(&[turn; 60]).unwrap());
            ring.sync().unwrap();
            // This one is not synced.
            assert!(ring.tx.push(&[255; 60]).unwrap());
            while first.rx.pop(&mut out).unwrap().is_some() {
                assert_eq!(out[0], expected);
                expected += 1;
            }
            first.sync().unwrap();
        }
        assert_eq!(expected, 100);
    }
}
