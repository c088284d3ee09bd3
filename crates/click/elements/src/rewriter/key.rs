//! Identifiers of flows.
use crate::flow::table::fold;
use core::fmt;
use core::net::Ipv4Addr;
use ringway_wire::{Header, Ipv4, U16};

/// Addresses and ports in host byte order; fields that an element does not use are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowKey {
    /// Source address.
    pub source: u32,
    /// Source port.
    pub source_port: u16,
    /// Destination address.
    pub destination: u32,
    /// Destination port.
    pub destination_port: u16,
}

impl FlowKey {
    /// The key of the opposite direction.
    #[must_use]
    pub fn reverse(self) -> Self {
        Self {
            source: self.destination,
            source_port: self.destination_port,
            destination: self.source,
            destination_port: self.source_port,
        }
    }

    /// Reads the key from an IP header and its payload.
    #[inline]
    pub fn of(ip: &Ipv4, transport: &[u8]) -> Option<Self> {
        let [source_port, destination_port] = <[U16; 2]>::of(transport)?.map(U16::get);
        Some(Self {
            source: ip.source.get(),
            source_port,
            destination: ip.destination.get(),
            destination_port,
        })
    }

    /// The key's hash. Attack: flows chosen to collide; the sender does not know `seed`.
    #[inline]
    pub(crate) fn hash(self, map: u32, seed: u64) -> u64 {
        let first = u64::from(self.source) << 32 | u64::from(self.destination);
        let ports = u64::from(self.source_port) << 16 | u64::from(self.destination_port);
        let second = u64::from(map) << 32 | ports;
        let mixed = fold(first ^ seed, second ^ 0x9e37_79b9_7f4a_7c15);
        fold(mixed ^ seed.rotate_left(32), 0xd6e8_feb8_6659_fd93)
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (Ipv4Addr::from_bits(self.source), Ipv4Addr::from_bits(self.destination));
        write!(f, "({source}, {}, {destination}, {})", self.source_port, self.destination_port)
    }
}
