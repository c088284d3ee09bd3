//! How a driver reaches a virtio device (virtio 1.3, 4).

use crate::net_device::keep;
use ringway_mem::{OwnedSpan, Region, Words};
use ringway_virtq::LayoutError;

/// Bytes of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// One byte.
    Byte,
    /// Two.
    Half,
    /// Four.
    Word,
}

/// Registers of a device.
pub trait Registers {
    /// Reads a register.
    fn read(&self, offset: u32, width: Width) -> u32;
    /// Writes a register.
    fn write(&self, offset: u32, width: Width, value: u32);
}

/// Registers in the address space.
impl Registers for OwnedSpan {
    fn read(&self, offset: u32, width: Width) -> u32 {
        let (span, at) = (self.span(), offset as usize);
        match width {
            Width::Byte => Words::<u8>::new(span).map_or(0, |words| words.load_acquire(at).into()),
            Width::Half => Words::<u16>::new(span).map_or(0, |words| words.load_acquire(at / 2).into()),
            Width::Word => Words::<u32>::new(span).map_or(0, |words| words.load_acquire(at / 4)),
        }
    }

    fn write(&self, offset: u32, width: Width, value: u32) {
        let (span, at) = (self.span(), offset as usize);
        match width {
            Width::Byte => {
                if let Some(words) = Words::<u8>::new(span) {
                    words.store_release(at, value as u8);
                }
            }
            Width::Half => {
                if let Some(words) = Words::<u16>::new(span) {
                    words.store_release(at / 2, value as u16);
                }
            }
            Width::Word => {
                if let Some(words) = Words::<u32>::new(span) {
                    words.store_release(at / 4, value);
                }
            }
        }
    }
}

/// The registers in a region.
pub(super) fn registers(region: Region) -> Option<OwnedSpan> {
    keep(region)
}

/// Addresses of a queue's areas, and its number of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueAddresses {
    /// Number of descriptors.
    pub size: u16,
    /// The descriptor area.
    pub descriptors: u64,
    /// The driver area.
    pub driver: u64,
    /// The device area.
    pub device: u64,
}

/// A virtio device.
pub trait Transport {
    /// The status.
    fn status(&self) -> u8;
    /// Sets the status; 0 resets the device.
    fn set_status(&self, status: u8);
    /// The features that the device offers.
    fn features(&self) -> u64;
    /// The features that the driver accepts.
    fn accept(&self, features: u64);
    /// Largest number of descriptors of a queue; 0 if there is no such queue.
    fn queue_max(&mut self, queue: u16) -> u16;
    /// Starts a queue; `false`: the device does not.
    fn start_queue(&mut self, queue: u16, place: &QueueAddresses) -> bool;
    /// A byte of the device's configuration.
    fn config(&self, offset: u32) -> u8;
    /// Tells the device that a queue has buffers.
    fn kick(&self, queue: u16);
    /// Lets the device interrupt again.
    fn acknowledge(&self);
    /// Whether the device's interrupts arrive.
    fn interrupts(&self) -> bool;
}

/// Why a device can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// No virtio device is present.
    Absent,
    /// A legacy device.
    Legacy,
    /// A virtio device of this type, not a network device.
    Type(u32),
    /// The device does not leave its reset.
    Reset,
    /// The device does not accept these features.
    Features(u64),
    /// The device lacks this queue, or does not start it.
    Queue(u16),
    /// The memory of a queue is not a ring.
    Layout(LayoutError),
    /// There is no memory for the queues.
    Memory,
}

impl core::fmt::Display for DeviceError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            DeviceError::Absent => out.write_str("there is no virtio device"),
            DeviceError::Legacy => out.write_str(
                "it is a legacy device; a modern one is needed (QEMU: -global \
                 virtio-mmio.force-legacy=false, or disable-modern=off)",
            ),
            DeviceError::Type(kind) => {
                write!(out, "it is a virtio device of type {kind}, not a network device")
            }
            DeviceError::Reset => out.write_str("it does not leave its reset"),
            DeviceError::Features(features) => write!(out, "it does not accept the features {features:#x}"),
            DeviceError::Queue(queue) => write!(out, "it has no queue {queue}"),
            DeviceError::Layout(error) => error.fmt(out),
            DeviceError::Memory => out.write_str("there is no memory for its queues"),
        }
    }
}

impl From<LayoutError> for DeviceError {
    fn from(error: LayoutError) -> DeviceError {
        DeviceError::Layout(error)
    }
}
