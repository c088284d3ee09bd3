//! A guest's memory: a file that a back-end maps too.

use crate::{Failure, huge};
use ringway_host::map_region;
use ringway_mem::{Hint, Memory, SpanMut};
use ringway_vhost_user::{MemoryRegion, SharedRegion};
use rustix::fs::MemfdFlags;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Guest-physical address of the memory.
pub const GUEST: u64 = 0x1_0000_0000;
/// The memory's user address in messages, which is not checked: ring addresses are relative to it.
pub const USER: u64 = 0x7000_0000_0000;
const HUGE: u64 = 2 << 20;

/// Memory of one guest, allocated from its start.
pub struct GuestMemory {
    file: OwnedFd,
    memory: Arc<Memory>,
    size: u64,
    given: u64,
    /// Whether the memory is in huge pages.
    pub huge: bool,
}

impl GuestMemory {
    /// `size` zeroed bytes, in huge pages if there are enough.
    pub fn new(size: u64) -> Result<GuestMemory, Failure> {
        let size = size.next_multiple_of(HUGE);
        let huge = huge::free() >= size / HUGE;
        let flags = if huge { MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB } else { MemfdFlags::empty() };
        let file = rustix::fs::memfd_create("ringway-bench", flags | MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, size)?;
        let region = map_region(&file, 0, size, GUEST, USER)?;
        let memory = Arc::new(Memory::new(vec![region])?);
        Ok(GuestMemory { file, memory, size, given: 0, huge })
    }

    /// Allocates the next `len` bytes, page-aligned; returns their guest-physical address.
    pub fn take(&mut self, len: u64) -> Result<u64, Failure> {
        let address = GUEST + self.given;
        self.given = (self.given + len).next_multiple_of(4096);
        if self.given > self.size { Err("a guest's memory is too small".into()) } else { Ok(address) }
    }

    /// The memory.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Its bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Its description for a back-end.
    pub fn shared(&self) -> Result<SharedRegion, Failure> {
        let region = MemoryRegion { guest: GUEST, size: self.size, user: USER, offset: 0 };
        Ok(SharedRegion { region, fd: self.file.as_fd().try_clone_to_owned()? })
    }
}

/// `len` bytes at a guest-physical address.
pub fn at(memory: &Memory, address: u64, len: u32) -> Result<SpanMut<'_>, Failure> {
    memory.span_mut(address, len, &mut Hint::default()).ok_or_else(|| "an address outside the guest".into())
}
