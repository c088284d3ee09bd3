//! The fields of matches and of actions, by their names in `ovs-ofctl`.

use crate::key::{Key, LATER, Place, TAGGED, place};
use crate::text::{Form, Problem};
use ringway_wire::{EtherType, Protocol, icmp};

/// The frames that have a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// All of them.
    Nothing,
    /// Those with a tag.
    Tag,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// IPv4 and IPv6.
    Ip,
    /// ARP and RARP.
    Arp,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// Any of these three.
    Ports,
    /// ICMP for IPv4.
    Icmp,
    /// ICMPv6.
    Icmp6,
    /// ICMP for IPv4, or ICMPv6.
    AnyIcmp,
    /// Neighbor solicitations and advertisements.
    Neighbor,
    /// Neighbor solicitations.
    Solicitation,
    /// Neighbor advertisements.
    Advertisement,
}

/// A field.
#[derive(Debug, PartialEq, Eq)]
pub struct Field {
    /// Its names, the one that is shown in actions first; the second one is of Nicira's extension.
    pub names: &'static [&'static str],
    /// Where it is.
    pub place: Place,
    /// What its values look like.
    pub form: Form,
    /// The frames that have it.
    pub needs: Needs,
    /// Whether actions may write it.
    pub is_writable: bool,
}

const fn field(names: &'static [&'static str], place: Place, form: Form, needs: Needs) -> Field {
    Field { names, place, form, needs, is_writable: true }
}

const fn fixed(names: &'static [&'static str], place: Place, form: Form, needs: Needs) -> Field {
    Field { names, place, form, needs, is_writable: false }
}

const fn register(names: &'static [&'static str], number: usize) -> Field {
    field(names, place::REGS[number], Form::Hexadecimal, Needs::Nothing)
}

/// Every field.
pub static FIELDS: &[Field] = &[
    fixed(&["in_port", "NXM_OF_IN_PORT"], place::IN_PORT, Form::Port, Needs::Nothing),
    field(&["eth_dst", "NXM_OF_ETH_DST", "dl_dst"], place::ETH_DST, Form::Mac, Needs::Nothing),
    field(&["eth_src", "NXM_OF_ETH_SRC", "dl_src"], place::ETH_SRC, Form::Mac, Needs::Nothing),
    fixed(&["eth_type", "NXM_OF_ETH_TYPE", "dl_type"], place::ETH_TYPE, Form::Digits(4), Needs::Nothing),
    fixed(&["vlan_tci", "NXM_OF_VLAN_TCI"], place::VLAN_TCI, Form::Digits(4), Needs::Nothing),
    field(&["vlan_vid", "OXM_OF_VLAN_VID"], place::VLAN_VID, Form::Vlan, Needs::Tag),
    field(&["vlan_pcp", "OXM_OF_VLAN_PCP", "dl_vlan_pcp"], place::VLAN_PCP, Form::Number, Needs::Tag),
    field(&["ip_src", "NXM_OF_IP_SRC", "nw_src"], place::NW_SRC, Form::Ipv4, Needs::Ipv4),
    field(&["ip_dst", "NXM_OF_IP_DST", "nw_dst"], place::NW_DST, Form::Ipv4, Needs::Ipv4),
    field(&["ipv6_src", "NXM_NX_IPV6_SRC"], place::IPV6_SRC, Form::Ipv6, Needs::Ipv6),
    field(&["ipv6_dst", "NXM_NX_IPV6_DST"], place::IPV6_DST, Form::Ipv6, Needs::Ipv6),
    field(
        &["ipv6_label", "NXM_NX_IPV6_LABEL", "ipv6_flabel"],
        place::IPV6_LABEL,
        Form::Digits(5),
        Needs::Ipv6,
    ),
    fixed(&["nw_proto", "NXM_OF_IP_PROTO", "ip_proto"], place::NW_PROTO, Form::Number, Needs::Ip),
    field(&["ip_dscp", "OXM_OF_IP_DSCP"], place::DSCP, Form::Number, Needs::Ip),
    field(&["nw_ecn", "NXM_NX_IP_ECN", "ip_ecn"], place::ECN, Form::Number, Needs::Ip),
    field(&["nw_ttl", "NXM_NX_IP_TTL"], place::TTL, Form::Number, Needs::Ip),
    fixed(&["nw_frag", "NXM_NX_IP_FRAG", "ip_frag"], place::FRAG, Form::Fragment, Needs::Ip),
    field(&["tcp_src", "NXM_OF_TCP_SRC"], place::TP_SRC, Form::TransportPort, Needs::Tcp),
    field(&["tcp_dst", "NXM_OF_TCP_DST"], place::TP_DST, Form::TransportPort, Needs::Tcp),
    field(&["udp_src", "NXM_OF_UDP_SRC"], place::TP_SRC, Form::TransportPort, Needs::Udp),
    field(&["udp_dst", "NXM_OF_UDP_DST"], place::TP_DST, Form::TransportPort, Needs::Udp),
    fixed(&["sctp_src", "OXM_OF_SCTP_SRC"], place::TP_SRC, Form::TransportPort, Needs::Sctp),
    fixed(&["sctp_dst", "OXM_OF_SCTP_DST"], place::TP_DST, Form::TransportPort, Needs::Sctp),
    field(&["tp_src"], place::TP_SRC, Form::TransportPort, Needs::Ports),
    field(&["tp_dst"], place::TP_DST, Form::TransportPort, Needs::Ports),
    fixed(&["tcp_flags", "NXM_NX_TCP_FLAGS"], place::TCP_FLAGS, Form::Flags, Needs::Tcp),
    // A type of ICMP is where ports are, in the lower half.
    fixed(&["icmp_type", "NXM_OF_ICMP_TYPE"], place::TP_SRC, Form::Byte, Needs::AnyIcmp),
    fixed(&["icmp_code", "NXM_OF_ICMP_CODE"], place::TP_DST, Form::Byte, Needs::AnyIcmp),
    fixed(&["icmpv6_type", "NXM_NX_ICMPV6_TYPE"], place::TP_SRC, Form::Byte, Needs::Icmp6),
    fixed(&["icmpv6_code", "NXM_NX_ICMPV6_CODE"], place::TP_DST, Form::Byte, Needs::Icmp6),
    field(&["arp_op", "NXM_OF_ARP_OP"], place::NW_PROTO, Form::Number, Needs::Arp),
    field(&["arp_spa", "NXM_OF_ARP_SPA"], place::NW_SRC, Form::Ipv4, Needs::Arp),
    field(&["arp_tpa", "NXM_OF_ARP_TPA"], place::NW_DST, Form::Ipv4, Needs::Arp),
    field(&["arp_sha", "NXM_NX_ARP_SHA"], place::ARP_SHA, Form::Mac, Needs::Arp),
    field(&["arp_tha", "NXM_NX_ARP_THA"], place::ARP_THA, Form::Mac, Needs::Arp),
    fixed(&["nd_target", "NXM_NX_ND_TARGET"], place::ND_TARGET, Form::Ipv6, Needs::Neighbor),
    fixed(&["nd_sll", "NXM_NX_ND_SLL"], place::ARP_SHA, Form::Mac, Needs::Solicitation),
    fixed(&["nd_tll", "NXM_NX_ND_TLL"], place::ARP_THA, Form::Mac, Needs::Advertisement),
    field(&["metadata", "OXM_OF_METADATA"], place::METADATA, Form::Hexadecimal, Needs::Nothing),
    register(&["reg0", "NXM_NX_REG0"], 0),
    register(&["reg1", "NXM_NX_REG1"], 1),
    register(&["reg2", "NXM_NX_REG2"], 2),
    register(&["reg3", "NXM_NX_REG3"], 3),
    register(&["reg4", "NXM_NX_REG4"], 4),
    register(&["reg5", "NXM_NX_REG5"], 5),
    register(&["reg6", "NXM_NX_REG6"], 6),
    register(&["reg7", "NXM_NX_REG7"], 7),
];

/// The field of this name.
pub fn find(name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.names.contains(&name))
}

impl Field {
    /// Its name where actions are shown.
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }

    /// The greatest value, which is also the mask of an exact match.
    pub fn all(&self) -> u128 {
        match self.form {
            Form::Byte => 0xff,
            _ => self.place.all(),
        }
    }

    /// The bits of it that actions read and write.
    pub fn bits(&self) -> Place {
        match self.form {
            // Who writes a number does not take the tag away.
            Form::Vlan => place::VLAN_NUMBER,
            Form::Byte => self.place.part(0, 8),
            _ => self.place,
        }
    }

    /// Whether a match may have a mask of it.
    pub fn is_maskable(&self) -> bool {
        !matches!(self.form, Form::Number | Form::Byte | Form::Port) && self.place != place::ETH_TYPE
    }

    /// Reads a value, and its mask if it has one.
    ///
    /// # Errors
    /// It is no value of this field.
    pub fn read(&self, text: &str, ports: &dyn crate::Ports) -> Result<(u128, u128), Problem> {
        self.form.read(text, self.all(), ports)
    }
}

/// Words that stand for an EtherType and a protocol.
pub const PROTOCOLS: &[(&str, EtherType, Option<Protocol>)] = &[
    ("ip", EtherType::IPV4, None),
    ("ipv6", EtherType::IPV6, None),
    ("ip6", EtherType::IPV6, None),
    ("arp", EtherType::ARP, None),
    ("rarp", EtherType::RARP, None),
    ("icmp", EtherType::IPV4, Some(Protocol::ICMP)),
    ("icmp6", EtherType::IPV6, Some(Protocol::ICMPV6)),
    ("tcp", EtherType::IPV4, Some(Protocol::TCP)),
    ("tcp6", EtherType::IPV6, Some(Protocol::TCP)),
    ("udp", EtherType::IPV4, Some(Protocol::UDP)),
    ("udp6", EtherType::IPV6, Some(Protocol::UDP)),
    ("sctp", EtherType::IPV4, Some(Protocol::SCTP)),
    ("sctp6", EtherType::IPV6, Some(Protocol::SCTP)),
];

impl Needs {
    /// Whether all frames of a match, which is a key and its mask, have the field.
    pub fn is_met(self, key: &Key, mask: &Key) -> bool {
        let exact = |place: Place| (mask.get(place) == place.all()).then(|| key.get(place));
        let ether_type = exact(place::ETH_TYPE).map(|value| EtherType::new(value as u16));
        let is_v4 = ether_type == Some(EtherType::IPV4);
        let is_v6 = ether_type == Some(EtherType::IPV6);
        let protocol = exact(place::NW_PROTO).filter(|_| is_v4 || is_v6).map(|value| Protocol(value as u8));
        // Later fragments have no ports.
        let is_later = mask.get8(place::FRAG) & key.get8(place::FRAG) & LATER != 0;
        let is = |wanted| protocol == Some(wanted) && !is_later;
        let is_neighbor = |kind: u8| {
            let is_kind =
                mask.get(place::TP_SRC) & 0xff == 0xff && key.get(place::TP_SRC) == u128::from(kind);
            // Frames with another code have a target that is 0.
            is_v6 && is(Protocol::ICMPV6) && is_kind && key.get(place::TP_DST) == 0
        };
        match self {
            Needs::Nothing => true,
            Needs::Tag => mask.get16(place::VLAN_TCI) & key.get16(place::VLAN_TCI) & TAGGED != 0,
            Needs::Ipv4 => is_v4,
            Needs::Ipv6 => is_v6,
            Needs::Ip => is_v4 || is_v6,
            Needs::Arp => matches!(ether_type, Some(EtherType::ARP | EtherType::RARP)),
            Needs::Tcp => is(Protocol::TCP),
            Needs::Udp => is(Protocol::UDP),
            Needs::Sctp => is(Protocol::SCTP),
            Needs::Ports => is(Protocol::TCP) || is(Protocol::UDP) || is(Protocol::SCTP),
            Needs::Icmp => is_v4 && is(Protocol::ICMP),
            Needs::Icmp6 => is_v6 && is(Protocol::ICMPV6),
            Needs::AnyIcmp => is_v4 && is(Protocol::ICMP) || is_v6 && is(Protocol::ICMPV6),
            Needs::Neighbor => {
                is_neighbor(icmp::v6::NEIGHBOR_SOLICITATION) || is_neighbor(icmp::v6::NEIGHBOR_ADVERTISEMENT)
            }
            Needs::Solicitation => is_neighbor(icmp::v6::NEIGHBOR_SOLICITATION),
            Needs::Advertisement => is_neighbor(icmp::v6::NEIGHBOR_ADVERTISEMENT),
        }
    }

    /// The words that a match needs.
    pub fn words(self) -> &'static str {
        match self {
            Needs::Nothing => "nothing",
            Needs::Tag => "a VLAN, such as dl_vlan=5 or vlan_tci=0x1000/0x1000",
            Needs::Ipv4 => "ip, tcp, udp or icmp",
            Needs::Ipv6 => "ipv6, tcp6, udp6 or icmp6",
            Needs::Ip => "ip or ipv6",
            Needs::Arp => "arp or rarp",
            Needs::Tcp => "tcp or tcp6",
            Needs::Udp => "udp or udp6",
            Needs::Sctp => "sctp or sctp6",
            Needs::Ports => "tcp, udp, sctp, tcp6, udp6 or sctp6",
            Needs::Icmp => "icmp",
            Needs::Icmp6 => "icmp6",
            Needs::AnyIcmp => "icmp or icmp6",
            Needs::Neighbor => "icmp6,icmpv6_type=135 or icmp6,icmpv6_type=136",
            Needs::Solicitation => "icmp6,icmpv6_type=135",
            Needs::Advertisement => "icmp6,icmpv6_type=136",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_are_found() {
        let mut names: Vec<&str> = FIELDS.iter().flat_map(|field| field.names).copied().collect();
        names.extend(PROTOCOLS.iter().map(|(name, ..)| *name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(find("nw_src").unwrap().place, place::NW_SRC);
        assert!(find("ct_state").is_none());
    }
}
