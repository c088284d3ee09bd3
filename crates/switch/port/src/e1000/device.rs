//! The device behind a session: the model's registers, the client's memory, and its interrupts.

use super::card::{Calls, Card};
use super::rx::CardRx;
use super::tx::CardTx;
use crate::pci_session::{BackendError, PciDevice, area, check_eventfd, refused, regions};
use crate::session_loop::Served;
use crate::vhost_user::{Mapped, SharedMemory};
use crate::{Doorbell, Exits, Queue, RegisterExits, SocketError};
use ringway_frame::CountersRef;
use ringway_host::{self as host, Budget, Clock, Epoll, EventFd, FdKind, Keep, Signal};
use ringway_mem::{Memory, MemoryError, Published, REGIONS, Retired};
use ringway_nic::pci::Capability;
use ringway_nic::{self as nic, Accesses, Area, Chip, Doorbells, Effects, Host, Settings};
use ringway_vfio_user::{
    Device, DmaMap, DmaRange, Irq, IrqAction, IrqType, Mapping, Offer, Refused, RegionDoorbell, errno, pci,
};
use ringway_vhost_user::{MemoryRegion, SharedRegion};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of an Ethernet header and a VLAN tag.
pub(super) const LINK: u32 = 18;
/// Keys of the descriptors in the session's epoll.
const SOCKET: u64 = 0;
const UNMASK: u64 = 1;
const DMA: u32 = DmaMap::READ | DmaMap::WRITE;

/// What a card is made of.
#[derive(Clone, Copy)]
pub(super) struct Config<M> {
    pub model: M,
    pub mac: [u8; 6],
    pub mtu: Option<u16>,
    pub memory: u64,
    pub carrier: bool,
    pub techniques: super::Techniques,
}

/// The eventfd of an interrupt.
struct Call {
    fd: Arc<OwnedFd>,
    signal: Arc<Signal>,
}

/// A card as its session serves it. `N`: its model's family.
pub(super) struct CardDevice<N: Chip> {
    nic: N,
    config: Config<N::Model>,
    /// The file of mapped registers, if the client may map any.
    pages: Option<Arc<OwnedFd>>,
    /// Signalled by the client's monitor in place of writes to the doorbell of a shared block: the worker watches it,
    /// so that a doorbell wakes no other thread.
    kick: Option<Arc<OwnedFd>>,
    /// Frames sent and received before the client connected.
    before: [u64; 2],
    published: Arc<Published<Card<N::Shared>>>,
    /// The published card.
    card: Arc<Card<N::Shared>>,
    /// The interrupt type in use, an index of [`pci`].
    active: Option<u32>,
    calls: BTreeMap<(u32, u32), Call>,
    /// The eventfd by which the client unmasks the pin.
    unmask: Option<OwnedFd>,
    masked: Arc<AtomicBool>,
    largest: u32,
    memory: SharedMemory,
    /// Present during a session.
    epoll: Option<Epoll>,
    doorbell: Arc<dyn Doorbell>,
    counters: CountersRef,
    budget: Arc<Budget>,
    clock: Clock,
}

impl<N: Chip> CardDevice<N> {
    /// A card, and its queues. `budget`: what its client may cost.
    pub fn new(
        config: &Config<N::Model>,
        doorbell: Arc<dyn Doorbell>,
        counters: CountersRef,
        budget: Arc<Budget>,
    ) -> Result<(CardDevice<N>, Queue), MemoryError> {
        let Config { model, mac, mtu, memory, carrier, techniques } = *config;
        let mut nic = N::new(Settings {
            model,
            mac,
            techniques: nic::Techniques::default(),
            link: carrier,
            pages: None,
        })?;
        nic.set_techniques(techniques.of(nic.identity().1, false), 0);
        let largest = mtu.map_or(u32::MAX, |mtu| u32::from(mtu) + LINK);
        let (shared, calls) = (nic.shared().clone(), Calls::default());
        let card = Arc::new(Card { shared, memory: Arc::new(Memory::default()), calls, largest });
        let published = Arc::new(Published::new(card.clone()));
        let (tx, rx) = N::engines(&counters);
        let queue = Queue {
            rx: Box::new(CardRx::<N>::new(published.clone(), rx, counters.clone())),
            tx: Box::new(CardTx::<N>::new(published.clone(), tx, counters.clone())),
        };
        let device = CardDevice {
            active: None,
            calls: BTreeMap::new(),
            unmask: None,
            masked: Arc::default(),
            largest,
            memory: SharedMemory::new(memory),
            epoll: None,
            clock: Clock::new(),
            nic,
            config: *config,
            pages: None,
            kick: None,
            before: [0; 2],
            published,
            card,
            doorbell,
            counters,
            budget,
        };
        Ok((device, queue))
    }

    /// Frames that the guest sent and received.
    fn frames(&self) -> [u64; 2] {
        [&self.counters.tx_frames, &self.counters.rx_frames].map(|count| count.load(Ordering::Relaxed))
    }

    /// Changes the techniques while the card runs. What the client maps stays until it disconnects.
    pub fn set_techniques(&mut self, techniques: super::Techniques) {
        self.config.techniques = techniques;
        let nic::Techniques { doorbells, in_place, .. } = self.nic.techniques();
        let techniques =
            nic::Techniques { doorbells, in_place, ..techniques.of(self.nic.identity().1, true) };
        self.nic.set_techniques(techniques, self.clock.now());
        // The worker takes them over.
        self.doorbell.wake();
    }

    /// Connects or disconnects the cable.
    pub fn set_carrier(&mut self, carrier: bool) {
        self.config.carrier = carrier;
        let effects = self.nic.set_link(carrier, self.clock.now());
        self.carry_out(effects);
    }

    /// Sends interrupts, and wakes the worker if it has something to do.
    fn carry_out(&self, Effects { kick, raise }: Effects) {
        self.card.raise(raise, &self.counters);
        // The worker also sends interrupts that were deferred.
        if kick || self.nic.next_due().is_some() {
            self.doorbell.wake();
        }
    }

    fn unmask(&mut self) {
        self.masked.store(false, Ordering::SeqCst);
        self.repeat();
    }

    /// Sends an interrupt that has a cause but may not have reached the client: while the pin was masked or the
    /// interrupt had no eventfd. One that is deferred follows later.
    fn repeat(&self) {
        let is_due = self.nic.level() && self.nic.next_due().is_none();
        if is_due && self.active != Some(pci::MSIX) {
            self.card.calls.send(0, &self.counters);
        }
    }

    /// Publishes memory and interrupts; when this returns, no worker uses the former ones.
    fn publish(&mut self) {
        let active = self.active;
        let vectors =
            self.calls.range((active.unwrap_or(u32::MAX), 0)..).take_while(|(key, _)| Some(key.0) == active);
        let mut signals = Vec::new();
        for (&(_, vector), call) in vectors {
            signals.resize(vector as usize, None);
            signals.push(Some(call.signal.clone()));
        }
        let masked = (active == Some(pci::INTX)).then(|| self.masked.clone());
        let (shared, memory) = (self.nic.shared().clone(), self.memory.memory.clone());
        let calls = Calls { signals, masked };
        self.card = Arc::new(Card { shared, memory, calls, largest: self.largest });
        drop(ringway_host::reclaim(self.published.replace(self.card.clone())));
    }

    /// Switches to the interrupt type that the driver enabled.
    fn select_interrupts(&mut self) {
        let config = self.nic.config();
        let kinds = [
            (config.msix_enabled(), pci::MSIX),
            (config.msi_enabled(), pci::MSI),
            (config.intx_enabled(), pci::INTX),
        ];
        let active = kinds.into_iter().find_map(|(enabled, index)| enabled.then_some(index));
        if active != self.active {
            self.active = active;
            self.publish();
            self.repeat();
        }
    }

    /// Runs `access` on the model. It waits for workers after it stopped a ring.
    fn with_host<R>(&mut self, access: impl FnOnce(&mut N, &mut Host<'_>) -> R) -> R {
        let CardDevice { nic, published, clock, memory, .. } = self;
        let mut quiesce =
            || ringway_host::reclaim_after(published.readers(), Vec::<Retired<Card<N::Shared>>>::new());
        access(nic, &mut Host { now: clock.now(), quiesce: &mut quiesce, memory: &memory.memory })
    }

    /// Replaces the regions of memory.
    fn set_table(&mut self, table: Vec<Mapped>) -> Result<(), Refused> {
        let former = self.memory.replace(table).map_err(|error| refused(errno::EINVAL, error))?;
        self.publish();
        drop(former);
        Ok(())
    }
}

impl<N: Chip> Served for CardDevice<N> {
    fn epoll(&self) -> Option<&Epoll> {
        self.epoll.as_ref()
    }

    fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Whether the driver enabled a ring.
    fn is_running(&self) -> bool {
        self.nic.is_running()
    }

    fn memory(&mut self) -> Option<&mut SharedMemory> {
        Some(&mut self.memory)
    }

    /// Unmasks the pin if the client signalled so by an eventfd.
    fn drain(&mut self) {
        let mut unmasked = false;
        self.epoll.iter().for_each(|epoll| epoll.wait(Some(0), |key| unmasked |= key == UNMASK));
        if unmasked {
            self.unmask();
        }
    }
}

impl<N: Chip> PciDevice for CardDevice<N> {
    fn offer(&self) -> Offer {
        let identity = self.nic.identity().1;
        let mut regions = regions(identity, self.nic.config());
        let area =
            |(offset, size): (u32, u32)| ringway_vfio_user::Area { offset: offset.into(), size: size.into() };
        let areas: Vec<_> = self.nic.mappable().into_iter().map(area).collect();
        // The file begins where the region does.
        let mapping = |file: &Arc<OwnedFd>| Mapping { file: file.clone(), offset: 0, areas };
        regions[pci::BAR0 as usize].mapping = self.pages.as_ref().map(mapping);
        let doorbell = |(kick, offset): (&Arc<OwnedFd>, u32)| RegionDoorbell {
            offset: offset.into(),
            size: 4,
            eventfd: kick.clone(),
        };
        regions[pci::BAR0 as usize].doorbells = self.kick.iter().zip(N::KICK).map(doorbell).collect();
        let mut irqs = vec![IrqType::default(); pci::IRQS];
        let pin = IrqType::EVENTFD | IrqType::MASKABLE | IrqType::AUTOMASKED;
        irqs[pci::INTX as usize] = IrqType { count: 1, flags: pin };
        for (_, capability) in identity.capabilities {
            let (index, count) = match capability {
                Capability::Msi => (pci::MSI, 1),
                Capability::MsiX(vectors, _) => (pci::MSIX, u32::from(*vectors)),
                _ => continue,
            };
            irqs[index as usize] = IrqType { count, flags: IrqType::EVENTFD | IrqType::NORESIZE };
        }
        Offer { regions, irqs, maps: REGIONS as u32 }
    }

    /// Begins a session on `socket`, with a card as after power-on.
    ///
    /// Attack: a client that keeps its mapping of registers after it disconnected. Each client gets other `pages`, if
    /// it may map any.
    fn begin_session(&mut self, socket: BorrowedFd<'_>, pages: Option<OwnedFd>) -> Result<(), BackendError> {
        let epoll = Epoll::new().map_err(SocketError::from)?;
        epoll.add_level(socket, SOCKET).map_err(SocketError::from)?;
        let Config { model, mac, carrier, techniques, .. } = self.config;
        let pages = pages.filter(|_| N::PAGES.1 > 0);
        let techniques = techniques.of(self.nic.identity().1, pages.is_some());
        let is_mapped = techniques.doorbells == Doorbells::Mapped || techniques.in_place;
        self.pages = pages.filter(|_| is_mapped).map(Arc::new);
        let mapped = match &self.pages {
            Some(pages) => {
                let (offset, len) = N::PAGES;
                let mapping = host::Mapping::shared(pages, offset.into(), len as usize);
                Some(Arc::new(mapping.map_err(SocketError::from)?).region_at(0, 0))
            }
            None => None,
        };
        let has_kick = N::KICK.is_some() && techniques.csb && techniques.doorbells == Doorbells::Trapped;
        let kick = has_kick.then(EventFd::new).transpose().map_err(SocketError::from)?;
        self.kick = kick.map(|kick| Arc::new(kick.into_fd()));
        self.kick.iter().for_each(|kick| self.doorbell.watch(kick.clone()));
        self.nic = N::new(Settings { model, mac, techniques, link: carrier, pages: mapped })?;
        self.before = self.frames();
        self.publish();
        self.budget.renew();
        self.epoll = Some(epoll);
        Ok(())
    }

    fn exits(&self) -> Exits {
        let row = |(name, mapped, count): (&str, bool, Accesses)| RegisterExits {
            name: name.into(),
            reads: count.reads,
            writes: count.writes,
            mapped,
        };
        let [tx_frames, rx_frames] = self.frames();
        let [tx_doorbells, rx_doorbells] = self.nic.doorbells();
        let (raised, held) = self.nic.interrupts();
        Exits {
            registers: self.nic.accesses().into_iter().map(row).collect(),
            tx_frames: tx_frames.wrapping_sub(self.before[0]),
            rx_frames: rx_frames.wrapping_sub(self.before[1]),
            tx_doorbells,
            rx_doorbells,
            raised,
            held,
        }
    }

    fn clear(&mut self) {
        self.reset();
        self.memory.clear();
        self.calls.clear();
        (self.unmask, self.epoll) = (None, None);
        if self.kick.take().is_some() {
            self.doorbell.unwatch();
        }
        self.publish();
    }

    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.calls.values().map(|call| call.fd.as_fd()).chain(self.unmask.iter().map(AsFd::as_fd))
    }

    /// The model, the interrupt type and the techniques in use, for people.
    fn detail(&self) -> String {
        let interrupts = match self.active {
            Some(pci::INTX) => " intx",
            Some(pci::MSI) => " msi",
            Some(_) => " msi-x",
            None => "",
        };
        let nic::Techniques { moderate, timers, combine, batch, doorbells, in_place, csb, cached, .. } =
            self.nic.techniques();
        let mut detail = format!("{}{interrupts}", self.nic.identity().0);
        let words = [
            (!self.config.carrier, " no-carrier"),
            (doorbells == Doorbells::Mapped, " mapped"),
            (in_place, " in-place"),
            (csb, " csb"),
            (combine > 0, " combine"),
            (!timers, " no-timers"),
            (!batch, " no-batch"),
            (!cached, " no-cache"),
        ];
        words.iter().filter(|(on, _)| *on).for_each(|(_, word)| detail += word);
        if moderate > 0 {
            detail += &format!(" moderate={}us", moderate / 1000);
        }
        detail
    }
}

impl<N: Chip> Device for CardDevice<N> {
    fn dma_map(&mut self, map: DmaMap, file: Option<OwnedFd>) -> Result<(), Refused> {
        let DmaMap { flags, offset, address, size, .. } = map;
        // Ranges without a file, and those that may not be written, such as ROM, are not used for rings or frames.
        let Some(fd) = file.filter(|_| flags == DMA) else { return Ok(()) };
        if FdKind::of(fd.as_fd()) != Some(FdKind::Memory) {
            return Err(Refused::invalid("the file is no memory (a memfd, or a file on tmpfs or hugetlbfs)"));
        }
        let region = MemoryRegion { guest: address, size, user: address, offset };
        let new = self.memory.map(SharedRegion { region, fd }, Keep::No);
        let new = new.map_err(|error| refused(errno::EINVAL, error))?;
        let table = self.memory.table.iter().map(Mapped::again).chain([new]).collect();
        self.set_table(table)
    }

    fn dma_unmap(&mut self, ranges: &[DmaRange]) {
        let is_gone = |mapped: &&Mapped| ranges.iter().any(|range| range.address == mapped.entry.guest);
        let rest = self.memory.table.iter().filter(|mapped| !is_gone(mapped)).map(Mapped::again);
        let rest: Vec<Mapped> = rest.collect();
        if rest.len() < self.memory.table.len() && self.set_table(rest).is_err() {
            // What was unmapped must not be used in any case.
            self.memory.clear();
            self.publish();
        }
    }

    fn read(&mut self, region: u32, offset: u64, bytes: &mut [u8]) -> Result<(), Refused> {
        self.nic.read(area(region)?, offset, bytes);
        Ok(())
    }

    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        let area = area(region)?;
        let effects = self.with_host(|nic, host| nic.write(area, offset, bytes, host));
        self.carry_out(effects);
        if area == Area::Config {
            self.select_interrupts();
        }
        Ok(())
    }

    fn set_eventfd(&mut self, irq: Irq, action: IrqAction, fd: Option<OwnedFd>) -> Result<(), Refused> {
        check_eventfd(fd.as_ref())?;
        match (action, fd) {
            (IrqAction::Trigger, fd) => {
                let key = (irq.index, irq.vector);
                let is_new = fd.is_some();
                let former = match fd.map(Arc::new) {
                    Some(fd) => {
                        let signal = Signal::charged_to(fd.clone(), &self.budget);
                        let signal = Arc::new(signal.map_err(|error| refused(errno::EIO, error))?);
                        self.calls.insert(key, Call { fd, signal })
                    }
                    None => self.calls.remove(&key),
                };
                if is_new || former.is_some() {
                    if irq.index == pci::INTX {
                        self.masked.store(false, Ordering::SeqCst);
                    }
                    if Some(irq.index) == self.active {
                        self.publish();
                        self.repeat();
                    }
                }
            }
            (IrqAction::Unmask, fd) if irq.index == pci::INTX => {
                if let (Some(epoll), Some(former)) = (&self.epoll, self.unmask.take()) {
                    // The former one may be closed already.
                    let _ = epoll.delete(former.as_fd());
                }
                if let (Some(epoll), Some(fd)) = (&self.epoll, fd) {
                    // Edge-triggered. Attack: a descriptor that is always readable would keep the thread busy.
                    epoll.add_edge(fd.as_fd(), UNMASK).map_err(|error| refused(errno::EIO, error))?;
                    self.unmask = Some(fd);
                }
            }
            (_, None) => {}
            (_, Some(_)) => return Err(refused(errno::ENOTSUP, "only the pin is unmasked by an eventfd")),
        }
        Ok(())
    }

    fn act(&mut self, irq: Irq, action: IrqAction) {
        match action {
            IrqAction::Mask => self.masked.store(true, Ordering::SeqCst),
            IrqAction::Unmask => self.unmask(),
            IrqAction::Trigger => {
                if let Some(call) = self.calls.get(&(irq.index, irq.vector)) {
                    call.signal.send();
                }
            }
        }
    }

    fn reset(&mut self) {
        self.with_host(N::reset);
        self.masked.store(false, Ordering::SeqCst);
        self.select_interrupts();
    }
}
