//! The UDP header (RFC 768).

use crate::{Header, Sum, U16};
use core::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of the header in bytes.
pub const HEADER_LEN: usize = Udp::LEN;
/// Offset of the checksum.
pub const CHECKSUM_AT: usize = offset_of!(Udp, checksum);

/// The header.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Udp {
    /// Source port.
    pub source_port: U16,
    /// Destination port.
    pub destination_port: U16,
    /// Length of the datagram in bytes, header included.
    pub length: U16,
    /// Checksum; 0 means none.
    pub checksum: U16,
}

impl Udp {
    /// Fills the checksum of a whole datagram; `sum` is the sum of the pseudo header. `None` if the datagram
    /// is too short.
    #[inline]
    pub fn fill_checksum(datagram: &mut [u8], mut sum: Sum) -> Option<()> {
        Udp::of_mut(datagram)?.checksum.set(0);
        sum.add(datagram);
        Udp::of_mut(datagram)?.checksum.set(sum.finish_nonzero());
        Some(())
    }
}
