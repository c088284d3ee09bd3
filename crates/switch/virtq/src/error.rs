//! Errors of rings.

use ringway_mem::Fault;

/// Why a ring can't be used at the given addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// No descriptors, more than 32,768, or for a split ring not a power of two.
    Size,
    /// An area is too short for the ring's size.
    Short,
    /// An area is misaligned (virtio 1.3, 2.7 and 2.8.10.1).
    Alignment,
}

impl core::fmt::Display for LayoutError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            LayoutError::Size => "a ring can't have this number of descriptors",
            LayoutError::Short => "an area of the ring is too short for the number of descriptors",
            LayoutError::Alignment => "an area of the ring is misaligned",
        })
    }
}

impl core::error::Error for LayoutError {}

/// How the other side violated the ring's rules. All except [`QueueError::Miss`] make the ring unusable until
/// it is set up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QueueError {
    /// The available or used index moved by more than the ring's size.
    Index = 1,
    /// A descriptor index is not below the ring's size, or not in use.
    Descriptor,
    /// A chain has more descriptors than the ring or its indirect table, or loops.
    Chain,
    /// A chain was made available without its last descriptor.
    Unfinished,
    /// An indirect table that was not negotiated, is nested, is combined with a chain, or has an invalid
    /// size.
    Indirect,
    /// A zero-length buffer.
    Zero,
    /// A device-writable descriptor instead of a device-readable one, or the reverse.
    Direction,
    /// An address outside the memory that the driver shared.
    Address,
    /// The address has no known translation yet; retry the chain later.
    Miss,
    /// The memory of the ring's areas can't be used.
    RingMemory,
}

impl QueueError {
    /// All variants.
    pub const ALL: [QueueError; 10] = [
        QueueError::Index,
        QueueError::Descriptor,
        QueueError::Chain,
        QueueError::Unfinished,
        QueueError::Indirect,
        QueueError::Zero,
        QueueError::Direction,
        QueueError::Address,
        QueueError::Miss,
        QueueError::RingMemory,
    ];

    /// The variant with this number, as in `variant as u8`.
    pub fn from_number(number: u8) -> Option<QueueError> {
        QueueError::ALL.into_iter().find(|variant| *variant as u8 == number)
    }

    /// Whether it is a protocol violation.
    pub fn is_breach(self) -> bool {
        self != QueueError::Miss
    }
}

impl From<Fault> for QueueError {
    fn from(fault: Fault) -> QueueError {
        match fault {
            Fault::Outside => QueueError::Address,
            Fault::Miss => QueueError::Miss,
        }
    }
}

impl core::fmt::Display for QueueError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            QueueError::Index => "an index moved by more than the ring's size",
            QueueError::Descriptor => "a descriptor's number is outside the ring",
            QueueError::Chain => "a descriptor chain is longer than the ring or loops",
            QueueError::Unfinished => "a descriptor chain was made available without its last descriptor",
            QueueError::Indirect => "an indirect table is not permitted, or has an invalid size",
            QueueError::Zero => "a descriptor has length 0",
            QueueError::Direction => "a descriptor is device-writable instead of readable, or the reverse",
            QueueError::Address => "a descriptor's address is outside the shared memory",
            QueueError::Miss => "the translation of an address is not known yet",
            QueueError::RingMemory => {
                "an area of the ring is misaligned, or not contiguous in the guest's memory and not whole \
                 pages; with 256 descriptors, each area fits into 4 KB"
            }
        })
    }
}

impl core::error::Error for QueueError {}
