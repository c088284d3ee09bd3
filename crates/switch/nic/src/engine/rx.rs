//! The engine of a receive ring: frames that the guest gets.

use super::{Block, Direction, Family, Signal};
use crate::chip::Receive;
use crate::descriptor_ring::{Part, Ring};
use crate::device::{Bus, Raise};
use crate::pieces::{SHORTEST, Source, TAG};
use alloc::boxed::Box;
use alloc::vec;
use core::fmt::Debug;
use core::ops::Range;
use ringway_frame::{Burst, Caps, CountersRef, Lost, Needs, Reason, add};
use ringway_mem::{Direct, Hint, Translate};

/// A frame of a burst, with its descriptors.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reserved {
    /// Bytes to write, without a removed tag, with padding.
    pub len: u32,
    /// The tag that is removed.
    pub tag: Option<u16>,
    /// Its first descriptor, counted from the head, and how many it has; none: it is not received.
    first: u32,
    count: u32,
    refusal: Option<Reason>,
}

impl Reserved {
    /// Its descriptors, counted from the head.
    pub fn descriptors(&self) -> Range<usize> {
        self.first as usize..(self.first + self.count) as usize
    }
}

/// What a descriptor says of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its first bytes.
    pub head: &'a [u8; 64],
    /// Its length without padding.
    pub len: u32,
    /// Its checksum is known to be right.
    pub is_checked: bool,
    /// Why the device does not receive it.
    pub refusal: Option<Reason>,
}

/// Why there is no descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The driver gave too few.
    Descriptors,
    /// The ring is not in the guest's memory.
    Ring,
}

/// The receive descriptors of a family.
pub trait RxLayout: Debug + Send + Sized {
    /// What the family's two sides share.
    type Shared: Family;
    /// What the device does with received frames, read once a burst.
    type Mode;

    /// Most frames that are reserved together.
    const FRAMES: usize;

    /// No descriptors.
    fn new() -> Self;

    /// The mode that the registers select.
    fn mode(shared: &Self::Shared) -> Self::Mode;

    /// The longest frame; `None`: the device receives nothing.
    fn largest(shared: &Self::Shared) -> Option<u32>;

    /// Whether descriptors have 32 bytes instead of 16.
    fn is_large(_mode: &Self::Mode) -> bool {
        false
    }

    /// Whether the device receives a frame; if so, the tag that is removed from it.
    fn accept(
        mode: &Self::Mode,
        shared: &Self::Shared,
        head: &[u8; 64],
        len: u32,
    ) -> Result<Option<u16>, Reason>;

    /// Descriptors ran out.
    fn run_out(bus: &Bus<'_, Self::Shared>) -> Raise;

    /// The ring is another one.
    fn reset(&mut self);

    /// A burst begins.
    fn begin(
        &mut self,
        _bus: &Bus<'_, Self::Shared>,
        _block: Block<'_, Self::Shared>,
        _ring: &Ring,
        _mode: &Self::Mode,
    ) {
    }

    /// Adds descriptors for a frame of `len` bytes without its CRC, behind the `first` that there are; returns how
    /// many.
    fn fetch<'t>(
        &mut self,
        ring: &Ring,
        memory: (&mut Direct<'t, '_>, &mut Part<'t>),
        first: usize,
        len: u32,
    ) -> Result<usize, Missing>;

    /// Addresses and sizes of the buffers of descriptors.
    fn buffers(&self, descriptors: Range<usize>) -> impl Iterator<Item = (u64, u32)> + Clone;

    /// Prepares the descriptors of a frame for the driver.
    fn describe(&mut self, shared: &Self::Shared, mode: &Self::Mode, reserved: &Reserved, frame: Frame<'_>);

    /// Returns the first `filled` of `count` descriptors to the driver, and moves the head behind them. Returns the
    /// causes, and whether they are urgent.
    fn publish(
        &mut self,
        bus: &Bus<'_, Self::Shared>,
        block: Block<'_, Self::Shared>,
        ring: (&mut Ring, &mut Direct<'_, '_>),
        filled: usize,
        count: usize,
    ) -> (u32, bool);
}

/// The engine of a receive ring. One worker at a time uses it.
#[derive(Debug)]
pub struct RxEngine<L: RxLayout> {
    counters: CountersRef,
    ring: Ring,
    signal: Signal<L::Shared>,
    hint: Hint,
    layout: L,
    reserved: Box<[Reserved]>,
    frames: usize,
    /// Descriptors from the head on, and how many of them are filled.
    descriptors: usize,
    filled: usize,
    /// Frames put, counted from the first reserved.
    put: usize,
    /// Descriptors ran out, which was reported.
    short: bool,
    /// The ring is not in memory, which was counted.
    outside: bool,
    due: Option<u64>,
}

impl<L: RxLayout> RxEngine<L> {
    /// An engine that adds drops and faults to `counters`.
    pub fn new(counters: CountersRef) -> RxEngine<L> {
        RxEngine {
            counters,
            ring: Ring::default(),
            signal: Signal::new(Direction::Rx),
            hint: Hint::default(),
            layout: L::new(),
            reserved: vec![Reserved::default(); L::FRAMES].into_boxed_slice(),
            frames: 0,
            descriptors: 0,
            filled: 0,
            put: 0,
            short: false,
            outside: false,
            due: None,
        }
    }

    /// Takes the ring's description over. `false`: there is not a ring.
    fn adopt(&mut self, bus: &Bus<'_, L::Shared>, is_large: bool, raise: &mut Raise) -> bool {
        self.signal.adopt(bus, raise);
        match self.ring.adopt(&bus.shared.rings().rx, is_large) {
            None => return false,
            Some(false) => {}
            Some(true) => {
                (self.frames, self.put, self.descriptors, self.filled) = (0, 0, 0, 0);
                (self.hint, self.short, self.outside) = (Hint::default(), false, false);
                self.layout.reset();
                self.signal.reset();
            }
        }
        if !self.signal.techniques().cached {
            self.hint = Hint::default();
        }
        true
    }

    /// Whether the ring is the one that was adopted.
    fn is_current(&self, bus: &Bus<'_, L::Shared>) -> bool {
        bus.shared.rings().rx.generation() == Some(self.ring.generation)
    }

    fn block<'t>(&mut self, bus: &Bus<'t, L::Shared>) -> Block<'t, L::Shared> {
        self.signal.block(bus, &mut Direct::new(bus.memory, &mut self.hint))
    }

    /// Finds descriptors for a frame; `None`: there are too few.
    fn reserve_frame<'t>(
        &mut self,
        bus: &Bus<'t, L::Shared>,
        mode: &L::Mode,
        memory: (&mut Direct<'t, '_>, &mut Part<'t>),
        (head, len): (&[u8; 64], u32),
    ) -> Option<Reserved> {
        let tag = match L::accept(mode, bus.shared, head, len) {
            Err(refusal) => return Some(Reserved { refusal: Some(refusal), ..Reserved::default() }),
            Ok(tag) => tag,
        };
        let len = (len - if tag.is_some() { TAG as u32 } else { 0 }).max(SHORTEST);
        let reserved = Reserved { len, tag, first: self.descriptors as u32, count: 0, refusal: None };
        match self.layout.fetch(&self.ring, memory, self.descriptors, len) {
            Ok(count) => {
                self.descriptors += count;
                Some(Reserved { count: count as u32, ..reserved })
            }
            Err(Missing::Ring) => {
                // Attack: a ring outside memory.
                if !core::mem::replace(&mut self.outside, true) {
                    add(&self.counters.faults, 1);
                }
                Some(Reserved { refusal: Some(Reason::BadAddress), ..reserved })
            }
            Err(Missing::Descriptors) => None,
        }
    }

    /// Writes a frame to its buffers. Attack: buffers that are outside memory, or unmapped since they were reserved.
    fn copy(
        &self,
        translate: &mut Direct<'_, '_>,
        burst: &Burst<'_>,
        frame: usize,
        reserved: &Reserved,
    ) -> Result<(), Reason> {
        let Reserved { len, tag, .. } = *reserved;
        let buffers = self.layout.buffers(reserved.descriptors());
        if tag.is_none()
            && burst.meta(frame).len == len
            && let Some((address, size)) = buffers.clone().next()
            && size >= len
        {
            let to = translate.write(address, len).map_err(|_| Reason::BadAddress)?;
            if to.len() == len as usize {
                burst.copy_to(frame, to);
                return Ok(());
            }
        }
        let mut source = Source::new(burst.reader(frame), tag.is_some());
        let mut left = len;
        for (mut at, size) in buffers {
            let mut room = size.min(left);
            left -= room;
            while room > 0 {
                let to = translate.write(at, room).map_err(|_| Reason::BadAddress)?;
                source.copy(to);
                at = at.wrapping_add(to.len() as u64);
                room = room.saturating_sub(to.len() as u32);
            }
        }
        Ok(())
    }
}

impl<L: RxLayout> Receive<L::Shared> for RxEngine<L> {
    fn caps(&self, bus: &Bus<'_, L::Shared>) -> Option<Caps> {
        let receives = bus.shared.link() && bus.shared.rings().rx.generation().is_some();
        let largest = L::largest(bus.shared).filter(|_| receives)?;
        Some(Caps { offloads: Needs::NONE, largest })
    }

    fn reserve(&mut self, bus: &Bus<'_, L::Shared>, burst: &Burst<'_>, which: &[u16]) -> (usize, Raise) {
        let mut raise = Raise::NONE;
        let mode = L::mode(bus.shared);
        if !self.adopt(bus, L::is_large(&mode), &mut raise) {
            return (0, raise);
        }
        // Descriptors that are filled but not published are in use.
        (self.frames, self.put, self.descriptors) = (0, 0, self.filled);
        let block = self.block(bus);
        self.layout.begin(bus, block, &self.ring, &mode);
        let mut hint = self.hint;
        let (mut translate, mut part) = (Direct::new(bus.memory, &mut hint), Part::default());
        let most = which.len().min(L::FRAMES);
        for &frame in &which[..most] {
            let frame = usize::from(frame);
            let (memory, wanted) = ((&mut translate, &mut part), (burst.head(frame), burst.meta(frame).len));
            let Some(reserved) = self.reserve_frame(bus, &mode, memory, wanted) else {
                // Reported once.
                if !core::mem::replace(&mut self.short, true) {
                    raise |= L::run_out(bus);
                }
                break;
            };
            self.reserved[self.frames] = reserved;
            self.frames += 1;
        }
        self.short &= self.frames < most;
        self.hint = hint;
        (self.frames, raise)
    }

    fn refusal(&self, place: usize) -> Option<Reason> {
        self.reserved[..self.frames].get(place)?.refusal
    }

    fn put(&mut self, bus: &Bus<'_, L::Shared>, burst: &Burst<'_>, which: &[u16]) -> (Lost, Raise) {
        let (mut lost, mut raise) = (Lost::default(), Raise::NONE);
        if !self.is_current(bus) {
            return (Lost::count(&self.counters, Reason::Down, burst, which), raise);
        }
        let mode = L::mode(bus.shared);
        let mut hint = self.hint;
        let mut translate = Direct::new(bus.memory, &mut hint);
        for number in which {
            let Some(&reserved) = self.reserved[..self.frames].get(self.put) else {
                lost += Lost::count(&self.counters, Reason::Full, burst, &[*number]);
                continue;
            };
            self.put += 1;
            let index = usize::from(*number);
            let refusal =
                reserved.refusal.or_else(|| self.copy(&mut translate, burst, index, &reserved).err());
            if let Some(refusal) = refusal {
                lost += Lost::count(&self.counters, refusal, burst, &[*number]);
            }
            let meta = burst.meta(index);
            let is_checked = meta.offload.is_checked();
            let frame = Frame { head: burst.head(index), len: meta.len, is_checked, refusal };
            self.layout.describe(bus.shared, &mode, &reserved, frame);
            self.filled = self.filled.max(reserved.descriptors().end);
            if !self.signal.techniques().batch {
                raise |= self.publish(bus);
            }
        }
        self.hint = hint;
        (lost, raise)
    }

    fn publish(&mut self, bus: &Bus<'_, L::Shared>) -> Raise {
        let mut raise = Raise::NONE;
        if !self.is_current(bus) {
            // Attack: an interrupt held back for a ring that is gone would be due forever, so that the worker never
            // sleeps.
            self.signal.reset();
            self.due = None;
            return raise;
        }
        let block = self.block(bus);
        if self.filled == 0 {
            self.signal.due(bus, block, &mut raise);
        } else {
            let filled = core::mem::take(&mut self.filled);
            let ring = (&mut self.ring, &mut Direct::new(bus.memory, &mut self.hint));
            let causes = self.layout.publish(bus, block, ring, filled, self.descriptors);
            // Descriptors are counted from the head, which moved.
            self.descriptors = self.descriptors.saturating_sub(filled);
            for reserved in &mut self.reserved[self.put..self.frames] {
                reserved.first = reserved.first.saturating_sub(filled as u32);
            }
            self.signal.published(bus, block, causes, &mut raise);
        }
        self.due = self.signal.next_due(bus);
        raise
    }

    fn defers_signal(&self) -> bool {
        self.signal.waits_for_turn()
    }

    fn end_turn(&mut self, bus: &Bus<'_, L::Shared>) -> Raise {
        let mut raise = Raise::NONE;
        if self.is_current(bus) {
            let block = self.block(bus);
            self.signal.end_turn(bus, block, &mut raise);
            self.due = self.signal.next_due(bus);
        }
        raise
    }

    fn next_due(&self) -> Option<u64> {
        self.due
    }
}
