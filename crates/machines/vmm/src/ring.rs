//! Ring ports inside a guest: the port's memory is a part of the guest's, so frames need no exit.

use crate::vm::{Vm, VmError};
use ringway_host::EventFd;
use ringway_ring_client::Ring;
use std::os::fd::AsFd;

/// Where the guest finds the memory: behind the largest memory of its own.
pub(crate) const MEMORY: u64 = 0x8000_0000;
/// Where a write notifies the port: beyond the memory of the largest ring.
pub(crate) const DOORBELL: u64 = 0xd000_0000;

/// Why a ring can't be attached.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The machine refused it.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// A system call failed.
    #[error("the ring's descriptors failed: {0}")]
    System(#[from] std::io::Error),
}

impl Vm {
    /// Gives a port's or pipe's ring to the guest, which uses it in place of its owner for as long as that keeps it.
    /// Returns the words of the guest's command line that describe it.
    pub fn attach_ring(&mut self, ring: &Ring) -> Result<String, RingError> {
        let mut memory = ring.region().clone();
        memory.guest = MEMORY;
        self.add_memory(&memory)?;
        let kick = ring.kick_fd().ok_or(std::io::ErrorKind::Unsupported).map_err(std::io::Error::from)?;
        self.add_doorbell(DOORBELL, kick.try_clone_to_owned()?)?;
        self.add_wake(EventFd::from(ring.as_fd().try_clone_to_owned()?))?;
        let (len, end) = (memory.len, u8::from(ring.is_second()));
        Ok(format!("ring={MEMORY} ring-len={len} ring-end={end} kick={DOORBELL}"))
    }
}
