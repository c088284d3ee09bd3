//! IPv4 and IPv6: source addresses, and where the headers of what they carry are.

use super::{Bytes, Checked, Refusal, SenderRules};
use ringway_frame::{Gso, Offload};
use ringway_wire::icmp::v4 as icmp;
use ringway_wire::{Header, MacAddress, Protocol, bootp, ipv6};

/// Ports of DHCPv6's clients and servers (RFC 8415, 7.2).
const CLIENT_PORT_V6: u16 = 546;
const SERVER_PORT_V6: u16 = 547;
/// Length of a UDP header.
const UDP: usize = 8;
/// The type of IGMP queries, and bytes of a message before its checksum (RFC 3376, 4).
const IGMP_QUERY: u8 = 0x11;
const IGMP_CHECKSUM: usize = 2;
/// Extension headers at most, as `ringway_wire` reads them.
const EXTENSIONS: usize = ipv6::EXTENSIONS;
/// The option of a destination header that gives another source address (RFC 6275, 6.3).
const HOME_ADDRESS: u8 = 201;
/// Extension headers that are not looked behind: mobility, HIP, Shim6 and the two for experiments (IANA).
const UNREAD: [u8; 5] = [135, 139, 140, 253, 254];

/// What an IP packet carries.
pub(super) struct Upper<'f> {
    /// Up to the end of the packet.
    pub(super) packet: Bytes<'f>,
    pub(super) protocol: Protocol,
    /// Where it begins.
    pub(super) at: usize,
    /// Whether this is a part of it.
    pub(super) is_fragment: bool,
    pub(super) mac: MacAddress,
    pub(super) offload: Offload,
    /// The kind of segmentation of TCP in these packets.
    tcp: Gso,
}

impl Upper<'_> {
    /// Checks that what is pending changes nothing before `kept` bytes of it.
    ///
    /// Attack: a checksum that is written over an address that was checked, or a segmentation that takes other bytes
    /// for the headers.
    pub(super) fn keeps(&self, kept: usize) -> Checked {
        let offload = self.offload;
        if offload.is_done() {
            return Ok(());
        }
        let start = usize::from(offload.csum_start);
        let is_behind = start + usize::from(offload.csum_offset) >= self.at + kept;
        let is_fitting = match offload.gso() {
            Ok(None) => true,
            Ok(Some(Gso::UdpL4)) => self.protocol == Protocol::UDP && start == self.at,
            Ok(Some(tcp)) => self.protocol == Protocol::TCP && tcp == self.tcp && start == self.at,
            Err(_) => false,
        };
        if is_fitting && !self.is_fragment && (is_behind || !offload.needs_checksum()) {
            return Ok(());
        }
        Err(Refusal::Offload("its pending checksum or segmentation is not that of the packet it carries"))
    }

    /// Checks that nothing is pending but the checksum at `field`, so that one message leaves, as it was checked.
    pub(super) fn is_one_message(&self, field: usize) -> Checked {
        let offload = self.offload;
        let written = usize::from(offload.csum_start) + usize::from(offload.csum_offset);
        let is_field = written == self.at + field || !offload.needs_checksum();
        if self.is_fragment {
            return Err(Refusal::Unreadable("it is a fragment of a message that is never fragmented"));
        }
        if offload.is_done() || offload.gso() == Ok(None) && is_field {
            return Ok(());
        }
        Err(Refusal::Offload("its pending checksum or segmentation would change the message"))
    }
}

impl SenderRules {
    pub(super) fn ipv4(&self, frame: Bytes<'_>, at: usize, mac: MacAddress, offload: Offload) -> Checked {
        let header: [u8; 20] = frame.array(at)?;
        let [version_ihl, _, total @ ..] = header;
        let word = |offset: usize| u16::from_be_bytes([header[offset], header[offset + 1]]);
        let (length, total) =
            (usize::from(version_ihl & 15) * 4, usize::from(u16::from_be_bytes([total[0], total[1]])));
        if version_ihl >> 4 != 4 || length < 20 || total < length {
            return Err(Refusal::Unreadable("its IPv4 header is wrong"));
        }
        let packet = frame.until(at + total)?;
        let source = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);
        if source != 0 && !self.allows_v4(source) {
            return Err(Refusal::Spoofed("its IPv4 source is not in `allow`"));
        }
        let (offset, has_more) = (word(6) & 0x1fff, word(6) & 0x2000 != 0);
        let upper = Upper {
            packet,
            protocol: Protocol(header[9]),
            at: at + length,
            is_fragment: offset > 0 || has_more,
            mac,
            offload,
            tcp: Gso::Tcp4,
        };
        if upper.protocol == Protocol::ICMP && offset == 0 {
            self.icmp_v4(&upper)?;
        }
        if upper.protocol == Protocol::IGMP && offset == 0 {
            igmp(&upper)?;
        }
        let is_request =
            upper.protocol == Protocol::UDP && offset == 0 && self.udp_v4(&upper, source == 0)?;
        if source == 0 && !is_request {
            return Err(Refusal::Spoofed(
                "its IPv4 source is 0.0.0.0, and it is no request of a DHCP client",
            ));
        }
        upper.keeps(match upper.protocol {
            Protocol::UDP => 4,
            // Attack: a checksum that is written over the type.
            Protocol::IGMP => IGMP_CHECKSUM,
            _ => 0,
        })
    }

    /// Checks an ICMP message: a guest is no router (RFC 792, RFC 1256).
    fn icmp_v4(&self, upper: &Upper<'_>) -> Checked {
        // Attack: a fragment that ends before the type, which a second one has.
        let [kind] = upper.packet.array(upper.at)?;
        match kind {
            icmp::REDIRECT => Err(Refusal::Rogue("it is a redirect")),
            icmp::ROUTER_ADVERTISEMENT => Err(Refusal::Rogue("it is a router advertisement")),
            _ => Ok(()),
        }
    }

    /// Checks a UDP datagram; whether it is the request of a DHCP client.
    fn udp_v4(&self, upper: &Upper<'_>, has_no_address: bool) -> Result<bool, Refusal> {
        // Attack: a fragment that ends before the ports, which a second one has.
        let [source, to, length, _] = words(upper.packet.array::<UDP>(upper.at)?);
        if source == bootp::SERVER_PORT || to == bootp::CLIENT_PORT {
            return Err(Refusal::Rogue("it is a message of a DHCP server"));
        }
        if to != bootp::SERVER_PORT {
            return Ok(false);
        }
        // Attack: a message in several fragments or segments, of which each is another message's beginning.
        upper.is_one_message(6)?;
        let message = upper.packet.until(upper.at + usize::from(length))?;
        let start = upper.at + UDP;
        let [op, hardware, hardware_length, _] = message.array(start)?;
        if op != bootp::REQUEST {
            return Err(Refusal::Rogue("it is a message of a DHCP server"));
        }
        if message.array::<4>(start + std::mem::offset_of!(bootp::Bootp, giaddr))? != [0; 4] {
            return Err(Refusal::Rogue("it is a message of a DHCP relay"));
        }
        let address: [u8; 6] = message.array(start + std::mem::offset_of!(bootp::Bootp, chaddr))?;
        if (hardware, hardware_length) != (1, 6) || MacAddress(address) != upper.mac {
            return Err(Refusal::Spoofed("its DHCP client's hardware address is not the sender's"));
        }
        if has_no_address && source != bootp::CLIENT_PORT {
            return Err(Refusal::Spoofed(
                "its IPv4 source is 0.0.0.0, and it is no request of a DHCP client",
            ));
        }
        Ok(true)
    }

    pub(super) fn ipv6(&self, frame: Bytes<'_>, at: usize, mac: MacAddress, offload: Offload) -> Checked {
        let bytes: [u8; ipv6::HEADER_LEN] = frame.array(at)?;
        let header = ipv6::Ipv6::padded(&bytes);
        let length = usize::from(header.payload_length.get());
        // Attack: a jumbogram, whose length is in an option (RFC 2675).
        if header.version() != 6 || length == 0 && header.next_header != Protocol::NONE {
            return Err(Refusal::Unreadable("its IPv6 header is wrong"));
        }
        let start = at + ipv6::HEADER_LEN;
        let packet = frame.until(start + length)?;
        let source = header.source.get();
        if source != 0 && !self.allows_v6(source, mac) {
            return Err(Refusal::Spoofed("its IPv6 source is not in `allow`"));
        }
        let found = upper_v6(packet, (header.next_header, start))?;
        let (is_first, protocol) = (found.is_first, found.protocol);
        let upper = Upper {
            packet,
            protocol,
            at: found.at,
            is_fragment: found.is_fragment,
            mac,
            offload,
            tcp: Gso::Tcp6,
        };
        if is_first && protocol == Protocol::ICMPV6 {
            return self.icmp_v6(&upper, source == 0);
        }
        if source == 0 {
            return Err(Refusal::Spoofed("its IPv6 source is ::, and it does not look for neighbors"));
        }
        if is_first && protocol == Protocol::UDP {
            let [from, to, ..] = words(packet.array::<UDP>(upper.at)?);
            if from == SERVER_PORT_V6 || to == CLIENT_PORT_V6 {
                return Err(Refusal::Rogue("it is a message of a DHCP server"));
            }
        }
        upper.keeps(if protocol == Protocol::UDP { 4 } else { 0 })
    }
}

/// Checks an IGMP message: a guest is no querier. Attack: queries with which it wins the election of the querier, and
/// then sends no others, so that all members expire (RFC 3376, 6.6.2).
fn igmp(upper: &Upper<'_>) -> Checked {
    // Attack: a fragment that ends before the type, which a second one has.
    match upper.packet.array(upper.at)? {
        [IGMP_QUERY] => Err(Refusal::Rogue("it is a query of IGMP")),
        _ => Ok(()),
    }
}

/// Where the headers of an IPv6 packet end.
struct Found {
    protocol: Protocol,
    at: usize,
    is_fragment: bool,
    /// Whether what it carries begins here.
    is_first: bool,
}

/// Skips the extension headers (RFC 8200, 4).
fn upper_v6(packet: Bytes<'_>, (mut next, mut at): (Protocol, usize)) -> Result<Found, Refusal> {
    let start = at;
    let mut is_fragment = false;
    for _ in 0..=EXTENSIONS {
        let is_behind_fragment = is_fragment;
        let is_extension = match next {
            Protocol::HOP_BY_HOP if at != start => {
                return Err(Refusal::Unreadable("its IPv6 extension headers are in the wrong order"));
            }
            Protocol(number) if UNREAD.contains(&number) => {
                return Err(Refusal::Unreadable("it has an IPv6 extension header that is not read"));
            }
            Protocol::HOP_BY_HOP
            | Protocol::ROUTING
            | Protocol::DESTINATION
            | Protocol::AUTHENTICATION
            | Protocol::FRAGMENT => true,
            _ => false,
        };
        if !is_extension {
            return Ok(Found { protocol: next, at, is_fragment, is_first: true });
        }
        // Attack: fragments that overlap the headers behind an extension header, which was checked with other ones.
        if is_behind_fragment {
            return Err(Refusal::Unreadable("an IPv6 extension header follows a fragment's"));
        }
        let [following, length, high, low] = packet.array(at)?;
        let length = match next {
            Protocol::FRAGMENT => 8,
            Protocol::AUTHENTICATION => (usize::from(length) + 2) * 4,
            _ => (usize::from(length) + 1) * 8,
        };
        if at + length > packet.end {
            return Err(Refusal::Unreadable("its headers end early"));
        }
        if next == Protocol::DESTINATION {
            no_home_address(packet, at + 2, at + length)?;
        }
        if next == Protocol::FRAGMENT {
            is_fragment = true;
            if u16::from_be_bytes([high, low]) & !7 != 0 {
                return Ok(Found {
                    protocol: Protocol(following),
                    at: at + length,
                    is_fragment,
                    is_first: false,
                });
            }
        }
        (next, at) = (Protocol(following), at + length);
    }
    Err(Refusal::Unreadable("it has too many IPv6 extension headers"))
}

/// Attack: a receiver with Mobile IPv6 takes this option's address for the source.
fn no_home_address(packet: Bytes<'_>, mut at: usize, end: usize) -> Checked {
    while at < end {
        let [kind] = packet.array(at)?;
        if kind == HOME_ADDRESS {
            return Err(Refusal::Unreadable("it has a home address as a second source"));
        }
        at += if kind == 0 { 1 } else { 2 + usize::from(packet.array::<2>(at)?[1]) };
    }
    Ok(())
}

/// Four words of a header.
fn words(bytes: [u8; 8]) -> [u16; 4] {
    let [a, b, c, d, e, f, g, h] = bytes;
    [[a, b], [c, d], [e, f], [g, h]].map(u16::from_be_bytes)
}
