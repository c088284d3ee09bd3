//! What all models have in common for those who use them: accesses of the guest, and what follows from them.

use ringway_mem::Memory;

/// A part of the device that a guest accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// The configuration space.
    Config,
    /// A base address register's range, by number.
    Bar(u8),
}

/// What an access asks of its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Wake the worker of the transmit ring.
    pub kick: bool,
    /// Send these interrupts.
    pub raise: Raise,
}

/// What an access to a register does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Storage: neither reads nor writes have an effect at once.
    Plain,
    /// Reads have no effect, writes have one.
    Acts,
    /// Written bits are ignored.
    ReadOnly,
    /// Reads return 0.
    WriteOnly,
    /// A read clears it.
    ClearOnRead,
}

/// Accesses to one register that reached the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// The time, and how to wait for workers.
pub struct Host<'a> {
    /// Nanoseconds of the workers' clock.
    pub now: u64,
    /// Returns when every worker's turn in progress has ended. Called after a ring was stopped, and before its
    /// registers change.
    pub quiesce: &'a mut dyn FnMut(),
    /// The guest's memory.
    pub memory: &'a Memory,
}

impl core::fmt::Debug for Host<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "Host at {}", self.now)
    }
}

/// The interrupts to send now, as a set of vectors. With INTx and MSI there is only vector 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "an interrupt that isn't sent is lost"]
pub struct Raise(u8);

impl Raise {
    /// No vectors.
    pub const NONE: Raise = Raise(0);

    /// The set of one vector.
    pub(crate) const fn of(vector: usize) -> Raise {
        Raise(1 << vector)
    }

    /// Whether the set has no vectors.
    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The vectors.
    pub fn vectors(self) -> impl Iterator<Item = u16> {
        (0..8).filter(move |vector| self.0 >> vector & 1 != 0)
    }
}

impl core::ops::BitOrAssign for Raise {
    #[inline]
    fn bitor_assign(&mut self, other: Raise) {
        self.0 |= other.0;
    }
}

/// What an engine reaches in one turn. `S`: what a model's two sides share.
#[derive(Debug)]
pub struct Bus<'t, S> {
    /// The NIC.
    pub shared: &'t S,
    /// The guest's memory.
    pub memory: &'t Memory,
    /// The time of the turn in nanoseconds.
    pub now: u64,
}

impl<S> Clone for Bus<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Bus<'_, S> {}

/// Splits an access of any size and alignment into words: calls `each` with a word's offset, the first byte in
/// it, and those bytes' range in the data. Ends at the area's end.
pub(crate) fn words(
    offset: u64,
    len: usize,
    size: u32,
    mut each: impl FnMut(u32, usize, core::ops::Range<usize>),
) {
    let mut done = 0;
    while done < len {
        // Attack: an offset whose sum with the length wraps.
        let at = offset.saturating_add(done as u64);
        if at >= size.into() {
            return;
        }
        let (word, skip) = (at as u32 & !3, at as usize & 3);
        let count = (4 - skip).min(len - done);
        each(word, skip, done..done + count);
        done += count;
    }
}
