//! Names of protocols, ports and constants.

/// Protocols of the Internet Protocol: name, number, whether tested over IPv4 and over IPv6.
pub(super) const PROTOCOLS: [(&str, u8, bool, bool); 13] = [
    ("tcp", 6, true, true),
    ("udp", 17, true, true),
    ("sctp", 132, true, true),
    ("icmp", 1, true, false),
    ("icmp6", 58, false, true),
    ("igmp", 2, true, false),
    ("igrp", 9, true, false),
    ("pim", 103, true, true),
    ("esp", 50, true, true),
    ("ah", 51, true, true),
    ("vrrp", 112, true, false),
    ("carp", 112, true, false),
    ("gre", 47, true, true),
];

/// Protocols over Ethernet.
pub(super) const ETHER_TYPES: [(&str, u16); 5] =
    [("ip", 0x0800), ("ip6", 0x86dd), ("arp", 0x0806), ("rarp", 0x8035), ("lldp", 0x88cc)];

/// Ports by the names that /etc/services gives them.
pub(super) const PORTS: [(&str, u16); 24] = [
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("http", 80),
    ("kerberos", 88),
    ("pop3", 110),
    ("ntp", 123),
    ("imap2", 143),
    ("snmp", 161),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("syslog", 514),
    ("ldaps", 636),
    ("imaps", 993),
    ("mysql", 3306),
    ("postgresql", 5432),
    ("redis", 6379),
];

/// Names of offsets and values.
pub(super) const CONSTANTS: [(&str, u32); 38] = [
    ("icmptype", 0),
    ("icmpcode", 1),
    ("icmp6type", 0),
    ("icmp6code", 1),
    ("icmp-echoreply", 0),
    ("icmp-unreach", 3),
    ("icmp-sourcequench", 4),
    ("icmp-redirect", 5),
    ("icmp-echo", 8),
    ("icmp-routeradvert", 9),
    ("icmp-routersolicit", 10),
    ("icmp-timxceed", 11),
    ("icmp-paramprob", 12),
    ("icmp-tstamp", 13),
    ("icmp-tstampreply", 14),
    ("icmp-ireq", 15),
    ("icmp-ireqreply", 16),
    ("icmp-maskreq", 17),
    ("icmp-maskreply", 18),
    ("icmp6-destinationunreach", 1),
    ("icmp6-packettoobig", 2),
    ("icmp6-timeexceeded", 3),
    ("icmp6-parameterproblem", 4),
    ("icmp6-echo", 128),
    ("icmp6-echoreply", 129),
    ("icmp6-routersolicit", 133),
    ("icmp6-routeradvert", 134),
    ("icmp6-neighborsolicit", 135),
    ("icmp6-neighboradvert", 136),
    ("tcpflags", 13),
    ("tcp-fin", 1),
    ("tcp-syn", 2),
    ("tcp-rst", 4),
    ("tcp-push", 8),
    ("tcp-ack", 16),
    ("tcp-urg", 32),
    ("tcp-ece", 64),
    ("tcp-cwr", 128),
];

/// Words of the language that are not supported.
pub(super) const UNSUPPORTED: [&str; 30] = [
    "gateway",
    "protochain",
    "mpls",
    "pppoed",
    "pppoes",
    "geneve",
    "vxlan",
    "llc",
    "iso",
    "clnp",
    "esis",
    "isis",
    "stp",
    "ipx",
    "netbeui",
    "atalk",
    "aarp",
    "decnet",
    "lat",
    "sca",
    "mopdl",
    "moprc",
    "wlan",
    "fddi",
    "tr",
    "ppp",
    "slip",
    "radio",
    "ifname",
    "on",
];

/// Finds a name in a table.
pub(super) fn find<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// The constant of this name.
pub(super) fn constant(name: &str) -> Option<u32> {
    find(&CONSTANTS, name)
}
