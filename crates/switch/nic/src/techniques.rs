//! The techniques that make an emulated NIC fast, each with its own switch.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use ringway_ring::Policy;

/// How the device learns that the driver wrote a tail register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doorbells {
    /// Each write is a message.
    #[default]
    Trapped,
    /// The registers are memory that the guest shares; the device looks at it.
    Mapped,
}

/// Which techniques are in use. They may change while the NIC runs. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Techniques {
    /// The window with at most one interrupt for each ring, besides the chip's own; 0: none.
    pub moderate: u64,
    /// The chip's own interrupt delays: ITR, RDTR, RADV, TIDV, TADV.
    pub timers: bool,
    /// The longest time for which an interrupt waits for more frames of the same turn, and for which doorbells wake
    /// nobody because the worker is about to look; 0: neither.
    pub combine: u64,
    /// Publish and interrupt once a burst, not once a frame.
    pub batch: bool,
    /// Where doorbells go.
    pub doorbells: Doorbells,
    /// The interval at which a sleeping worker looks at mapped doorbells.
    pub poll: u64,
    /// Registers without side effects outside the rings are mapped too.
    pub in_place: bool,
    /// The shared block (CSB) is offered.
    pub csb: bool,
    /// The memory region used last is kept from burst to burst.
    pub cached: bool,
}

impl Default for Techniques {
    /// Techniques that need nothing from the driver and add no latency.
    fn default() -> Techniques {
        Techniques {
            moderate: 0,
            timers: true,
            combine: 0,
            batch: true,
            doorbells: Doorbells::Trapped,
            poll: 100_000,
            in_place: false,
            csb: false,
            cached: true,
        }
    }
}

impl Techniques {
    /// The plain device: an interrupt and a publication for each frame.
    pub const NONE: Techniques = Techniques {
        moderate: 0,
        timers: false,
        combine: 0,
        batch: false,
        doorbells: Doorbells::Trapped,
        poll: 100_000,
        in_place: false,
        csb: false,
        cached: false,
    };

    /// The notification policy of a ring.
    pub(crate) fn policy(self) -> Policy {
        Policy { batch: self.batch, combine: self.combine, moderate: self.moderate, ..Policy::default() }
    }
}

const TIMERS: u32 = 1;
const BATCH: u32 = 2;
const MAPPED: u32 = 4;
const IN_PLACE: u32 = 8;
const CSB: u32 = 16;
const CACHED: u32 = 32;

/// The techniques as workers read them. A mix of old and new values is harmless.
#[derive(Debug, Default)]
pub struct Switches {
    moderate: AtomicU64,
    combine: AtomicU64,
    poll: AtomicU64,
    bits: AtomicU32,
}

impl Switches {
    pub fn set(&self, techniques: Techniques) {
        let Techniques { moderate, timers, combine, batch, doorbells, poll, in_place, csb, cached } =
            techniques;
        self.moderate.store(moderate, Ordering::Relaxed);
        self.combine.store(combine, Ordering::Relaxed);
        self.poll.store(poll, Ordering::Relaxed);
        let bits = [
            (timers, TIMERS),
            (batch, BATCH),
            (doorbells == Doorbells::Mapped, MAPPED),
            (in_place, IN_PLACE),
            (csb, CSB),
            (cached, CACHED),
        ];
        let bits = bits.iter().filter(|(on, _)| *on).fold(0, |all, (_, bit)| all | bit);
        self.bits.store(bits, Ordering::Relaxed);
    }

    pub fn get(&self) -> Techniques {
        let bits = self.bits.load(Ordering::Relaxed);
        let has = |bit| bits & bit != 0;
        Techniques {
            moderate: self.moderate.load(Ordering::Relaxed),
            timers: has(TIMERS),
            combine: self.combine.load(Ordering::Relaxed),
            batch: has(BATCH),
            doorbells: if has(MAPPED) { Doorbells::Mapped } else { Doorbells::Trapped },
            poll: self.poll.load(Ordering::Relaxed),
            in_place: has(IN_PLACE),
            csb: has(CSB),
            cached: has(CACHED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_switch_is_stored() {
        let switches = Switches::default();
        let mapped =
            Techniques { doorbells: Doorbells::Mapped, in_place: true, csb: true, ..Techniques::NONE };
        let times = Techniques { moderate: 1, combine: 2, poll: 3, ..Techniques::default() };
        for techniques in [Techniques::NONE, Techniques::default(), mapped, times] {
            switches.set(techniques);
            assert_eq!(switches.get(), techniques);
        }
    }
}
