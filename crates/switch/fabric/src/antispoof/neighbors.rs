//! ICMPv6: neighbor discovery (RFC 4861), what a node without an address sends, and what only routers send.

use super::ip::Upper;
use super::{Bytes, Checked, Refusal, SenderRules};
use ringway_wire::MacAddress;

/// Types of messages (IANA).
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;
/// Inverse discovery (RFC 3122): solicitation and advertisement.
const INVERSE: [u8; 2] = [141, 142];
/// A query which groups have members (RFC 2710, RFC 3810).
const MEMBERSHIP_QUERY: u8 = 130;
/// Reports and ends of memberships of groups (RFC 2710, RFC 3810), which are sent before there is an address.
const MEMBERSHIP: [u8; 3] = [131, 132, 143];
/// Options: the link-layer addresses of the source and of the target.
const SOURCE_ADDRESS: u8 = 1;
const TARGET_ADDRESS: u8 = 2;
/// Bytes of a message before its checksum.
const CHECKSUM: usize = 2;
/// Bytes before the target's address, and behind it.
const TARGET: usize = 8;
const BEHIND_TARGET: usize = 24;

impl SenderRules {
    /// Checks an ICMPv6 message, or its first fragment.
    pub(super) fn icmp_v6(&self, upper: &Upper<'_>, has_no_address: bool) -> Checked {
        let [kind, ..] = upper.packet.array::<8>(upper.at)?;
        let is_discovery = (ROUTER_SOLICITATION..=REDIRECT).contains(&kind) || INVERSE.contains(&kind);
        if has_no_address
            && !matches!(kind, ROUTER_SOLICITATION | NEIGHBOR_SOLICITATION)
            && !MEMBERSHIP.contains(&kind)
        {
            return Err(Refusal::Spoofed("its IPv6 source is ::, and it does not look for neighbors"));
        }
        // Without an address of IPv6 in `allow` nothing of it passes.
        if has_no_address && self.restricts_addresses && self.v6.is_empty() {
            return Err(Refusal::Spoofed("no IPv6 address is in `allow`"));
        }
        if matches!(kind, ROUTER_ADVERTISEMENT | REDIRECT) {
            return Err(Refusal::Rogue("it is a message of a router"));
        }
        if kind == MEMBERSHIP_QUERY {
            return Err(Refusal::Rogue("it is a query of MLD"));
        }
        if !is_discovery {
            return upper.keeps(CHECKSUM);
        }
        // RFC 6980: such messages are not fragmented.
        upper.is_one_message(CHECKSUM)?;
        let has_target = matches!(kind, NEIGHBOR_SOLICITATION | NEIGHBOR_ADVERTISEMENT);
        if has_target && (kind == NEIGHBOR_ADVERTISEMENT || has_no_address) {
            let target = u128::from_be_bytes(upper.packet.array(upper.at + TARGET)?);
            if !self.allows_v6(target, upper.mac) {
                return Err(Refusal::Spoofed("its target is not in `allow`"));
            }
        }
        let options = upper.at + if has_target { BEHIND_TARGET } else { TARGET };
        link_layer_addresses(upper.packet, options, upper.mac, has_no_address)
    }
}

/// Checks that options have no link-layer address but the sender's.
fn link_layer_addresses(packet: Bytes<'_>, mut at: usize, mac: MacAddress, has_no_address: bool) -> Checked {
    if at > packet.end {
        return Err(Refusal::Unreadable("its headers end early"));
    }
    while at < packet.end {
        let [kind, length, address @ ..] = packet.array::<8>(at)?;
        if length == 0 || at + usize::from(length) * 8 > packet.end {
            return Err(Refusal::Unreadable("its options of neighbor discovery are wrong"));
        }
        let is_address = matches!(kind, SOURCE_ADDRESS | TARGET_ADDRESS);
        if is_address && (length != 1 || MacAddress(address) != mac) {
            return Err(Refusal::Spoofed("its link-layer address is not the sender's"));
        }
        // RFC 4861, 4.1 and 4.3: without a source there is none.
        if kind == SOURCE_ADDRESS && has_no_address {
            return Err(Refusal::Spoofed("its IPv6 source is ::, and it has a link-layer address"));
        }
        at += usize::from(length) * 8;
    }
    Ok(())
}
