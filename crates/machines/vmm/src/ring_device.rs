//! Rings in PCI devices inside a guest: the monitor is the vfio-user client of a `ring-pci` port, and gives the guest
//! the memory of the device as that of a ring port.

use crate::card::{CardError, Stream};
use crate::ring::{DOORBELL, MEMORY};
use crate::vm::Vm;
use ringway_host::{EventFd, Mapping};
use ringway_nic::shared_ring::{BARS, RESET, STATUS};
use ringway_vfio_user::{Client, IrqAction, IrqData, RegionInfo, SetIrqs, pci};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// Attack: a port whose memory reaches into other parts of the guest's addresses.
const MEMORY_MAX: u64 = DOORBELL - MEMORY;

/// The connection to a port whose ring a guest uses.
#[derive(Debug)]
pub struct RingDevice {
    _client: Client<Stream>,
}

impl Vm {
    /// Connects to the port that listens on `path`, and gives its ring to the guest; an answer of the port may take
    /// `timeout`. Returns the connection, which must stay, and the words of the guest's command line that describe the
    /// ring.
    pub fn attach_ring_device(
        &mut self,
        path: &Path,
        timeout: Duration,
    ) -> Result<(RingDevice, String), CardError> {
        let mut client = Client::negotiate(Stream::connect(path, timeout)?)?;
        let [registers, _, memory] = BARS.map(u32::from);
        let bar = client.region(memory)?;
        let (Some(file), [area]) = (&bar.file, &bar.areas[..]) else { return Err(CardError::Registers) };
        let is_mapped = bar.info.flags & RegionInfo::MMAP != 0 && area.offset == 0;
        if !is_mapped || area.size == 0 || area.size > MEMORY_MAX {
            return Err(CardError::Registers);
        }
        let call = EventFd::new()?;
        let data = IrqData::Eventfds(vec![call.as_fd().try_clone_to_owned()?]);
        let action = IrqAction::Trigger;
        client.set_irqs(SetIrqs { index: pci::MSIX, start: 0, count: 1, action, data })?;
        let kick = client.doorbells(registers)?.into_iter().next().ok_or(CardError::Registers)?.eventfd;
        let mut status = [0; 4];
        client.write(registers, RESET.into(), &[1; 4])?;
        client.read(registers, STATUS.into(), &mut status)?;
        if status != [1, 0, 0, 0] {
            return Err(CardError::Registers);
        }
        let mapping = Mapping::shared(file, bar.info.offset, area.size as usize)?;
        self.add_memory(&std::sync::Arc::new(mapping).region_at(MEMORY, 0))?;
        self.add_doorbell(DOORBELL, kick.try_clone()?)?;
        self.add_wake(call)?;
        let words = format!("ring={MEMORY} ring-len={} ring-end=0 kick={DOORBELL}", area.size);
        Ok((RingDevice { _client: client }, words))
    }
}
