//! The log of what we write into a guest's memory, which its front-end asks for while it moves the guest elsewhere
//! (vhost-user protocol, "Migration").

use super::vring::Space;
use ringway_host::{Account, HostError, Keep, Signal};
use ringway_mem::iotlb::Access;
use ringway_mem::{DirtyLog, Extent, Extents};
use ringway_vhost_user::feature::virtio;
use ringway_vhost_user::{Log as LogArea, Ring as RingConfig, VringAddr};
use ringway_virtq::{LayoutError, Ring, Tracker};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// `VHOST_VRING_F_LOG`: what is written into the ring itself is logged.
const RING_LOGGED: u32 = 1;

/// Bytes of a log at most: a bit for each page of 52 bits of guest-physical addresses, which no processor's exceed.
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

/// The log as the queue of one ring uses it.
#[derive(Debug)]
pub(super) struct Logging {
    log: Arc<DirtyLog>,
    /// Frames, and answers to commands, are logged (`VHOST_F_LOG_ALL`).
    buffers: bool,
    /// Logs writes into the ring itself, if those are logged.
    ring: Option<Tracker>,
    call: Option<Arc<Signal>>,
}

impl Logging {
    /// `None` where nothing is to be logged. `parts`: those of the ring, from [`super::vring::parts`]; `placed`:
    /// whether the addresses of all of them are resolved.
    pub(super) fn of(
        log: &Log,
        space: &Space<'_>,
        (features, said): (u64, &RingConfig),
        (parts, placed): ([(u64, u32, Access); 3], bool),
    ) -> Option<Box<Logging>> {
        let bits = log.bits.clone()?;
        let addresses = said.addresses.filter(|addresses| addresses.flags & RING_LOGGED != 0 && placed);
        let buffers = features & virtio::LOG_ALL != 0;
        if !buffers && addresses.is_none() {
            return None;
        }
        let ring = addresses.map(|addresses| tracker(&bits, space, (features, addresses), parts));
        Some(Box::new(Logging { log: bits, buffers, ring, call: log.call.clone() }))
    }

    /// Where frames are logged.
    pub(super) fn buffers(&self) -> Option<&DirtyLog> {
        self.buffers.then_some(&*self.log)
    }

    /// The ring, with writes into it logged if they are to be.
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
    pub(super) fn tell(&self) {
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
    // Behind an IOMMU front-ends set the log address to the ring's I/O virtual address, which means nothing to a log by
    // guest-physical address (as in Linux's vhost, cc5e710759); the ring's location is known without it.
    let is_elsewhere = features & virtio::ACCESS_PLATFORM == 0 && !device.begin_at(addresses.log);
    Tracker {
        log: log.clone(),
        descriptors: match features & virtio::RING_PACKED {
            0 => Extents::default(),
            _ => space.extents(descriptors),
        },
        device,
        said: is_elsewhere.then_some(addresses.log),
    }
}

impl Space<'_> {
    /// Where a part of a ring lies in the guest's memory.
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
