//! A ring in the memory of a PCI device: a program in a guest, on a port of kind `ring-pci`.

use crate::RingError;
use crate::shared::Shared;
use ringway_host::PciDevice;
use ringway_mem::{Memory, OwnedSpan, Words};
use ringway_ring::RingMemory;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Vendor and number of the device.
const IDENTITY: [u16; 2] = [0x1af4, 0x1110];
/// The BARs of registers and of memory.
const REGISTERS: u32 = 0;
const MEMORY: u32 = 2;
/// Offsets of registers (`ringway_nic::shared_ring`).
const DOORBELL: u64 = 0x0c;
const RESET: usize = 0x80;
const STATUS: usize = 0x84;
const REGISTERS_SIZE: u64 = 4096;

/// The registers of a device whose ring is in use. Dropping them ends its use.
#[derive(Debug)]
pub(crate) struct Registers {
    all: OwnedSpan,
    device: PciDevice,
}

impl Registers {
    fn words(&self) -> Option<Words<'_, u32>> {
        Words::new(self.all.span())
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        self.words().iter().for_each(|words| words.store_release(STATUS / 4, 0));
    }
}

/// In a guest: the folders of the devices of ports of kind `ring-pci`, in the order of their addresses. Other devices
/// of their number, QEMU's ivshmem, are among them: opening one says so.
pub fn devices() -> Vec<PathBuf> {
    let all = std::fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = all
        .map(|entry| entry.path())
        .filter(|path| PciDevice::identity(path).is_ok_and(|identity| identity == IDENTITY))
        .collect();
    found.sort();
    found
}

/// Resets the device, and maps the ring that it makes.
pub(crate) fn open(path: &Path) -> Result<(Shared, Registers), RingError> {
    let [vendor, number] = PciDevice::identity(path)?;
    if [vendor, number] != IDENTITY {
        return Err(RingError::Device { vendor, device: number });
    }
    let device = PciDevice::open(path)?;
    let registers = Memory::new(vec![device.map(REGISTERS)?.region()]).map_err(|_| RingError::NoRing)?;
    let registers = Arc::new(registers);
    let keep = |at: u64, len: u64| registers.keep_user(at, len as u32).ok_or(RingError::NoRing);
    let doorbell = keep(DOORBELL, 4)?;
    // Another device of this number has fewer registers: QEMU's ivshmem.
    let all = keep(0, REGISTERS_SIZE)?;
    let call = device.interrupt()?;
    let all = Registers { all, device };
    let words = all.words().ok_or(RingError::NoRing)?;
    words.store_release(RESET / 4, 1);
    if words.load_acquire(STATUS / 4) != 1 {
        return Err(RingError::NoRing);
    }
    let memory = RingMemory::attach(all.device.map(MEMORY)?.region())?;
    Ok((Shared::to_device(memory, doorbell, call.map(ringway_host::EventFd::into_fd))?, all))
}
