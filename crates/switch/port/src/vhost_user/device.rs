//! The vhost-user device: applies a session's messages to a guest's memory and rings.

mod granted;
mod session;
mod shared;

use session::Session;
pub(crate) use shared::{Mapped, SharedMemory};

use super::backend::BUSY;
use super::control::{Control, Settings};
use super::iommu::{Iommu, MissQueue, Outbox, Wakeup};
use super::rarp::Rarp;
use super::rx::VringRx;
use super::tx::VringTx;
use super::vring::{Vring, VringError, VringState, Which};
use super::{Config, config_space};
use crate::session_loop::Served;
use crate::{Doorbell, PeerRecords, Queue};
use ringway_frame::{Counters, CountersRef};
use ringway_host::{Budget, Epoll, EventFd, FdKind, HostError, Keep, Signal};
use ringway_mem::iotlb::Lookaside;
use ringway_mem::{Published, Retired};
use ringway_vhost_user::feature::virtio;
use ringway_vhost_user::{
    Device, Iotlb, Kick, Log as LogPlace, MemoryRegion, Offer, Packet, Refused, Ring, SharedRegion,
};
use ringway_virtq::PackedRing;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A packed ring's descriptor flag (virtio 1.3, 2.8.1).
const DESC_F_USED: u16 = 1 << 15;
/// Keys of the descriptors in the session's epoll.
const SOCKET: u64 = 0;
const KICK: u64 = 1;
const WAKEUP: u64 = 2;
/// First key of the kick descriptors of RX rings; the ring's index is added to it.
const RECEIVES: u64 = 16;

/// One ring: its description as workers see it, and as the front-end set it up.
struct RingSlot {
    published: Arc<Published<Option<Vring>>>,
    /// The published description, for the session thread.
    described: Arc<Option<Vring>>,
    state: Arc<VringState>,
    /// The front-end's settings, while the ring is started.
    ring: Option<Ring>,
    /// Whether the ring is started, but the guest's IOMMU has not granted its addresses.
    is_waiting: bool,
    /// Whether the ring is started, but its start position is not determined yet.
    is_fresh: bool,
    /// Whether it starts where a former data path ended.
    resumes: bool,
    /// Whether the ring was served in this session.
    was_served: bool,
    /// IOTLB misses of the ring's queue.
    miss_queue: Arc<MissQueue>,
    /// Its kick descriptor, while the session thread watches it.
    kick: Option<Arc<OwnedFd>>,
    /// Consecutive prefetches that found translations of all posted buffers.
    known: u32,
}

/// A guest, as far as its front-end has described it.
pub struct Guest {
    config: Config,
    pub(super) offer: Offer,
    /// Keeps the sessions of the port of this name.
    pub(super) keeper: Option<(String, Arc<dyn PeerRecords>)>,
    doorbells: Vec<Arc<dyn Doorbell>>,
    counters: Vec<CountersRef>,
    features: u64,
    shared: SharedMemory,
    session: Session,
    iotlb: DeviceIotlb,
    slots: Vec<RingSlot>,
    /// Former descriptions of rings, while several are replaced together.
    held: Option<Vec<Retired<Option<Vring>>>>,
    /// Set while we serve the control queue.
    control: Option<Control>,
    settings: Settings,
    /// Whether to notify the driver of a configuration change.
    config_change_pending: bool,
    /// The front-end's limit for frames to the guest.
    mtu: Option<u16>,
    rarp: Option<Rarp>,
    /// Whether a session is restored that a former data path began.
    is_resuming: bool,
}

/// The IOTLB of a device behind an IOMMU, and pending work for it.
#[derive(Default)]
struct DeviceIotlb {
    /// Present while `VIRTIO_F_ACCESS_PLATFORM` is negotiated.
    iommu: Option<Iommu>,
    /// Messages for the back-end channel while there is no IOMMU.
    outbox: Outbox,
    aside: Option<Box<Lookaside>>,
    /// Whether the IOTLB was updated since the rings were last checked.
    changed: bool,
    /// RX rings that were kicked since their last prefetch.
    kicked: Vec<usize>,
    /// Whether so much was invalidated that translations of posted buffers must be prefetched again.
    ahead: bool,
}

impl DeviceIotlb {
    /// What waits for room on the back-end channel.
    fn outbox(&mut self) -> &mut Outbox {
        self.iommu.as_mut().map_or(&mut self.outbox, |iommu| &mut iommu.outbox)
    }
}

impl Guest {
    pub(super) fn new(
        config: Config,
        offer: Offer,
        doorbells: Vec<Arc<dyn Doorbell>>,
        counters: Vec<CountersRef>,
    ) -> (Guest, Vec<Queue>) {
        let wakeup = Wakeup::default();
        let alarm = wakeup.clone();
        let budget = Arc::new(Budget::new(move || alarm.get().into_iter().for_each(EventFd::signal)));
        let first = counters.first().cloned().unwrap_or_else(CountersRef::private);
        let state = |index: usize| {
            let which = if index.is_multiple_of(2) { Which::Rx } else { Which::Tx };
            let (counters, which) = match counters.get(index / 2) {
                Some(counters) if index < 2 * usize::from(offer.queues) => (counters.clone(), which),
                _ => (first.clone(), Which::Control),
            };
            VringState::new(&budget, counters, which)
        };
        let slot = |index: u16| RingSlot {
            published: Arc::new(Published::new(Arc::new(None))),
            described: Arc::new(None),
            state: Arc::new(state(usize::from(index))),
            ring: None,
            is_waiting: false,
            is_fresh: false,
            resumes: false,
            was_served: false,
            miss_queue: Arc::new(MissQueue::new(wakeup.clone())),
            kick: None,
            known: 0,
        };
        let slots: Vec<RingSlot> = (0..offer.rings).map(slot).collect();
        let pairs = slots.as_chunks().0.iter().zip(counters.clone()).map(|([rx, tx], counters)| Queue {
            rx: Box::new(VringRx::new(rx.published.clone(), counters.clone())),
            tx: Box::new(VringTx::new(tx.published.clone(), counters)),
        });
        let queues = pairs.collect();
        let guest = Guest {
            config,
            offer,
            keeper: None,
            doorbells,
            counters,
            features: 0,
            shared: SharedMemory::new(config.memory),
            session: Session::new(wakeup, budget),
            iotlb: DeviceIotlb::default(),
            slots,
            held: None,
            control: None,
            settings: Settings { pairs: config.queues, mac: None, announce: false },
            config_change_pending: false,
            mtu: None,
            rarp: None,
            is_resuming: false,
        };
        (guest, queues)
    }

    /// Begins a session on `socket`.
    pub(super) fn begin_session(&mut self, socket: BorrowedFd<'_>) -> Result<(), HostError> {
        self.session.begin(socket)
    }

    /// Forgets what was recorded about the rings of a former session.
    pub(super) fn forget_places(&self) {
        self.slots.iter().for_each(|slot| slot.state.forget());
        self.first_counters(|counters| counters.settings.store(0, Relaxed));
    }

    /// Until it ends with `false`, rings start where a former data path ended, and settings are those that it recorded.
    pub(super) fn set_resuming(&mut self, resuming: bool) {
        self.is_resuming = resuming;
        // Nobody uses former descriptions of rings that are restored: workers' turns are waited for once.
        match self.held.take() {
            None if resuming => self.held = Some(Vec::new()),
            retired => ringway_host::reclaim_all(retired.unwrap_or_default()),
        }
        let mut word = 0;
        self.first_counters(|counters| word = counters.settings.load(Relaxed));
        if resuming && let Some(settings) = Settings::from_word(word, self.config.queues) {
            self.settings = settings;
        }
    }

    /// The session's state in the port's counters.
    pub(super) fn session_state(&self) -> u64 {
        self.counters.first().map_or(0, |counters| counters.session.load(Acquire))
    }

    /// Stores the session's state in the port's counters. Only during a session.
    pub(super) fn set_session(&self, state: u64) {
        self.first_counters(|counters| counters.session.store(state, Release));
    }

    fn first_counters(&self, with: impl FnOnce(&Counters)) {
        self.counters.first().inspect(|counters| with(counters));
    }

    /// The descriptors of the session that belong to no ring.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let log = self.shared.log.call.iter().map(|call| call.as_fd());
        log.chain(self.session.channel.iter().map(AsFd::as_fd))
    }

    /// Clears all state of the front-end. Its rings are stopped already.
    pub(super) fn clear(&mut self) {
        self.features = 0;
        self.shared.clear();
        self.session.end();
        self.iotlb = DeviceIotlb::default();
        (self.mtu, self.rarp, self.config_change_pending) = (None, None, false);
        self.slots.iter_mut().for_each(|slot| (slot.kick, slot.was_served) = (None, false));
    }

    /// Answers commands of the control queue.
    pub(super) fn serve_control(&mut self, counters: &Counters) {
        let (before, most) = (self.settings.pairs, self.pairs());
        let Some(control) = &mut self.control else { return };
        let editor = self.iotlb.iommu.as_ref().map(|iommu| &iommu.editor);
        let more = control.serve(&mut self.settings, most, counters, editor);
        counters.settings.store(self.settings.to_word(), Relaxed);
        if self.settings.pairs != before {
            self.publish_receivers();
        }
        if more {
            // The kick descriptor is never read, so watching it again reports it again.
            let kick = self.session.kick.clone();
            self.session.unwatch();
            let _ = kick.map(|kick| self.session.watch(kick));
        }
    }

    /// Whether to notify the driver of a configuration change; clears the flag.
    pub(super) fn take_config_change(&mut self) -> bool {
        std::mem::take(&mut self.config_change_pending)
    }

    /// Number of negotiated queue pairs.
    fn pairs(&self) -> u16 {
        if self.features & virtio::NET_MQ != 0 { self.config.queues } else { 1 }
    }

    /// Index of the control queue's ring: behind those of the queue pairs (virtio 1.3, 5.1.2).
    fn control_ring(&self) -> Option<usize> {
        (self.features & virtio::NET_CTRL_VQ != 0).then_some(2 * usize::from(self.pairs()))
    }

    /// Whether the driver uses a queue pair. If we don't serve the control queue, the driver tells its front-end, which
    /// enables and disables rings.
    fn is_wanted(&self, pair: usize) -> bool {
        self.control.is_none() || pair < usize::from(self.settings.pairs)
    }

    /// Number of queue pairs that receive, counted from the first without a gap.
    pub(super) fn receiving(&self) -> u16 {
        let open = |pair: &u16| {
            let pair = usize::from(*pair);
            let ring = self.slots.get(2 * pair).and_then(|slot| slot.ring.as_ref());
            ring.is_some_and(|ring| ring.enabled) && self.is_wanted(pair)
        };
        (0..self.pairs()).take_while(open).count() as u16
    }

    /// Starts the control queue; `goes_on`: whether its driver was running before.
    fn begin_control(&mut self, goes_on: bool) {
        if goes_on {
            // Peers may reach the guest through another port now.
            self.ask_to_announce();
        } else {
            self.settings = Settings { pairs: 1, mac: None, announce: false };
        }
    }

    /// Asks the driver to announce itself, if `VIRTIO_NET_F_GUEST_ANNOUNCE` is negotiated.
    fn ask_to_announce(&mut self) {
        if self.features & virtio::NET_GUEST_ANNOUNCE != 0 {
            (self.settings.announce, self.config_change_pending) = (true, true);
        }
    }

    /// Republishes the RX rings after the number in use or the frame size limit changed.
    fn publish_receivers(&mut self) {
        let control = self.control_ring();
        self.publish_each((0..self.slots.len()).step_by(2).filter(|index| control != Some(*index)));
    }

    /// Publishes those of the given rings that are started. Attack: messages that affect every ring; workers' turns
    /// are waited for once for all of them.
    fn publish_each(&mut self, indices: impl Iterator<Item = usize>) {
        let outer = self.held.replace(Vec::new());
        for index in indices {
            // A ring outside the new memory rests until the front-end sets another address.
            if self.slots[index].ring.is_some() && self.publish(index).is_err() {
                self.park(index);
            }
        }
        let retired = self.held.take().unwrap_or_default();
        match outer {
            Some(mut all) => {
                all.extend(retired);
                self.held = Some(all);
            }
            None => ringway_host::reclaim_all(retired),
        }
    }

    /// Turns the carrier on or off: without one, no ring is used. Returns whether this is a change.
    pub(super) fn set_carrier(&mut self, carrier: bool) -> bool {
        if std::mem::replace(&mut self.config.carrier, carrier) == carrier {
            return false;
        }
        let control = self.control_ring();
        self.publish_each((0..self.slots.len()).filter(|index| control != Some(*index)));
        self.doorbells.iter().for_each(|doorbell| doorbell.wake());
        true
    }

    /// Whether there is a carrier.
    pub(super) fn has_carrier(&self) -> bool {
        self.config.carrier
    }

    /// A ring that its driver broke, and the violation.
    pub(super) fn broken(&self) -> Option<(usize, String)> {
        let faults = self.slots.iter().enumerate();
        faults
            .filter(|(_, slot)| slot.ring.is_some())
            .find_map(|(index, slot)| Some((index, slot.state.fault()?.to_string())))
    }

    /// Maps a region. Behind an IOMMU its file is kept open, since a scattered ring is mapped once more.
    fn map(&mut self, region: SharedRegion) -> Result<Mapped, Refused> {
        let keep = if self.iotlb.iommu.is_some() { Keep::File } else { Keep::No };
        self.shared.map(region, keep)
    }

    /// Sends a request of ours, which may be lost: the front-end's channel may be full.
    pub(super) fn send_request(&mut self, packet: &Packet) {
        let Some(channel) = &self.session.channel else { return };
        // Queued behind pending requests, of which the first may be partly sent.
        let outbox = self.iotlb.outbox();
        outbox.post(packet);
        self.session.budget.wake(|| outbox.send(channel.as_fd()));
    }

    /// Publishes a ring's current description; when this returns, no worker uses the former one.
    fn publish(&mut self, index: usize) -> Result<(), Refused> {
        let vring = self.describe(index).map_err(|error| Refused(format!("ring {index}: {error}")))?;
        self.slots[index].is_waiting = vring.as_ref().is_some_and(|vring| !vring.is_placed());
        if self.slots[index].is_waiting {
            self.want_ring(index);
        }
        if self.control_ring() == Some(index) {
            self.park(index);
            self.control = vring.filter(Vring::is_placed).map(Control::new);
            return Ok(());
        }
        self.show(index, vring);
        Ok(())
    }

    /// Replaces the published description. No worker uses the former one when this returns or, if `held` collects
    /// former ones, when those are reclaimed.
    fn show(&mut self, index: usize, vring: Option<Vring>) {
        let slot = &mut self.slots[index];
        slot.described = Arc::new(vring);
        let former = slot.published.replace(slot.described.clone());
        match &mut self.held {
            Some(held) => held.push(former),
            None => drop(ringway_host::reclaim(former)),
        }
    }

    fn describe(&self, index: usize) -> Result<Option<Vring>, VringError> {
        let slot = &self.slots[index];
        let Some(ring) = &slot.ring else { return Ok(None) };
        let mut ring = ring.clone();
        let is_rx = index.is_multiple_of(2) && self.control_ring() != Some(index);
        // Pairs that the driver has not requested get no frames (virtio 1.3, 5.1.6.5.6).
        ring.enabled &= self.config.carrier && (!is_rx || self.is_wanted(index / 2));
        let vring = Vring::new(self.space(index), self.features, &ring, &self.shared.log, &slot.state)?;
        let vring = vring.with_policy(self.config.policy);
        Ok(Some(match index {
            1 => vring.with_rarp(self.rarp),
            _ if is_rx => vring.with_mtu(self.mtu),
            _ => vring,
        }))
    }

    /// Withdraws the ring from its worker, but keeps the front-end's settings.
    fn park(&mut self, index: usize) {
        if self.control_ring() == Some(index) {
            self.control = None;
        }
        self.show(index, None);
    }

    /// Watches the ring's kick descriptor, then has the ring polled once in case a kick already arrived.
    fn listen(&mut self, index: usize, ring: &Ring) -> Result<(), Refused> {
        if self.control_ring() == Some(index) {
            self.session.unwatch();
            if let Kick::Fd(kick) = &ring.kick {
                self.session.watch(kick.clone())?;
            }
            return Ok(());
        }
        self.listen_ahead(index, ring);
        let Some(doorbell) = self.doorbell(index) else { return Ok(()) };
        match &ring.kick {
            Kick::Fd(kick) => doorbell.watch(kick.clone()),
            Kick::Poll | Kick::Unset => doorbell.unwatch(),
        }
        doorbell.wake();
        Ok(())
    }

    /// The doorbell of a TX ring. No worker waits for kicks of an RX ring: a worker with frames for it polls it.
    fn doorbell(&self, index: usize) -> Option<&Arc<dyn Doorbell>> {
        if index % 2 == 1 { self.doorbells.get(index / 2) } else { None }
    }

    /// Replaces the memory table. `grows`: all former regions stay.
    fn set_table(&mut self, table: Vec<Mapped>, grows: bool) -> Result<(), Refused> {
        let former = self.shared.replace(table)?;
        match &mut self.iotlb.iommu {
            Some(iommu) if grows => iommu.extend(&self.shared.memory),
            // Granted translations may point elsewhere now.
            Some(iommu) => iommu.forget(&self.shared.memory),
            None => {}
        }
        self.iotlb.ahead = true;
        // The former memory goes when the last ring that was published with it is reclaimed.
        self.publish_each(0..self.slots.len());
        drop(former);
        Ok(())
    }

    /// Starts serving a ring whose addresses are granted.
    fn begin(&mut self, index: usize, ring: &Ring) -> Result<(), Refused> {
        if std::mem::take(&mut self.slots[index].resumes) {
            (self.slots[index].is_fresh, self.slots[index].was_served) = (false, true);
            self.slots[index].ring = Some(ring.clone());
            let vring = self.describe(index);
            vring.iter().flatten().for_each(Vring::resume);
        } else if std::mem::take(&mut self.slots[index].is_fresh) {
            let position = self.position(index, ring);
            self.slots[index].was_served = true;
            if self.control_ring() == Some(index) {
                self.begin_control(position != Ring::first(self.features));
            }
            // No worker sees the ring while it is stopped, so nobody else uses its state now.
            self.slots[index].state.restart(position, self.features);
        }
        self.slots[index].ring = Some(ring.clone());
        if let Err(refused) = self.publish(index) {
            self.slots[index].ring = None;
            return Err(refused);
        }
        if self.control_ring() == Some(index) {
            self.publish_receivers();
        }
        self.listen(index, ring)
    }

    /// The available position at which a ring starts.
    fn position(&self, index: usize, ring: &Ring) -> u16 {
        let Some(addresses) = ring.addresses else { return 0 };
        if self.features & virtio::RING_PACKED == 0 {
            // The used index follows two bytes of flags (virtio 1.3, 2.7.8). DPDK's virtio-user sets base 0 even to
            // resume a ring that a former back-end served, so the used index replaces a base of 0; in a new ring it is
            // 0 as well.
            let used = || self.word(addresses.used.checked_add(2)?);
            return ring.base.filter(|base| *base != 0).or_else(used).unwrap_or_default();
        }
        let first = Ring::first(self.features);
        let base = ring.base.unwrap_or(first);
        if base != 0 && base != first {
            return base;
        }
        // A former back-end may have served the ring and crashed: the front-end then knows only where the driver began.
        // Control commands are chains, and buffers used in order leave no trace: neither shows a position.
        let shows = self.features & virtio::IN_ORDER == 0 && self.control_ring() != Some(index);
        if shows && !self.slots[index].was_served {
            return self.resumed(ring.size, addresses.descriptors);
        }
        if base != 0 {
            return base;
        }
        // User-Mode Linux sets base 0, without the wrap counter, for a new ring. The first descriptor's flags tell a
        // new ring from one that wrapped: the descriptor was used once before the wrap counter can be 0 there.
        let flags = addresses.descriptors.checked_add(14).and_then(|flags| self.word(flags));
        if flags.unwrap_or_default() & DESC_F_USED == 0 { first } else { base }
    }

    /// The position of a packed ring that a former back-end served.
    fn resumed(&self, size: u16, descriptors: u64) -> u16 {
        let word = |index: u16, offset| {
            let at = descriptors.checked_add(16 * u64::from(index) + offset);
            at.and_then(|at| self.word(at)).unwrap_or_default()
        };
        // Attack: a large ring takes long to read. Each ring is read once a session, on the session's thread.
        PackedRing::resume(size, &|index| (word(index, 12), word(index, 14))).to_base(true)
    }
}

/// Refuses a kick descriptor unless it is an eventfd. Attack: a pipe that is not read fills up and then no longer wakes
/// the worker; a socket may be the front-end's own end of the session, which would then never be seen to close.
fn check_kick(ring: &Ring) -> Result<(), Refused> {
    match &ring.kick {
        Kick::Fd(kick) if FdKind::of(kick.as_fd()) != Some(FdKind::EventFd) => {
            Err(Refused("the descriptor for kicks is no eventfd".into()))
        }
        Kick::Fd(_) | Kick::Poll | Kick::Unset => Ok(()),
    }
}

impl Served for Guest {
    /// The session's epoll: readable while a message, a command or other work may be pending.
    fn epoll(&self) -> Option<&Epoll> {
        self.session.epoll.as_ref()
    }

    fn budget(&self) -> &Arc<Budget> {
        &self.session.budget
    }

    /// Records the RX rings that were kicked. Each kick is reported once; prefetching follows.
    fn drain(&mut self) {
        // Until everything is kept that is received from here on, another process can't go on with the session.
        self.set_session(BUSY);
        let (Some(epoll), kicked) = (&self.session.epoll, &mut self.iotlb.kicked) else { return };
        let mut rang = false;
        epoll.wait(Some(0), |key| {
            rang |= key == WAKEUP;
            kicked.extend(key.checked_sub(RECEIVES).map(|index| index as usize));
        });
        if rang {
            self.session.wakeup.get().map(|wakeup| wakeup.clear());
        }
    }

    fn memory(&mut self) -> Option<&mut SharedMemory> {
        Some(&mut self.shared)
    }

    /// Whether both rings of any queue pair are enabled.
    fn is_running(&self) -> bool {
        let runs = |slot: &RingSlot| slot.ring.as_ref().is_some_and(|ring| ring.enabled);
        self.slots.as_chunks::<2>().0.iter().any(|pair| pair.iter().all(runs))
    }
}

impl Device for Guest {
    fn set_features(&mut self, features: u64) -> Result<(), Refused> {
        let before = self.control_ring();
        let logs = (self.features ^ features) & virtio::LOG_ALL != 0;
        self.features = features;
        self.set_iommu();
        if before != self.control_ring() {
            // Running rings are republished next, each at its new address.
            self.control = None;
            self.session.unwatch();
        }
        if logs {
            // This includes rings whose other settings can't be applied.
            self.publish_each(0..self.slots.len());
        }
        Ok(())
    }

    fn set_memory(&mut self, table: Vec<SharedRegion>) -> Result<(), Refused> {
        let table = table.into_iter().map(|region| self.map(region));
        let table = table.collect::<Result<_, _>>()?;
        self.set_table(table, false)
    }

    fn add_region(&mut self, region: SharedRegion) -> Result<(), Refused> {
        let new = self.map(region)?;
        // QEMU before 8.0 adds each region once per queue pair, and removes it as often.
        let entry = new.entry;
        let present = self.shared.table.iter().filter(|mapped| mapped.entry != entry).map(Mapped::again);
        self.set_table(present.chain([new]).collect(), true)
    }

    fn remove_region(&mut self, region: MemoryRegion) -> Result<(), Refused> {
        let is_it = |mapped: &Mapped| {
            let entry = mapped.entry;
            (entry.guest, entry.user, entry.size) == (region.guest, region.user, region.size)
        };
        if !self.shared.table.iter().any(is_it) {
            return Ok(());
        }
        let rest = self.shared.table.iter().filter(|mapped| !is_it(mapped)).map(Mapped::again);
        self.set_table(rest.collect(), false)
    }

    fn start(&mut self, index: usize, ring: &Ring) -> Result<(), Refused> {
        check_kick(ring)?;
        self.slots[index].is_fresh = true;
        self.slots[index].resumes = self.is_resuming && self.slots[index].state.resume();
        if self.is_granted(ring) {
            return self.begin(index, ring);
        }
        if !self.slots[index].resumes {
            // Clears a fault of a former driver, though the ring's start position is not determined yet.
            self.slots[index].state.restart(ring.base.unwrap_or(Ring::first(self.features)), self.features);
        }
        self.slots[index].ring = Some(ring.clone());
        self.publish(index).inspect_err(|_| self.slots[index].ring = None)
    }

    fn update(&mut self, index: usize, ring: &Ring) -> Result<(), Refused> {
        check_kick(ring)?;
        let former = self.slots[index].ring.replace(ring.clone());
        if self.slots[index].is_fresh && self.is_granted(ring) {
            return self.begin(index, ring);
        }
        if let Err(refused) = self.publish(index) {
            // Attack: invalid addresses for a running ring. It keeps running at the former ones, and must be
            // found there when they are unmapped.
            self.slots[index].ring = former;
            return Err(refused);
        }
        self.listen(index, ring)
    }

    fn stop(&mut self, index: usize) -> u16 {
        if let Some(doorbell) = self.doorbell(index) {
            doorbell.unwatch();
        }
        if self.control_ring() == Some(index) {
            self.session.unwatch();
        }
        self.unlisten(index);
        let ring = self.slots[index].ring.take();
        let described = self.slots[index].described.clone();
        self.park(index);
        if let Some(vring) = &*described {
            vring.publish_held_back();
        }
        self.slots[index].is_waiting = false;
        self.set_iommu();
        let resumes = std::mem::take(&mut self.slots[index].resumes);
        match ring.filter(|_| std::mem::take(&mut self.slots[index].is_fresh) && !resumes) {
            // The ring was started but never served.
            Some(ring) => ring.base.unwrap_or(Ring::first(self.features)),
            None => self.slots[index].state.position(),
        }
    }

    fn translate(&mut self, change: Iotlb) -> Result<bool, Refused> {
        self.change(change)
    }

    fn read_config(&self, offset: u32, bytes: &mut [u8]) {
        let announce = self.settings.announce && self.features & virtio::NET_GUEST_ANNOUNCE != 0;
        config_space::read(&self.config, self.settings.mac, announce, offset, bytes);
    }

    fn set_mtu(&mut self, mtu: u16) -> Result<(), Refused> {
        match self.config.mtu {
            Some(most) if mtu > most => {
                Err(Refused(format!("an MTU of {mtu} is more than the port's {most}")))
            }
            _ => {
                self.mtu = Some(mtu);
                self.publish_receivers();
                Ok(())
            }
        }
    }

    fn set_channel(&mut self, channel: OwnedFd) {
        let usable = matches!(FdKind::of(channel.as_fd()), Some(FdKind::Socket | FdKind::Pipe));
        self.session.channel = usable.then_some(channel);
        // The former channel may have got only part of a request.
        self.iotlb.outbox().clear();
        self.iotlb.iommu.iter_mut().for_each(Iommu::ask_anew);
    }

    fn set_log(&mut self, place: LogPlace, file: OwnedFd) -> Result<(), Refused> {
        let former = self.shared.log.replace(&self.shared.account, place, &file);
        let former = former.map_err(|error| Refused(format!("the dirty log: {error}")))?;
        self.publish_each(0..self.slots.len());
        if former.is_none() {
            let described = self.slots.iter().filter_map(|slot| Option::as_ref(&slot.described));
            let rings = described.chain(self.control.as_ref().map(Control::vring));
            rings.filter_map(|vring| vring.logging.as_ref()).for_each(|logging| logging.mark_ring());
        }
        Ok(())
    }

    fn set_log_call(&mut self, call: OwnedFd) -> Result<(), Refused> {
        let call = Arc::new(call);
        // Attack: as for call descriptors.
        let refused = |error| Refused(format!("the descriptor for events of the log is {error}"));
        let call = Signal::charged_to(call, &self.session.budget).map_err(refused)?;
        self.shared.log.call = Some(Arc::new(call));
        self.publish_each(0..self.slots.len());
        Ok(())
    }

    fn announce(&mut self, address: [u8; 6]) {
        self.rarp = Some(Rarp::of(address));
        if self.slots[1].ring.is_some() && self.publish(1).is_ok() {
            self.doorbells.first().inspect(|doorbell| doorbell.wake());
        }
        self.ask_to_announce();
    }

    fn needs_reset(&self) -> bool {
        self.broken().is_some()
    }
}
