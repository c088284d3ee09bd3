//! A virtual machine and its exits.

use crate::card::Card;
use crate::load::{LoadError, Shared, load};
use crate::snapshot::{Snapshot, SnapshotRequest};
use ringway_host::kvm::{Alarm, Exit, Machine, Space};
use ringway_host::{Epoll, EventFd, HostError, Mapping, memfd, set_nonblocking, thread_cpu};
use ringway_mem::Region;
use ringway_vfio_user::ClientError;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Port of the console: the first serial port's data register.
const CONSOLE: u16 = 0x3f8;
/// Port whose write ends the machine, as QEMU's isa-debug-exit.
const EXIT: u16 = 0xf4;
/// Port whose write sleeps for so many microseconds, or until a device notifies the guest.
const PARK: u16 = 0xf8;
/// Port whose write takes a snapshot that the monitor asked for.
const SNAPSHOT: u16 = 0xfc;
/// Attack: a guest that writes to its console without end.
const CONSOLE_MAX: usize = 64 << 10;
/// Smallest memory: the tables and an image behind 1 MB.
const MEMORY_MIN: usize = 2 << 20;

/// Key of the card's interrupt among the eventfds that wake the guest.
const CARD: u64 = u64::MAX;
/// Key of eventfds that nobody clears.
const EDGE: u64 = CARD - 1;

/// Receives the console's bytes.
pub type Console<'a> = &'a mut dyn FnMut(&[u8]);

/// Why a machine can't be made.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// A system call failed. Without `/dev/kvm` there are no tiny guests.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The image can't be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A clone's clock would not count as the original's.
    #[error("the snapshot's clock has {0} ticks a second, this host's has {1}")]
    Clock(u64, u64),
    /// The memory's size is not valid.
    #[error("a tiny guest has whole pages of memory, at least 2 MB and less than 2 GB, not {0} bytes")]
    Memory(usize),
}

/// Why a machine ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// The guest ended itself.
    #[error("the guest ended with code {0}")]
    Exit(u32),
    /// The guest's time limit expired.
    #[error("the guest exceeded its time limit")]
    Time,
    /// A fault without a handler.
    #[error("the guest had a triple fault")]
    TripleFault,
    /// HLT: nothing would wake it.
    #[error("the guest halted")]
    Halted,
    /// A port that the machine does not have.
    #[error("the guest accessed I/O port {0:#x}, which it does not have")]
    Port(u16),
    /// An address that the machine does not have.
    #[error("the guest accessed address {0:#x}, which it does not have")]
    Address(u64),
    /// The card's port failed.
    #[error("the guest's card failed: {0}")]
    Card(String),
    /// More output than a guest may write.
    #[error("the guest wrote more than 64 KB to its console")]
    Console,
    /// Any other exit, or an error of KVM.
    #[error("KVM stopped the guest: {0}")]
    Stopped(String),
}

/// Exits of a machine by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All exits.
    pub exits: u64,
    /// Writes to the console.
    pub console: u64,
    /// Sleeps.
    pub parks: u64,
    /// Sleeps that a device ended.
    pub woken: u64,
    /// Accesses to registers of a card.
    pub registers: u64,
    /// Interrupts of a card.
    pub interrupts: u64,
    /// Nanoseconds of processor time that the monitor needed for exits.
    pub handled: u64,
}

/// A virtual machine.
#[derive(Debug)]
pub struct Vm {
    machine: Machine,
    /// Ticks of its clock in a second: its monitor can't ask for them any more once it is confined.
    hz: u64,
    memory: OwnedFd,
    /// Its memory, at address 0.
    region: Region,
    card: Option<Card>,
    /// Signalled by devices to wake the guest, by number.
    wakes: Vec<EventFd>,
    epoll: Arc<Epoll>,
    counts: Counts,
    /// Bytes that it wrote to its console.
    written: usize,
    snapshot_request: Arc<SnapshotRequest>,
    /// The machine resumes from a snapshot, whose file has the pages that it has not written.
    is_clone: bool,
}

/// What other threads may change while a machine runs: memory, doorbells, and what wakes the guest.
#[derive(Clone, Debug)]
pub(crate) struct SharedMachine {
    pub space: Arc<Space>,
    epoll: Arc<Epoll>,
}

impl SharedMachine {
    /// Makes an eventfd wake the guest when it is signalled; nobody has to clear it.
    pub fn add_wake(&self, eventfd: BorrowedFd<'_>) -> Result<(), HostError> {
        self.epoll.add_edge(eventfd, EDGE)
    }

    /// The eventfd wakes the guest no more.
    pub fn remove_wake(&self, eventfd: BorrowedFd<'_>) {
        // The eventfd is only watched by us, and so can be removed.
        let _ = self.epoll.delete(eventfd);
    }
}

/// A machine without memory, which may be made before it is known what it will run: that takes a millisecond.
#[derive(Debug)]
pub struct PreparedVm(Machine);

impl PreparedVm {
    /// Makes a machine without memory.
    pub fn new() -> Result<PreparedVm, VmError> {
        Ok(PreparedVm(Machine::new()?))
    }
}

impl Vm {
    /// A machine with `size` bytes of memory from address 0.
    pub fn new(size: usize) -> Result<Vm, VmError> {
        Vm::around(PreparedVm::new()?, size, None)
    }

    /// A machine with `size` bytes of memory from address 0, in `prepared`; shared pages replace a part of the memory.
    pub fn around(prepared: PreparedVm, size: usize, shared: Option<Shared>) -> Result<Vm, VmError> {
        if !(MEMORY_MIN..1 << 31).contains(&size) || !size.is_multiple_of(4096) {
            return Err(VmError::Memory(size));
        }
        let memory = memfd("tiny guest", size)?;
        let region = Arc::new(Mapping::shared(&memory, 0, size)?).region();
        Vm::over(prepared, memory, region, shared)
    }

    /// A machine that resumes from a snapshot, whose pages it shares until it writes them.
    pub fn clone_of(
        prepared: PreparedVm,
        snapshot: &Snapshot,
        file: OwnedFd,
        shared: Option<Shared>,
    ) -> Result<Vm, VmError> {
        let region = Arc::new(Mapping::private_of(&file, 0, snapshot.size)?).region();
        let vm = Vm::over(prepared, file, region, shared)?;
        Vm { is_clone: true, ..vm }.go_on(snapshot)
    }

    /// A machine that resumes from a snapshot in the file of its memory, which no other machine uses.
    pub fn moved(
        prepared: PreparedVm,
        snapshot: &Snapshot,
        file: OwnedFd,
        shared: Option<Shared>,
    ) -> Result<Vm, VmError> {
        let region = Arc::new(Mapping::shared(&file, 0, snapshot.size)?).region();
        Vm::over(prepared, file, region, shared)?.go_on(snapshot)
    }

    fn go_on(self, snapshot: &Snapshot) -> Result<Vm, VmError> {
        snapshot.announce(&self.region, self.hz(), self.is_clone)?;
        self.machine.set_state(&snapshot.cpu)?;
        Ok(self)
    }

    /// A machine with this memory, and shared pages in place of a part of it.
    fn over(
        PreparedVm(machine): PreparedVm,
        memory: OwnedFd,
        region: Region,
        shared: Option<Shared>,
    ) -> Result<Vm, VmError> {
        match shared {
            None => drop(machine.space().add_memory(&region)?),
            Some(Shared { address, bytes }) => {
                let size = region.len as usize;
                let behind = address + bytes.len() as u64;
                let after = region.len.checked_sub(behind).ok_or(VmError::Memory(size))?;
                for (begin, len) in [(0, address), (behind, after)] {
                    let part = region.part(begin, len).ok_or(VmError::Memory(size))?;
                    machine.space().add_memory(&part)?;
                }
                machine.space().add_constants(address, bytes)?;
            }
        }
        let (wakes, epoll) = (Vec::new(), Arc::new(Epoll::new()?));
        let (counts, snapshot_request) = (Counts::default(), Arc::default());
        let (hz, card, written, is_clone) = (machine.tsc_hz(), None, 0, false);
        Ok(Vm {
            machine,
            hz,
            memory,
            region,
            card,
            wakes,
            epoll,
            counts,
            written,
            snapshot_request,
            is_clone,
        })
    }

    /// The file of its memory.
    pub fn memory(&self) -> &OwnedFd {
        &self.memory
    }

    /// Its memory.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Gives the guest a card, in place of the one before.
    pub(crate) fn set_card(&mut self, card: Card) -> Result<(), VmError> {
        self.epoll.add_level(card.interrupt().as_fd(), CARD)?;
        self.card = Some(card);
        Ok(())
    }

    /// Adds memory, such as a device's, at its guest-physical address.
    pub fn add_memory(&mut self, region: &Region) -> Result<(), VmError> {
        self.machine.space().add_memory(region)?;
        Ok(())
    }

    /// Makes writes of four bytes to an address signal an eventfd.
    pub fn add_doorbell(&mut self, address: u64, eventfd: OwnedFd) -> Result<(), VmError> {
        // The doorbell stays until the machine is gone.
        self.machine.space().add_doorbell(address, eventfd)?;
        Ok(())
    }

    /// Adds an eventfd that wakes the guest while it sleeps.
    pub fn add_wake(&mut self, eventfd: EventFd) -> Result<(), VmError> {
        set_nonblocking(eventfd.as_fd())?;
        self.epoll.add_level(eventfd.as_fd(), self.wakes.len() as u64)?;
        self.wakes.push(eventfd);
        Ok(())
    }

    /// The snapshot_request, with which other threads ask for a snapshot.
    pub(crate) fn snapshot_request(&self) -> Arc<SnapshotRequest> {
        self.snapshot_request.clone()
    }

    /// What other threads may change while it runs.
    pub(crate) fn shared(&self) -> SharedMachine {
        SharedMachine { space: self.machine.space().clone(), epoll: self.epoll.clone() }
    }

    /// Ticks of the guest's clock in a second; 0 if the kernel doesn't tell.
    pub(crate) fn hz(&self) -> u64 {
        self.hz
    }

    /// Loads an image with its command line, to which the clock's frequency is added.
    pub fn load(&mut self, image: &[u8], line: &str) -> Result<(), VmError> {
        self.load_with(image, line, &[])
    }

    /// Loads an image with its command line, to which the clock's frequency is added, and with a second module unless
    /// that is empty.
    pub fn load_with(&mut self, image: &[u8], line: &str, module: &[u8]) -> Result<(), VmError> {
        let line = match self.hz {
            0 => line.to_owned(),
            hz => format!("tsc={hz} {line}"),
        };
        let memory = self.memory.try_clone().map_err(|error| LoadError::Tables(error.to_string()))?;
        let entry = load(memory, self.region.len as usize, image, &line, module)?;
        Ok(self.machine.enter_pvh(entry.entry, entry.start_info)?)
    }

    /// Its exits so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Runs the guest on this thread until it ends, at most for `limit`.
    pub fn run(&mut self, limit: Duration, console: Console<'_>) -> Result<End, VmError> {
        // Attack: a guest that never exits.
        let _alarm = Alarm::after(limit)?;
        self.run_until(Some(limit), console)
    }

    /// Runs the guest on this thread until it ends, without a limit: only the end of the process ends a guest that
    /// never exits.
    pub fn run_on(&mut self, console: Console<'_>) -> Result<End, VmError> {
        self.run_until(None, console)
    }

    fn run_until(&mut self, limit: Option<Duration>, console: Console<'_>) -> Result<End, VmError> {
        let started = Instant::now();
        loop {
            let left = limit.map_or(Duration::MAX, |limit| limit.saturating_sub(started.elapsed()));
            let exit = match self.machine.run() {
                Ok(exit) => exit,
                Err(error) => return Ok(End::Stopped(error.to_string())),
            };
            self.counts.exits += 1;
            let exited = thread_cpu();
            let mut refused = None;
            match exit {
                Exit::Out(CONSOLE, bytes) => {
                    self.counts.console += 1;
                    let room = CONSOLE_MAX - self.written;
                    let (shown, rest) = bytes.split_at(bytes.len().min(room));
                    self.written += shown.len();
                    console(shown);
                    if !rest.is_empty() {
                        return Ok(End::Console);
                    }
                }
                Exit::Out(PARK, bytes) => {
                    let asked = Duration::from_micros(number(bytes).into());
                    self.counts.parks += 1;
                    if let Some((address, result)) = self.card.as_mut().and_then(Card::flush) {
                        self.counts.registers += 1;
                        refused = register_end(address, result);
                    }
                    refused = refused.or(self.unmask());
                    self.counts.woken += u64::from(park(&self.epoll, &self.wakes, asked.min(left)));
                }
                Exit::Out(EXIT, bytes) => return Ok(End::Exit(number(bytes))),
                Exit::Out(SNAPSHOT, bytes) => {
                    let word = number(bytes);
                    // Attack: a guest that takes snapshots that nobody asked for.
                    let Some(file) = self.snapshot_request.take() else { return Ok(End::Port(SNAPSHOT)) };
                    let taken = self.snapshot(word.into(), file);
                    self.snapshot_request.taken(taken);
                }
                Exit::Out(port, _) | Exit::In(port, _) => return Ok(End::Port(port)),
                Exit::Read(address, answer) => {
                    let result = self.card.as_mut().and_then(|card| card.read(address, answer));
                    self.counts.registers += 1;
                    refused = register_end(address, result);
                }
                Exit::Write(address, bytes) => {
                    let result = self.card.as_mut().and_then(|card| card.write(address, bytes));
                    self.counts.registers += 1;
                    refused = register_end(address, result);
                }
                Exit::Unmapped(address) => return Ok(End::Address(address)),
                Exit::Halted => return Ok(End::Halted),
                Exit::TripleFault => return Ok(End::TripleFault),
                Exit::Other(reason) => return Ok(End::Stopped(reason)),
                Exit::Interrupted => {}
            }
            if let Some(end) = refused {
                return Ok(end);
            }
            if left.is_zero() {
                return Ok(End::Time);
            }
            if let Some(end) = self.collect() {
                return Ok(end);
            }
            self.counts.handled += thread_cpu().saturating_sub(exited);
        }
    }
}

impl Vm {
    /// Unmasks the card's pin before the guest sleeps; the end of the machine, if its port failed.
    fn unmask(&mut self) -> Option<End> {
        let unmasked = self.card.as_mut()?.unmask();
        unmasked.err().map(|error| End::Card(error.to_string()))
    }

    /// Takes an interrupt of the card; the end of the machine, if its port failed.
    fn collect(&mut self) -> Option<End> {
        match self.card.as_mut()?.collect() {
            Ok(interrupted) => self.counts.interrupts += u64::from(interrupted),
            Err(error) => return Some(End::Card(error.to_string())),
        }
        None
    }

    /// Takes a snapshot; its memory goes to `file`. The guest's access is completed.
    fn snapshot(&mut self, word: u64, file: OwnedFd) -> Result<Snapshot, String> {
        if self.is_clone {
            return Err("it is a clone; take a snapshot of the function that it is a clone of".into());
        }
        let cpu = self.machine.state().map_err(|error| error.to_string())?;
        Snapshot::of(cpu, word, self.hz(), &self.region, &self.memory, file)
    }
}

/// Why an access to a register ends the machine, if it does.
fn register_end(address: u64, result: Option<Result<(), ClientError>>) -> Option<End> {
    match result {
        None => Some(End::Address(address)),
        Some(result) => result.err().map(|error| End::Card(error.to_string())),
    }
}

/// Sleeps until one of the eventfds is signalled, or for `time`, or until a signal; whether an eventfd was.
fn park(epoll: &Epoll, wakes: &[EventFd], time: Duration) -> bool {
    let mut woken = false;
    epoll.wait(Some(time.as_nanos() as u64), |key| {
        // The card's eventfd is cleared after the exit.
        woken |= key >= EDGE || wakes.get(key as usize).is_some_and(EventFd::clear);
    });
    woken
}

/// The number that an instruction wrote.
fn number(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk()
        .map_or_else(|| bytes.first().copied().unwrap_or(0).into(), |four| u32::from_le_bytes(*four))
}
