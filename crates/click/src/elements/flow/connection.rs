//! Which flow an IPv4 packet belongs to.
use super::table::Key;
use crate::Packet;
use crate::elements::packet::{is_later_fragment, u16_at};
use crate::elements::rewriter::key::FlowKey;

/// Protocol number of TCP.
pub(super) const TCP: u8 = 6;
/// Protocol number of UDP.
pub(super) const UDP: u8 = 17;

/// Addresses, ports and protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Connection {
    pub(super) ends: FlowKey,
    pub(super) protocol: u8,
}

impl Key for Connection {
    #[inline]
    fn hash(self, seed: u64) -> u64 {
        self.ends.hash(self.protocol.into(), seed)
    }
}

/// What a packet's headers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    pub(super) connection: Connection,
    /// The IPv4 packet's length by its header.
    pub(super) length: u16,
    pub(super) tos: u8,
    /// Of TCP; 0 else.
    pub(super) flags: u8,
}

impl Headers {
    /// Of a packet whose IPv4 header is noted and sound; ports are 0 where there are none, as in later fragments.
    #[inline]
    pub(super) fn of(packet: &Packet) -> Option<Self> {
        let ip = packet.network_data()?;
        let (first, header) = (*ip.first()?, usize::from(ip.first()? & 15) * 4);
        if first >> 4 != 4 || header < 20 || ip.len() < header {
            return None;
        }
        let protocol = ip[9];
        let has_ports = matches!(protocol, TCP | UDP) && !is_later_fragment(ip) && ip.len() >= header + 4;
        let mut ends = FlowKey::of(ip, if has_ports { header } else { 12 })?;
        if !has_ports {
            (ends.source_port, ends.destination_port) = (0, 0);
        }
        let flags = if protocol == TCP && has_ports { ip.get(header + 13).copied().unwrap_or(0) } else { 0 };
        Some(Self { connection: Connection { ends, protocol }, length: u16_at(ip, 2), tos: ip[1], flags })
    }

    /// Whether it has ports, so that packets of one connection can be told from another's.
    #[inline]
    pub(super) fn has_ports(&self) -> bool {
        let ends = &self.connection.ends;
        matches!(self.connection.protocol, TCP | UDP) && (ends.source_port | ends.destination_port) != 0
    }
}
