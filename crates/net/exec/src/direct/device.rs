//! The agent's end of the shared stack, and the bridge's, as devices. If the stack is lost, two queues join them.

use ringway_frame::{LARGEST, Needs, Offload};
use ringway_host::{EventFd, Mapping, Signal, memfd};
use ringway_mem::{Region, Span};
use ringway_netstack::Transmit;
use ringway_ring::{Consumer, FRAGMENTS, Geometry, Producer, RX, RingMemory, TX};
use ringway_sockets::{Device, DeviceError, LentRing, Pair, Received, pair};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Slots of each direction, and bytes of a slot: room for a window of a connection.
const SLOTS: u32 = 512;
const SLOT_SIZE: u32 = 16 << 10;
/// The numbers of the notifiers (see [`ringway_direct::Notifiers`]).
const CALL: usize = 0;
const PORT: usize = 1;
const AGENT: usize = 2;

/// Whether the shared stack is lost, for the agent and for the bridge.
#[derive(Debug)]
pub struct Switch {
    is_lost: AtomicBool,
    /// Wakes the processes, the bridge and the agent, in this order.
    wakes: [Signal; 3],
    /// The rings to the port and to the agent.
    rings: [RingMemory; 2],
}

impl Switch {
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(SeqCst)
    }

    /// Whether all frames that the agent has sent have left.
    pub fn is_idle(&self) -> bool {
        // The program's end of both fills the first direction.
        let is_empty = |memory: &RingMemory| {
            Consumer::new(memory, TX).available(memory, 1).is_ok_and(|count| count == 0)
        };
        // In the order in which they pass.
        let [port, agent] = &self.rings;
        self.is_lost() || is_empty(agent) && is_empty(port)
    }

    /// Joins the two devices.
    pub fn lose(&self) {
        if !self.is_lost.swap(true, SeqCst) {
            self.wakes.iter().for_each(Signal::send);
        }
    }
}

/// The side of a ring that is not the shared stack. Attack: what the programs write there; the ring's rules are
/// checked, and frames are copied before they are looked at.
#[derive(Debug)]
struct RingSide {
    memory: RingMemory,
    tx: Producer,
    rx: Consumer,
    frame: Vec<u8>,
}

/// One of the two devices.
#[derive(Debug)]
pub struct End {
    ring: Option<RingSide>,
    pair: Pair,
    needs: Needs,
    /// Wakes this side. It is never read: only new signals count, so that nobody who reads it holds this side up.
    wakes: OwnedFd,
    /// Wakes the processes, without waiting. Attack: one that fills the eventfd.
    call: Signal,
    switch: Arc<Switch>,
}

/// The two devices.
#[derive(Debug)]
pub struct Ends {
    pub agent: End,
    pub bridge: End,
    /// What tells the bridge of a loss.
    pub wakes: OwnedFd,
}

/// A ring's memory: its file, and its length.
type Ring = (OwnedFd, u64);

fn ring(name: &str) -> Result<(Ring, RingMemory), DeviceError> {
    let geometry = Geometry { slots: [SLOTS; 2], slot_size: SLOT_SIZE, ..Geometry::default() };
    let len = geometry.header().map_err(|_| DeviceError::Closed)?.bytes as usize;
    let file = memfd(name, len)?;
    let region = Arc::new(Mapping::shared(&file, 0, len)?).region();
    let memory = RingMemory::create(region, &geometry).map_err(|_| DeviceError::Closed)?;
    Ok(((file, len as u64), memory))
}

/// A signal by a notifier.
fn signal(notifier: &OwnedFd) -> Result<Signal, DeviceError> {
    let own = notifier.try_clone().map_err(|_| DeviceError::Closed)?;
    Signal::of(Arc::new(own)).map_err(|_| DeviceError::Closed)
}

/// The ends of a shared stack that does not exist yet, and the rings' memory: of the one to the port, and of the one to
/// the agent. `needs`: what the device behind the bridge does for frames. `lent`: its ring, which is then that to the
/// port; the bridge has none, and no frames as long as the shared stack is there.
///
/// # Errors
/// The kernel refuses memory or descriptors.
pub fn ends(
    needs: Needs,
    notifiers: &[OwnedFd],
    lent: Option<&LentRing>,
) -> Result<(Ends, [Ring; 2], Arc<Switch>), DeviceError> {
    let [call, port, agent] = [CALL, PORT, AGENT].map(|number| notifiers.get(number));
    let (Some(call), Some(port), Some(agent)) = (call, port, agent) else { return Err(DeviceError::Closed) };
    let again = |region: &Region| RingMemory::attach(region.clone()).map_err(|_| DeviceError::Closed);
    let copy = |descriptor: &OwnedFd| descriptor.try_clone().map_err(|_| DeviceError::Closed);
    let (agent_ring, agent_memory) = ring("ringway-direct-agent")?;
    let (port_ring, port_memory, bridge_wakes) = match lent {
        Some(lent) => {
            let own = (copy(&lent.file)?, lent.region.len);
            (own, again(&lent.region)?, EventFd::new()?.into_fd())
        }
        None => {
            let (own, memory) = ring("ringway-direct-port")?;
            (own, memory, copy(port)?)
        }
    };
    let rings = [again(port_memory.region())?, again(agent_memory.region())?];
    let wakes = [signal(call)?, signal(&bridge_wakes)?, signal(agent)?];
    let switch = Arc::new(Switch { is_lost: AtomicBool::new(false), wakes, rings });
    let (one, two) = pair()?;
    let side = |memory: RingMemory, [tx, rx]: [usize; 2]| {
        let (tx, rx) = (Producer::new(&memory, tx), Consumer::new(&memory, rx));
        RingSide { memory, tx, rx, frame: vec![0; LARGEST as usize] }
    };
    let end = |ring, pair, wakes| {
        Ok::<_, DeviceError>(End { ring, pair, needs, wakes, call: signal(call)?, switch: switch.clone() })
    };
    // The shared stack is the program's end of the ring to the port, and the other end of the ring to the agent.
    let ends = Ends {
        agent: end(Some(side(agent_memory, [TX, RX])), one, copy(agent)?)?,
        bridge: end(lent.is_none().then(|| side(port_memory, [RX, TX])), two, copy(&bridge_wakes)?)?,
        wakes: bridge_wakes,
    };
    Ok((ends, [port_ring, agent_ring], switch))
}

impl End {
    /// The ring, until the shared stack is lost.
    fn ring(&mut self) -> Option<&mut RingSide> {
        if self.ring.is_some() && self.switch.is_lost() {
            self.ring = None;
        }
        self.ring.as_mut()
    }

    /// Somebody violated the ring's rules.
    fn lose(&mut self) {
        self.switch.lose();
        self.ring = None;
    }
}

/// The other end learns that this one is gone.
impl Drop for End {
    fn drop(&mut self) {
        self.switch.lose();
    }
}

impl Transmit for End {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        let Some(RingSide { memory, tx, .. }) = self.ring() else {
            return self.pair.frame(offload, headers, payload);
        };
        let pieces = std::iter::once(Span::of(headers)).chain(payload.iter().copied());
        match tx.push_gathered(memory, pieces, offload.to_bytes()) {
            Ok(is_sent) => is_sent,
            Err(_) => {
                self.lose();
                // It is lost, as on a wire.
                true
            }
        }
    }
}

impl Device for End {
    fn offloads(&self) -> Needs {
        self.needs
    }

    fn receive(&mut self) -> Result<Option<Received<'_>>, DeviceError> {
        let popped = match self.ring() {
            None => return self.pair.receive(),
            Some(RingSide { memory, rx, frame, .. }) => rx.pop(memory, frame),
        };
        if popped.is_err() {
            self.lose();
        }
        let received = popped.ok().flatten().zip(self.ring.as_ref());
        Ok(received.map(|(received, side)| {
            Received::whole(&side.frame[..received.len], Offload::from_bytes(&received.offload))
        }))
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        let Some(RingSide { memory, tx, rx, .. }) = self.ring() else { return self.pair.flush() };
        let sent = tx.publish(memory);
        if rx.publish(memory) || sent {
            self.call.send();
        }
        Ok(())
    }

    fn arm(&mut self, room: bool) -> Result<bool, DeviceError> {
        let Some(RingSide { memory, tx, rx, .. }) = self.ring() else { return self.pair.arm(room) };
        let slots = (FRAGMENTS as u32).min(tx.slots() / 2);
        let armed = rx.arm(memory, 1).and_then(|there| {
            let has_room = if room { tx.arm(memory, slots)? } else { true };
            Ok(there && has_room)
        });
        if armed.is_err() {
            self.lose();
        }
        // After a loss there is the pair to be looked at.
        Ok(armed.unwrap_or(false) && !self.switch.is_lost())
    }

    fn disarm(&mut self) {
        match self.ring() {
            None => self.pair.disarm(),
            Some(RingSide { memory, tx, rx, .. }) => {
                rx.disarm(memory);
                tx.disarm(memory);
            }
        }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self.ring {
            None => self.pair.descriptors(),
            Some(_) => vec![self.wakes.as_fd()],
        }
    }

    fn epoch(&self) -> u64 {
        self.ring.is_none().into()
    }

    fn notified(&mut self, descriptor: usize) -> Result<(), DeviceError> {
        if self.ring.is_none() { self.pair.notified(descriptor) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(end: &mut End, bytes: &[u8]) {
        assert!(end.frame(Offload::default(), bytes, &[]));
        end.flush().unwrap();
    }

    fn take(end: &mut End) -> Option<Vec<u8>> {
        end.receive().unwrap().map(|received| received.head.to_vec())
    }

    fn made() -> (Ends, [Ring; 2], [OwnedFd; 5]) {
        let notifiers = [0; 5].map(|_| EventFd::new().unwrap().into_fd());
        let (ends, rings, _) = ends(Needs::NONE, &notifiers, None).unwrap();
        (ends, rings, notifiers)
    }

    #[test]
    fn what_is_sent_is_in_the_rings_until_the_stack_is_lost() {
        let (Ends { mut agent, mut bridge, .. }, rings, _) = made();
        send(&mut agent, b"to the stack");
        assert_eq!((take(&mut bridge), bridge.epoch()), (None, 0));
        let (file, len) = &rings[1];
        let region = Arc::new(Mapping::shared(file, 0, *len as usize).unwrap()).region();
        let memory = RingMemory::attach(region).unwrap();
        let mut frame = [0; 100];
        let popped = Consumer::new(&memory, TX).pop(&memory, &mut frame).unwrap().unwrap();
        assert_eq!(&frame[..popped.len], b"to the stack");
        assert!(agent.arm(false).unwrap());
        agent.switch.lose();
        // Who sleeps looks again, at other descriptors.
        assert!(!agent.arm(false).unwrap_or(true) || agent.epoch() == 1);
        send(&mut agent, b"there");
        send(&mut bridge, b"back");
        assert_eq!(
            (take(&mut bridge).unwrap(), take(&mut agent).unwrap()),
            (b"there".into(), b"back".into())
        );
        assert_eq!((agent.epoch(), bridge.epoch()), (1, 1));
    }

    #[test]
    fn a_ring_whose_rules_are_violated_is_left_by_both() {
        let (Ends { mut agent, mut bridge, .. }, rings, _) = made();
        let (file, len) = &rings[1];
        let memory = Mapping::shared(file, 0, *len as usize).unwrap();
        // All indices and slots are nonsense.
        memory.words().iter().skip(8).for_each(|word| word.store(u64::MAX / 3, SeqCst));
        while !agent.switch.is_lost() {
            take(&mut agent);
            agent.frame(Offload::default(), &[0; 60], &[]);
            agent.flush().unwrap();
            let _ = agent.arm(true).unwrap();
        }
        send(&mut bridge, b"hello");
        assert_eq!(take(&mut agent).unwrap(), b"hello");
    }
}
