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
//! - `PMTU`: the MTU in `unreachable needfrag`; 0 by default.
//! - `SET_FIX_ANNO`: whether FixIPSrc is to choose the source; true by default.
//!
//! Handlers: `src`, `mtu`, `pmtu` (read, write); `drops` (read). Errors, broadcasts, fragments but the first, and
//! packets from addresses that cannot be a host's are dropped without an answer.
use crate::ip::names::{icmp_code, icmp_type};
use crate::ip::transport::Transport;
use alloc::rc::Rc;
use core::cell::Cell;
use core::net::Ipv4Addr;
use ringway_click::arg::{Arg, Ipv4List, MANDATORY_POSITIONAL, Word};
use ringway_click::prelude::*;
use ringway_click::{HEADROOM, PacketType};
use ringway_wire::icmp::v4::{NEEDS_FRAGMENTATION, PARAMETER_PROBLEM, REDIRECT, UNREACHABLE, is_error};
use ringway_wire::ipv4::{OPTIONS_LEN, option};
use ringway_wire::{Header, Icmp, Ipv4, Protocol, Sum, ipv4};

pub static CLASS: Class =
    Class::new("ICMPError", || Box::<IcmpError>::default()).ports("1/1").metadata(Metadata::Resolve).live();

#[derive(Debug)]
pub struct IcmpError {
    source: Ipv4Addr,
    kind: u8,
    code: u8,
    broadcasts: Vec<Ipv4Addr>,
    mtu: u16,
    path_mtu: u16,
    fix: bool,
    /// The next identification, common to the errors of a router.
    id: Rc<Cell<u16>>,
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
            id: Rc::new(Cell::new(1)),
            drops: 0,
        }
    }
}

impl Element for IcmpError {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut kind = 0i32;
        let (mut code, mut broadcasts) = (Word("0".to_string()), Ipv4List::default());
        args.read_mp("SRC", &mut self.source);
        args.read_with("TYPE", MANDATORY_POSITIONAL, &mut kind, |text, scope| match icmp_type(text) {
            Some(kind) => Ok(kind.into()),
            None => i32::parse(text, scope),
        });
        args.read_p("CODE", &mut code);
        args.read_p("BADADDRS", &mut broadcasts);
        args.read("MTU", &mut self.mtu);
        args.read("PMTU", &mut self.path_mtu);
        args.read("SET_FIX_ANNO", &mut self.fix);
        args.complete()?;
        self.kind = kind.try_into().map_err(|_| cx.error("ICMP type must be between 0 and 255"))?;
        if !is_error(self.kind) {
            return Err(cx.error(format!("ICMP type {} is not an error type", self.kind)));
        }
        let Some(code) = icmp_code(self.kind, &code.0).or_else(|| cx.parse(&code.0).ok()) else {
            return Err(cx.error("argument 2 takes ICMP code (integer between 0 and 255)"));
        };
        (self.code, self.broadcasts) = (code, broadcasts.0);
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let first = cx.router().ids().find_map(|id| cx.element::<Self>(id).map(|other| other.id.clone()));
        if let Some(first) = first {
            self.id = first;
        }
        Ok(())
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        if let Some(from) = from.downcast_mut::<Self>() {
            self.id.set(from.id.get());
        }
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
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
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
        let is_host = ipv4::is_host(source) && source.octets()[0] < 240;
        let group = matches!(packet.notes().packet_type, PacketType::Broadcast | PacketType::Multicast);
        let quiet = transport.protocol == Protocol::ICMP
            && (transport.later || data.get(transport.header).is_none_or(|kind| is_error(*kind)));
        let whole = self.is_unicast(transport.destination.into()) && !group && !transport.later;
        !quiet && whole && is_host && self.is_unicast(source)
    }

    /// Writes the reversed source route option for the error message; returns the number of meaningful bytes.
    fn reversed_route(&self, packet: &Packet, options: &[u8], out: &mut [u8; OPTIONS_LEN]) -> Option<usize> {
        let (at, option) = source_route(options)?;
        let pointer = usize::from(packet.notes().u8(Annotations::ICMP_PARAMPROB)).wrapping_sub(Ipv4::LEN);
        let concerns = self.kind == PARAMETER_PROBLEM && self.code == 0;
        if concerns && (at..at + option.len()).contains(&pointer) {
            return Some(0);
        }
        // The pointer counts from 1; the hops before it have been visited.
        let &[kind, _, next, ..] = option else { return None };
        let length = usize::from(next) - 1;
        out[..3].copy_from_slice(&[kind, length as u8, 4]);
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
        let mut options = [0; OPTIONS_LEN];
        let route = self.reversed_route(packet, &data[Ipv4::LEN..transport.header], &mut options);
        if route.is_some_and(|length| length > 0) && self.kind == REDIRECT {
            return None;
        }
        let options = &options[..route.unwrap_or(0)];
        let header = Ipv4::LEN + options.len();
        let quoted = data.len().min(usize::from(self.mtu).saturating_sub(header + Icmp::LEN));
        let length = header + Icmp::LEN + quoted;
        let mut made = cx.make_packet(HEADROOM, length, 0)?;
        let (ip, rest) = Ipv4::split_mut(made.data_mut())?;
        *ip = Ipv4 {
            version_ihl: 4 << 4 | (header / 4) as u8,
            total_length: (length as u16).into(),
            identification: self.id.get().into(),
            ttl: 200,
            protocol: Protocol::ICMP,
            source: self.source.to_bits().into(),
            destination: transport.source.into(),
            ..Ipv4::EMPTY
        };
        ip.fill_checksum(options);
        let (own, message) = rest.split_at_mut(options.len());
        own.copy_from_slice(options);
        let (icmp, behind) = Icmp::split_mut(message)?;
        *icmp = Icmp { kind: self.kind, code: self.code, ..Icmp::default() };
        icmp.set_rest(match (self.kind, self.code) {
            (PARAMETER_PROBLEM, 0) => u32::from(packet.notes().u8(Annotations::ICMP_PARAMPROB)) << 24,
            (REDIRECT, _) => u32::from_be_bytes(packet.notes().dst_ip()),
            (UNREACHABLE, NEEDS_FRAGMENTATION) => self.path_mtu.into(),
            _ => 0,
        });
        behind.copy_from_slice(&data[..quoted]);
        Icmp::fill_checksum(message, Sum::new())?;
        self.id.set(self.id.get().wrapping_add(1));
        made.set_network_header(0, header);
        let notes = made.notes_mut();
        notes.set_dst_ip(transport.source.to_be_bytes());
        if self.fix {
            notes.set_u8(Annotations::FIX_IP_SRC, 1);
        }
        made.set_timestamp(cx.now());
        Some(made)
    }
}

/// The source route among options and its offset, if its pointer is valid.
fn source_route(options: &[u8]) -> Option<(usize, &[u8])> {
    let mut at = 0;
    loop {
        match *options.get(at)? {
            option::END => return None,
            option::NOP => at += 1,
            kind => {
                let length = usize::from(*options.get(at + 1)?);
                let found = options.get(at..at + length).filter(|_| length >= 2)?;
                let route = matches!(kind, option::LOOSE_ROUTE | option::STRICT_ROUTE);
                let pointer = found.get(2).map_or(0, |pointer| usize::from(*pointer));
                if route && pointer >= 4 && pointer % 4 == 0 && pointer <= length + 1 {
                    return Some((at, found));
                }
                at += length;
            }
        }
    }
}
