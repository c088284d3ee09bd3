//! A device behind an emulated link.

use ringway_frame::{BURST, Needs, Offload};
use ringway_host::Clock;
use ringway_link::{Frame, Link, Profile, ProfileError, mark_ip, seed_of};
use ringway_mem::Span;
use ringway_netstack::Transmit;
use ringway_sockets::{Device, DeviceError, Received};
use ringway_wire::flow::Flow;
use std::os::fd::BorrowedFd;

/// A frame on the link.
#[derive(Clone, Debug)]
struct Bytes(Vec<u8>);

/// Bytes of an Ethernet header, and the types of IP behind it.
const HEADER: usize = 14;
const IP: [[u8; 2]; 2] = [[0x08, 0x00], [0x86, 0xdd]];

impl Frame for Bytes {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn link_header(&self) -> usize {
        HEADER
    }

    fn duplicate(&mut self) -> Option<Bytes> {
        Some(self.clone())
    }

    fn invert(&mut self, bit: usize) {
        if let Some(byte) = self.0.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }

    fn mark(&mut self) -> bool {
        let is_ip = self.0.get(HEADER - 2..HEADER).is_some_and(|kind| IP.iter().any(|ip| ip == kind));
        is_ip && self.0.get_mut(HEADER..).is_some_and(mark_ip)
    }

    fn flow(&self, key: u64) -> u64 {
        Flow::parse(&self.0).map_or(0, |flow| flow.symmetric_hash(key))
    }
}

/// What is sent to and received from a device passes a link with a rate, a delay, and losses. Frames are whole, as on a
/// wire: the device must have no offloads.
#[derive(Debug)]
pub struct Emulated<D> {
    device: D,
    out: Link<Bytes>,
    back: Link<Bytes>,
    clock: Clock,
    /// The last received frame.
    frame: Vec<u8>,
}

impl<D: Device> Emulated<D> {
    /// A device behind a link whose directions have the same profile.
    ///
    /// # Errors
    /// The profile is impossible.
    pub fn new(device: D, profile: &Profile, seed: u64) -> Result<Emulated<D>, ProfileError> {
        Ok(Emulated {
            device,
            out: Link::new(profile.clone(), seed_of(seed, "out"))?,
            back: Link::new(profile.clone(), seed_of(seed, "back"))?,
            clock: Clock::new(),
            frame: Vec::new(),
        })
    }

    /// Passes on what has arrived at the device's side.
    fn deliver(&mut self) {
        let now = self.clock.now();
        let Emulated { device, out, .. } = self;
        while let Some((frame, _)) = out.receive(now) {
            // A device without room loses it, as a wire does.
            device.frame(Offload::default(), &frame.0, &[]);
        }
    }

    /// Takes what the device has received. Attack: a host that sends without pause; the rest waits in the device,
    /// which is not armed while it has frames.
    fn collect(&mut self) -> Result<(), DeviceError> {
        for _ in 0..BURST {
            let Some(received) = self.device.receive()? else { break };
            let len = received.head.len() + received.rest.iter().map(|piece| piece.len()).sum::<usize>();
            let mut frame = vec![0; len];
            received.read(&mut frame);
            self.back.send(Bytes(frame), self.clock.now());
        }
        Ok(())
    }
}

impl<D: Device> Transmit for Emulated<D> {
    fn frame(&mut self, _offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        let len = headers.len() + payload.iter().map(|piece| piece.len()).sum::<usize>();
        let mut frame = vec![0; len];
        let pieces = std::iter::once(Span::of(headers)).chain(payload.iter().copied());
        pieces.fold(0, |at, piece| at + piece.read(frame.get_mut(at..).unwrap_or_default()));
        self.out.send(Bytes(frame), self.clock.now());
        true
    }
}

impl<D: Device> Device for Emulated<D> {
    fn offloads(&self) -> Needs {
        Needs::NONE
    }

    fn receive(&mut self) -> Result<Option<Received<'_>>, DeviceError> {
        self.collect()?;
        let Some((frame, _)) = self.back.receive(self.clock.now()) else { return Ok(None) };
        self.frame = frame.0;
        Ok(Some(Received::whole(&self.frame, Offload::default())))
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.deliver();
        self.device.flush()
    }

    fn arm(&mut self, room: bool) -> Result<bool, DeviceError> {
        let armed = self.device.arm(room)?;
        let now = self.clock.now();
        Ok(armed && !self.next_attempt().is_some_and(|due| due <= now))
    }

    fn disarm(&mut self) {
        self.device.disarm();
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.device.descriptors()
    }

    fn notified(&mut self, descriptor: usize) -> Result<(), DeviceError> {
        self.device.notified(descriptor)
    }

    /// When the next frame leaves the link.
    fn next_attempt(&self) -> Option<u64> {
        self.out.due().into_iter().chain(self.back.due()).min()
    }

    fn come_back(&mut self, _now: u64) {
        self.deliver();
    }
}
