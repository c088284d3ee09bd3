//! Ring ports inside a guest: the port's memory is a part of the guest's, so frames need no exit.

use crate::vm::{Vm, VmError};
use ringway_client::{Ring, RingOptions};
use ringway_host::EventFd;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// Where the guest finds the memory: behind the largest memory of its own.
const MEMORY: u64 = 0x8000_0000;
/// Where a write notifies the port: beyond the memory of the largest ring.
const DOORBELL: u64 = 0xd000_0000;

/// Why a ring port can't be attached.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The port gave no ring.
    #[error(transparent)]
    Ring(#[from] ringway_client::RingError),
    /// The machine refused it.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// A system call failed.
    #[error("the ring's descriptors failed: {0}")]
    System(#[from] std::io::Error),
}

/// A ring port that a guest uses; the port is closed when this is dropped.
#[derive(Debug)]
pub struct RingPort {
    ring: Ring,
}

impl RingPort {
    /// Connects to the port that listens on `path`, waiting at most `timeout`, and gives it to the guest.
    pub fn attach(
        vm: &mut Vm,
        path: &Path,
        options: RingOptions,
        timeout: Duration,
    ) -> Result<RingPort, RingError> {
        let ring = Ring::connect_with(path, options, Some(timeout))?;
        let mut memory = ring.region().clone();
        memory.guest = MEMORY;
        vm.add_memory(&memory)?;
        vm.add_doorbell(DOORBELL, ring.kick_fd().try_clone_to_owned()?)?;
        vm.add_wake(EventFd::from(ring.as_fd().try_clone_to_owned()?))?;
        Ok(RingPort { ring })
    }

    /// The words of the guest's command line that describe the port.
    pub fn settings(&self) -> String {
        let (len, end) = (self.ring.region().len, u8::from(self.ring.is_second()));
        format!("ring={MEMORY} ring-len={len} ring-end={end} kick={DOORBELL}")
    }
}
