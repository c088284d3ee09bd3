//! The fixed parts of payloads, as they are sent: in native byte order, as the protocol requires.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Adds a range that the device may access (`struct vfio_iommu_type1_dma_map`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct DmaMap {
    /// Bytes of this structure.
    pub argsz: u32,
    /// [`DmaMap::READ`], [`DmaMap::WRITE`].
    pub flags: u32,
    /// Offset of the range in its file.
    pub offset: u64,
    /// First address, as the device sees it.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

impl DmaMap {
    /// The device may read.
    pub const READ: u32 = 1;
    /// The device may write.
    pub const WRITE: u32 = 2;
}

/// Removes ranges (`struct vfio_iommu_type1_dma_unmap`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct DmaUnmap {
    /// Bytes of the reply that fit.
    pub argsz: u32,
    /// [`DmaUnmap::ALL`].
    pub flags: u32,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

impl DmaUnmap {
    /// Every range; the size is 0.
    pub const ALL: u32 = 2;
}

/// The device (`struct vfio_device_info`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct DeviceInfo {
    /// Bytes of the reply that fit; in the reply, that it has.
    pub argsz: u32,
    /// [`DeviceInfo::RESET`], [`DeviceInfo::PCI`].
    pub flags: u32,
    /// Number of regions.
    pub regions: u32,
    /// Number of interrupt types.
    pub irqs: u32,
}

impl DeviceInfo {
    /// The device can be reset.
    pub const RESET: u32 = 1;
    /// The device is a PCI device.
    pub const PCI: u32 = 2;
}

/// A region (`struct vfio_region_info`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct RegionInfo {
    /// Bytes of the reply that fit; in the reply, bytes with all capabilities.
    pub argsz: u32,
    /// [`RegionInfo::READ`] and the others.
    pub flags: u32,
    /// Which region.
    pub index: u32,
    /// Where the first capability is, from the beginning of this structure.
    pub cap_offset: u32,
    /// Bytes of the region; 0 if the device does not have it.
    pub size: u64,
    /// Offset of the region in its file.
    pub offset: u64,
}

impl RegionInfo {
    /// The region can be read.
    pub const READ: u32 = 1;
    /// The region can be written.
    pub const WRITE: u32 = 2;
    /// The region can be mapped; a descriptor comes with the reply.
    pub const MMAP: u32 = 4;
    /// Capabilities follow.
    pub const CAPS: u32 = 8;
}

/// The beginning of a region's capability (`struct vfio_info_cap_header`).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct Capability {
    pub id: u16,
    pub version: u16,
    /// Where the next one is, from the beginning of the reply; 0 if there is none.
    pub next: u32,
}

/// A capability that says which parts of a region can be mapped (`struct
/// vfio_region_info_cap_sparse_mmap`); areas follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct SparseMmap {
    pub header: Capability,
    pub areas: u32,
    pub reserved: u32,
}

impl SparseMmap {
    pub const ID: u16 = 1;
    pub const VERSION: u16 = 1;
}

/// A part of a region that can be mapped.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Area {
    /// Its offset in the region, a multiple of the page size.
    pub offset: u64,
    /// Bytes, a multiple of the page size.
    pub size: u64,
}

/// The parts of a region whose writes signal an eventfd: `index` is the region, `count` the number of parts that follow
/// in the reply. No flags are defined.
pub type RegionIoFds = IrqInfo;

/// A part of a region that has a descriptor.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct SubRegion {
    /// Its offset in the region.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// Which of the reply's descriptors it has.
    pub fd_index: u32,
    /// [`SubRegion::IOEVENTFD`].
    pub kind: u32,
    pub flags: u32,
    pub padding: u32,
    pub datamatch: u64,
}

impl SubRegion {
    /// The descriptor is an eventfd, which each write signals (`KVM_IOEVENTFD`).
    pub const IOEVENTFD: u32 = 0;
}

/// An interrupt type (`struct vfio_irq_info`), and [`RegionIoFds`], which has the same fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct IrqInfo {
    /// Bytes of the reply that fit; in the reply, that it has.
    pub argsz: u32,
    /// Flags of [`crate::IrqType`].
    pub flags: u32,
    /// Which type, or which region.
    pub index: u32,
    /// Number of interrupts, or of parts.
    pub count: u32,
}

/// The fixed part of a change to interrupts (`struct vfio_irq_set`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct IrqSet {
    pub argsz: u32,
    pub flags: u32,
    pub index: u32,
    pub start: u32,
    pub count: u32,
}

/// An access to a region; data follow a write, and the reply to a read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Access {
    /// Offset in the region.
    pub offset: u64,
    /// Which region.
    pub region: u32,
    /// Bytes.
    pub count: u32,
}

/// One of several writes in a message.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Write {
    /// Where the write goes.
    pub access: Access,
    /// The data; the first bytes of it if fewer than eight are written.
    pub data: [u8; 8],
}
