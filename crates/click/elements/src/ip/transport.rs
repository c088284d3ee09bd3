//! The transport part of IPv4 packets, limited by the lengths in the headers and by the available bytes.
use ringway_click::Packet;
use ringway_wire::{Ipv4, Protocol, Sum};

/// The payload of an IPv4 packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transport {
    pub(crate) protocol: Protocol,
    /// Bytes of the IPv4 header.
    pub(crate) header: usize,
    /// Bytes after the header, according to the header.
    pub(crate) length: usize,
    /// Whether the packet is a fragment other than the first, and whether more fragments follow it.
    pub(crate) later: bool,
    pub(crate) more: bool,
    pub(crate) source: u32,
    pub(crate) destination: u32,
}

impl Transport {
    /// Reads it from bytes that begin with the IPv4 header; `None` if the header is incomplete.
    #[inline]
    pub(crate) fn of(data: &[u8]) -> Option<Self> {
        let (ip, ..) = Ipv4::parse(data)?;
        Some(Self {
            protocol: ip.protocol,
            header: ip.header_len(),
            length: usize::from(ip.total_length.get()).checked_sub(ip.header_len())?,
            later: ip.is_later_fragment(),
            more: ip.more_fragments(),
            source: ip.source.get(),
            destination: ip.destination.get(),
        })
    }

    /// Parses a packet with a marked header.
    #[inline]
    pub(crate) fn of_packet(packet: &Packet) -> Option<Self> {
        Self::of(packet.network_data()?)
    }

    /// The pseudo header's sum for `length` bytes.
    #[inline]
    pub(crate) fn pseudo(&self, length: usize) -> Sum {
        Sum::pseudo_v4(
            self.source.into(),
            self.destination.into(),
            self.protocol.0,
            u16::try_from(length).unwrap_or(u16::MAX),
        )
    }

    /// The payload, with the length given by the header; `None` if it is incomplete.
    #[inline]
    pub(crate) fn slice<'a>(&self, data: &'a [u8]) -> Option<&'a [u8]> {
        data.get(self.header..)?.get(..self.length)
    }

    /// The payload, mutably.
    #[inline]
    pub(crate) fn slice_mut<'a>(&self, data: &'a mut [u8]) -> Option<&'a mut [u8]> {
        data.get_mut(self.header..)?.get_mut(..self.length)
    }
}
