//! Emulated cards inside a guest: the monitor is the vfio-user client of an `e1000` port.
//!
//! The guest finds the card's registers at a fixed address. An access is an exit, which is forwarded to the port; parts
//! that the port lets its client map are memory of the guest. There is no interrupt controller: an interrupt wakes a
//! guest that sleeps, and sets a word of its memory. A card without message signalled interrupts has its pin: it masks
//! itself, until the monitor unmasks it in place of an interrupt controller.

use crate::vm::{Vm, VmError};
use ringway_host::{EventFd, HostError, Mapping, PollFd, poll, send_with, try_receive_with, try_write};
use ringway_mem::{Memory, MemoryError, OwnedSpan, Region, Words};
use ringway_vfio_user::{
    Client, ClientError, DESCRIPTORS, DmaMap, IrqAction, IrqData, Packet, RegionDoorbell, RegionInfo,
    SetIrqs, SharedRegion, Transport, pci,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where the guest finds the registers: beyond the doorbell of a ring port.
const REGISTERS: u64 = 0xe000_0000;
/// Attack: a port whose registers reach into other parts of the guest's addresses.
const REGISTERS_MAX: u64 = 1 << 20;
/// Attack: a port that lets more parts be mapped than KVM has slots.
const AREAS_MAX: usize = 16;
/// Attack: a port with more doorbells than KVM has room for.
const DOORBELLS_MAX: usize = 8;
/// Bytes of a write that rings a doorbell.
const DOORBELL: u64 = 4;
/// Four words, behind the guest's tables, below its image: the first is set when the card interrupts; the second, if
/// not zero, says that a pin is unmasked at once, instead of when the guest sleeps, since its driver clears no causes;
/// the third and the fourth are the offset and the value of a register write that is carried out when the guest
/// sleeps, if not zero.
const INTERRUPT: u64 = 0x5000;
const WORDS: u32 = 16;
const EDGE: usize = 1;
const OFFSET: usize = 2;
const VALUE: usize = 3;
const PAGE: u64 = 4096;
/// Vendor and device.
const ID: u64 = 0;
/// Command register: memory accesses and bus mastering.
const COMMAND: u64 = 4;
const COMMAND_BITS: [u8; 2] = [6, 0];
/// Where the list of capabilities begins, and the capability of message signalled interrupts.
const CAPABILITIES: u64 = 0x34;
const MSI: u8 = 5;

/// Why a card can't be attached.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// The port can't be reached.
    #[error("the card's port can't be reached: {0}")]
    Connect(#[from] io::Error),
    /// The port refused a request, or its answer is not valid.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The machine refused it.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// A system call failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The word for interrupts is not in the guest's memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The registers are not those of a card.
    #[error("the port describes registers that no card has")]
    Registers,
    /// The card has neither message signalled interrupts nor a pin.
    #[error("the card has no interrupts")]
    NoInterrupts,
}

/// A connection to a port, whose messages take at most a time. Signals must not prolong it: the guest's alarm repeats.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: UnixStream,
    timeout: Duration,
}

impl Stream {
    pub fn connect(path: &Path, timeout: Duration) -> io::Result<Stream> {
        let socket = UnixStream::connect(path)?;
        socket.set_write_timeout(Some(timeout))?;
        Ok(Stream { socket, timeout })
    }

    /// Waits until `end`, or until the socket may be read or written.
    fn wait(&self, end: Instant, writable: bool) -> io::Result<PollFd> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut ready = [PollFd { descriptor: self.socket.as_raw_fd(), readable: !writable, writable }];
        poll(&mut ready, left);
        Ok(ready[0])
    }
}

impl Transport for Stream {
    fn send(&mut self, packet: Packet) -> io::Result<()> {
        let mut rest = &packet.bytes[..];
        if !packet.fds.is_empty() {
            let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
            let sent = send_with(self.socket.as_fd(), rest, &fds).map_err(io::Error::other)?;
            rest = rest.get(sent..).unwrap_or_default();
        }
        let (end, mut ready) = (Instant::now() + self.timeout, false);
        while !rest.is_empty() {
            let sent = try_write(&self.socket, rest);
            rest = &rest[sent..];
            if sent == 0 && ready {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            ready = !rest.is_empty() && self.wait(end, true)?.writable;
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        let end = Instant::now() + self.timeout;
        loop {
            let received = try_receive_with(&self.socket, bytes, DESCRIPTORS).map_err(io::Error::other)?;
            match received {
                Some(received) => return Ok(received),
                None => self.wait(end, false)?,
            };
        }
    }
}

/// A card that a guest uses.
#[derive(Debug)]
pub(crate) struct Card {
    client: Client<Stream>,
    size: u64,
    /// Nothing is mapped: as with QEMU, writes are posted then.
    posts: bool,
    interrupt: EventFd,
    /// The interrupt is a pin; whether it interrupted, and has masked itself since.
    is_pin: bool,
    masked: bool,
    flag: OwnedSpan,
}

impl Vm {
    /// Connects to the port that listens on `path` and gives its card to the guest; an answer of the port may take
    /// `timeout`. Returns the words of the guest's command line that describe the card.
    pub fn attach_card(&mut self, path: &Path, timeout: Duration) -> Result<String, CardError> {
        let mut client = Client::negotiate(Stream::connect(path, timeout)?)?;
        let (size, flags) = (self.region().len, DmaMap::READ | DmaMap::WRITE);
        client.dma_map(DmaMap { flags, size, ..DmaMap::default() }, Some(self.memory().try_clone()?))?;
        let bar = client.region(pci::BAR0)?;
        let size = bar.info.size;
        if size == 0 || size > REGISTERS_MAX {
            return Err(CardError::Registers);
        }
        let mapped = map(&bar)?;
        mapped.iter().try_for_each(|region| self.add_memory(region))?;
        let doorbells = client.doorbells(pci::BAR0)?;
        if doorbells.len() > DOORBELLS_MAX {
            return Err(CardError::Registers);
        }
        for RegionDoorbell { offset, size: bytes, eventfd } in doorbells {
            let end = offset.checked_add(DOORBELL).filter(|end| bytes == DOORBELL && *end <= size);
            end.filter(|end| end.is_multiple_of(DOORBELL)).ok_or(CardError::Registers)?;
            self.add_doorbell(REGISTERS + offset, eventfd.try_clone()?)?;
        }
        let mut id = [0; 4];
        client.read(pci::CONFIG, ID, &mut id)?;
        let (interrupt, is_pin) = enable(&mut client)?;
        let memory = Arc::new(Memory::new(vec![self.region().clone()])?);
        let flag = memory.keep_user(self.region().user + INTERRUPT, WORDS).ok_or(MemoryError::Empty)?;
        let posts = mapped.is_empty();
        self.set_card(Card { client, size, posts, interrupt, is_pin, masked: false, flag })?;
        let id = u32::from_le_bytes(id);
        Ok(format!("card={REGISTERS} card-len={size} card-id={id} interrupt={INTERRUPT}"))
    }
}

/// The parts of the registers that may be mapped.
fn map(bar: &SharedRegion) -> Result<Vec<Region>, CardError> {
    if bar.info.flags & RegionInfo::MMAP == 0 {
        return Ok(Vec::new());
    }
    let file = bar.file.as_ref().ok_or(CardError::Registers)?;
    let mut regions: Vec<Region> = Vec::new();
    for area in &bar.areas {
        let end = area.offset.checked_add(area.size).ok_or(CardError::Registers)?;
        let overlaps =
            |other: &Region| area.offset < other.user + other.len && other.user < area.offset + area.size;
        let at = bar.info.offset.checked_add(area.offset).ok_or(CardError::Registers)?;
        let is_whole = [area.offset, area.size, at].iter().all(|value| value.is_multiple_of(PAGE));
        if !is_whole || area.size == 0 || end > bar.info.size || regions.iter().any(overlaps) {
            return Err(CardError::Registers);
        }
        let mapping = Mapping::shared(file, at, area.size as usize)?;
        regions.push(Arc::new(mapping).region_at(REGISTERS + area.offset, area.offset));
    }
    if regions.len() > AREAS_MAX { Err(CardError::Registers) } else { Ok(regions) }
}

/// Lets the card access memory and send interrupts, as firmware and a kernel's bus driver do: message signalled ones,
/// or by its pin. Returns the eventfd of the interrupt, and whether it is the pin.
fn enable(client: &mut Client<Stream>) -> Result<(EventFd, bool), CardError> {
    client.write(pci::CONFIG, COMMAND, &COMMAND_BITS)?;
    let mut at = [0; 1];
    client.read(pci::CONFIG, CAPABILITIES, &mut at)?;
    // Attack: a list without an end. There is room for 48 capabilities.
    for _ in 0..48 {
        let mut capability = [0; 2];
        if at == [0] {
            break;
        }
        client.read(pci::CONFIG, at[0].into(), &mut capability)?;
        if capability[0] == MSI {
            client.write(pci::CONFIG, u64::from(at[0]) + 2, &[1, 0])?;
            return Ok((signalled(client, pci::MSI)?, false));
        }
        at = [capability[1]];
    }
    if client.irq(pci::INTX)?.count == 0 {
        return Err(CardError::NoInterrupts);
    }
    Ok((signalled(client, pci::INTX)?, true))
}

/// The eventfd of the first interrupt of a type.
fn signalled(client: &mut Client<Stream>, index: u32) -> Result<EventFd, CardError> {
    let eventfd = EventFd::new()?;
    let data = IrqData::Eventfds(vec![eventfd.as_fd().try_clone_to_owned()?]);
    client.set_irqs(SetIrqs { index, start: 0, count: 1, action: IrqAction::Trigger, data })?;
    Ok(eventfd)
}

impl Card {
    /// The eventfd that the card signals.
    pub fn interrupt(&self) -> &EventFd {
        &self.interrupt
    }

    /// Sets the guest's word if the card interrupted; whether it did, or why the port failed.
    pub fn collect(&mut self) -> Result<bool, ClientError> {
        let interrupted = self.interrupt.clear();
        if interrupted && let Some(words) = Words::<u32>::new(self.flag.span()) {
            words.store_release(0, 1);
            self.masked = self.is_pin;
            if words.load(EDGE) != 0 {
                self.unmask()?;
            }
        }
        Ok(interrupted)
    }

    /// Unmasks the pin if it interrupted since: the port sends it again if it is still asserted.
    pub fn unmask(&mut self) -> Result<(), ClientError> {
        if !std::mem::take(&mut self.masked) {
            return Ok(());
        }
        let (index, action, data) = (pci::INTX, IrqAction::Unmask, IrqData::All);
        self.client.set_irqs(SetIrqs { index, start: 0, count: 1, action, data })
    }

    /// Carries out the register write that the guest left for its sleep; returns its address too.
    pub fn flush(&mut self) -> Option<(u64, Option<Result<(), ClientError>>)> {
        let words: Words<'_, u32> = Words::new(self.flag.span())?;
        let (offset, value) = (words.load_acquire(OFFSET), words.load(VALUE));
        if offset == 0 {
            return None;
        }
        words.store(OFFSET, 0);
        let address = REGISTERS + u64::from(offset);
        Some((address, self.write(address, &value.to_le_bytes())))
    }

    /// The offset of `len` bytes at an address. Attack: an access that begins or ends outside the registers.
    fn offset(&self, address: u64, len: usize) -> Option<u64> {
        let offset = address.checked_sub(REGISTERS)?;
        (offset.checked_add(len as u64)? <= self.size).then_some(offset)
    }

    /// Forwards a read; `None`: the card has no register there.
    pub fn read(&mut self, address: u64, answer: &mut [u8]) -> Option<Result<(), ClientError>> {
        let offset = self.offset(address, answer.len())?;
        Some(self.client.read(pci::BAR0, offset, answer))
    }

    /// Forwards a write; `None`: the card has no register there.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Option<Result<(), ClientError>> {
        let offset = self.offset(address, bytes.len())?;
        Some(match self.posts {
            true => self.client.post(pci::BAR0, offset, bytes),
            false => self.client.write(pci::BAR0, offset, bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_does_not_read_or_is_gone_costs_a_bounded_time() {
        let (socket, port) = UnixStream::pair().unwrap();
        let mut stream = Stream { socket, timeout: Duration::from_millis(20) };
        let mut send =
            || stream.send(Packet { bytes: vec![0; 4096], fds: Vec::new() }).map_err(|error| error.kind());
        let full = (0..100_000).find_map(|_| send().err());
        assert_eq!(full, Some(io::ErrorKind::TimedOut));
        drop(port);
        assert_eq!(send(), Err(io::ErrorKind::BrokenPipe));
        assert!(!matches!(stream.receive(&mut [0; 8]), Ok((1.., _))));
    }
}
