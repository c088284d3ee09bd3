//! Bridge protocol data units of the spanning tree protocol (IEEE 802.1D-1998, 9.3), in their LLC frames.

use crate::{Ethernet, MacAddress, U16, U32};
use zerocopy::big_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The address of all bridges.
pub const ALL_BRIDGES: MacAddress = MacAddress([0x01, 0x80, 0xc2, 0, 0, 0]);
/// The protocol's LLC header: service access points, and control for unnumbered information.
pub const LLC: [u8; 3] = [0x42, 0x42, 0x03];
/// Type of a configuration BPDU.
pub const CONFIGURATION: u8 = 0;
/// Type of a topology change notification, which ends after the type.
pub const TOPOLOGY_CHANGE: u8 = 0x80;
/// Flag: topology change.
pub const CHANGED: u8 = 0x01;
/// Flag: topology change acknowledgment.
pub const ACKNOWLEDGED: u8 = 0x80;
/// Values of the Ethernet header's length: for a configuration, and for a notification.
pub const LENGTHS: [u16; 2] = [38, 7];
/// Bytes of padding after a configuration.
pub const PADDING: usize = 8;
/// Time units per second.
pub const UNITS: u16 = 256;

/// The beginning of every BPDU, its Ethernet header included.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Bpdu {
    /// Ethernet header with a length.
    pub ethernet: Ethernet,
    /// [`LLC`].
    pub llc: [u8; 3],
    /// Protocol identifier, 0.
    pub protocol: U16,
    /// Version, 0.
    pub version: u8,
    /// [`CONFIGURATION`] or [`TOPOLOGY_CHANGE`].
    pub kind: u8,
}

/// The fields of a configuration after [`Bpdu`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Configuration {
    /// [`CHANGED`], [`ACKNOWLEDGED`].
    pub flags: u8,
    /// Identifier of the bridge that is believed to be the root: its priority and address.
    pub root: U64,
    /// Cost of the path to the root.
    pub cost: U32,
    /// Identifier of the sender.
    pub bridge: U64,
    /// Identifier of the sender's port.
    pub port: U16,
    /// Time since the root sent the configuration. This and the other times are in units of a second /
    /// [`UNITS`].
    pub message_age: U16,
    /// Age at which the configuration is discarded.
    pub max_age: U16,
    /// Time between configurations of the root.
    pub hello_time: U16,
    /// Time that a port is listening, and again learning, before it forwards.
    pub forward_delay: U16,
    /// Padding to the minimum frame length.
    pub padding: [u8; PADDING],
}
