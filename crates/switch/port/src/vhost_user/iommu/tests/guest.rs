//! A guest behind an IOMMU and its front-end, for tests. It maps and unmaps like a driver, and answers misses
//! like QEMU, a page at a time.

use crate::State;
use crate::vhost_user::tests::session::Wire;
use crate::vhost_user::{Backend, BackendError};
use ringway_mem::{Hint, Memory, SpanMut};
use ringway_vhost_user::feature::{protocol, virtio};
use ringway_vhost_user::{
    BackendRequest, Frontend, FrontendError, Header, Iotlb, MemoryRegion, Request, SharedRegion, Vring,
    VringAddr,
};
use ringway_virtq::{Areas, Buffer, Driver, Indirect, Layout};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

pub(super) const SIZE: u64 = 8 << 20;
/// Where the guest's memory is in the front-end's address space.
pub(super) const USER: u64 = 0x7f00_0000_0000;
/// Addresses of the rings: guest-physical, and the device's.
pub(super) const RINGS: u64 = 0x10_0000;
pub(super) const RINGS_IOVA: u64 = 0xfff0_0000;
/// Bytes reserved for each part of a ring.
pub(super) const PART: u64 = 0x2000;
pub(super) const READ: u8 = 1;
pub(super) const WRITE: u8 = 2;
pub(super) const BOTH: u8 = 3;
const HEADER: usize = 12;
pub(super) const CHANNEL: u64 = protocol::BACKEND_REQ
    | protocol::REPLY_ACK
    | protocol::CONFIGURE_MEM_SLOTS
    | protocol::RESET_DEVICE
    | protocol::LOG_SHMFD;

/// Parameters of a guest.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuestConfig {
    pub packed: bool,
    pub iommu: bool,
    /// Page size of the guest's IOMMU.
    pub page: u64,
    /// Number of descriptors of a ring.
    pub ring: u16,
}

impl GuestConfig {
    /// Split and packed, with small and large pages.
    pub(super) const ALL: [GuestConfig; 4] = [
        GuestConfig { packed: false, iommu: true, page: 4096, ring: 256 },
        GuestConfig { packed: true, iommu: true, page: 4096, ring: 256 },
        GuestConfig { packed: false, iommu: true, page: 2 << 20, ring: 256 },
        GuestConfig { packed: true, iommu: true, page: 2 << 20, ring: 256 },
    ];

    pub(super) fn features(self) -> u64 {
        let bits = |wanted, bits| if wanted { bits } else { 0 };
        virtio::VERSION_1
            | virtio::EVENT_IDX
            | virtio::INDIRECT_DESC
            | virtio::NET_MRG_RXBUF
            | bits(self.packed, virtio::RING_PACKED)
            | bits(self.iommu, virtio::ACCESS_PLATFORM)
    }

    pub(super) fn layout(self) -> Layout {
        Layout { packed: self.packed, size: self.ring, event_idx: true, indirect: true }
    }
}

/// A guest's memory.
pub(super) struct Space {
    file: OwnedFd,
    pub memory: Memory,
    kind: GuestConfig,
}

impl Space {
    pub(super) fn new(kind: GuestConfig) -> Space {
        Space::of(kind, ringway_host::memfd("guest", SIZE as usize).unwrap())
    }

    /// Memory of a guest in the given file, which must be large enough.
    pub(super) fn of(kind: GuestConfig, file: OwnedFd) -> Space {
        let region = ringway_host::map_region(&file, 0, SIZE, 0, 0).unwrap();
        Space { file, memory: Memory::new(vec![region]).unwrap(), kind }
    }

    pub(super) fn span(&self, at: u64, len: u32) -> SpanMut<'_> {
        self.memory.span_mut(at, len, &mut Hint::default()).unwrap()
    }

    pub(super) fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.span(at, len as u32).as_span().read(&mut bytes);
        bytes
    }

    pub(super) fn share(&self) -> SharedRegion {
        let region = MemoryRegion { guest: 0, size: SIZE, user: USER, offset: 0 };
        SharedRegion { region, fd: self.file.try_clone().unwrap() }
    }

    /// Shares the memory as several regions that start at these guest-physical addresses.
    pub(super) fn share_in(&self, begins: &[u64]) -> Vec<SharedRegion> {
        let ends = begins.iter().skip(1).copied().chain([SIZE]);
        let regions = begins.iter().zip(ends).map(|(&guest, end)| {
            let region = MemoryRegion { guest, size: end - guest, user: USER + guest, offset: guest };
            SharedRegion { region, fd: self.file.try_clone().unwrap() }
        });
        regions.collect()
    }

    pub(super) fn driver(&self, ring: u32) -> Driver<'_> {
        let layout = self.kind.layout();
        let (at, lengths) = (RINGS + 3 * PART * u64::from(ring), layout.lengths().unwrap());
        let areas = Areas {
            descriptors: self.span(at, lengths.descriptors),
            driver: self.span(at + PART, lengths.driver),
            device: self.span(at + 2 * PART, lengths.device),
        };
        for part in [areas.descriptors, areas.driver, areas.device] {
            part.write(&vec![0; part.len()]);
        }
        Driver::new(&layout, areas).unwrap()
    }
}

/// The guest's front-end.
pub(super) struct Monitor<'a> {
    pub front: Frontend<Wire<'a>>,
    channel: UnixStream,
    kind: GuestConfig,
    /// Guest-physical page and permissions by page of IOVA.
    pub pages: BTreeMap<u64, (u64, u8)>,
    /// Misses received since the last answer, and access failures.
    pub asked: Vec<Iotlb>,
    /// Whether the front-end answers misses.
    pub answers: bool,
    pub updates: usize,
}

impl<'a> Monitor<'a> {
    /// Negotiates features, shares the memory and passes a channel.
    pub(super) fn new(backend: &'a mut Backend, space: &Space) -> Monitor<'a> {
        Monitor::sharing(backend, space.kind, space.share())
    }

    /// Negotiates features, shares the memory region `share` and passes a channel.
    pub(super) fn sharing(backend: &'a mut Backend, kind: GuestConfig, share: SharedRegion) -> Monitor<'a> {
        Monitor::agreeing(backend, kind, share, 0)
    }

    /// Negotiates features, `more` among them, shares the memory region `share` and passes a channel.
    pub(super) fn agreeing(
        backend: &'a mut Backend,
        kind: GuestConfig,
        share: SharedRegion,
        more: u64,
    ) -> Monitor<'a> {
        let mut front = Frontend::negotiate(Wire::new(backend), kind.features() | more, CHANNEL).unwrap();
        assert_eq!(front.features() & virtio::ACCESS_PLATFORM != 0, kind.iommu);
        let (channel, theirs) = UnixStream::pair().unwrap();
        channel.set_nonblocking(true).unwrap();
        front.set(Request::SetBackendReqFd(theirs.into())).unwrap();
        front.set_memory(vec![share]).unwrap();
        let (pages, asked) = (BTreeMap::new(), Vec::new());
        let mut monitor = Monitor { front, channel, kind, pages, asked, answers: true, updates: 0 };
        // Rings stay mapped for the guest's lifetime.
        let page = kind.page.min(4096 * 64);
        monitor.map(RINGS_IOVA, RINGS, page.max(0x4_0000), BOTH);
        monitor
    }

    pub(super) fn vring(&self, index: u32, base: u32) -> Vring {
        let at = 3 * PART * u64::from(index);
        let at = if self.kind.iommu { RINGS_IOVA + at } else { USER + RINGS + at };
        let (available, used) = (at + PART, at + 2 * PART);
        let addresses = VringAddr { index, flags: 0, descriptors: at, available, used, log: 0 };
        Vring { size: self.kind.ring, addresses, base, kick: None, call: None }
    }

    /// Starts a ring at index 0.
    pub(super) fn start(&mut self, index: u32) {
        let base = if self.kind.packed { 0x8000 } else { 0 };
        let vring = self.vring(index, base);
        self.front.start(vring).unwrap();
        self.answer();
    }

    /// Adds a mapping to the guest's IOMMU; the back-end learns of it only by a miss.
    pub(super) fn map(&mut self, iova: u64, guest: u64, len: u64, access: u8) {
        for at in (0..len.div_ceil(4096)).map(|page| page * 4096) {
            self.pages.insert((iova + at) >> 12, ((guest + at) >> 12, access));
        }
    }

    /// Removes a mapping and invalidates it. When this returns, the back-end no longer uses it.
    pub(super) fn unmap(&mut self, iova: u64, len: u64) {
        for page in iova >> 12..(iova + len).div_ceil(4096) {
            self.pages.remove(&page);
        }
        self.send_iotlb(Iotlb::INVALIDATE, iova, len, 0, 0).unwrap();
    }

    /// Replaces the channel.
    pub(super) fn exchange_channel(&mut self) {
        let (channel, theirs) = UnixStream::pair().unwrap();
        channel.set_nonblocking(true).unwrap();
        self.channel = channel;
        self.front.set(Request::SetBackendReqFd(theirs.into())).unwrap();
    }

    /// Sends an IOTLB message to the back-end.
    pub(super) fn send_iotlb(
        &mut self,
        kind: u8,
        iova: u64,
        size: u64,
        user: u64,
        permissions: u8,
    ) -> Result<(), FrontendError> {
        self.front.set(Request::IotlbMsg(Iotlb { iova, size, user, permissions, kind }))
    }

    /// Reads pending misses. Messages arrive complete, since each is written at once.
    pub(super) fn listen(&mut self) -> Vec<Iotlb> {
        let (mut bytes, mut asked) = (vec![0; 44 * 1024], Vec::new());
        while let Ok(count @ 1..) = self.channel.read(&mut bytes) {
            assert!(count.is_multiple_of(44), "{count} bytes on the channel");
            for message in bytes[..count].as_chunks::<44>().0 {
                let header = Header::decode(message[..12].try_into().unwrap()).unwrap();
                assert!(!header.need_reply);
                match BackendRequest::decode(header.request, &message[12..], Vec::new()).unwrap() {
                    BackendRequest::Iotlb(iotlb) => asked.push(iotlb),
                    other => panic!("{other:?}"),
                }
            }
        }
        asked
    }

    /// Answers pending misses, a page at a time. Returns the number of answers.
    pub(super) fn answer(&mut self) -> usize {
        self.front.transport().process_pending().unwrap();
        self.answer_while()
    }

    /// Answers misses, a page at a time, until none is pending or the session ends. Returns the number of answers.
    pub(super) fn answer_while(&mut self) -> usize {
        let mut answers = 0;
        loop {
            if self.front.transport().is_over() {
                return answers;
            }
            let asked = self.listen();
            if asked.is_empty() {
                return answers;
            }
            for question in asked {
                self.asked.push(question);
                if question.kind != Iotlb::MISS || !self.answers {
                    continue;
                }
                let first = question.iova >> 12;
                let Some(&(guest, access)) = self.pages.get(&first) else { continue };
                if access & question.permissions != question.permissions {
                    continue;
                }
                // The part of the page that is contiguous in both address spaces.
                let most = self.kind.page / 4096;
                let begin = first - first % most;
                let goes_on = |page: &u64| {
                    self.pages.get(page) == Some(&(guest.wrapping_add(page.wrapping_sub(first)), access))
                };
                let from = (begin..=first).rev().take_while(goes_on).last().unwrap_or(first);
                let to = (first..begin + most).take_while(goes_on).last().unwrap_or(first);
                let user = USER + ((guest - (first - from)) << 12);
                self.send_iotlb(Iotlb::UPDATE, from << 12, (to - from + 1) << 12, user, access).unwrap();
                answers += 1;
                self.updates += 1;
            }
        }
    }

    pub(super) fn state(&mut self) -> State {
        self.front.transport().state()
    }

    pub(super) fn end(&mut self) -> Option<BackendError> {
        self.front.transport().take_end()
    }
}

/// Adds a buffer for the device to read or write.
pub(super) fn add(driver: &mut Driver<'_>, iova: u64, len: usize, write: bool) -> u16 {
    let id = driver.add(&[Buffer { address: iova, len: len as u32, write }], None::<Indirect<'_>>).unwrap();
    driver.publish();
    id
}

/// A frame with its virtio-net header; `seed` determines its bytes.
pub(super) fn framed(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; HEADER];
    bytes.extend((0..len).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    }));
    bytes
}
