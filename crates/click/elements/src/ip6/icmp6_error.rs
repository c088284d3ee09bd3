//! `ICMP6Error(SRC, TYPE, CODE)`: answers IPv6 packets with ICMPv6 errors (RFC 4443, 2.4).
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `SRC`: this host's address.
//! - `TYPE`, `CODE`: type and code of the error. `packet too big` (2) contains an MTU of 1500; `parameter problem` (4)
//!   contains the ICMP_PARAMPROB annotation.
//!
//! Handlers: `drops` (read). Errors, redirects, multicasts, broadcasts, and packets whose source is not a single node
//! are dropped without a reply. `packet too big` answers multicasts too, so that senders find the path MTU, and so does
//! `parameter problem` 2 if the type of the option that it reports requires that (10 in the highest bits).
use core::net::Ipv6Addr;
use ringway_click::prelude::*;
use ringway_click::{HEADROOM, PacketType};
use ringway_wire::{Header, Icmp, Ipv6, Protocol, icmp::v6, ipv6};

pub static CLASS: Class =
    Class::new("ICMP6Error", || Box::<Icmp6Error>::default()).ports("1/1").metadata(Metadata::Resolve);

/// Maximum length of an error message, which every link accepts (RFC 8200, 5).
const LARGEST: usize = 1280;

#[derive(Debug)]
pub struct Icmp6Error {
    source: Ipv6Addr,
    kind: u8,
    code: u8,
    drops: u64,
}

impl Default for Icmp6Error {
    fn default() -> Self {
        Self { source: Ipv6Addr::UNSPECIFIED, kind: 0, code: 0, drops: 0 }
    }
}

impl Element for Icmp6Error {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("SRC", &mut self.source);
        args.read_mp("TYPE", &mut self.kind);
        args.read_mp("CODE", &mut self.code);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        burst.filter_map(|packet| {
            let answer = self.answer(&packet, cx);
            self.drops += u64::from(answer.is_none());
            answer
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }
}

impl Icmp6Error {
    /// Whether this error also answers packets to groups (RFC 4443, 2.4, e.3 to e.5). `pointer` is the offset of the
    /// byte that a parameter problem reports.
    fn answers_groups(&self, data: &[u8], pointer: u8) -> bool {
        match (self.kind, self.code) {
            (v6::PACKET_TOO_BIG, _) => true,
            (v6::PARAMETER_PROBLEM, v6::UNRECOGNIZED_OPTION) => {
                data.get(usize::from(pointer)).is_some_and(|option| option >> 6 == 0b10)
            }
            _ => false,
        }
    }

    fn answer(&self, packet: &Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let data = packet.network_data()?;
        let ip = ipv6::Packet::parse(data)?;
        let group = matches!(packet.notes().packet_type, PacketType::Broadcast | PacketType::Multicast);
        let (source, destination) = (ip.header.source_addr(), ip.header.destination_addr());
        // Types below 128 are errors; unspecified and multicast sources identify no single node (e.1, e.2, e.6).
        let error = ip.upper().is_some_and(|upper| {
            let quiet = |kind: &u8| *kind < 128 || *kind == v6::REDIRECT;
            upper.protocol == Protocol::ICMPV6 && upper.payload.first().is_none_or(quiet)
        });
        let many = group || destination.is_multicast();
        let pointer = packet.notes().u8(Annotations::ICMP_PARAMPROB);
        if error || many && !self.answers_groups(data, pointer) || !ipv6::is_host(source) {
            return None;
        }
        let quoted = data.len().min(LARGEST - Ipv6::LEN - Icmp::LEN);
        let length = Icmp::LEN + quoted;
        let mut made = cx.make_packet(HEADROOM, Ipv6::LEN + length, 0)?;
        let (reply, message) = Ipv6::split_mut(made.data_mut())?;
        *reply = Ipv6 {
            payload_length: (length as u16).into(),
            next_header: Protocol::ICMPV6,
            hop_limit: 255,
            source: self.source.to_bits().into(),
            destination: ip.header.source,
            ..Ipv6::EMPTY
        };
        let (icmp, behind) = Icmp::split_mut(message)?;
        *icmp = Icmp { kind: self.kind, code: self.code, ..Icmp::default() };
        icmp.set_rest(match self.kind {
            v6::PACKET_TOO_BIG => 1500,
            v6::PARAMETER_PROBLEM => pointer.into(),
            _ => 0,
        });
        behind.copy_from_slice(&data[..quoted]);
        Icmp::fill_checksum(message, reply.pseudo_header(Protocol::ICMPV6, length as u32))?;
        made.set_network_header(0, Ipv6::LEN);
        made.notes_mut().set(Annotations::DST_IP6, source.octets());
        made.notes_mut().set_u8(Annotations::FIX_IP_SRC, 1);
        Some(made)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;

    const NODE: &str = "20010db8000000000000000000000001";
    const GROUP: &str = "ff0e0000000000000000000000000001";

    /// Whether an error (type and code) answers a packet, which has passed through `before`.
    fn answers(error: &str, source: &str, destination: &str, behind: &str, before: &str) -> bool {
        let length = behind.len() / 2 - 1;
        let text = format!(
            "InfiniteSource(DATA \\<60000000 {length:04x} {} 40 {source} {destination} {}>,
                LIMIT 1, STOP true)
                -> MarkIP6Header(0) {before} -> ICMP6Error(2001:db8::9, {error}) -> c :: Counter -> Discard",
            &behind[..2],
            &behind[2..],
        );
        crate::tests::run(&text, 1).read("c.count").unwrap() == "1"
    }

    #[test]
    fn groups_are_answered_by_what_path_mtu_discovery_and_options_need() {
        let udp = "11 0050 0060 0008 0000".replace(' ', "");
        // A hop-by-hop header with an unknown option at byte 42.
        let option = |kind: u8| format!("003b00{kind:02x}0400000000");
        let at = "-> SetAnnoByte(ICMP_PARAMPROB, 42)";
        for (error, behind, before, node, group) in [
            ("2, 0", &*udp, "", true, true),
            ("1, 0", &udp, "", true, false),
            ("3, 0", &udp, "", true, false),
            ("4, 0", &udp, "", true, false),
            ("4, 2", &option(0x8a), at, true, true),
            ("4, 2", &option(0xca), at, true, false),
            ("4, 1", &option(0x8a), at, true, false),
        ] {
            assert_eq!(answers(error, NODE, NODE, behind, before), node, "{error} {behind}");
            assert_eq!(answers(error, NODE, GROUP, behind, before), group, "{error} {behind} to a group");
            for kind in ["MULTICAST", "BROADCAST"] {
                let before = format!("{before} -> SetPacketType({kind})");
                assert_eq!(answers(error, NODE, NODE, behind, &before), group, "{error} {behind} {kind}");
            }
        }
    }

    #[test]
    fn errors_redirects_and_sources_that_are_no_single_node_are_not_answered() {
        let icmp = |kind: u8| format!("3a{kind:02x}000000") + "00000000";
        for (kind, expected) in [(1, false), (2, false), (127, false), (128, true), (135, true), (137, false)]
        {
            assert_eq!(answers("2, 0", NODE, NODE, &icmp(kind), ""), expected, "{kind}");
        }
        for source in [GROUP, &String::from("0").repeat(32)] {
            assert!(!answers("2, 0", source, NODE, &icmp(128), ""), "{source}");
        }
    }
}
