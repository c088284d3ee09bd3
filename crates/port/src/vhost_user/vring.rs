//! A ring as workers see it, and what stays of it between two of its descriptions.

#[cfg(test)]
mod tests;

use super::iommu::Granted;
use super::log::{Log, Logging};
use super::rarp::Rarp;
use ringway_frame::{Caps, Counters, LARGEST, Needs, Reason, add};
use ringway_host::{Account, Budget, Signal, SignalError};
use ringway_mem::iotlb::{Access, Editor};
use ringway_mem::{DirtyLog, Kept, Memory, Region};
use ringway_ring::{Policy, View};
use ringway_vhost_user::feature::virtio;
use ringway_vhost_user::{Kick, Ring as Said};
use ringway_virtq::{
    Areas, Cursor, Layout, LayoutError, PackedRing, QueueError, Ring, RxHeader, Signals, SplitRing,
};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Bytes of `virtio_net_hdr` in its legacy form, without `num_buffers` (virtio 1.3, 5.1.6).
const LEGACY_HEADER: u32 = 10;
/// With it.
const HEADER: u32 = 12;
/// A frame of 1500 bytes, its Ethernet header and a VLAN tag: what a driver has buffers for if nothing else
/// was agreed (virtio 1.3, 5.1.6.3.1).
const PLAIN: u32 = 1518;
/// Bytes of an Ethernet header and a VLAN tag.
const LINK: u32 = 18;

/// Why a ring can't be used as it was described. The text is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum VringError {
    /// Its address was not told.
    #[error("it was not said where the ring lies")]
    Unplaced,
    /// Its address is nowhere.
    #[error("the {0} lies outside the memory that was shared")]
    Outside(&'static str),
    /// What it says of interrupts or errors is no way to tell anybody.
    #[error("a descriptor for interrupts or errors is {0}")]
    Signal(SignalError),
    /// Its parts lie where they can't be mapped as one.
    #[error("it lies scattered in the guest's memory, and not in whole pages of it")]
    Scattered,
    /// Its parts don't make a ring.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// What a ring's queue leaves for whoever asks, and for the queue's next description of the ring. Alone in its lines of
/// the cache: a worker reads and writes it every burst.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct VringState {
    /// Base of what is available in bits 0 to 15, of what is used in bits 16 to 31.
    place: AtomicU32,
    /// Whether the used half is known.
    used: AtomicU8,
    /// What broke the ring, as [`QueueError`]'s number; 0: nothing.
    fault: AtomicU8,
    /// Mappings that were lost anywhere when none of this guest's was.
    losses: AtomicU64,
    /// What waking the guest may cost.
    budget: Arc<Budget>,
}

impl VringState {
    /// Of a ring whose guest is woken at the cost of `budget`.
    pub(super) fn new(budget: &Arc<Budget>) -> VringState {
        VringState { budget: budget.clone(), ..VringState::default() }
    }

    /// The ring starts at `position`, and whatever was wrong with it is over.
    pub(super) fn restart(&self, position: u16, features: u64) {
        // A packed ring uses descriptors where it found them; a split ring's used index stands in its memory.
        let packed = features & virtio::RING_PACKED != 0;
        self.place.store(u32::from(position) | u32::from(position) << 16, Ordering::Relaxed);
        self.used.store(u8::from(packed), Ordering::Relaxed);
        self.fault.store(0, Ordering::Release);
    }

    /// Where the ring stands: what is available from here on was not used.
    pub(super) fn position(&self) -> u16 {
        self.place.load(Ordering::Relaxed) as u16
    }

    /// The ring is broken.
    pub(super) fn fail(&self, error: QueueError) {
        self.fault.store(error as u8, Ordering::Release);
    }

    /// How the driver broke the ring.
    pub(super) fn fault(&self) -> Option<QueueError> {
        QueueError::from_number(self.fault.load(Ordering::Acquire))
    }

    #[inline]
    fn store(&self, available: u16, used: u16) {
        self.place.store(u32::from(available) | u32::from(used) << 16, Ordering::Relaxed);
        self.used.store(1, Ordering::Relaxed);
    }
}

/// One description of a ring; never changed, only replaced.
#[derive(Debug)]
pub(super) struct Vring {
    /// No two descriptions have the same.
    pub(super) generation: u64,
    memory: Arc<Memory>,
    /// The guest's IOMMU, if it has one.
    pub(super) iommu: Option<Granted>,
    layout: Layout,
    /// Descriptors, driver area, device area; not there while the guest's IOMMU has not granted all of them.
    areas: Option<[Kept; 3]>,
    call: Option<Signal>,
    err: Option<Signal>,
    /// While what is written is logged.
    pub(super) logging: Option<Box<Logging>>,
    state: Arc<VringState>,
    /// Whether frames pass.
    pub(super) enabled: bool,
    /// Whether buffers are used in order.
    pub(super) in_order: bool,
    /// Whether the driver never kicks, so that the ring is looked at always.
    pub(super) polled: bool,
    /// Offloads that the driver may ask of us.
    pub(super) granted: Needs,
    /// What the driver takes.
    pub(super) caps: Caps,
    /// How frames lie in the driver's buffers.
    pub(super) rx_header: RxHeader,
    /// What not to notify of.
    pub(super) policy: Policy,
    /// What is sent once in the guest's name.
    pub(super) rarp: Option<Rarp>,
}

/// How the addresses of a ring and of its buffers are understood.
pub(super) enum Space<'a> {
    /// A ring lies at the front-end's own addresses, buffers at guest-physical ones.
    Direct(&'a Arc<Memory>),
    /// Both at addresses that the guest's IOMMU translates.
    Granted(&'a Editor, Granted, &'a Account),
}

/// The parts of a ring: their addresses, their lengths, and what is done with them.
pub(super) fn parts(features: u64, said: &Said) -> Result<[(u64, u32, Access); 3], VringError> {
    let lengths = layout(features, said).lengths()?;
    let at = said.addresses.ok_or(VringError::Unplaced)?;
    // The device writes a packed ring's descriptors.
    let descriptors = if features & virtio::RING_PACKED == 0 { Access::READ } else { Access::BOTH };
    Ok([
        (at.descriptors, lengths.descriptors, descriptors),
        (at.available, lengths.driver, Access::READ),
        (at.used, lengths.device, Access::BOTH),
    ])
}

fn layout(features: u64, said: &Said) -> Layout {
    let has = |bits| features & bits != 0;
    Layout {
        packed: has(virtio::RING_PACKED),
        size: said.size,
        event_idx: has(virtio::EVENT_IDX),
        indirect: has(virtio::INDIRECT_DESC),
    }
}

impl Space<'_> {
    fn areas(&self, parts: [(u64, u32, Access); 3]) -> Result<Option<[Kept; 3]>, VringError> {
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

/// A part of a ring that lies together by its guest's addresses, but not in its memory: mapped once more,
/// so that whoever uses it need not know.
#[cold]
fn gathered(account: &Account, parts: &[(&Region, u64, u64)], len: u32) -> Result<Kept, VringError> {
    let region = ringway_host::stitch(account, parts).map_err(|_| VringError::Scattered)?;
    let memory = Memory::new(vec![region]).map_err(|_| VringError::Scattered)?;
    Arc::new(memory).keep_user(0, len).ok_or(VringError::Scattered)
}

impl Vring {
    /// The ring that a front-end described.
    pub(super) fn new(
        space: Space<'_>,
        features: u64,
        said: &Said,
        log: &Log,
        state: &Arc<VringState>,
    ) -> Result<Vring, VringError> {
        static GENERATION: AtomicU64 = AtomicU64::new(1);
        let has = |bits| features & bits != 0;
        let parts = parts(features, said)?;
        let areas = space.areas(parts)?;
        let logging = Logging::of(log, &space, (features, said), (parts, areas.is_some()));
        let (memory, iommu) = match space {
            Space::Direct(memory) => (memory.clone(), None),
            Space::Granted(editor, granted, _) => (editor.shared().memory().clone(), Some(granted)),
        };
        // Attack: a full pipe or eventfd would block the worker.
        let signal = |fd: &Option<Arc<OwnedFd>>| {
            let signal = fd.clone().map(Signal::of).transpose().map_err(VringError::Signal)?;
            Ok::<_, VringError>(signal.map(|signal| signal.charged_to(&state.budget)))
        };
        let mergeable = has(virtio::NET_MRG_RXBUF);
        let header = if mergeable || has(virtio::VERSION_1) { HEADER } else { LEGACY_HEADER };
        let vring = Vring {
            generation: GENERATION.fetch_add(1, Ordering::Relaxed),
            memory,
            iommu,
            layout: layout(features, said),
            areas,
            call: signal(&said.call)?,
            err: signal(&said.err)?,
            logging,
            state: state.clone(),
            enabled: said.enabled,
            in_order: has(virtio::IN_ORDER),
            polled: matches!(said.kick, Kick::Poll),
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

    /// The same ring with another policy of notifying.
    pub(super) fn with_policy(self, policy: Policy) -> Vring {
        Vring { policy, ..self }
    }

    /// The same ring, on which the guest is also announced.
    pub(super) fn with_rarp(self, rarp: Option<Rarp>) -> Vring {
        Vring { rarp, ..self }
    }

    /// The same ring, for IP packets of at most so many bytes.
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

    /// Whether it is known where the ring lies.
    pub(super) fn is_placed(&self) -> bool {
        self.areas.is_some()
    }

    /// The ring in that memory; there if it is known where it lies, since it was looked for when this was
    /// made.
    #[inline]
    pub(super) fn ring(&self) -> Option<Ring<'_>> {
        let [descriptors, driver, device] = self.areas.as_ref()?.each_ref().map(Kept::span);
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

    /// Where frames and answers are logged.
    #[inline]
    pub(super) fn log(&self) -> Option<&DirtyLog> {
        self.logging.as_ref()?.buffers()
    }

    /// Something was shown to the driver, and so written.
    #[inline]
    pub(super) fn wrote(&self) {
        if let Some(logging) = &self.logging {
            logging.tell();
        }
    }

    /// Where a queue begins: at what is available, and at what is used.
    pub(super) fn places(&self) -> (Cursor, Cursor) {
        let Layout { packed, size, .. } = self.layout;
        let place = self.state.place.load(Ordering::Relaxed);
        let at = Cursor::from_base(place as u16, packed, size);
        if self.state.used.load(Ordering::Relaxed) != 0 {
            return (at, Cursor::from_base((place >> 16) as u16, packed, size));
        }
        match self.ring().and_then(|ring| ring.used_index()) {
            Some(index) => (at, Cursor { index, wrap: false }),
            None => (at, at),
        }
    }

    /// Shows the driver what a queue that no longer serves the ring held back.
    pub(super) fn settle(&self) {
        if self.state.used.load(Ordering::Relaxed) != 0
            && !self.is_broken()
            && let Some(ring) = self.ring()
        {
            ring.settle(self.places().1);
            self.wrote();
        }
    }

    /// Descriptors it has.
    pub(super) fn size(&self) -> u16 {
        self.layout.size
    }

    /// Notes where a queue stands.
    #[inline]
    pub(super) fn note(&self, (at, used): (Cursor, Cursor)) {
        let packed = self.layout.packed;
        self.state.store(at.to_base(packed), used.to_base(packed));
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

    /// The driver broke the ring, which rests from now on. Returns why the frame in hand is dropped.
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

/// What a driver may leave undone in frames it transmits.
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

/// What it takes.
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
