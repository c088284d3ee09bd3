//! Memory of the buffers of all connections, bounded as by Linux's `tcp_mem`.

use crate::connection::Connection;

/// How much memory is available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Supply {
    /// Buffers may grow.
    #[default]
    Free,
    /// Buffers keep the size that they have.
    Pressure,
    /// Buffers keep the memory that they have; those with less than the first value of `tcp_rmem` and `tcp_wmem` get as
    /// much.
    Full,
}

/// The memory of all buffers.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    used: usize,
    supply: Supply,
    /// How often memory became scarce, and segments that were dropped since there was none.
    pub pressures: u64,
    pub dropped: u64,
    /// Bytes of streams that were copied.
    pub copied: u64,
}

impl Memory {
    pub(crate) fn supply(&self) -> Supply {
        self.supply
    }

    /// Bytes of all buffers.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// The buffers of a connection have other memory than before.
    pub(crate) fn charge(&mut self, connection: &mut Connection, tcp_mem: &[usize; 3]) {
        let memory = connection.memory();
        if memory != connection.counts.memory {
            self.used = self.used - connection.counts.memory + memory;
            connection.counts.memory = memory;
            self.update(tcp_mem);
        }
    }

    /// A connection is gone.
    pub(crate) fn discharge(&mut self, connection: &Connection, tcp_mem: &[usize; 3]) {
        self.used -= connection.counts.memory;
        self.update(tcp_mem);
    }

    /// Compares with the limits. Pressure ends below the first one.
    pub(crate) fn update(&mut self, &[low, pressure, high]: &[usize; 3]) {
        let before = self.supply;
        self.supply = if self.used > high {
            Supply::Full
        } else if self.used > pressure || (before != Supply::Free && self.used >= low) {
            Supply::Pressure
        } else {
            Supply::Free
        };
        self.pressures += u64::from(before == Supply::Free && self.supply != Supply::Free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_ends_below_the_first_limit() {
        let mut memory = Memory::default();
        let found = [5, 15, 25, 31, 25, 12, 9, 15].map(|used| {
            memory.used = used;
            memory.update(&[10, 20, 30]);
            memory.supply()
        });
        use Supply::{Free, Full, Pressure};
        assert_eq!(found, [Free, Free, Pressure, Full, Pressure, Pressure, Free, Free]);
        assert_eq!(memory.pressures, 1);
    }
}
