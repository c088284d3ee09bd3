//! Names of protocols, ports, ICMP types and codes (IANA registries, with the spelling of Click's manual).
use crate::summary::names::{ICMP_TYPES, icmp_codes};
use ringway_click::arg::{Arg, ArgError, IpPort, NameKind, Scope};
use ringway_click::prelude::*;
use ringway_wire::Protocol;

pub(crate) const ICMP: u32 = Protocol::ICMP.0 as u32;
pub(crate) const TCP: u32 = Protocol::TCP.0 as u32;
pub(crate) const UDP: u32 = Protocol::UDP.0 as u32;
pub(crate) const DCCP: u32 = Protocol::DCCP.0 as u32;
pub(crate) const TCP_OR_UDP: u32 = 256;
/// Any protocol with ports or similar fields.
pub(crate) const TRANSPORT: u32 = 257;
/// Any payload of IP.
pub(crate) const PAYLOAD: u32 = 258;

const PROTOCOLS: &[(&str, u32)] = &[
    ("icmp", ICMP),
    ("igmp", Protocol::IGMP.0 as u32),
    ("ipip", Protocol::IPIP.0 as u32),
    ("tcp", TCP),
    ("udp", UDP),
    ("dccp", DCCP),
    ("gre", Protocol::GRE.0 as u32),
    ("sctp", Protocol::SCTP.0 as u32),
    ("tcpudp", TCP_OR_UDP),
    ("transp", TRANSPORT),
    ("payload", PAYLOAD),
];

const PORTS: &[(&str, u16)] = &[
    ("echo", 7),
    ("discard", 9),
    ("daytime", 13),
    ("chargen", 19),
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("dns", 53),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("finger", 79),
    ("www", 80),
    ("http", 80),
    ("pop3", 110),
    ("sunrpc", 111),
    ("auth", 113),
    ("nntp", 119),
    ("ntp", 123),
    ("netbios-ns", 137),
    ("netbios-dgm", 138),
    ("netbios-ssn", 139),
    ("snmp", 161),
    ("snmp-trap", 162),
    ("irc", 194),
    ("imap3", 220),
    ("https", 443),
    ("rip", 520),
    ("route", 520),
    ("imaps", 993),
    ("pop3s", 995),
    ("pptp", 1723),
];

fn find<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(own, _)| *own == name).map(|(_, value)| *value)
}

fn reverse<T: PartialEq>(table: &[(&'static str, T)], value: T) -> Option<&'static str> {
    table.iter().find(|(_, own)| *own == value).map(|(name, _)| *name)
}

/// The protocol of this name, or one of the groups above.
pub(crate) fn protocol(name: &str, scope: &Scope) -> Option<u32> {
    let defined = scope.names().value(NameKind::IpProtocol, name, scope.element_name());
    match defined.as_deref() {
        Some([number]) => Some(u32::from(*number)),
        _ => find(PROTOCOLS, name),
    }
}

pub(crate) fn protocol_name(number: u8) -> Option<&'static str> {
    reverse(PROTOCOLS, u32::from(number))
}

/// The port with this name, of the protocol `kind`.
pub(crate) fn port(name: &str, kind: NameKind, scope: &Scope) -> Option<u16> {
    let defined = scope.names().value(kind, name, scope.element_name());
    match defined.as_deref() {
        Some([high, low]) => Some(u16::from_be_bytes([*high, *low])),
        _ => find(PORTS, name),
    }
}

/// Parses a port given by number or name, of the protocol `kind`.
pub(crate) fn parse_port(kind: NameKind) -> impl FnOnce(&str, &Scope) -> Result<u16, ArgError> {
    move |text, scope| port(text, kind, scope).map_or_else(|| IpPort::number(text), Ok)
}

/// A handler for a UDP port.
pub(crate) fn port_handler<E: Element>(name: &'static str, of: fn(&mut E) -> &mut u16) -> Handler {
    Handler::read_with(name, move |e: &mut E, _, _| Ok(of(e).to_string())).writes(
        move |e: &mut E, value, cx| {
            *of(e) = cx.parse_with(value, parse_port(NameKind::UdpPort))?;
            Ok(())
        },
    )
}

/// The ICMP type of this name.
pub(crate) fn icmp_type(name: &str) -> Option<u8> {
    find(ICMP_TYPES, name)
}

pub(crate) fn icmp_type_name(kind: u8) -> Option<&'static str> {
    reverse(ICMP_TYPES, kind)
}

/// The code with this name, of an ICMP type.
pub(crate) fn icmp_code(kind: u8, name: &str) -> Option<u8> {
    find(icmp_codes(kind), name)
}

/// The name of a code of an ICMP type.
pub(crate) fn icmp_code_name(kind: u8, code: u8) -> Option<&'static str> {
    reverse(icmp_codes(kind), code)
}

/// Parses a protocol given by number or name.
pub fn parse_protocol(text: &str, scope: &Scope) -> Result<Protocol, ArgError> {
    match protocol(text, scope).and_then(|number| u8::try_from(number).ok()) {
        Some(number) => Ok(Protocol(number)),
        None => u8::parse(text, scope).map(Protocol),
    }
}

/// Parses an ICMP type given by number or name.
pub(crate) fn parse_icmp_type(text: &str, scope: &Scope) -> Result<u8, ArgError> {
    icmp_type(text).map_or_else(|| u8::parse(text, scope), Ok)
}
