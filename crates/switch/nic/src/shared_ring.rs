//! A PCI device whose memory is a program's ring (netmap's ptnet): the program maps BAR 2, and frames pass without any
//! access to a register.
//!
//! The device has the identity and the layout of QEMU's shared memory device (ivshmem, revision 1: registers in BAR 0,
//! vectors in BAR 1, memory in BAR 2), with two registers more, [`RESET`] and [`STATUS`]. One message-signalled
//! interrupt announces received frames and room to send. There is no DMA and no interrupt pin.

use crate::device::{Accesses, Area};
use crate::pci::{self, Bar, Capability, ConfigSpace, Identity, Space};
use alloc::sync::Arc;
use alloc::vec::Vec;
use ringway_mem::{Hint, Memory};

/// Written: there are frames to send, or room for received ones. The value is ignored.
pub const DOORBELL: u32 = 0x0c;
/// Written: the ring is made anew, and used from then on. The value is ignored.
pub const RESET: u32 = 0x80;
/// Read: 1 while the ring is used. Written: it is used no longer; the value is ignored.
pub const STATUS: u32 = 0x84;
/// Bytes of BAR 0: a page, so that a program can map it.
pub const REGISTERS: u32 = 4096;
/// Bytes of BAR 1: the table of vectors, and the pending bits at 0x2000.
pub const VECTORS: u32 = 16 << 10;
/// Numbers of the BARs of registers, vectors and memory.
pub const BARS: [u8; 3] = [0, 1, 2];
/// Names of what is counted: the registers, and accesses to memory that its client has not mapped.
const NAMES: [&str; 4] = ["DOORBELL", "RESET", "STATUS", "MEMORY"];
const TRAPPED: usize = 3;
/// The one vector of the table: address, data, mask.
const VECTOR: usize = 16;

/// What a write asks of the device's owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Wake the worker.
    pub kick: bool,
    /// Make the ring anew.
    pub reset: bool,
    /// Use the ring no longer. A reset comes after it.
    pub end: bool,
}

/// The configuration space and the registers of a device.
#[derive(Debug)]
pub struct SharedRing {
    config: ConfigSpace,
    identity: Identity,
    /// The ring's memory, from address 0; empty while nobody has the device.
    memory: Arc<Memory>,
    vector: [u8; VECTOR],
    used: bool,
    accesses: [Accesses; NAMES.len()],
}

/// Bytes of BAR 2 for a ring of `bytes` bytes.
pub fn bar_size(bytes: u64) -> u32 {
    // A ring has at most 512 MB.
    u32::try_from(bytes.max(4096)).unwrap_or(1 << 30).min(1 << 30).next_power_of_two()
}

impl SharedRing {
    /// A device after power-on. `memory`: its ring's, from address 0; `bytes`: the length of a ring's memory.
    pub fn new(memory: Arc<Memory>, bytes: u64) -> SharedRing {
        let mut bars = [None; 6];
        bars[0] = Some(Bar { space: Space::Memory, size: REGISTERS });
        bars[1] = Some(Bar { space: Space::Memory, size: VECTORS });
        bars[2] = Some(Bar { space: Space::Memory64, size: bar_size(bytes) });
        let identity = Identity {
            // ivshmem's, as QEMU has it (docs/specs/ivshmem-spec).
            vendor: 0x1af4,
            device: 0x1110,
            subsystem: 0x1100,
            revision: 1,
            class: pci::MEMORY,
            pin: false,
            bars,
            capabilities: &[(0x40, Capability::MsiX(1, 1))],
        };
        SharedRing {
            config: ConfigSpace::new(&identity),
            identity,
            memory,
            vector: [0; VECTOR],
            used: false,
            accesses: Default::default(),
        }
    }

    /// What identifies it, and its BARs.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The configuration space.
    pub fn config(&self) -> &ConfigSpace {
        &self.config
    }

    /// The ring's memory.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Sets whether the ring is used.
    pub fn set_used(&mut self, used: bool) {
        self.used = used;
    }

    /// Whether the ring is used.
    pub fn is_used(&self) -> bool {
        self.used
    }

    /// Resets configuration space and registers; the ring's memory stays as it is, and is no longer used.
    pub fn reset(&mut self) {
        self.config = ConfigSpace::new(&self.identity);
        (self.vector, self.used) = ([0; VECTOR], false);
    }

    /// Accesses that reached the device, by name; those without any are left out.
    pub fn accesses(&self) -> Vec<(&'static str, Accesses)> {
        let named = NAMES.into_iter().zip(self.accesses);
        named.filter(|(_, count)| *count != Accesses::default()).collect()
    }

    /// How often the doorbell was written.
    pub fn doorbells(&self) -> u64 {
        self.accesses[0].writes
    }

    /// Reads from an area; where there is nothing, there are zeros.
    pub fn read(&mut self, area: Area, offset: u64, out: &mut [u8]) {
        out.fill(0);
        match area {
            Area::Config => self.config.read(offset, out, false),
            Area::Bar(0) => {
                let touched = self.count(offset, out.len(), |count| count.reads += 1);
                if touched[2] {
                    let status = u32::from(self.used).to_le_bytes();
                    for (at, byte) in (u64::from(STATUS)..).zip(status) {
                        let place = at.checked_sub(offset).and_then(|at| out.get_mut(at as usize));
                        place.into_iter().for_each(|place| *place = byte);
                    }
                }
            }
            Area::Bar(1) => {
                let bytes = usize::try_from(offset).ok().and_then(|at| self.vector.get(at..));
                let bytes = bytes.unwrap_or_default();
                let count = bytes.len().min(out.len());
                out[..count].copy_from_slice(&bytes[..count]);
            }
            Area::Bar(2) => {
                self.accesses[TRAPPED].reads += 1;
                let Some(len) = self.within(offset, out.len()) else { return };
                if let Some(span) = self.memory.span(offset, len, &mut Hint::default()) {
                    span.read(out);
                }
            }
            Area::Bar(_) => {}
        }
    }

    /// Writes to an area; where there is nothing, the write is ignored.
    pub fn write(&mut self, area: Area, offset: u64, data: &[u8]) -> Asked {
        match area {
            Area::Config => self.config.write(offset, data),
            Area::Bar(0) => {
                let [kick, reset, end] = self.count(offset, data.len(), |count| count.writes += 1);
                return Asked { kick, reset, end };
            }
            Area::Bar(1) => {
                let places = usize::try_from(offset).ok().and_then(|at| self.vector.get_mut(at..));
                places.into_iter().flatten().zip(data).for_each(|(place, byte)| *place = *byte);
            }
            Area::Bar(2) => {
                self.accesses[TRAPPED].writes += 1;
                if let Some(len) = self.within(offset, data.len())
                    && let Some(span) = self.memory.span_mut(offset, len, &mut Hint::default())
                {
                    span.write(data);
                }
            }
            Area::Bar(_) => {}
        }
        Asked::default()
    }

    /// Counts an access to each register of which it has a byte; returns which these are.
    fn count(&mut self, offset: u64, len: usize, add: impl Fn(&mut Accesses)) -> [bool; 3] {
        // Attack: an offset near the end of the address space.
        let end = offset.saturating_add(len as u64);
        let mut touched = [false; 3];
        for ((register, touched), count) in
            [DOORBELL, RESET, STATUS].into_iter().zip(&mut touched).zip(&mut self.accesses)
        {
            let register = u64::from(register);
            *touched = offset < register + 4 && register < end;
            if *touched {
                add(count);
            }
        }
        touched
    }

    /// How many of `len` bytes at `offset` the memory has. Attack: an access that begins in the ring and ends behind
    /// it, in the rest of the BAR.
    fn within(&self, offset: u64, len: usize) -> Option<u32> {
        let have = self.memory.regions().first()?.len.checked_sub(offset)?;
        u32::try_from(have.min(len as u64)).ok().filter(|len| *len > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use ringway_mem::Region;

    const BYTES: u64 = 3 * 4096;

    fn device() -> SharedRing {
        let memory = Memory::new(vec![Region::private(0, 0, BYTES as usize)]).unwrap();
        SharedRing::new(Arc::new(memory), BYTES)
    }

    fn word(device: &mut SharedRing, area: Area, offset: u64) -> u32 {
        let mut out = [0xaa; 4];
        device.read(area, offset, &mut out);
        u32::from_le_bytes(out)
    }

    #[test]
    fn it_is_a_memory_device_with_a_vector_and_no_pin() {
        let mut device = device();
        let mut config = |at| word(&mut device, Area::Config, at);
        assert_eq!([config(0), config(8)], [0x1110_1af4, 0x0500_0001]);
        assert_eq!((config(0x2c), config(0x3c) >> 8 & 0xff), (0x1100_1af4, 0));
        assert_eq!([config(0x34) & 0xff, config(0x40), config(0x44)], [0x40, 0x0000_0011, 1]);
        for bar in 0..6 {
            device.write(Area::Config, 0x10 + 4 * bar, &[0xff; 4]);
        }
        let bars = [0, 1, 2, 3, 4].map(|bar| word(&mut device, Area::Config, 0x10 + 4 * bar));
        assert_eq!(bars, [0xffff_f000, 0xffff_c000, 0xffff_c00c, u32::MAX, 0], "16 KB for 12 KB of memory");
        assert_eq!([1, 4097, 1 << 29].map(bar_size), [4096, 8192, 1 << 29]);
    }

    #[test]
    fn registers_act_whatever_is_written_and_count() {
        let mut device = device();
        let bar = Area::Bar(0);
        let none = Asked::default();
        let (kick, reset) = (Asked { kick: true, ..none }, Asked { reset: true, ..none });
        assert_eq!(device.write(bar, 0x0c, &[0xff; 4]), kick);
        assert_eq!(device.write(bar, 0x0f, &[0]), kick, "by its last byte");
        assert_eq!(device.write(bar, 0x10, &[1; 112]), none);
        assert_eq!(device.write(bar, 0x7f, &[0, 0]), reset);
        assert_eq!(device.write(bar, 0, &[0; 4096]), Asked { kick: true, reset: true, end: true });
        assert_eq!(device.write(bar, 0x87, &[0; 9]), Asked { end: true, ..none });
        assert_eq!(device.write(bar, u64::MAX, &[0; 9]), none);
        assert_eq!(word(&mut device, bar, STATUS.into()), 0);
        device.set_used(true);
        assert_eq!(
            [0x80, 0x82, 0x84, 0x86, u64::MAX].map(|at| word(&mut device, bar, at)),
            [0, 1 << 16, 1, 0, 0]
        );
        let counted = device.accesses();
        let names: Vec<&str> = counted.iter().map(|(name, _)| *name).collect();
        assert_eq!((names, device.doorbells()), (vec!["DOORBELL", "RESET", "STATUS"], 3));
        device.reset();
        assert_eq!(word(&mut device, bar, STATUS.into()), 0);
    }

    #[test]
    fn memory_that_is_not_mapped_is_reached_by_accesses_and_ends_where_it_ends() {
        let mut device = device();
        let bar = Area::Bar(2);
        device.write(bar, BYTES - 2, &[1, 2, 3, 4]);
        device.write(bar, u64::MAX, &[9; 8]);
        assert_eq!(word(&mut device, bar, BYTES - 2), 0x0201);
        assert_eq!([BYTES, u64::MAX].map(|at| word(&mut device, bar, at)), [0, 0]);
        device.write(Area::Bar(1), 12, &[1, 0, 0, 0, 7]);
        assert_eq!([12, 14, 16].map(|at| word(&mut device, Area::Bar(1), at)), [1, 0, 0]);
        let mut without = SharedRing::new(Arc::default(), BYTES);
        without.write(bar, 0, &[1; 8]);
        assert_eq!(word(&mut without, bar, 0), 0);
    }
}
