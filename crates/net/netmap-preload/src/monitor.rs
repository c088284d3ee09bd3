//! Monitors of a port (`/t`, `/r`, `/z`): handles that get a copy of what the port's handles send and receive.
//!
//! A monitor has rings of its own in the port's memory, and whoever syncs the port copies frames there, in whichever
//! process. What is known about a monitor is in the port's state and in that of the monitor's rings.

use crate::Result;
use crate::region::{BUFFER, Place, Region, Sizes};
use crate::rings::{BUF_CHANGED, INDIRECT, MOREFRAG, REPORT, Rings, Slot};
use crate::shared::State;
use crate::side::Side;
use crate::transfer::{RX, TX};
use arrayvec::ArrayVec;
use ringway_mem::copy;
use std::sync::Arc;
use std::time::Duration;

/// Most monitors of a port.
pub const MONITORS: usize = 4;
/// What a monitor gets copies of: frames sent, frames received, and those when the program has returned their slots, as
/// with netmap's monitors without a copy.
pub const SENT: u32 = 1;
pub const RECEIVED: u32 = 2;
pub const RETURNED: u32 = 4;
/// Slots of a monitor's ring to send, which sends nothing: programs look at it.
const IDLE_SLOTS: u32 = 64;

/// A monitor, while its port is synced.
#[derive(Debug)]
struct Monitor {
    rings: Rings,
    side: Side,
    kinds: u32,
    index: usize,
    has_news: bool,
}

/// The monitors of a port, while it is synced.
#[derive(Debug, Default)]
pub struct Monitors(ArrayVec<Monitor, MONITORS>);

/// Words of a monitor in the state of its port: kinds, offsets of its rings, slots to receive, first buffer, state.
pub type Words = [u32; 6];

fn words(kinds: u32, place: &Place) -> Result<Words> {
    let at = |dir: usize| u32::try_from(place.rings[dir]).map_err(|_| libc::EINVAL);
    Ok([kinds, at(TX)?, at(RX)?, place.sizes.slots[RX], place.first, place.state])
}

/// The place that those words mean. Attack: a process that has the memory writes anything; `Rings::adopt` checks it.
fn place([_, tx, rx, slots, first, state]: Words) -> Place {
    Place { rings: [tx.into(), rx.into()], sizes: sizes(slots), first, state }
}

/// The rings of a monitor with so many slots.
fn sizes(slots: u32) -> Sizes {
    Sizes { slots: [IDLE_SLOTS, slots], extra: 0, is_in_place: false }
}

/// The rings of a monitor whose program asks for so many slots. Attack: one that asks for more each time, so that no
/// room that was taken back fits. Of four sizes, four monitors each are less than what a port's memory has to spare.
pub fn room(slots: u32) -> Sizes {
    sizes([64, 256, 1024].into_iter().find(|enough| slots <= *enough).unwrap_or(4096))
}

/// The number of a monitor that a port with this state has not.
pub fn free(state: &State) -> Result<usize> {
    (0..MONITORS).find(|index| !state.has_monitor(*index)).ok_or(libc::EBUSY)
}

/// Adds a monitor with these rings to a port with this state, whose lock the caller has; its number.
pub fn add(state: &State, kinds: u32, rings: &Place) -> Result<usize> {
    let index = free(state)?;
    state.set_monitor(index, words(kinds, rings)?);
    Ok(index)
}

/// The rings of a port's monitor.
pub fn rings(region: &Arc<Region>, state: &State, index: usize) -> Result<Rings> {
    Rings::adopt(region.clone(), place(state.monitor(index).ok_or(libc::ENXIO)?))
}

impl Monitors {
    /// The monitors of a port whose lock the caller has. One that makes no sense is left out.
    pub fn of(rings: &Rings) -> Monitors {
        let mut all = ArrayVec::new();
        if !rings.state.has_monitors() {
            return Monitors(all);
        }
        for index in 0..MONITORS {
            let Some(words) = rings.state.monitor(index) else { continue };
            let Ok(own) = Rings::adopt(rings.region.clone(), place(words)) else { continue };
            let Some(side) = own.state.side(RX, own.slots(RX)).filter(|side| side.slots > 0) else {
                continue;
            };
            all.push(Monitor { rings: own, side, kinds: words[0], index, has_news: false });
        }
        Monitors(all)
    }

    fn get(&mut self, index: usize) -> Option<&mut Monitor> {
        self.0.iter_mut().find(|monitor| monitor.index == index)
    }

    /// Whether a monitor gets frames when they arrive, before the program asks for them.
    pub fn sees_arrivals(&self, index: usize) -> bool {
        let wanted = |monitor: &&Monitor| monitor.index == index;
        let found = self.0.iter().find(wanted);
        found.is_some_and(|monitor| monitor.kinds & (RECEIVED | RETURNED) == RECEIVED)
    }

    /// Takes the positions of a monitor's program at a time; `false`: impossible ones, and the ring was put right.
    pub fn accept(&mut self, index: usize, time: Option<Duration>) -> Result<bool> {
        let monitor = self.get(index).ok_or(libc::ENXIO)?;
        time.iter().for_each(|time| monitor.rings.set_time(RX, *time));
        Ok(crate::transfer::accept_positions(&monitor.rings, RX, &mut monitor.side))
    }

    /// Whether a monitor's program has something to receive. Otherwise it is woken when it has, if it `waits`.
    pub fn is_ready(&mut self, index: usize, waits: bool) -> Result<bool> {
        let monitor = self.get(index).ok_or(libc::ENXIO)?;
        let is_ready = monitor.side.is_ready();
        if waits && !is_ready {
            monitor.rings.state.set_waiting(true);
        }
        Ok(is_ready)
    }

    /// Copies the frames of a port's slots from `first` to `end` to the monitors of this kind. A frame for which a
    /// monitor has no room is not copied.
    #[inline]
    pub fn copy(&mut self, kind: u32, rings: &Rings, (first, end): (u32, u32)) {
        for monitor in &mut self.0 {
            let wanted =
                monitor.kinds & kind != 0 && (kind == SENT || (monitor.kinds ^ kind) & RETURNED == 0);
            if wanted && first != end {
                monitor.copy(rings, if kind == SENT { TX } else { RX }, (first, end));
            }
        }
    }

    /// Publishes what was copied; whether a program waits for that.
    pub fn publish(self) -> bool {
        let mut is_awaited = false;
        for Monitor { rings, side, has_news, .. } in self.0 {
            rings.state.set_side(RX, &side);
            if has_news {
                rings.set_tail(RX, side.tail);
                is_awaited |= rings.state.set_waiting(false);
            }
        }
        is_awaited
    }
}

impl Monitor {
    #[cold]
    fn copy(&mut self, rings: &Rings, dir: usize, (mut first, end): (u32, u32)) {
        let after = |at: u32| if at + 1 >= rings.slots(dir) { 0 } else { at + 1 };
        while first != end {
            let mut last = first;
            while rings.slot(dir, last).flags & MOREFRAG != 0 && after(last) != end {
                last = after(last);
            }
            let behind = after(last);
            let needed = if behind > first { behind - first } else { behind + rings.slots(dir) - first };
            if needed <= self.side.slots - 1 - self.side.distance(self.side.head, self.side.tail) {
                while first != behind {
                    self.copy_slot(rings, rings.slot(dir, first));
                    first = after(first);
                }
            }
            first = behind;
        }
    }

    fn copy_slot(&mut self, rings: &Rings, slot: Slot) {
        let mut buf_idx = self.rings.slot(RX, self.side.tail).buf_idx;
        if self.rings.region.buffer(buf_idx, BUFFER).is_none() {
            buf_idx = self.rings.own_buffer(RX, self.side.tail);
        }
        let from = rings.region.buffer(slot.buf_idx, slot.len.into());
        let (Some(from), Some(to)) = (from, self.rings.region.buffer(buf_idx, BUFFER)) else { return };
        copy(from.as_span(), to);
        let flags = slot.flags & !(REPORT | BUF_CHANGED | INDIRECT);
        self.rings.set_slot(RX, self.side.tail, Slot { buf_idx, len: slot.len, flags });
        self.side.tail = self.side.after(self.side.tail, 1);
        self.has_news = true;
    }
}
