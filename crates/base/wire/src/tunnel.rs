//! Headers of tunnels: GRE (RFC 2784, RFC 2890), VXLAN (RFC 7348), Geneve (RFC 8926), PPPoE (RFC 2516),
//! GTP-U (3GPP TS 29.281).

use crate::{EtherType, Ethernet, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first four bytes of GRE's header.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Gre {
    /// Flags and version.
    pub flags: U16,
    /// Type of the payload.
    pub protocol: EtherType,
}

impl Gre {
    /// Flag: a checksum and two reserved bytes follow.
    pub const CHECKSUM: u16 = 0x8000;
    /// Flag: a key follows.
    pub const KEY: u16 = 0x2000;
    /// Flag: a sequence number follows.
    pub const SEQUENCE: u16 = 0x1000;
    /// Version, and reserved bits that must be 0 (RFC 2784, 2.3).
    pub const MUST_BE_ZERO: u16 = 0x4c07;
}

/// The header of VXLAN.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Vxlan {
    /// [`Vxlan::VALID`].
    pub flags: u8,
    /// Reserved.
    pub reserved: [u8; 3],
    /// The network identifier, 24 bits, and a reserved byte.
    pub vni: U32,
}

impl Vxlan {
    /// The UDP port of VXLAN (RFC 7348, 8).
    pub const PORT: u16 = 4789;
    /// Flag: the network identifier is valid.
    pub const VALID: u8 = 0x08;
}

/// The header of Geneve; options follow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Geneve {
    /// Version, two bits, and the length of the options in units of four bytes.
    pub version_length: u8,
    /// Flags.
    pub flags: u8,
    /// Type of the payload.
    pub protocol: EtherType,
    /// The network identifier, 24 bits, and a reserved byte.
    pub vni: U32,
}

impl Geneve {
    /// The UDP port of Geneve (RFC 8926, 3.3).
    pub const PORT: u16 = 6081;
    /// Type of the payload: Ethernet frames.
    pub const ETHERNET: EtherType = EtherType::new(0x6558);
    /// Flag: a message for the tunnel's endpoint.
    pub const CONTROL: u8 = 0x80;
    /// Flag: an option is critical.
    pub const CRITICAL: u8 = 0x40;

    /// Version, which is 0.
    #[inline]
    pub fn version(&self) -> u8 {
        self.version_length >> 6
    }

    /// Length of the options in bytes.
    #[inline]
    pub fn options_len(&self) -> usize {
        usize::from(self.version_length & 0x3f) * 4
    }
}

/// The header of a Geneve option; its data follows.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct GeneveOption {
    /// The namespace of the type.
    pub class: U16,
    /// The type, with [`GeneveOption::CRITICAL`].
    pub kind: u8,
    /// Three reserved bits, and the length of the data in units of four bytes.
    pub length: u8,
}

impl GeneveOption {
    /// Flag of the type: a receiver that doesn't know the option drops the packet.
    pub const CRITICAL: u8 = 0x80;

    /// Length of the data in bytes.
    #[inline]
    pub fn data_len(&self) -> usize {
        usize::from(self.length & 0x1f) * 4
    }
}

/// The mandatory header of GTP-U (3GPP TS 29.281, 5.1).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Gtp {
    /// Version, protocol type, and flags for optional fields.
    pub flags: u8,
    /// Message type.
    pub kind: u8,
    /// Bytes after this header.
    pub length: U16,
    /// Tunnel endpoint identifier.
    pub teid: U32,
}

impl Gtp {
    /// Version 1, protocol type GTP, without optional fields.
    pub const VERSION_1: u8 = 0x30;
    /// Bits of version and protocol type.
    pub const VERSION: u8 = 0xf0;
    /// Flag: the type of an extension header is significant.
    pub const EXTENSION: u8 = 0x04;
    /// Flags, any of which adds four bytes to the header: sequence number, N-PDU number, extension header
    /// type.
    pub const OPTIONAL: u8 = 0x07;
    /// Message type: a user's packet.
    pub const G_PDU: u8 = 0xff;
}

/// The headers of a PPPoE session frame: Ethernet, PPPoE, and PPP's protocol.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Pppoe {
    /// The Ethernet header.
    pub ethernet: Ethernet,
    /// [`Pppoe::VERSION_TYPE`].
    pub version_type: u8,
    /// 0 for session data.
    pub code: u8,
    /// The session's identifier.
    pub session: U16,
    /// Length of the payload in bytes, PPP's protocol included.
    pub length: U16,
    /// The protocol carried by PPP.
    pub protocol: U16,
}

impl Pppoe {
    /// Version 1, type 1.
    pub const VERSION_TYPE: u8 = 0x11;
    /// PPP's number for IPv4.
    pub const IPV4: u16 = 0x0021;
    /// PPP's number for IPv6.
    pub const IPV6: u16 = 0x0057;
}
