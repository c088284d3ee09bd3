//! A vfio-user client with guest memory: it attaches the card that a port serves, as a hypervisor does.
use crate::sleeper::Failure;
use ringway_host::{EventFd, Mapping, map_region, memfd, receive_with, send_with, wait_readable};
use ringway_mem::{Hint, Memory, SpanMut, Words};
use ringway_vfio_user::{
    Client, DmaMap, DmaUnmap, IrqAction, IrqData, Packet, RegionInfo, SetIrqs, Transport, pci,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of its memory, from address 0.
pub const MEMORY: u64 = 1 << 20;
/// How long a reply may take.
const BOUND: Duration = Duration::from_secs(20);

struct Stream(UnixStream);

impl Transport for Stream {
    fn send(&mut self, packet: Packet) -> io::Result<()> {
        let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
        let sent = send_with(self.0.as_fd(), &packet.bytes, &fds).map_err(io::Error::other)?;
        if sent < packet.bytes.len() { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        receive_with(self.0.as_fd(), bytes, ringway_vfio_user::DESCRIPTORS).map_err(io::Error::other)
    }
}

/// A PCI device, with memory that it may access.
pub struct Card {
    client: Client<Stream>,
    memory: Arc<Memory>,
    /// The registers that are mapped, at their offsets.
    mapped: Memory,
    /// The interrupt type in use, and an eventfd for each of its interrupts.
    calls: (u32, Vec<EventFd>),
}

impl Card {
    /// Connects to the port that listens on `socket`, and shares memory.
    pub fn connect(socket: &Path) -> Result<Card, Failure> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(BOUND))?;
        let mut client = Client::negotiate(Stream(stream))?;
        let file = memfd("card", MEMORY as usize)?;
        let memory = Arc::new(Memory::new(vec![map_region(&file, 0, MEMORY, 0, 0)?])?);
        let flags = DmaMap::READ | DmaMap::WRITE;
        client.dma_map(DmaMap { flags, size: MEMORY, ..DmaMap::default() }, Some(file))?;
        let bar = client.region(pci::BAR0)?;
        let mut mapped = Vec::new();
        if bar.info.flags & RegionInfo::MMAP != 0 {
            let file = bar.file.ok_or("a region without its file")?;
            for area in bar.areas {
                let mapping = Mapping::shared(&file, bar.info.offset + area.offset, area.size as usize)?;
                mapped.push(Arc::new(mapping).region_at(area.offset, area.offset));
            }
        }
        Ok(Card { client, memory, mapped: Memory::new(mapped)?, calls: (pci::INTX, Vec::new()) })
    }

    /// Part of its memory.
    pub fn span(&self, at: u64, len: u32) -> Result<SpanMut<'_>, Failure> {
        self.memory.span_mut(at, len, &mut Hint::default()).ok_or_else(|| "outside the memory".into())
    }

    /// A register, if it is mapped.
    fn mapped(&self, offset: u64) -> Option<Words<'_, u32>> {
        Words::new(self.mapped.span_mut(offset, 4, &mut Hint::default())?)
    }

    /// Whether accesses to a register are mapped.
    pub fn is_mapped(&self, offset: u64) -> bool {
        self.mapped(offset).is_some()
    }

    /// Reads a register.
    pub fn read(&mut self, offset: u64) -> Result<u32, Failure> {
        if let Some(register) = self.mapped(offset) {
            return Ok(register.load_acquire(0));
        }
        let mut value = [0; 4];
        self.client.read(pci::BAR0, offset, &mut value)?;
        Ok(u32::from_le_bytes(value))
    }

    /// Writes a register. As with QEMU, writes are posted if no register is mapped.
    pub fn write(&mut self, offset: u64, value: u32) -> Result<(), Failure> {
        if let Some(register) = self.mapped(offset) {
            register.store_release(0, value);
            return Ok(());
        }
        let value = value.to_le_bytes();
        match self.mapped.regions().is_empty() {
            true => self.client.post(pci::BAR0, offset, &value)?,
            false => self.client.write(pci::BAR0, offset, &value)?,
        }
        Ok(())
    }

    /// Reads the configuration space.
    pub fn config<const N: usize>(&mut self, offset: u64) -> Result<[u8; N], Failure> {
        let mut bytes = [0; N];
        self.client.read(pci::CONFIG, offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes the configuration space.
    pub fn set_config(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.client.write(pci::CONFIG, offset, bytes)?)
    }

    /// Enables or disables message signalled interrupts in the configuration space, if the device has them.
    pub fn set_msi(&mut self, enabled: bool) -> Result<(), Failure> {
        let [mut at] = self.config(0x34)?;
        // More capabilities than there is room for would be a loop.
        for _ in 0..48 {
            if at == 0 {
                return Ok(());
            }
            let [id, next] = self.config(at.into())?;
            if id == 5 {
                return self.set_config(u64::from(at) + 2, &[u8::from(enabled), 0]);
            }
            at = next;
        }
        Err("the list of capabilities has no end".into())
    }

    /// Uses an interrupt type, [`pci::INTX`], [`pci::MSI`] or [`pci::MSIX`], instead of the one before.
    pub fn enable_interrupts(&mut self, index: u32) -> Result<(), Failure> {
        let count = self.client.irq(index)?.count;
        let disable = SetIrqs {
            index: self.calls.0,
            start: 0,
            count: 0,
            action: IrqAction::Trigger,
            data: IrqData::All,
        };
        self.client.set_irqs(disable)?;
        let calls: Vec<EventFd> = (0..count).map(|_| EventFd::new()).collect::<Result<_, _>>()?;
        for (start, call) in (0..).zip(&calls) {
            let data = IrqData::Eventfds(vec![call.as_fd().try_clone_to_owned()?]);
            self.client.set_irqs(SetIrqs { index, start, count: 1, action: IrqAction::Trigger, data })?;
        }
        self.calls = (index, calls);
        Ok(())
    }

    /// Waits for an interrupt and forgets it; whether one came. The pin is masked then, until
    /// [`Card::unmask`].
    pub fn wait(&self, vector: usize, bound: Duration) -> Result<bool, Failure> {
        let call = self.calls.1.get(vector).ok_or("no such interrupt")?;
        wait_readable(&[call.as_fd()], Some(bound.as_nanos() as u64))?;
        Ok(call.clear())
    }

    /// Unmasks the pin, if it is in use.
    pub fn unmask(&mut self) -> Result<(), Failure> {
        let (action, data) = (IrqAction::Unmask, IrqData::All);
        if self.calls.0 == pci::INTX {
            self.client.set_irqs(SetIrqs { index: pci::INTX, start: 0, count: 1, action, data })?;
        }
        Ok(())
    }

    /// Shares `size` more bytes at `address`.
    pub fn share(&mut self, address: u64, size: u64) -> Result<(), Failure> {
        let flags = DmaMap::READ | DmaMap::WRITE;
        let file = memfd("more", size as usize)?;
        Ok(self.client.dma_map(DmaMap { flags, address, size, ..DmaMap::default() }, Some(file))?)
    }

    /// Revokes its memory.
    pub fn unmap(&mut self) -> Result<(), Failure> {
        Ok(self.client.dma_unmap(DmaUnmap { size: MEMORY, ..DmaUnmap::default() })?)
    }

    /// Resets the device.
    pub fn reset(&mut self) -> Result<(), Failure> {
        Ok(self.client.reset()?)
    }
}
