//! A ring's description as workers see it, and the state that persists from one description to the next.

#[cfg(test)]
mod tests;

use super::dirty_log::{Log, Logging};
use super::iommu::Granted;
use super::rarp::Rarp;
use ringway_frame::{Caps, Counters, CountersRef, LARGEST, Needs, Reason, RingPlace, add};
use ringway_host::{Account, Budget, Signal, SignalError};
use ringway_mem::iotlb::{Access, Editor};
use ringway_mem::{DirtyLog, Memory, OwnedSpan, Region};
use ringway_ring::{Policy, View};
use ringway_vhost_user::feature::virtio;
use ringway_vhost_user::{Kick, Ring as RingConfig};
use ringway_virtq::{
    Areas, Cursor, Layout, LayoutError, PackedRing, Progress, QueueError, Ring, RxHeader, Signals, SplitRing,
};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bytes of `virtio_net_hdr` in its legacy form, without `num_buffers` (virtio 1.3, 5.1.6).
const LEGACY_HEADER: u32 = 10;
/// Bytes of `virtio_net_hdr` with `num_buffers`.
const HEADER: u32 = 12;
/// Largest frame in bytes for which a driver has buffers, unless features permit more: 1500 bytes, an Ethernet header
/// and a VLAN tag (virtio 1.3, 5.1.6.3.1).
const PLAIN: u32 = 1518;
/// Bytes of an Ethernet header and a VLAN tag.
pub(super) const LINK: u32 = 18;

/// Why a ring can't be used as described. The text is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum VringError {
    /// The ring's address is not set.
    #[error("the ring's address is not set")]
    Unplaced,
    /// A part of the ring lies outside the shared memory.
    #[error("the {0} is outside the shared memory")]
    Outside(&'static str),
    /// The call or error descriptor can't be used for signalling.
    #[error("a descriptor for interrupts or errors is {0}")]
    Signal(SignalError),
    /// A part of the ring is scattered in guest memory and can't be mapped contiguously.
    #[error("it is scattered in guest memory, and not in whole pages")]
    Scattered,
    /// The parts don't form a valid ring.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// Which of a port's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Rx,
    Tx,
    Control,
}

/// Bits of a recorded position: that there is one, and that its used position is valid.
const RECORDED: u64 = 1 << 48;
const USED_VALID: u64 = 1 << 49;

/// State that a ring's queue keeps for the session thread, for the ring's next description, and for a data path that
/// is started again. In cache lines of its own: a worker reads and writes it every burst.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct VringState {
    /// Has the place of the ring, which outlives this process. Its position has the available position in bits 0 to
    /// 15, the used one in bits 16 to 31 and the visible one in bits 32 to 47, each in the format of a vring base.
    counters: CountersRef,
    which: Which,
    /// The violation that broke the ring, as [`QueueError`]'s number; 0: none.
    fault: AtomicU8,
    /// Process-wide count of lost mappings at the last check that found none of this guest's lost.
    losses: AtomicU64,
    /// The budget for waking the guest.
    budget: Arc<Budget>,
}

impl VringState {
    /// State of a ring whose wake-ups of the guest are charged to `budget`.
    pub(super) fn new(budget: &Arc<Budget>, counters: CountersRef, which: Which) -> VringState {
        let (fault, losses) = (AtomicU8::new(0), AtomicU64::new(0));
        VringState { counters, which, fault, losses, budget: budget.clone() }
    }

    #[inline]
    fn place(&self) -> &RingPlace {
        match self.which {
            Which::Rx => &self.counters.rx_place,
            Which::Tx => &self.counters.tx_place,
            Which::Control => &self.counters.control_place,
        }
    }

    /// Forgets the position, which belonged to a former front-end.
    pub(super) fn forget(&self) {
        self.place().position.store(0, Ordering::Relaxed);
    }

    /// Whether a former data path recorded the position; clears the fault that it may have found, if so.
    pub(super) fn resume(&self) -> bool {
        let is_there = self.place().position.load(Ordering::Acquire) & RECORDED != 0;
        if is_there {
            self.fault.store(0, Ordering::Release);
        }
        is_there
    }

    #[inline]
    fn position_word(&self) -> u64 {
        self.place().position.load(Ordering::Relaxed)
    }

    /// Restarts the ring at `position` and clears its fault.
    pub(super) fn restart(&self, position: u16, features: u64) {
        // A packed ring's used position starts equal to its available position; a split ring's used index is in its
        // memory.
        let packed = features & virtio::RING_PACKED != 0;
        let position = u64::from(position);
        let used = if packed { USED_VALID } else { 0 };
        self.place().first.store(0, Ordering::Relaxed);
        let word = position | position << 16 | position << 32 | used | RECORDED;
        self.place().position.store(word, Ordering::Release);
        self.fault.store(0, Ordering::Release);
    }

    /// The available position: descriptors made available from here on have not been used.
    pub(super) fn position(&self) -> u16 {
        self.position_word() as u16
    }

    /// Marks the ring as broken by `error`.
    pub(super) fn fail(&self, error: QueueError) {
        self.fault.store(error as u8, Ordering::Release);
    }

    /// The driver's violation that broke the ring, if any.
    pub(super) fn fault(&self) -> Option<QueueError> {
        QueueError::from_number(self.fault.load(Ordering::Acquire))
    }

    #[inline]
    fn store(&self, progress: Progress, packed: bool) {
        let [at, used, visible] = [progress.at, progress.used, progress.visible].map(|at| at.to_base(packed));
        let place = self.place();
        if packed {
            place.first.store(progress.first, Ordering::Relaxed);
        }
        let positions = u64::from(at) | u64::from(used) << 16 | u64::from(visible) << 32;
        // After the used entries were written, and before they are published.
        place.position.store(positions | RECORDED | USED_VALID, Ordering::Release);
    }
}

/// One description of a ring; never changed, only replaced.
#[derive(Debug)]
pub(super) struct Vring {
    /// Unique to this description.
    pub(super) generation: u64,
    memory: Arc<Memory>,
    /// The guest's IOMMU, if it has one.
    pub(super) iommu: Option<Granted>,
    layout: Layout,
    /// Descriptor area, driver area, device area; `None` until the guest's IOMMU has granted all three.
    areas: Option<[OwnedSpan; 3]>,
    call: Option<Signal>,
    err: Option<Signal>,
    /// Dirty logging, while it is enabled.
    pub(super) logging: Option<Box<Logging>>,
    state: Arc<VringState>,
    /// Whether frames pass.
    pub(super) enabled: bool,
    /// Whether buffers are used in order.
    pub(super) in_order: bool,
    /// Whether the driver never kicks, so that the ring is always polled.
    pub(super) polled: bool,
    /// Offloads that the driver may request of us.
    pub(super) granted: Needs,
    /// Offloads and frame sizes that the driver accepts.
    pub(super) caps: Caps,
    /// The layout of frames in the driver's buffers.
    pub(super) rx_header: RxHeader,
    /// When to notify the driver.
    pub(super) policy: Policy,
    /// Announcement that is sent once on the guest's behalf.
    pub(super) rarp: Option<Rarp>,
}

/// Address space of a ring and of its buffers.
pub(super) enum Space<'a> {
    /// Ring addresses are the front-end's virtual addresses, buffer addresses guest-physical ones.
    Direct(&'a Arc<Memory>),
    /// Both are I/O virtual addresses that the guest's IOMMU translates.
    Granted(&'a Editor, Granted, &'a Account),
}

/// Address, length and required access of each part of a ring.
pub(super) fn parts(features: u64, config: &RingConfig) -> Result<[(u64, u32, Access); 3], VringError> {
    let lengths = layout(features, config).lengths()?;
    let at = config.addresses.ok_or(VringError::Unplaced)?;
    // The device writes a packed ring's descriptors.
    let descriptors = if features & virtio::RING_PACKED == 0 { Access::READ } else { Access::BOTH };
    Ok([
        (at.descriptors, lengths.descriptors, descriptors),
        (at.available, lengths.driver, Access::READ),
        (at.used, lengths.device, Access::BOTH),
    ])
}

fn layout(features: u64, config: &RingConfig) -> Layout {
    let has = |bits| features & bits != 0;
    Layout {
        packed: has(virtio::RING_PACKED),
        size: config.size,
        event_idx: has(virtio::EVENT_IDX),
        indirect: has(virtio::INDIRECT_DESC),
    }
}

impl Space<'_> {
    fn areas(&self, parts: [(u64, u32, Access); 3]) -> Result<Option<[OwnedSpan; 3]>, VringError> {
        match self {
            Space::Direct(memory) => {
                let names = ["descriptor area", "available ring", "used ring"];
                let keep = |index: usize| {
                    let (address, len, _) = parts[index];
                    memory.keep_user(address, len).ok_or(VringError::Outside(names[index]))
                };
                Ok(Some([keep(0)?, keep(1)?, keep(2)?]))
            }
            Space::Granted(editor, _, account) => {
                let mut kept = Vec::with_capacity(parts.len());
                for (iova, len, access) in parts {
                    let Some(parts) = editor.parts(iova, len, access) else { return Ok(None) };
                    let whole = editor.keep(iova, len, access);
                    kept.push(whole.map_or_else(|| gathered(account, &parts, len), Ok)?);
                }
                Ok(kept.try_into().ok())
            }
        }
    }
}

/// Maps a part of a ring once more, contiguously, if it is contiguous in I/O virtual addresses but scattered in guest
/// memory.
#[cold]
fn gathered(account: &Account, parts: &[(&Region, u64, u64)], len: u32) -> Result<OwnedSpan, VringError> {
    let region = ringway_host::stitch(account, parts).map_err(|_| VringError::Scattered)?;
    let memory = Memory::new(vec![region]).map_err(|_| VringError::Scattered)?;
    Arc::new(memory).keep_user(0, len).ok_or(VringError::Scattered)
}

impl Vring {
    /// The ring that a front-end described.
    pub(super) fn new(
        space: Space<'_>,
        features: u64,
        config: &RingConfig,
        log: &Log,
        state: &Arc<VringState>,
    ) -> Result<Vring, VringError> {
        static GENERATION: AtomicU64 = AtomicU64::new(1);
        let has = |bits| features & bits != 0;
        let parts = parts(features, config)?;
        let areas = space.areas(parts)?;
        let logging = Logging::of(log, &space, (features, config), (parts, areas.is_some()));
        let (memory, iommu) = match space {
            Space::Direct(memory) => (memory.clone(), None),
            Space::Granted(editor, granted, _) => (editor.shared().memory().clone(), Some(granted)),
        };
        // Attack: a full pipe or eventfd would block the worker.
        let signal = |fd: &Option<Arc<OwnedFd>>| {
            let signal = fd.clone().map(|fd| Signal::charged_to(fd, &state.budget));
            signal.transpose().map_err(VringError::Signal)
        };
        let mergeable = has(virtio::NET_MRG_RXBUF);
        let header = if mergeable || has(virtio::VERSION_1) { HEADER } else { LEGACY_HEADER };
        let vring = Vring {
            generation: GENERATION.fetch_add(1, Ordering::Relaxed),
            memory,
            iommu,
            layout: layout(features, config),
            areas,
            call: signal(&config.call)?,
            err: signal(&config.err)?,
            logging,
            state: state.clone(),
            enabled: config.enabled,
            in_order: has(virtio::IN_ORDER),
            polled: matches!(config.kick, Kick::Poll),
            granted: granted(features),
            caps: caps(features),
            rx_header: RxHeader { mergeable, header },
            policy: Policy::default(),
            rarp: None,
        };
        if vring.is_placed() {
            vring.ring().ok_or(LayoutError::Alignment)?;
        }
        Ok(vring)
    }

    /// Sets the ring's notification policy.
    pub(super) fn with_policy(self, policy: Policy) -> Vring {
        Vring { policy, ..self }
    }

    /// Makes the ring announce the guest, too.
    pub(super) fn with_rarp(self, rarp: Option<Rarp>) -> Vring {
        Vring { rarp, ..self }
    }

    /// Limits the ring's frames to IP packets of at most `mtu` bytes.
    pub(super) fn with_mtu(mut self, mtu: Option<u16>) -> Vring {
        if let Some(mtu) = mtu {
            self.caps.largest = self.caps.largest.min(u32::from(mtu) + LINK);
        }
        self
    }

    /// The guest's memory.
    #[inline]
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether the ring's addresses are resolved to guest memory.
    pub(super) fn is_placed(&self) -> bool {
        self.areas.is_some()
    }

    /// The ring in guest memory; always `Some` if the ring's addresses are resolved, since `new` checked the layout.
    #[inline]
    pub(super) fn ring(&self) -> Option<Ring<'_>> {
        let [descriptors, driver, device] = self.areas.as_ref()?.each_ref().map(OwnedSpan::span);
        let areas = Areas { descriptors, driver, device };
        if let Some(logging) = &self.logging {
            return logging.wrap(Ring::new(&self.layout, areas));
        }
        if self.layout.packed {
            PackedRing::new(&self.layout, areas).ok().map(Ring::Packed)
        } else {
            SplitRing::new(&self.layout, areas).ok().map(Ring::Split)
        }
    }

    /// The dirty log for frames and answers to commands, if they are logged.
    #[inline]
    pub(super) fn log(&self) -> Option<&DirtyLog> {
        self.logging.as_ref()?.buffers()
    }

    /// Signals the front-end, if writes are logged, that the ring was written.
    #[inline]
    pub(super) fn wrote(&self) {
        if let Some(logging) = &self.logging {
            logging.signal();
        }
    }

    /// Positions at which a queue starts: the available one and the used one.
    pub(super) fn places(&self) -> (Cursor, Cursor) {
        let Layout { packed, size, .. } = self.layout;
        let place = self.state.position_word();
        let at = Cursor::from_base(place as u16, packed, size);
        if place & USED_VALID != 0 {
            return (at, Cursor::from_base((place >> 16) as u16, packed, size));
        }
        match self.ring().and_then(|ring| ring.used_index()) {
            Some(index) => (at, Cursor { index, wrap: false }),
            None => (at, at),
        }
    }

    /// Publishes used descriptors that the ring's former queue held back.
    pub(super) fn publish_held_back(&self) {
        if self.state.position_word() & USED_VALID != 0
            && !self.is_broken()
            && let Some(ring) = self.ring()
        {
            ring.publish_used_before(self.places().1);
            self.wrote();
        }
    }

    /// Number of descriptors in the ring.
    pub(super) fn size(&self) -> u16 {
        self.layout.size
    }

    /// Records how far a queue is; call it before published entries become visible. A data path that is started again
    /// goes on there: a frame whose entry was recorded is not taken or written again.
    #[cfg_attr(not(feature = "count-positions"), inline)]
    #[cfg_attr(feature = "count-positions", inline(never))]
    pub(super) fn record(&self, progress: Progress) {
        self.state.store(progress, self.layout.packed);
    }

    /// Goes on where a former data path ended: returns the buffers of its last burst to the driver, and wakes it, since
    /// the last interrupt may be missing.
    pub(super) fn resume(&self) {
        let Some(ring) = self.ring() else { return };
        let word = self.state.position_word();
        if word & USED_VALID != 0 {
            let Layout { packed, size, .. } = self.layout;
            let [at, used, visible] =
                [word, word >> 16, word >> 32].map(|base| Cursor::from_base(base as u16, packed, size));
            let first = self.state.place().first.load(Ordering::Relaxed);
            let (at, used) = ring.complete(Progress { at, used, visible, first });
            self.record(Progress { at, used, visible: used, first: 0 });
        }
        if let Some(logging) = &self.logging {
            logging.mark_ring();
        }
        self.wrote();
        if let Some(call) = &self.call {
            call.send();
        }
    }

    /// Whether the ring was broken, under this description or an earlier one.
    #[inline]
    pub(super) fn is_broken(&self) -> bool {
        self.state.fault.load(Ordering::Relaxed) != 0
            || (self.state.losses.load(Ordering::Relaxed) != ringway_host::losses() && self.is_lost())
    }

    /// Whether a file of the guest's memory shrank. Attack: the replacement is our own memory, which frames
    /// for the guest would fill.
    #[cold]
    fn is_lost(&self) -> bool {
        let losses = ringway_host::losses();
        let areas = self.areas.iter().flatten().flat_map(|area| area.memory().regions());
        let is_lost = self.memory.regions().iter().chain(areas).any(ringway_host::is_lost)
            || self.logging.as_ref().is_some_and(|logging| logging.is_lost());
        if !is_lost {
            self.state.losses.store(losses, Ordering::Relaxed);
        }
        is_lost
    }

    /// Marks the ring as broken by its driver; it is no longer served. Returns the drop reason of the current frame.
    #[cold]
    pub(super) fn fail(&self, error: QueueError, counters: &Counters) -> Reason {
        self.state.fail(error);
        add(&counters.faults, 1);
        if let Some(err) = &self.err {
            err.send();
        }
        match error {
            QueueError::Address | QueueError::Miss => Reason::BadAddress,
            _ => Reason::BadDescriptor,
        }
    }

    /// The ring as a notifier sees it.
    #[inline]
    pub(super) fn view<'a, 't, D: Signals>(
        &'a self,
        ring: &'a Ring<'t>,
        device: &'a mut D,
        counters: &'a Counters,
    ) -> Peer<'a, 't, D> {
        Peer { ring, device, call: self.call.as_ref(), counters }
    }
}

/// Offloads that a driver may leave to us in frames it transmits.
fn granted(features: u64) -> Needs {
    const GRANTS: [(u64, Needs); 5] = [
        (virtio::NET_CSUM, Needs::CSUM),
        (virtio::NET_HOST_TSO4, Needs::TSO4),
        (virtio::NET_HOST_TSO6, Needs::TSO6),
        (virtio::NET_HOST_ECN, Needs::ECN),
        (virtio::NET_HOST_USO, Needs::USO),
    ];
    collect(features, &GRANTS)
}

/// Offloads and frame sizes that a driver accepts.
fn caps(features: u64) -> Caps {
    const TAKES: [(u64, Needs); 5] = [
        (virtio::NET_GUEST_CSUM, Needs::CSUM),
        (virtio::NET_GUEST_TSO4, Needs::TSO4),
        (virtio::NET_GUEST_TSO6, Needs::TSO6),
        (virtio::NET_GUEST_ECN, Needs::ECN),
        // One bit for either IP version here, so both have to be agreed.
        (virtio::NET_GUEST_USO4 | virtio::NET_GUEST_USO6, Needs::USO),
    ];
    let large = virtio::NET_GUEST_TSO4 | virtio::NET_GUEST_TSO6 | virtio::NET_GUEST_USO4;
    let any_size = features & (large | virtio::NET_MRG_RXBUF) != 0;
    Caps { offloads: collect(features, &TAKES), largest: if any_size { LARGEST } else { PLAIN } }
}

fn collect(features: u64, table: &[(u64, Needs)]) -> Needs {
    let agreed = table.iter().filter(|(bits, _)| features & bits == *bits);
    agreed.fold(Needs::NONE, |all, (_, needs)| all.with(*needs))
}

/// One side of a ring for [`ringway_ring::Notifier`].
pub(super) struct Peer<'a, 't, D> {
    ring: &'a Ring<'t>,
    device: &'a mut D,
    call: Option<&'a Signal>,
    counters: &'a Counters,
}

impl<D: Signals> View for Peer<'_, '_, D> {
    fn pending(&mut self) -> bool {
        self.device.pending(self.ring)
    }

    fn set_flag(&mut self, wanted: bool) {
        self.device.set_flag(self.ring, wanted);
    }

    fn notify(&mut self, ask: bool) -> bool {
        let wanted = self.device.wants_interrupt(self.ring);
        let Some(call) = self.call.filter(|_| wanted || !ask) else { return false };
        call.send();
        add(&self.counters.interrupts, 1);
        true
    }
}
