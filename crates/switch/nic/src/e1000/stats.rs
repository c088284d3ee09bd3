//! Statistics registers. Workers only add; a read subtracts what was read before.

use super::registers as reg;
use crate::pieces::Cast;
use core::sync::atomic::{AtomicU64, Ordering};
use ringway_frame::add;

/// Words of the statistics registers.
const COUNT: usize = 64;

/// The counters, by register, each written by one thread at a time. A pair of registers is counted at its low half.
#[derive(Debug)]
pub(crate) struct Stats([AtomicU64; COUNT]);

impl Default for Stats {
    fn default() -> Stats {
        Stats(core::array::from_fn(|_| AtomicU64::new(0)))
    }
}

fn index(register: u32) -> usize {
    (register.wrapping_sub(reg::CRCERRS) / 4) as usize % COUNT
}

/// Counts of one burst.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    frames: u64,
    bytes: u64,
    broadcast: u64,
    multicast: u64,
    sizes: [u64; 6],
}

impl Tally {
    /// A frame of `len` bytes with its CRC.
    #[inline]
    pub fn count(&mut self, cast: Cast, len: u64) {
        self.frames += 1;
        self.bytes += len;
        self.broadcast += u64::from(cast == Cast::Broad);
        self.multicast += u64::from(cast == Cast::Multi);
        // Up to 64, 127, 255, 511, 1023 bytes, or more.
        let class = match len {
            0..=64 => 0,
            65..=1023 => len.ilog2() as usize - 5,
            _ => 5,
        };
        self.sizes[class] += 1;
    }
}

impl Stats {
    /// Adds to a register.
    pub fn add(&self, register: u32, count: u64) {
        add(&self.0[index(register)], count);
    }

    /// Adds received frames.
    pub fn received(&self, tally: &Tally) {
        let frames = [reg::GPRC, reg::TPR, reg::GORCL, reg::TORL, reg::BPRC, reg::MPRC];
        self.add_all(frames, reg::PRC64, tally);
    }

    /// Adds transmitted frames.
    pub fn transmitted(&self, tally: &Tally) {
        let frames = [reg::GPTC, reg::TPT, reg::GOTCL, reg::TOTL, reg::BPTC, reg::MPTC];
        self.add_all(frames, reg::PTC64, tally);
    }

    fn add_all(&self, registers: [u32; 6], first_size: u32, tally: &Tally) {
        let Tally { frames, bytes, broadcast, multicast, .. } = *tally;
        for (register, count) in
            registers.into_iter().zip([frames, frames, bytes, bytes, broadcast, multicast])
        {
            self.add(register, count);
        }
        for (class, &count) in (0..).zip(&tally.sizes) {
            self.add(first_size + 4 * class, count);
        }
    }
}

/// The reading side: what was read, and the latched high halves.
#[derive(Debug)]
pub(crate) struct Readings {
    read: [u64; COUNT],
    latched: [u64; COUNT],
}

impl Default for Readings {
    fn default() -> Readings {
        Readings { read: [0; COUNT], latched: [0; COUNT] }
    }
}

impl Readings {
    /// Reads the register at `offset`, and clears it. The low half of a pair latches the high half, whose read clears
    /// both.
    pub fn read(&mut self, stats: &Stats, offset: u32) -> u32 {
        let is_pair = |low: u32| matches!(low, reg::GORCL | reg::GOTCL | reg::TORL | reg::TOTL);
        if let Some(low) = offset.checked_sub(4).filter(|&low| is_pair(low)) {
            let count = core::mem::take(&mut self.latched[index(low)]);
            self.read[index(low)] = self.read[index(low)].wrapping_add(count);
            return (count >> 32) as u32;
        }
        if offset >= reg::CRCERRS + 4 * COUNT as u32 {
            return 0;
        }
        let index = index(offset);
        let count = stats.0[index].load(Ordering::Relaxed).wrapping_sub(self.read[index]);
        if is_pair(offset) {
            self.latched[index] = count;
            return count as u32;
        }
        self.read[index] = self.read[index].wrapping_add(count);
        // Registers of 32 bits stick at their largest value.
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Clears every register.
    pub fn reset(&mut self, stats: &Stats) {
        self.latched = [0; COUNT];
        for (read, stat) in self.read.iter_mut().zip(&stats.0) {
            *read = stat.load(Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_clears_and_a_pair_is_read_whole() {
        let (stats, mut readings) = (Stats::default(), Readings::default());
        stats.add(reg::GPRC, 3);
        stats.add(reg::GORCL, 5 << 32 | 7);
        assert_eq!([0; 2].map(|_: u32| readings.read(&stats, reg::GPRC)), [3, 0]);
        assert_eq!(readings.read(&stats, reg::GORCL), 7);
        stats.add(reg::GORCL, 1);
        assert_eq!(readings.read(&stats, reg::GORCH), 5);
        assert_eq!([0; 2].map(|_: u32| readings.read(&stats, reg::GORCL)), [1, 1], "the high half clears");
        stats.add(reg::GPRC, 1 << 40);
        assert_eq!(readings.read(&stats, reg::GPRC), u32::MAX);
        readings.reset(&stats);
        assert_eq!([reg::GORCL, reg::GORCH, reg::CRCERRS].map(|at| readings.read(&stats, at)), [0; 3]);
    }

    #[test]
    fn frames_are_counted_by_size_and_address() {
        let (stats, mut readings, mut tally) = (Stats::default(), Readings::default(), Tally::default());
        for len in [64, 65, 127, 128, 255, 256, 511, 512, 1023, 1024, 16384] {
            tally.count(Cast::Uni, len);
        }
        let mut head = [0; 64];
        assert_eq!(Cast::of(&head), Cast::Uni);
        head[0] = 1;
        tally.count(Cast::of(&head), 64);
        head[..6].fill(0xff);
        tally.count(Cast::of(&head), 64);
        stats.transmitted(&tally);
        let sizes = [reg::PTC64, reg::PTC127, reg::PTC255, reg::PTC511, reg::PTC1023, reg::PTC1522];
        assert_eq!(sizes.map(|at| readings.read(&stats, at)), [3, 2, 2, 2, 2, 2]);
        assert_eq!([reg::MPTC, reg::BPTC, reg::TPT].map(|at| readings.read(&stats, at)), [1, 1, 13]);
    }
}
