//! Ports: rings that the monitor maps into the machine's memory, or devices of the machine.

use crate::state::{Map, Shared};
use crate::{Error, Program};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use core::future::poll_fn;
use core::task::{Poll, Waker};
use ringway_mem::Span;
use ringway_ring::Received;
use ringway_tiny::channel::RingPlace;
use ringway_tiny::stock::Net;
use ringway_tiny::{Device, NetDeviceError, Pushed, SlotRing};

/// Frames after which those sent are published, so that the other side can begin.
const BATCH: u32 = 64;

/// What uses a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Nothing; there is not a ring.
    None,
    /// A network, which wants frames as they come.
    Network,
    /// The program's own code.
    Frames,
}

/// A port, and its ring if there is one.
pub(crate) struct PortState {
    pub number: u16,
    pub used: Use,
    ring: Option<Device>,
    /// Why the ring is to be given up.
    broken: Option<NetDeviceError>,
    /// Frames that were sent and not published.
    unpublished: u32,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Slots that the writer needs.
    wanted: u32,
    reason: String,
}

impl PortState {
    pub fn new(number: usize) -> PortState {
        PortState {
            number: number as u16,
            used: Use::None,
            ring: None,
            broken: None,
            unpublished: 0,
            reader: None,
            writer: None,
            wanted: 1,
            reason: "not asked for yet".into(),
        }
    }

    /// A port with a device of the machine, which no monitor takes away.
    pub fn with(number: usize, net: Net<'static>) -> PortState {
        PortState { ring: Some(Device::Net(Box::new(net))), ..PortState::new(number) }
    }

    /// The ring is here. An error says why it can't be used.
    pub fn arrive(&mut self, place: RingPlace, map: Map) -> Result<(), String> {
        let region = |at, len| map(at, len).ok_or(NetDeviceError::Layout);
        let attach =
            || SlotRing::new(region(place.address, place.len)?, place.is_second, region(place.doorbell, 4)?);
        self.broken = None;
        self.ring = attach().map(|ring| Some(Device::Slots(ring))).map_err(|error| {
            self.reason = error.to_string();
            self.reason.clone()
        })?;
        Ok(())
    }

    /// The ring is lost; returns whether there was one.
    pub fn leave(&mut self, reason: &str) -> bool {
        (self.reason, self.broken) = (reason.into(), None);
        self.ring.take().is_some()
    }

    /// Takes the port for another use; returns whether it had a ring, which the monitor takes back. A device stays.
    pub fn claim(&mut self, by: Use) -> bool {
        self.used = by;
        !matches!(self.ring, Some(Device::Net(_))) && self.leave("asked for with other offloads")
    }

    /// Whether the port's frames may have offloads.
    pub fn has_offloads(&self) -> bool {
        self.ring.as_ref().is_none_or(Device::has_offloads)
    }

    /// Whether there is a ring, or else why not.
    pub fn state(&self) -> Result<(), &str> {
        if self.ring.is_some() { Ok(()) } else { Err(&self.reason) }
    }

    /// Gives the ring up if it was closed or broken; returns why.
    pub fn lost(&mut self) -> Option<String> {
        let ring = self.ring.as_ref()?;
        let error = self.broken.or(ring.is_closed().then_some(NetDeviceError::Closed))?;
        let reason = error.to_string();
        self.leave(&reason);
        Some(reason)
    }

    fn use_ring<T>(&mut self, call: impl FnOnce(&mut Device) -> Result<T, NetDeviceError>) -> Option<T> {
        if self.broken.is_some() {
            return None;
        }
        match call(self.ring.as_mut()?) {
            Ok(result) => Some(result),
            Err(error) => {
                self.broken = Some(error);
                None
            }
        }
    }

    /// Copies the next frame; `None` if there is none, or no ring.
    pub fn pop(&mut self, out: &mut [u8]) -> Option<Received> {
        self.use_ring(|ring| ring.pop(out)).flatten()
    }

    /// Sends a frame, which is in pieces. `Ok(false)`: there is no room, or no ring.
    pub fn push(&mut self, pieces: &[&[Span<'_>]], offload: [u8; 10]) -> Result<bool, Error> {
        let parts = || pieces.iter().flat_map(|pieces| pieces.iter().copied());
        let len = parts().map(|part| part.len()).sum();
        match self.use_ring(|ring| ring.push_gathered(parts(), offload)) {
            Some(Pushed::TooLong) => return Err(Error::FrameTooLong(len)),
            Some(Pushed::Done) => {
                self.unpublished += 1;
                if self.unpublished >= BATCH {
                    self.publish();
                }
                return Ok(true);
            }
            Some(Pushed::Full) | None => {}
        }
        if let Some(ring) = &self.ring {
            self.wanted = ring.slots_of(len);
        }
        Ok(false)
    }

    /// Publishes what was sent and taken.
    pub fn publish(&mut self) {
        self.unpublished = 0;
        if let Some(ring) = self.ring.as_mut().filter(|_| self.broken.is_none()) {
            ring.publish();
        }
    }

    /// Whether a frame waits in the ring.
    fn has_frames(&mut self) -> bool {
        self.use_ring(|ring| Ok(ring.frame_len()?.is_some())).unwrap_or(false)
    }

    /// Wakes tasks that wait for the port; whether there were any.
    pub fn wake_waiting(&mut self) -> bool {
        let mut any = false;
        if self.reader.is_some() && self.has_frames() {
            self.reader.take().into_iter().for_each(Waker::wake);
            any = true;
        }
        let wanted = self.wanted;
        if self.writer.is_some() && self.use_ring(|ring| ring.room(wanted)).is_some_and(|room| room >= wanted)
        {
            self.writer.take().into_iter().for_each(Waker::wake);
            any = true;
        }
        any
    }

    /// Asks to be woken for what is waited for, and for room if the port is `full`. `false`: it has arrived already.
    pub fn arm(&mut self, full: bool) -> bool {
        let reads = self.used == Use::Network || self.reader.is_some();
        let room = self.writer.as_ref().map(|_| self.wanted);
        let armed = self.use_ring(|ring| {
            // Before the last look: what comes afterwards wakes the machine.
            ring.acknowledge();
            let room = room.or(full.then_some(ring.tx_slots() / 2));
            let room = match room {
                Some(slots) => ring.arm_tx(slots.clamp(1, ring.tx_slots().max(1)))?,
                None => true,
            };
            Ok(room && (!reads || ring.arm_rx()?))
        });
        // Without a ring, the monitor wakes.
        armed.unwrap_or(self.broken.is_none())
    }

    /// Cancels [`PortState::arm`].
    pub fn disarm(&mut self) {
        self.use_ring(|ring| {
            ring.disarm_tx();
            ring.disarm_rx();
            Ok(())
        });
    }
}

/// A port whose frames the program sends and receives itself. It waits while the port has no ring, such as during a
/// restart of the fabric's data path.
pub struct Port {
    shared: Rc<Shared>,
    number: usize,
}

impl Program {
    /// The port of this name, for frames.
    ///
    /// # Errors
    /// There is none, or it is in use.
    pub fn port(&self, name: &str) -> Result<Port, Error> {
        let number = self.claim(name, Use::Frames)?;
        Ok(Port { shared: self.shared.clone(), number })
    }
}

impl Port {
    fn with<T>(&self, call: impl FnOnce(&mut PortState) -> T) -> T {
        call(&mut self.shared.state.borrow_mut().ports[self.number])
    }

    /// Whether the port has its ring, or else why not.
    pub fn state(&self) -> Result<(), String> {
        self.with(|port| port.state().map_err(String::from))
    }

    /// Copies the next frame to `out`; returns its length. `None`: there is none. A frame that is longer than `out` is
    /// cut.
    pub fn try_receive(&mut self, out: &mut [u8]) -> Option<usize> {
        self.with(|port| port.pop(out)).map(|received| received.len)
    }

    /// As [`Port::try_receive`], but waits for a frame.
    pub async fn receive(&mut self, out: &mut [u8]) -> usize {
        poll_fn(|cx| match self.with(|port| port.pop(out)) {
            Some(received) => Poll::Ready(received.len),
            None => {
                self.with(|port| port.reader = Some(cx.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }

    /// Sends a frame. `false`: there is no room. It leaves at the end of the turn, or with the 64th frame.
    ///
    /// # Errors
    /// The frame is too long.
    pub fn try_send(&mut self, frame: &[u8]) -> Result<bool, Error> {
        self.with(|port| port.push(&[&[Span::of(frame)]], [0; 10]))
    }

    /// As [`Port::try_send`], but waits for room.
    ///
    /// # Errors
    /// The frame is too long.
    pub async fn send(&mut self, frame: &[u8]) -> Result<(), Error> {
        poll_fn(|cx| match self.try_send(frame) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => {
                self.with(|port| port.writer = Some(cx.waker().clone()));
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        })
        .await
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // Its ring stays, for whoever claims it next.
        self.with(|port| (port.used, port.reader, port.writer) = (Use::None, None, None));
    }
}
