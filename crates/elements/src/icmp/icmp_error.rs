//! `ICMPError(SRC, TYPE, CODE, BADADDRS, MTU, PMTU, SET_FIX_ANNO)`: answers IPv4 packets with ICMP errors (RFC 792;
//! RFC 1812, 4.3.2).
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `SRC`: this host's address.
//! - `TYPE`, `CODE`: of the error, by number or name.
//! - `BADADDRS`: addresses that are broadcasts here.
//! - `MTU`: bytes of an answer at most; 576 by default.
//! - `PMTU`: the MTU that `unreachable needfrag` tells; 0 by default.
//! - `SET_FIX_ANNO`: whether FixIPSrc is to choose the source; true by default.
//!
//! Handlers: `src`, `mtu`, `pmtu` (read, write); `drops` (read). Errors, broadcasts, fragments but the first, and
//! packets from addresses that cannot be a host's are dropped without an answer.
use crate::ip::names::{icmp_code, parse_icmp_type};
use crate::ip::transport::Transport;
use crate::packet::{fill_ip_checksum, put};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use ringway_click::arg::{Args, Ipv4List, MANDATORY_POSITIONAL, Word};
use ringway_click::{
    Annotations, Class, Context, Element, Failed, HEADROOM, Handler, Metadata, Packet, PacketBurst,
    PacketType,
};
use ringway_wire::checksum;

/// Facts.
pub static CLASS: Class =
    Class::new("ICMPError", || Box::<IcmpError>::default()).ports("1/1").metadata(Metadata::Resolve).live();

const REDIRECT: u8 = 5;
const PARAMETER_PROBLEM: u8 = 12;
const UNREACHABLE: u8 = 3;
const NEED_FRAGMENTATION: u8 = 4;

/// Makes errors.
#[derive(Debug)]
pub struct IcmpError {
    source: Ipv4Addr,
    kind: u8,
    code: u8,
    broadcasts: Vec<Ipv4Addr>,
    mtu: u16,
    path_mtu: u16,
    fix: bool,
    id: u16,
    drops: u64,
}

impl Default for IcmpError {
    fn default() -> Self {
        Self {
            source: Ipv4Addr::UNSPECIFIED,
            kind: 0,
            code: 0,
            broadcasts: Vec::new(),
            mtu: 576,
            path_mtu: 0,
            fix: true,
            id: 1,
            drops: 0,
        }
    }
}

fn is_error(kind: u8) -> bool {
    matches!(kind, 3 | 4 | 5 | 11 | 12)
}

impl Element for IcmpError {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut code, mut broadcasts) = (Word("0".to_string()), Ipv4List::default());
        args.read_mp("SRC", &mut self.source);
        args.read_with("TYPE", MANDATORY_POSITIONAL, &mut self.kind, parse_icmp_type);
        args.read_p("CODE", &mut code);
        args.read_p("BADADDRS", &mut broadcasts);
        args.read("MTU", &mut self.mtu);
        args.read("PMTU", &mut self.path_mtu);
        args.read("SET_FIX_ANNO", &mut self.fix);
        args.complete()?;
        if !is_error(self.kind) {
            return Err(cx.error(format!("ICMP type {} is not an error type", self.kind)));
        }
        let Some(code) = icmp_code(self.kind, &code.0).or_else(|| cx.parse(&code.0).ok()) else {
            return Err(cx.error("argument 2 takes ICMP code (integer between 0 and 255)"));
        };
        (self.code, self.broadcasts) = (code, broadcasts.0);
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        burst.filter_map(|packet| {
            let answer = self.answer(&packet, cx);
            self.drops += u64::from(answer.is_none());
            answer
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::field("src", |e: &mut Self| &mut e.source),
            Handler::field("mtu", |e: &mut Self| &mut e.mtu),
            Handler::field("pmtu", |e: &mut Self| &mut e.path_mtu),
            Handler::read("drops", |e: &Self| e.drops),
        ]
        .into()
    }
}

impl IcmpError {
    fn is_unicast(&self, address: Ipv4Addr) -> bool {
        !address.is_broadcast() && !address.is_multicast() && !self.broadcasts.contains(&address)
    }

    /// Whether a packet may be answered (RFC 1812, 4.3.2.7).
    fn may_answer(&self, packet: &Packet, data: &[u8], transport: &Transport) -> bool {
        let source = Ipv4Addr::from_bits(transport.source);
        let is_host = !matches!(source.octets()[0], 0 | 127 | 240..);
        let group = matches!(packet.notes().packet_type, PacketType::Broadcast | PacketType::Multicast);
        let quiet = transport.protocol == 1
            && (transport.later || data.get(transport.header).is_none_or(|kind| is_error(*kind)));
        let whole = self.is_unicast(transport.destination.into()) && !group && !transport.later;
        !quiet && whole && is_host && self.is_unicast(source)
    }

    /// The option of the source route that the answer takes back, and how many bytes of it are meaningful.
    fn reversed_route(&self, packet: &Packet, header: &[u8], out: &mut [u8; 40]) -> Option<usize> {
        let (at, option) = source_route(header)?;
        let pointer = usize::from(packet.notes().u8(Annotations::ICMP_PARAMPROB));
        let concerns = self.kind == PARAMETER_PROBLEM && self.code == 0;
        if concerns && (at..at + option.len()).contains(&pointer) {
            return Some(0);
        }
        // The pointer counts from 1; the hops before it have been visited.
        let length = usize::from(option[2]) - 1;
        out[..3].copy_from_slice(&[option[0], length as u8, 4]);
        let hops = option.get(3..length)?.as_chunks::<4>().0;
        for (place, hop) in out[3..].as_chunks_mut::<4>().0.iter_mut().zip(hops.iter().rev()) {
            *place = *hop;
        }
        Some(length.next_multiple_of(4))
    }

    fn answer(&mut self, packet: &Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let data = packet.network_data()?;
        let transport = Transport::of(data)?;
        if !self.may_answer(packet, data, &transport) {
            return None;
        }
        let mut options = [0; 40];
        let route = self.reversed_route(packet, &data[..transport.header], &mut options);
        if route.is_some_and(|length| length > 0) && self.kind == REDIRECT {
            return None;
        }
        let header = 20 + route.unwrap_or(0);
        let quoted = data.len().min(usize::from(self.mtu).saturating_sub(header + 8));
        let length = header + 8 + quoted;
        let mut made = cx.make_packet(HEADROOM, length, 0)?;
        let out = made.data_mut();
        out.fill(0);
        (out[0], out[8], out[9]) = (0x40 | (header / 4) as u8, 200, 1);
        put(out, 2, (length as u16).to_be_bytes());
        put(out, 4, self.id.to_be_bytes());
        put(out, 12, self.source.octets());
        put(out, 16, transport.source.to_be_bytes());
        out[20..header].copy_from_slice(&options[..header - 20]);
        fill_ip_checksum(&mut out[..header]);
        let message = &mut out[header..];
        (message[0], message[1]) = (self.kind, self.code);
        match (self.kind, self.code) {
            (PARAMETER_PROBLEM, 0) => message[4] = packet.notes().u8(Annotations::ICMP_PARAMPROB),
            (REDIRECT, _) => put(message, 4, packet.notes().dst_ip()),
            (UNREACHABLE, NEED_FRAGMENTATION) => put(message, 6, self.path_mtu.to_be_bytes()),
            _ => {}
        }
        message[8..].copy_from_slice(&data[..quoted]);
        let sum = checksum::checksum(message);
        put(message, 2, sum.to_be_bytes());
        self.id = self.id.wrapping_add(1);
        made.set_network_header(0, header);
        let notes = made.notes_mut();
        notes.set_dst_ip(transport.source.to_be_bytes());
        if self.fix {
            notes.set_u8(Annotations::FIX_IP_SRC, 1);
        }
        notes.timestamp = cx.now();
        Some(made)
    }
}

/// The source route among a header's options, if its pointer is sound, and where it begins.
fn source_route(header: &[u8]) -> Option<(usize, &[u8])> {
    let mut at = 20;
    loop {
        match *header.get(at)? {
            0 => return None,
            1 => at += 1,
            kind => {
                let length = usize::from(*header.get(at + 1)?);
                let option = header.get(at..at + length).filter(|_| length >= 2)?;
                let route = matches!(kind, 131 | 137);
                let pointer = option.get(2).map_or(0, |pointer| usize::from(*pointer));
                if route && pointer >= 4 && pointer % 4 == 0 && pointer <= length + 1 {
                    return Some((at, option));
                }
                at += length;
            }
        }
    }
}
