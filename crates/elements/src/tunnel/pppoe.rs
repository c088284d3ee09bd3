//! Session frames of PPP over Ethernet (RFC 2516).
use crate::packet::{prepend, put, u16_at};
use ringway_click::{Annotations, Packet};
use ringway_wire::MacAddress;

/// Bytes before what PPP carries: Ethernet, PPPoE, PPP's protocol.
pub(super) const HEADERS: usize = 14 + 6 + 2;
/// Ethernet's type of session frames.
const SESSION: u16 = 0x8864;
/// Version 1, type 1.
const VERSION_TYPE: u8 = 0x11;
/// PPP's number for IPv4.
pub(super) const IPV4: u16 = 0x0021;
/// PPP's number for IPv6.
pub(super) const IPV6: u16 = 0x0057;

/// What the headers of a session frame say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionFrame {
    pub(super) destination: MacAddress,
    pub(super) source: MacAddress,
    pub(super) session: u16,
    pub(super) protocol: u16,
    /// Bytes that PPP carries.
    pub(super) length: usize,
}

/// Why a frame is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It is something else.
    Other,
    /// Its headers lie.
    Malformed,
}

impl SessionFrame {
    /// Of a packet that begins with its Ethernet header.
    #[inline]
    pub(super) fn of(data: &[u8]) -> Result<Self, Wrong> {
        if u16_at(data, 12) != SESSION {
            return Err(Wrong::Other);
        }
        let Some((headers, rest)) = data.split_first_chunk::<HEADERS>() else { return Err(Wrong::Malformed) };
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *headers;
        let length = usize::from(u16_at(headers, 18)).checked_sub(2).ok_or(Wrong::Malformed)?;
        if headers[14] != VERSION_TYPE || headers[15] != 0 || length > rest.len() {
            return Err(Wrong::Malformed);
        }
        Ok(Self {
            destination: MacAddress([a, b, c, d, e, f]),
            source: MacAddress([g, h, i, j, k, l]),
            session: u16_at(headers, 16),
            protocol: u16_at(headers, 20),
            length,
        })
    }

    /// Leaves only what PPP carries, and notes the header where it is IPv4 or IPv6.
    #[inline]
    pub(super) fn strip(&self, packet: &mut Packet) {
        packet.set_mac_header(0);
        packet.pull(HEADERS);
        packet.take(packet.len().saturating_sub(self.length));
        let ip = packet.data();
        if self.protocol == IPV4 && ip.len() >= 20 {
            let header = usize::from(ip[0] & 15) * 4;
            let destination = [ip[16], ip[17], ip[18], ip[19]];
            packet.set_network_header(0, header);
            packet.notes_mut().set_dst_ip(destination);
        } else if self.protocol == IPV6
            && let Some(destination) = ip.get(24..40).and_then(<[u8]>::first_chunk::<16>).copied()
        {
            packet.set_network_header(0, 40);
            packet.notes_mut().set(Annotations::DST_IP6, destination);
        }
    }
}

/// Puts the headers of a session frame before an IP packet. False if it is too long for them.
#[inline]
pub(super) fn wrap(packet: &mut Packet, to: MacAddress, from: MacAddress, session: u16) -> bool {
    let protocol = if packet.data().first().is_some_and(|first| first >> 4 == 6) { IPV6 } else { IPV4 };
    let Ok(length) = u16::try_from(packet.len() + 2) else { return false };
    let mut headers = [0; HEADERS];
    put(&mut headers, 0, to.0);
    put(&mut headers, 6, from.0);
    put(&mut headers, 12, SESSION.to_be_bytes());
    headers[14] = VERSION_TYPE;
    put(&mut headers, 16, session.to_be_bytes());
    put(&mut headers, 18, length.to_be_bytes());
    put(&mut headers, 20, protocol.to_be_bytes());
    let grown = prepend(packet, &headers);
    packet.set_mac_header(0);
    grown
}
