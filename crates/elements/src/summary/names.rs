//! Names of ICMP types and codes (RFC 792, RFC 1191, RFC 1256, RFC 1812) and of IP protocols.

/// ICMP types.
pub(crate) const ICMP_TYPES: &[(&str, u8)] = &[
    ("echo-reply", 0),
    ("unreachable", 3),
    ("sourcequench", 4),
    ("redirect", 5),
    ("echo", 8),
    ("routeradvert", 9),
    ("routersolicit", 10),
    ("timeexceeded", 11),
    ("parameterproblem", 12),
    ("timestamp", 13),
    ("timestamp-reply", 14),
    ("inforeq", 15),
    ("inforeq-reply", 16),
    ("maskreq", 17),
    ("maskreq-reply", 18),
];

/// Codes of each ICMP type that has names for them.
const ICMP_CODES: &[(u8, &[(&str, u8)])] = &[
    (
        3,
        &[
            ("net", 0),
            ("host", 1),
            ("protocol", 2),
            ("port", 3),
            ("needfrag", 4),
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
    (5, &[("net", 0), ("host", 1), ("tosnet", 2), ("toshost", 3)]),
    (11, &[("transit", 0), ("reassembly", 1)]),
    (12, &[("erroratptr", 0), ("missingopt", 1), ("length", 2)]),
];

/// The codes of an ICMP type, by name.
pub(crate) fn icmp_codes(icmp_type: u8) -> &'static [(&'static str, u8)] {
    ICMP_CODES.iter().find(|(own, _)| *own == icmp_type).map_or(&[], |(_, codes)| codes)
}

/// IP protocols.
const PROTOCOLS: &[(&str, u8)] = &[
    ("I", 1),
    ("T", 6),
    ("U", 17),
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmp6", 58),
    ("sctp", 132),
    ("udplite", 136),
];

fn number(text: &str) -> Option<u8> {
    ringway_click_lang::config::integer(text).and_then(|number| u8::try_from(number).ok())
}

/// The ICMP type that a name or number means.
pub(super) fn icmp_type(text: &str) -> Option<u8> {
    let named = ICMP_TYPES.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
    named.or_else(|| number(text))
}

/// The name of an ICMP type.
pub(super) fn icmp_type_name(number: u8) -> Option<&'static str> {
    ICMP_TYPES.iter().find(|(_, own)| *own == number).map(|(name, _)| *name)
}

/// The code of an ICMP type that a name or number means.
pub(super) fn icmp_code(icmp_type: Option<u8>, text: &str) -> Option<u8> {
    let named = icmp_type.into_iter().flat_map(icmp_codes).find(|(name, _)| *name == text);
    named.map(|(_, number)| *number).or_else(|| number(text))
}

/// The name of a code of an ICMP type.
pub(super) fn icmp_code_name(icmp_type: u8, code: u8) -> Option<&'static str> {
    icmp_codes(icmp_type).iter().find(|(_, own)| *own == code).map(|(name, _)| *name)
}

/// The IP protocol that a name, a letter or a number means.
pub(super) fn protocol(text: &str) -> Option<u8> {
    let named = PROTOCOLS.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
    named.or_else(|| number(text))
}
