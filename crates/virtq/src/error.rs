//! Errors of rings.

use ringway_mem::Fault;

/// Why a ring can't be used at the given addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// No descriptors, more than 32,768, or for a split ring not a power of two.
    Size,
    /// An area is shorter than the ring's size needs.
    Short,
    /// An area is misaligned (virtio 1.3, 2.7 and 2.8.10.1).
    Alignment,
}

impl core::fmt::Display for LayoutError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            LayoutError::Size => "a ring can't have this number of descriptors",
            LayoutError::Short => "a part of the ring is shorter than its number of descriptors needs",
            LayoutError::Alignment => "a part of the ring is not aligned",
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
    /// A chain has more descriptors than the ring or its table, or loops.
    Chain,
    /// A chain was made available without its end.
    Unfinished,
    /// An indirect table that was not negotiated, is nested, is combined with a chain, or has an invalid
    /// size.
    Indirect,
    /// A zero-length buffer.
    Zero,
    /// A device-writable buffer instead of a readable one, or the other way round.
    Direction,
    /// An address that the driver has not granted.
    Address,
    /// The address has no known translation yet; retry the chain later.
    Miss,
    /// The ring's memory can't be used.
    RingMemory,
}

impl QueueError {
    /// All kinds.
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

    /// The kind with this number, as in `kind as u8`.
    pub fn from_number(number: u8) -> Option<QueueError> {
        QueueError::ALL.into_iter().find(|kind| *kind as u8 == number)
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
            QueueError::Chain => "a chain of descriptors is longer than its ring or loops",
            QueueError::Unfinished => "a chain of descriptors was made available without its end",
            QueueError::Indirect => "an indirect table is not permitted here, or has a wrong size",
            QueueError::Zero => "a descriptor has no bytes",
            QueueError::Direction => {
                "a descriptor is writable where it must be readable, or the other way round"
            }
            QueueError::Address => "a descriptor's address is outside the memory that was shared",
            QueueError::Miss => "the translation of an address is not known yet",
            QueueError::RingMemory => {
                "the ring's parts are misaligned, or scattered in the guest's memory and not whole pages; \
                 each part of a ring of 256 descriptors fits into 4 KB"
            }
        })
    }
}

impl core::error::Error for QueueError {}
