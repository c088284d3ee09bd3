//! Two minimal guests: one thread keeps the four rings of two ports full.
//!
//! A guest sends whenever it has a buffer and fewer than [`WINDOW`] frames in flight, so that no back-end has to drop
//! frames.

use crate::Failure;
use crate::harness::memory::{GuestMemory, at};
use crate::harness::sequence::{self, Payload, Sequence};
use ringway_host::EventFd;
use ringway_mem::{Memory, SpanMut};
use ringway_virtq::{Areas, Buffer, Driver, Layout};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of `virtio_net_hdr` with the number of buffers.
const HEADER: u32 = 12;
/// The guest number that stands for all guests.
pub const BROADCAST: u8 = 255;
/// Bytes of a buffer, and of its unused beginning: the frame after the header begins at a cache line, as in DPDK's
/// guests.
const BUFFER: u32 = 2048;
const HEADROOM: u32 = 64 - HEADER;
/// Maximum number of frames in flight of a guest.
const WINDOW: usize = 512;
/// Buffers handled at once.
const BURST: usize = 64;
/// Number of slices without a frame that is a failure.
const TRIES: usize = 5;
/// Time without a received frame after which frames in flight count as lost.
pub const LOSS_TIMEOUT: Duration = Duration::from_millis(100);

/// Parameters of the rings.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Packed instead of split.
    pub packed: bool,
    /// Descriptors of a ring.
    pub ring: u16,
    /// Bytes of a frame.
    pub frame: u32,
    /// The guest's IOMMU.
    pub iommu: Iommu,
}

/// How a guest's IOMMU permanently maps all of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iommu {
    /// No IOMMU.
    Off,
    /// In pages of this size in bytes, contiguous in both address spaces.
    Pages(u64),
    /// In pages of 4 KB with gaps, so that none merge.
    Fragments,
}

impl Iommu {
    /// The device's address of a guest-physical address.
    #[inline]
    pub fn address(self, guest: u64) -> u64 {
        match self {
            Iommu::Off | Iommu::Pages(_) => guest,
            Iommu::Fragments => guest >> 12 << 13 | guest & 0xfff,
        }
    }
}

impl Shape {
    /// The layout of both rings.
    pub fn layout(&self) -> Layout {
        Layout { packed: self.packed, size: self.ring, event_idx: false, indirect: false }
    }
}

/// Guest-physical addresses of a ring's areas.
#[derive(Clone, Copy, Debug)]
pub struct RingAddresses {
    /// The descriptor area.
    pub descriptors: u64,
    /// The driver area.
    pub driver: u64,
    /// The device area.
    pub device: u64,
}

/// Addresses in a guest's memory.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// The receive ring and the transmit ring.
    pub rings: [RingAddresses; 2],
    /// The buffers of each.
    pub buffers: [u64; 2],
}

impl Addresses {
    /// Allocates a guest's memory and the addresses in it.
    pub fn new(shape: &Shape) -> Result<(GuestMemory, Addresses), Failure> {
        Addresses::spaced(shape, BUFFER)
    }

    /// As [`Addresses::new`], with buffers `apart` bytes apart.
    pub fn spaced(shape: &Shape, apart: u32) -> Result<(GuestMemory, Addresses), Failure> {
        let buffers = u64::from(shape.ring) * u64::from(apart);
        let mut memory = GuestMemory::new(2 * buffers + (1 << 20))?;
        let lengths = shape.layout().lengths()?;
        let mut ring = || -> Result<RingAddresses, Failure> {
            Ok(RingAddresses {
                descriptors: memory.take(lengths.descriptors.into())?,
                driver: memory.take(lengths.driver.into())?,
                device: memory.take(lengths.device.into())?,
            })
        };
        let rings = [ring()?, ring()?];
        let buffers = [memory.take(buffers)?, memory.take(buffers)?];
        Ok((memory, Addresses { rings, buffers }))
    }

    /// The areas of ring `index`.
    pub fn areas<'m>(&self, memory: &'m Memory, index: usize, shape: &Shape) -> Result<Areas<'m>, Failure> {
        let (ring, lengths) = (self.rings[index], shape.layout().lengths()?);
        Ok(Areas {
            descriptors: at(memory, ring.descriptors, lengths.descriptors)?,
            driver: at(memory, ring.driver, lengths.driver)?,
            device: at(memory, ring.device, lengths.device)?,
        })
    }
}

/// One direction of a guest: its ring, and the buffer of each driver id.
struct Direction<'m> {
    driver: Driver<'m>,
    buffers: u64,
    /// All buffers.
    bytes: SpanMut<'m>,
    len: u32,
    write: bool,
    iommu: Iommu,
    /// Buffer of each id.
    of: Vec<u16>,
    /// Buffers owned by the driver.
    free: Vec<u16>,
}

/// The frame of `len` bytes in a buffer, without its header.
#[inline]
fn frame_in(buffers: SpanMut<'_>, buffer: u16, len: u32) -> SpanMut<'_> {
    let (_, rest) = buffers.split(usize::from(buffer) * BUFFER as usize + (HEADROOM + HEADER) as usize);
    rest.split(len as usize).0
}

impl Direction<'_> {
    /// Posts the last `count` free buffers, the last one first; `filled` gets each.
    #[inline]
    fn add(&mut self, count: usize, mut filled: impl FnMut(u16)) -> Result<(), Failure> {
        let Direction { driver, buffers, len, write, iommu, of, free, .. } = self;
        let run = &free[free.len().saturating_sub(count)..];
        let described = run.iter().rev().map(|&buffer| {
            filled(buffer);
            let address = *buffers + u64::from(buffer) * u64::from(BUFFER) + u64::from(HEADROOM);
            let address = iommu.address(address);
            Buffer { address, len: *len, write: *write }
        });
        let last = run.len().wrapping_sub(1);
        let added = driver.add_run(described, |number, id| of[usize::from(id)] = run[last - number]);
        if added < count {
            return Err("the ring has no room for its own buffers".into());
        }
        free.truncate(free.len() - added);
        Ok(())
    }

    /// Takes back at most `most` buffers; returns their number. `used` gets each, and the length written to it.
    #[inline]
    fn take_back(&mut self, most: usize, mut used: impl FnMut(u16, u32)) -> Result<usize, Failure> {
        let Direction { driver, of, free, .. } = self;
        let count = driver.take_used_run(most, |id, len| {
            let buffer = of[usize::from(id)];
            used(buffer, len);
            free.push(buffer);
        })?;
        Ok(count)
    }
}

/// Eventfds between a guest and its back-end.
pub struct Wires {
    /// Kick eventfds of the receive ring and of the transmit ring.
    pub kicks: [EventFd; 2],
    /// Call eventfd, unused: the guest polls.
    pub call: EventFd,
}

/// A guest.
pub struct Guest<'m> {
    rx: Direction<'m>,
    tx: Direction<'m>,
    /// Its eventfds.
    pub wires: Arc<Wires>,
    frame: u32,
    /// Frames sent and not yet received by the other.
    ahead: usize,
    /// Whether frames are numbered and verified.
    pub payload: Payload,
    /// The number of the next frame sent.
    next: u64,
    /// Frames received and not yet verified, in the last of the receive ring's free buffers.
    received: usize,
    /// The numbers of the frames received.
    sequence: Sequence,
}

impl<'m> Guest<'m> {
    /// A guest with address `02:00:00:00:00:<own>` that sends to `02:00:00:00:00:<other>`, or to all.
    pub fn new(
        memory: &'m Memory,
        addresses: &Addresses,
        shape: &Shape,
        own: u8,
        other: u8,
    ) -> Result<Guest<'m>, Failure> {
        let direction = |index: usize, len: u32| -> Result<Direction<'m>, Failure> {
            let areas = addresses.areas(memory, index, shape)?;
            Ok(Direction {
                driver: Driver::new(&shape.layout(), areas)?,
                buffers: addresses.buffers[index],
                bytes: at(memory, addresses.buffers[index], u32::from(shape.ring) * BUFFER)?,
                iommu: shape.iommu,
                len,
                write: index == 0,
                of: vec![0; usize::from(shape.ring)],
                free: Vec::with_capacity(usize::from(shape.ring)),
            })
        };
        let (mut rx, mut tx) = (direction(0, BUFFER - HEADROOM)?, direction(1, HEADER + shape.frame)?);
        let mut frame = vec![0; (HEADER + shape.frame) as usize];
        let to = if other == BROADCAST { [255; 6] } else { [2, 0, 0, 0, 0, other] };
        frame[12..18].copy_from_slice(&to);
        frame[18..24].copy_from_slice(&[2, 0, 0, 0, 0, own]);
        frame[24..26].copy_from_slice(&[0x88, 0xb5]);
        for buffer in 0..shape.ring {
            let address = tx.buffers + u64::from(buffer) * u64::from(BUFFER) + u64::from(HEADROOM);
            at(memory, address, tx.len)?.write(&frame);
            tx.free.push(buffer);
            rx.free.push(shape.ring - 1 - buffer);
        }
        rx.add(usize::from(shape.ring), |_| {})?;
        rx.driver.publish();
        rx.driver.set_flag(false);
        tx.driver.set_flag(false);
        let wires = Wires { kicks: [EventFd::new()?, EventFd::new()?], call: EventFd::new()? };
        let (wires, payload, sequence) = (Arc::new(wires), Payload::Untouched, Sequence::default());
        Ok(Guest { rx, tx, wires, frame: shape.frame, ahead: 0, payload, next: 0, sequence, received: 0 })
    }

    /// Sends as many frames as the other has room for; returns their number.
    #[inline]
    fn send(&mut self) -> Result<usize, Failure> {
        let count = self.send_most(WINDOW - self.ahead)?;
        self.ahead += count;
        Ok(count)
    }

    /// Sends a burst of at most `most` frames, and takes back sent buffers; returns the number of frames.
    #[inline]
    pub fn send_most(&mut self, most: usize) -> Result<usize, Failure> {
        let Guest { tx, frame, next, .. } = self;
        let (bytes, frame) = (tx.bytes, *frame);
        let count = BURST.min(most).min(tx.free.len());
        let numbered = self.payload == Payload::Numbered;
        if count > 0 {
            if numbered {
                tx.add(count, |buffer| {
                    sequence::write(frame_in(bytes, buffer, frame), *next);
                    *next += 1;
                })?;
            } else {
                tx.add(count, |_| {})?;
            }
            tx.driver.publish();
            if tx.driver.wants_kick() {
                self.wires.kicks[1].signal();
            }
        }
        tx.take_back(usize::MAX, |_, _| {})?;
        if numbered {
            // The next burst's buffers, whose cache lines the back-end owns.
            let next = tx.free.iter().rev().take(BURST);
            next.for_each(|&buffer| sequence::prefetch_write(frame_in(bytes, buffer, frame)));
        }
        Ok(count)
    }

    /// Verifies the frames received in the last round, whose cache lines have been prefetched, and posts their
    /// buffers again; receives further ones. Returns the number of verified frames.
    #[inline]
    pub fn receive(&mut self) -> Result<usize, Failure> {
        let (frame, bytes, numbered) = (self.frame, self.rx.bytes, self.payload == Payload::Numbered);
        let verified = self.received;
        if verified > 0 {
            if numbered {
                for &buffer in &self.rx.free[self.rx.free.len() - verified..] {
                    self.sequence.verify(frame_in(bytes, buffer, frame).as_span())?;
                }
            }
            self.rx.add(verified, |_| {})?;
            self.rx.driver.publish();
            if self.rx.driver.wants_kick() {
                self.wires.kicks[0].signal();
            }
        }
        let mut wrong = None;
        self.received = self.rx.take_back(BURST, |buffer, len| {
            if numbered {
                sequence::prefetch(frame_in(bytes, buffer, frame).as_span());
            }
            if len != HEADER + frame {
                wrong = Some(len);
            }
        })?;
        match wrong {
            Some(len) => Err(format!("a frame of {len} bytes came, not {}", HEADER + frame).into()),
            None => Ok(verified),
        }
    }
}

/// Ticks of this thread's rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Busy {
    /// Ticks of rounds in which frames were sent or received.
    pub some: u64,
    /// Ticks of all rounds.
    pub all: u64,
}

impl Busy {
    /// Adds the ticks of a round.
    #[inline]
    pub fn add(&mut self, ticks: u64, moved: bool) {
        self.all += ticks;
        self.some += if moved { ticks } else { 0 };
    }

    /// The busy share.
    pub fn share(self) -> f64 {
        self.some as f64 / self.all.max(1) as f64
    }
}

/// Two guests that send to each other.
pub struct Pair<'m> {
    /// The two guests.
    pub guests: [Guest<'m>; 2],
    /// Frames that were given up.
    pub lost: usize,
    /// Busy time within [`Pair::run`].
    pub busy: Busy,
}

impl Pair<'_> {
    /// The guests' eventfds.
    pub fn wires(&self) -> [Arc<Wires>; 2] {
        self.guests.each_ref().map(|guest| guest.wires.clone())
    }

    /// Sends and receives for `time`; returns frames received, and the actual seconds.
    pub fn run(&mut self, time: Duration) -> Result<(usize, f64), Failure> {
        let begin = Instant::now();
        let (mut total, mut last) = (0, begin);
        let mut ticked = ringway_host::ticks();
        loop {
            let mut received = 0;
            for _ in 0..32 {
                let (sent, came) = self.round()?;
                received += came;
                let ticks = ringway_host::ticks();
                self.busy.add(ticks.wrapping_sub(ticked), sent + came > 0);
                ticked = ticks;
            }
            let now = Instant::now();
            total += received;
            if received > 0 {
                last = now;
            } else if now - last > LOSS_TIMEOUT {
                self.forget();
                last = now;
            }
            if now - begin >= time {
                return Ok((total, (now - begin).as_secs_f64()));
            }
        }
    }

    /// Sets whether further frames are written and verified.
    pub fn set_payload(&mut self, payload: Payload) -> Result<(), Failure> {
        self.drain()?;
        self.guests.iter_mut().for_each(|guest| guest.payload = payload);
        Ok(())
    }

    /// Resets the loss counters.
    pub fn reset_losses(&mut self) {
        self.lost = 0;
        self.guests.iter_mut().for_each(|guest| guest.sequence.missing = 0);
    }

    /// Frame numbers missing at the receivers.
    pub fn missing(&self) -> u64 {
        self.guests.iter().map(|guest| guest.sequence.missing).sum()
    }

    /// Receives until no frames are in flight, so that the back-end becomes idle.
    pub fn drain(&mut self) -> Result<(), Failure> {
        let mut last = Instant::now();
        while self.guests.iter().any(|guest| guest.ahead > 0) {
            if self.receive()? > 0 {
                last = Instant::now();
            } else if last.elapsed() > 10 * LOSS_TIMEOUT {
                self.forget();
            }
        }
        Ok(())
    }

    /// A rate in millions of frames a second.
    pub fn rate(&mut self, time: Duration) -> Result<f64, Failure> {
        // Warm-up: fills caches and wakes a sleeping worker.
        self.run(time / 10)?;
        // On a loaded machine a back-end may not be scheduled for as long as a slice.
        for _ in 0..TRIES {
            let (frames, seconds) = self.run(time)?;
            if frames > 0 {
                self.drain()?;
                return Ok(frames as f64 / seconds / 1e6);
            }
        }
        Err("no frame came".into())
    }

    /// A round; returns frames sent and received.
    #[inline]
    fn round(&mut self) -> Result<(usize, usize), Failure> {
        let sent = self.guests[0].send()? + self.guests[1].send()?;
        Ok((sent, self.receive()?))
    }

    #[inline]
    fn receive(&mut self) -> Result<usize, Failure> {
        let [left, right] = &mut self.guests;
        let (at_left, at_right) = (left.receive()?, right.receive()?);
        for (guest, came) in [(left, at_right), (right, at_left)] {
            let late = came.saturating_sub(guest.ahead);
            guest.ahead -= came - late;
            // Frames given up too early, because the back-end was not scheduled for a while, are not lost.
            self.lost = self.lost.saturating_sub(late);
        }
        Ok(at_left + at_right)
    }

    fn forget(&mut self) {
        for guest in &mut self.guests {
            self.lost += std::mem::take(&mut guest.ahead);
        }
    }
}
