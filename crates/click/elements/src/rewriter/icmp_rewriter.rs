//! `ICMPRewriter(MAPS, DST_ANNO, REPLY_ANNO)`: rewrites ICMP errors about packets that rewriters have rewritten, so
//! that they refer to the original packets and reach their senders.
//!
//! Ports: one push input; output 0 gets rewritten packets; a second output gets ICMP packets that are not errors or
//! belong to no flow, which are dropped without it. Other protocols are always dropped.
//!
//! Arguments:
//! - `MAPS`: names of rewriters, in the order in which they are tried. With `NAME:OFFSET`, packets of its flows go to
//!   the output they have there, plus OFFSET.
//! - `DST_ANNO`: whether the destination annotation is updated; true.
//! - `REPLY_ANNO`: a one-byte annotation; errors about packets of a flow's originator get the value of its first
//!   packet.
//!
//! Handlers: `drops` (read).
//!
//! Destination unreachable, source quench, redirect, time exceeded and parameter problem are errors (RFC 792).
use super::base::{Rewriter, RewriterKind};
use super::key::FlowKey;
use crate::packet::{put, u16_at};
use core::mem::offset_of;
use ringway_click::arg::{Annotation, KEYWORD, Raw};
use ringway_click::prelude::*;
use ringway_wire::checksum::{update, update_u32};
use ringway_wire::icmp::v4::{ECHO, is_error};
use ringway_wire::{Header, Icmp, Ipv4, Protocol, Tcp, Udp};

pub static CLASS: Class = Class::new("ICMPRewriter", || Box::<IcmpRewriter>::default())
    .ports("1/1-")
    .processing("h")
    .metadata(Metadata::Resolve);

/// The output for packets that cannot be rewritten.
const OTHER: usize = 1;

/// A rewriter whose flows are searched.
#[derive(Debug)]
struct Map {
    rewriter: ElementId,
    offset: Option<usize>,
}

#[derive(Debug, Default)]
pub struct IcmpRewriter {
    names: String,
    maps: Vec<Map>,
    note_destination: bool,
    reply_note: Option<usize>,
    drops: u64,
}

/// The packet quoted in an ICMP error.
#[derive(Clone, Copy)]
struct About {
    /// Offsets of the quoted IP header and of its payload, from the network header.
    ip: usize,
    transport: usize,
    protocol: Protocol,
    /// The key of packets that reply to the quoted packet.
    reply: FlowKey,
    /// Whether the ports or the identifier are present.
    whole: bool,
}

fn about(packet: &[u8]) -> Option<About> {
    let (outer, _, behind) = Ipv4::parse(packet)?;
    let (icmp, quoted) = Icmp::split(behind).filter(|(icmp, _)| is_error(icmp.kind))?;
    let inner = Ipv4::of(quoted).filter(|ip| ip.version() == 4 && ip.header_len() >= Ipv4::LEN)?;
    let ip = outer.header_len() + icmp.bytes().len();
    let (transport, protocol) = (ip + inner.header_len(), inner.protocol);
    let (source, destination) = (inner.destination.get(), inner.source.get());
    let mut reply = FlowKey { source, destination, ..FlowKey::default() };
    // For any protocol, the first eight bytes of its header.
    let there = packet.get(transport..).filter(|_| !inner.is_later_fragment());
    let mut whole = false;
    match (protocol, there.and_then(Icmp::of), there.and_then(Udp::of)) {
        (Protocol::TCP | Protocol::UDP | Protocol::DCCP, _, Some(udp)) => {
            (reply.source_port, reply.destination_port) = (udp.destination_port.get(), udp.source_port.get());
            whole = true;
        }
        // The identifier takes the place of the port; see ICMPPingRewriter.
        (Protocol::ICMP, Some(echo), _) if echo.kind == ECHO => {
            let identifier = echo.identifier.get();
            (reply.source_port, reply.destination_port) = (identifier.wrapping_add(1), identifier);
            whole = true;
        }
        _ => {}
    }
    Some(About { ip, transport, protocol, reply, whole })
}

/// Whether a rewriter of this kind could have rewritten the quoted packet.
fn is_for(kind: RewriterKind, about: &About) -> bool {
    match kind {
        RewriterKind::Address | RewriterKind::Pair => true,
        RewriterKind::Ip => about.whole && matches!(about.protocol, Protocol::TCP | Protocol::UDP),
        RewriterKind::Tcp => about.whole && about.protocol == Protocol::TCP,
        RewriterKind::Udp => about.whole && about.protocol != Protocol::ICMP,
        RewriterKind::Ping => about.whole && about.protocol == Protocol::ICMP,
    }
}

/// Writes a 16-bit word at an offset from the network header, and updates the checksums at the offsets `sums`.
fn set(packet: &mut [u8], at: usize, new: u16, sums: &[usize]) {
    let old = u16_at(packet, at);
    put(packet, at, new.to_be_bytes());
    for sum in sums {
        let new = update(u16_at(packet, *sum), old, new);
        put(packet, *sum, new.to_be_bytes());
    }
}

fn set_address(packet: &mut [u8], at: usize, new: u32, sums: &[usize]) {
    set(packet, at, (new >> 16) as u16, sums);
    set(packet, at + 2, new as u16, sums);
}

/// Rewrites a quoted packet into one whose replies have the key `to`.
fn rewrite(packet: &mut [u8], about: &About, to: FlowKey, ports: bool) {
    let About { ip, transport, protocol, .. } = *about;
    let outer = ip - Icmp::LEN + offset_of!(Icmp, checksum);
    // Changes of the quoted packet, its checksums included, change the checksum of the ICMP message.
    let header_sum = ip + offset_of!(Ipv4, checksum);
    let before = u16_at(packet, header_sum);
    let length = packet.len();
    let transport_sum = protocol.checksum_at().map(|at| transport + at).filter(|at| match protocol {
        Protocol::TCP => at + 2 <= length,
        Protocol::UDP => u16_at(packet, *at) != 0,
        _ => protocol == Protocol::ICMP,
    });
    let transport_sum = transport_sum.filter(|_| about.whole);
    let sum_before = transport_sum.map(|at| u16_at(packet, at));
    let pseudo = transport_sum.filter(|_| protocol != Protocol::ICMP);
    let of_addresses: Vec<usize> = [outer, header_sum].into_iter().chain(pseudo).collect();
    set_address(packet, ip + offset_of!(Ipv4, source), to.destination, &of_addresses);
    set_address(packet, ip + offset_of!(Ipv4, destination), to.source, &of_addresses);
    if ports {
        let of_ports: Vec<usize> = [outer].into_iter().chain(transport_sum).collect();
        if protocol == Protocol::ICMP {
            set(packet, transport + offset_of!(Icmp, identifier), to.destination_port, &of_ports);
        } else {
            set(packet, transport + offset_of!(Tcp, source_port), to.destination_port, &of_ports);
            set(packet, transport + offset_of!(Tcp, destination_port), to.source_port, &of_ports);
        }
    }
    let changed = [Some((header_sum, before)), transport_sum.zip(sum_before)];
    for (at, before) in changed.into_iter().flatten() {
        let sum = update(u16_at(packet, outer), before, u16_at(packet, at));
        put(packet, outer, sum.to_be_bytes());
    }
}

impl IcmpRewriter {
    /// Rewrites a packet and returns its output; `None` if no rewriter has a flow for it.
    fn handle(&self, packet: &mut Packet, cx: &Context<'_>) -> Option<usize> {
        let about = about(packet.network_data()?)?;
        for map in &self.maps {
            let Some(rewriter) = cx.element::<Rewriter>(map.rewriter) else { continue };
            let kind = rewriter.kind();
            if !is_for(kind, &about) {
                continue;
            }
            let Some((flow, reply)) = rewriter.find(about.protocol, about.reply) else { continue };
            let found = rewriter.with_flow(flow, |flow| {
                (flow.rewritten(reply), flow.outputs[usize::from(reply)], flow.reply_note)
            });
            let (mut to, output, note) = found?;
            let ports = !matches!(kind, RewriterKind::Address | RewriterKind::Pair) && about.whole;
            if kind == RewriterKind::Address {
                // These flows have one address; the other is unchanged.
                match reply {
                    true => to.source = about.reply.source,
                    false => to.destination = about.reply.destination,
                }
            }
            let data = packet.network_data_mut()?;
            let outer = Ipv4::of_mut(data)?;
            let is_destination = outer.destination == about.reply.destination;
            if is_destination {
                let sum = update_u32(outer.checksum.get(), outer.destination.get(), to.destination);
                (outer.checksum, outer.destination) = (sum.into(), to.destination.into());
            }
            rewrite(data, &about, to, ports);
            if is_destination && self.note_destination {
                packet.notes_mut().set_dst_ip(to.destination.to_be_bytes());
            }
            if let Some(at) = self.reply_note.filter(|_| reply) {
                packet.notes_mut().set_u8(at, note);
            }
            return Some(map.offset.map_or(0, |offset| offset + usize::from(output)));
        }
        None
    }
}

impl Element for IcmpRewriter {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let (mut names, mut note) = (Raw::default(), Annotation::default());
        self.note_destination = true;
        args.read_mp("MAPS", &mut names);
        args.read("DST_ANNO", &mut self.note_destination);
        let given = args
            .read_with("REPLY_ANNO", KEYWORD, &mut note, |text, scope| Annotation::of_size(text, 1, scope));
        self.reply_note = given.then_some(note.offset);
        self.names = names.0;
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let words: Vec<String> = self.names.split_ascii_whitespace().map(ToString::to_string).collect();
        for word in words {
            let (name, offset) = match word.split_once(':') {
                Some((name, offset)) => (name, Some(cx.parse::<u16>(offset).ok().map(usize::from))),
                None => (word.as_str(), None),
            };
            let found = cx.find(name).filter(|id| cx.element::<Rewriter>(*id).is_some());
            let (Some(rewriter), false) = (found, offset == Some(None)) else {
                return Err(cx.error(format!("{word} not an IP rewriter")));
            };
            let offset = offset.flatten();
            let outputs = cx.noutputs();
            if offset.is_some_and(|offset| offset + cx.outputs_of(rewriter) > outputs) {
                let plural = if outputs == 1 { "output" } else { "outputs" };
                let text = format!("{word} port offset requires more than {outputs} {plural}");
                return Err(cx.error(text));
            }
            self.maps.push(Map { rewriter, offset });
        }
        if self.maps.is_empty() {
            return Err(cx.error("no IP rewriters supplied"));
        }
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for mut packet in burst.drain() {
            if packet.network_data().is_none_or(|ip| Ipv4::padded(ip).protocol != Protocol::ICMP) {
                self.drops += 1;
                continue;
            }
            match self.handle(&mut packet, cx).unwrap_or(OTHER) {
                output if output < cx.noutputs() => cx.push(output, packet),
                _ => self.drops += 1,
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }
}
