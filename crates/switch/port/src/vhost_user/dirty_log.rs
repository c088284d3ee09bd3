//! The dirty log of our writes to a guest's memory, which its front-end requests during live migration (vhost-user
//! protocol, "Migration").

use super::vring::Space;
use ringway_host::{Account, HostError, Keep, Signal};
use ringway_mem::iotlb::Access;
use ringway_mem::{DirtyLog, Extent, Extents};
use ringway_vhost_user::feature::virtio;
use ringway_vhost_user::{Log as LogArea, Ring as RingConfig, VringAddr};
use ringway_virtq::{LayoutError, Ring, Tracker};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// `VHOST_VRING_F_LOG`: writes to the ring itself are logged.
const RING_LOGGED: u32 = 1;

/// Maximum size of a log in bytes: a bit for each page of 52-bit guest-physical addresses, the largest of any
/// processor.
pub(super) const MOST: u64 = 1 << (52 - 12 - 3);

/// The dirty log as the front-end set it up.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) bits: Option<Arc<DirtyLog>>,
    /// Signalled when pages may have been logged.
    pub(super) call: Option<Arc<Signal>>,
}

impl Log {
    /// Switches to another log; returns the former one, which workers may use until they end their turns.
    pub(super) fn replace(
        &mut self,
        account: &Account,
        place: LogArea,
        file: &OwnedFd,
    ) -> Result<Option<Arc<DirtyLog>>, HostError> {
        // Attack: an offset and a size whose sum overflows (CVE-2020-10722); a file that is not memory, or is
        // too short.
        let range = (place.offset, place.size);
        // Attack: a huge sparse file as a log, which leaves no addresses for others' memory.
        if place.size > MOST {
            return Err(HostError::Impossible { offset: place.offset, len: place.size });
        }
        let region = ringway_host::map_region_for(account, file, range, (0, 0), Keep::No)?;
        Ok(self.bits.replace(Arc::new(DirtyLog::new(region))))
    }
}

/// The log of one ring's queue.
#[derive(Debug)]
pub(super) struct Logging {
    log: Arc<DirtyLog>,
    /// Whether frames, and answers to commands, are logged (`VHOST_F_LOG_ALL`).
    buffers: bool,
    /// Logs writes to the ring itself, if enabled.
    ring: Option<Tracker>,
    call: Option<Arc<Signal>>,
}

impl Logging {
    /// `None` if nothing is logged. `parts`: those of the ring, from [`super::vring::parts`]; `placed`: whether all
    /// of their addresses are resolved.
    pub(super) fn of(
        log: &Log,
        space: &Space<'_>,
        (features, config): (u64, &RingConfig),
        (parts, placed): ([(u64, u32, Access); 3], bool),
    ) -> Option<Box<Logging>> {
        let bits = log.bits.clone()?;
        let addresses = config.addresses.filter(|addresses| addresses.flags & RING_LOGGED != 0 && placed);
        let buffers = features & virtio::LOG_ALL != 0;
        if !buffers && addresses.is_none() {
            return None;
        }
        let ring = addresses.map(|addresses| tracker(&bits, space, (features, addresses), parts));
        Some(Box::new(Logging { log: bits, buffers, ring, call: log.call.clone() }))
    }

    /// The log for frames, if they are logged.
    pub(super) fn buffers(&self) -> Option<&DirtyLog> {
        self.buffers.then_some(&*self.log)
    }

    /// The ring, with logging of writes to it if enabled.
    #[cold]
    #[inline(never)]
    pub(super) fn wrap<'t>(&'t self, ring: Result<Ring<'t>, LayoutError>) -> Option<Ring<'t>> {
        let ring = ring.ok()?;
        Some(self.ring.as_ref().map_or(ring, |tracker| ring.logged(tracker)))
    }

    /// Whether the file of the log shrank. Attack: as with memory; the front-end can't see the replacement pages.
    pub(super) fn is_lost(&self) -> bool {
        ringway_host::is_lost(self.log.region())
    }

    /// Marks the whole ring as dirty: writes before there was a log were not recorded.
    pub(super) fn mark_ring(&self) {
        self.ring.iter().for_each(Tracker::mark_all);
    }

    /// Signals the front-end that pages may have been logged.
    #[cold]
    #[inline(never)]
    pub(super) fn signal(&self) {
        self.call.iter().for_each(|call| call.send());
    }
}

fn tracker(
    log: &Arc<DirtyLog>,
    space: &Space<'_>,
    (features, addresses): (u64, VringAddr),
    [descriptors, _, device]: [(u64, u32, Access); 3],
) -> Tracker {
    let device = space.extents(device);
    // Behind an IOMMU front-ends set the log address to the ring's I/O virtual address, which is useless for a log by
    // guest-physical address (as in Linux's vhost, cc5e710759); the ring's location is known without it.
    let is_elsewhere = features & virtio::ACCESS_PLATFORM == 0 && !device.begin_at(addresses.log);
    Tracker {
        log: log.clone(),
        descriptors: match features & virtio::RING_PACKED {
            0 => Extents::default(),
            _ => space.extents(descriptors),
        },
        device,
        log_address: is_elsewhere.then_some(addresses.log),
    }
}

impl Space<'_> {
    /// Guest-physical ranges of a part of a ring.
    fn extents(&self, (address, len, access): (u64, u32, Access)) -> Extents {
        Extents::new(match self {
            Space::Direct(memory) => {
                let guest = memory.keep_user(address, len).and_then(|kept| kept.guest());
                guest.map(|guest| Extent { guest, len: len.into() }).into_iter().collect()
            }
            Space::Granted(editor, ..) => {
                let parts = editor.parts(address, len, access).unwrap_or_default().into_iter();
                parts.map(|(region, offset, len)| Extent { guest: region.guest + offset, len }).collect()
            }
        })
    }
}
