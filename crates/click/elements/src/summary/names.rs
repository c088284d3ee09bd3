//! Names of ICMP types and codes (RFC 792, RFC 1191, RFC 1256, RFC 1812) and of IP protocols.
use ringway_wire::Protocol;
use ringway_wire::icmp::v4;

pub(crate) const ICMP_TYPES: &[(&str, u8)] = &[
    ("echo-reply", v4::ECHO_REPLY),
    ("unreachable", v4::UNREACHABLE),
    ("sourcequench", v4::SOURCE_QUENCH),
    ("redirect", v4::REDIRECT),
    ("echo", v4::ECHO),
    ("routeradvert", 9),
    ("routersolicit", 10),
    ("timeexceeded", v4::TIME_EXCEEDED),
    ("parameterproblem", v4::PARAMETER_PROBLEM),
    ("timestamp", v4::TIMESTAMP),
    ("timestamp-reply", v4::TIMESTAMP_REPLY),
    ("inforeq", v4::INFORMATION),
    ("inforeq-reply", v4::INFORMATION_REPLY),
    ("maskreq", v4::MASK),
    ("maskreq-reply", v4::MASK_REPLY),
];

/// Named codes of each ICMP type.
const ICMP_CODES: &[(u8, &[(&str, u8)])] = &[
    (
        v4::UNREACHABLE,
        &[
            ("net", 0),
            ("host", 1),
            ("protocol", 2),
            ("port", 3),
            ("needfrag", v4::NEEDS_FRAGMENTATION),
            ("srcroutefail", 5),
            ("netunknown", 6),
            ("hostunknown", 7),
            ("isolated", 8),
            ("netprohibited", 9),
            ("hostprohibited", 10),
            ("tosnet", 11),
            ("toshost", 12),
            ("filterprohibited", 13),
            ("hostprecedence", 14),
            ("precedencecutoff", 15),
        ],
    ),
    (v4::REDIRECT, &[("net", 0), ("host", 1), ("tosnet", 2), ("toshost", 3)]),
    (v4::TIME_EXCEEDED, &[("transit", 0), ("reassembly", 1)]),
    (v4::PARAMETER_PROBLEM, &[("erroratptr", 0), ("missingopt", 1), ("length", 2)]),
];

/// The codes of an ICMP type, by name.
pub(crate) fn icmp_codes(icmp_type: u8) -> &'static [(&'static str, u8)] {
    ICMP_CODES.iter().find(|(own, _)| *own == icmp_type).map_or(&[], |(_, codes)| codes)
}

/// IP protocols.
const PROTOCOLS: &[(&str, Protocol)] = &[
    ("I", Protocol::ICMP),
    ("T", Protocol::TCP),
    ("U", Protocol::UDP),
    ("icmp", Protocol::ICMP),
    ("igmp", Protocol::IGMP),
    ("ipip", Protocol::IPIP),
    ("tcp", Protocol::TCP),
    ("udp", Protocol::UDP),
    ("dccp", Protocol::DCCP),
    ("gre", Protocol::GRE),
    ("esp", Protocol::ESP),
    ("ah", Protocol::AUTHENTICATION),
    ("icmp6", Protocol::ICMPV6),
    ("sctp", Protocol::SCTP),
    ("udplite", Protocol::UDP_LITE),
];

fn number(text: &str) -> Option<u8> {
    ringway_click_lang::config::integer(text).and_then(|number| u8::try_from(number).ok())
}

/// The ICMP type with this name or number.
pub(super) fn icmp_type(text: &str) -> Option<u8> {
    let named = ICMP_TYPES.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
    named.or_else(|| number(text))
}

pub(super) fn icmp_type_name(number: u8) -> Option<&'static str> {
    ICMP_TYPES.iter().find(|(_, own)| *own == number).map(|(name, _)| *name)
}

/// The code of an ICMP type with this name or number.
pub(super) fn icmp_code(icmp_type: Option<u8>, text: &str) -> Option<u8> {
    let named = icmp_type.into_iter().flat_map(icmp_codes).find(|(name, _)| *name == text);
    named.map(|(_, number)| *number).or_else(|| number(text))
}

/// The name of a code of an ICMP type.
pub(super) fn icmp_code_name(icmp_type: u8, code: u8) -> Option<&'static str> {
    icmp_codes(icmp_type).iter().find(|(_, own)| *own == code).map(|(name, _)| *name)
}

/// The IP protocol with this name, letter or number.
pub(super) fn protocol(text: &str) -> Option<Protocol> {
    let named = PROTOCOLS.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
    named.or_else(|| number(text).map(Protocol))
}
