//! Operations on packets and addresses that several elements share.
use ringway_click::arg::{ArgError, Scope, parse_int};
use ringway_click::prelude::*;
use ringway_wire::{Ethernet, Header, Ipv4, MacAddress, vlan};

/// Zero-pads a packet. Attack: without zeroing, data of an earlier packet would be sent.
pub(crate) fn grow(packet: &mut Packet, missing: usize) -> bool {
    let length = packet.len();
    if missing > 0 {
        if !packet.put(missing) {
            return false;
        }
        packet.data_mut()[length..].fill(0);
    }
    true
}

/// An Ethernet address as Click prints it: `00-1B-21-44-04-F0`.
pub(crate) fn mac_text(address: MacAddress) -> String {
    let [a, b, c, d, e, f] = address.0;
    format!("{a:02X}-{b:02X}-{c:02X}-{d:02X}-{e:02X}-{f:02X}")
}

/// A handler to read and write a MAC address.
pub(crate) fn mac_handler<E: Element>(
    name: &'static str,
    address: impl Fn(&mut E) -> &mut MacAddress + Copy + 'static,
) -> Handler {
    Handler::read_with(name, move |e: &mut E, _, _| Ok(mac_text(*address(e)))).writes(
        move |e: &mut E, value, cx| {
            *address(e) = cx.parse(value)?;
            Ok(())
        },
    )
}

/// The marked IPv4 header, mutable, if the packet contains all of it.
#[inline]
pub(crate) fn ipv4_mut(packet: &mut Packet) -> Option<&mut Ipv4> {
    Some(Ipv4::parse_mut(packet.network_data_mut()?)?.0)
}

/// Two bytes as a number; 0 past the end.
#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u16::from_be_bytes(*word))
}

/// Four bytes as a number; 0 past the end.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_be_bytes(*word))
}

/// Writes bytes at `at`, if they fit.
#[inline]
pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(place) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = value;
    }
}

/// Leaves a burst unchanged if no packet is longer than `mtu`, counted from its network header or else its start.
/// Otherwise emits all packets on output 0 in order, passing longer ones through `fragment`.
pub(crate) fn cut_to(
    mtu: usize,
    burst: &mut PacketBurst,
    cx: &mut Context<'_>,
    mut fragment: impl FnMut(Packet, &mut Context<'_>),
) {
    let fits = |packet: &Packet| packet.network_data().unwrap_or_else(|| packet.data()).len() <= mtu;
    if burst.iter().all(fits) {
        return;
    }
    for packet in burst.drain() {
        if fits(&packet) { cx.push(0, packet) } else { fragment(packet, cx) }
    }
}

/// Sends packets for which `keep` returns false to output 1; the others stay in the burst.
#[inline]
pub(crate) fn divert(
    burst: &mut PacketBurst,
    cx: &mut ringway_click::Context<'_>,
    mut keep: impl FnMut(&mut Packet, &mut ringway_click::Context<'_>) -> bool,
) {
    burst.sift(cx, |cx, packet| (!keep(packet, cx)).then_some(()), |cx, packet, ()| cx.push(1, packet));
}

/// [`divert`], counting the diverted packets.
#[inline]
pub(crate) fn divert_counting(
    burst: &mut PacketBurst,
    cx: &mut ringway_click::Context<'_>,
    drops: &mut u64,
    mut keep: impl FnMut(&mut Packet, &mut ringway_click::Context<'_>) -> bool,
) {
    burst.sift(
        cx,
        |cx, packet| (!keep(packet, cx)).then_some(()),
        |cx, packet, ()| {
            *drops += 1;
            cx.push(1, packet);
        },
    );
}

/// Drops and counts packets for which `keep` returns false.
#[inline]
pub(crate) fn retain_counting(
    burst: &mut PacketBurst,
    drops: &mut u64,
    mut keep: impl FnMut(&mut Packet) -> bool,
) {
    burst.sift(
        &mut (),
        |(), packet| (!keep(packet)).then_some(()),
        |(), packet, ()| {
            *drops += 1;
            drop(packet);
        },
    );
}

/// A parser of whole numbers from `least` to `most`.
pub(crate) fn bounded<T: TryFrom<i128>>(
    least: i128,
    most: i128,
) -> impl FnOnce(&str, &Scope) -> Result<T, ArgError> {
    move |text, _| parse_int(text, least, most)
}

/// Marks an Ethernet header of `length` bytes at the start of the packet, and what follows it; transport header
/// annotations are kept.
#[inline]
pub(crate) fn mark_ethernet(packet: &mut Packet, length: usize) {
    packet.set_mac_header(0);
    mark_network(packet, length as isize);
}

/// Marks an Ethernet header at the start of a packet that gained or lost a tag. The network header stays where it was
/// marked, if that is not within the Ethernet header and its tags; otherwise it follows them.
#[inline]
pub(crate) fn mark_tagged(packet: &mut Packet, length: usize) {
    packet.set_mac_header(0);
    let data = packet.data();
    let rest = Ethernet::split(data).and_then(|(header, rest)| vlan::untag(header.ethertype, rest));
    let end = rest.map_or(length, |rest| data.len() - rest.payload.len()).max(length) as isize;
    mark_network(packet, packet.network_header().map_or(end, |network| network.max(end)));
}

#[inline]
fn mark_network(packet: &mut Packet, network: isize) {
    if packet.network_header() != Some(network) {
        let transport = packet.transport_header().unwrap_or(network);
        packet.set_network_header(network, usize::try_from(transport - network).unwrap_or(0));
    }
}
