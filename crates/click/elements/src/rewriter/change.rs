//! Writing a flow's new addresses, ports and sequence numbers into a packet, with its checksums (RFC 1624).
use super::base::RewriterKind;
use super::key::FlowKey;
use super::table::{Flow, Tracking};
use core::mem::offset_of;
use ringway_click::Packet;
use ringway_wire::checksum::{Change, update, update_u32};
use ringway_wire::tcp::{Flags, option};
use ringway_wire::{Header, Icmp, Ipv4, Protocol, Tcp, U16, U32, Udp};

fn get16(bytes: &[u8], at: usize) -> Option<u16> {
    U16::of(bytes.get(at..)?).map(|word| word.get())
}

fn get32(bytes: &[u8], at: usize) -> Option<u32> {
    U32::of(bytes.get(at..)?).map(|word| word.get())
}

fn set<H: Header>(bytes: &mut [u8], at: usize, value: H) {
    if let Some(place) = bytes.get_mut(at..).and_then(H::of_mut) {
        *place = value;
    }
}

/// A transport header and its checksum, which is updated with every write.
struct Transport<'a> {
    bytes: &'a mut [u8],
    checksum: Option<usize>,
    is_udp: bool,
}

impl Transport<'_> {
    fn adjust(&mut self, change: impl FnOnce(u16) -> u16) {
        if let Some(at) = self.checksum
            && let Some(old) = get16(self.bytes, at)
        {
            let new = match change(old) {
                // In UDP, 0 means no checksum (RFC 768).
                0 if self.is_udp => u16::MAX,
                new => new,
            };
            set(self.bytes, at, U16::new(new));
        }
    }

    fn set16(&mut self, at: usize, new: u16) {
        if let Some(old) = get16(self.bytes, at) {
            set(self.bytes, at, U16::new(new));
            self.adjust(|sum| update(sum, old, new));
        }
    }

    /// At an odd offset the bytes enter the checksum in swapped order.
    fn set32(&mut self, at: usize, new: u32) {
        if let Some(old) = get32(self.bytes, at) {
            set(self.bytes, at, U32::new(new));
            let turn = |number: u32| if at % 2 == 1 { number.rotate_left(8) } else { number };
            self.adjust(|sum| update_u32(sum, turn(old), turn(new)));
        }
    }
}

/// Rewrites a packet of a flow, and updates the flow's state. Returns the packet's new key.
#[inline]
pub(super) fn rewrite(packet: &mut Packet, flow: &mut Flow, reply: bool, kind: RewriterKind) -> FlowKey {
    let to = flow.rewritten(reply);
    let Some((ip, _, transport)) = packet.network_data_mut().and_then(Ipv4::parse_mut) else { return to };
    let (header, first) = (ip.header_len(), !ip.is_later_fragment());
    let total = usize::from(ip.total_length.get());
    let checksum = match (kind, ip.protocol) {
        (RewriterKind::Ping, _) => Protocol::ICMP.checksum_at(),
        (_, protocol @ (Protocol::TCP | Protocol::UDP)) => protocol.checksum_at(),
        _ => None,
    };
    // UDP without a checksum stays without one.
    let is_udp = ip.protocol == Protocol::UDP;
    let checksum = checksum.filter(|at| first && !(is_udp && get16(transport, *at) == Some(0)));
    let mut transport = Transport { bytes: transport, checksum, is_udp };
    let (source, destination) = match (kind, reply) {
        (RewriterKind::Address, false) => (Some(to.source), None),
        (RewriterKind::Address, true) => (None, Some(to.destination)),
        _ => (Some(to.source), Some(to.destination)),
    };
    let mut change = Change::default();
    for (field, new) in [(&mut ip.source, source), (&mut ip.destination, destination)] {
        let (old, Some(new)) = (field.get(), new) else { continue };
        field.set(new);
        change.add_u32(old, new);
    }
    ip.checksum.set(change.of(ip.checksum.get()));
    if !first {
        return to;
    }
    match kind {
        RewriterKind::Address | RewriterKind::Pair => transport.adjust(|sum| change.of(sum)),
        RewriterKind::Ping => {
            transport.set16(
                offset_of!(Icmp, identifier),
                if reply { to.destination_port } else { to.source_port },
            );
            let message = transport.bytes.get(..total.saturating_sub(header)).unwrap_or(&[]);
            if message.iter().all(|byte| *byte == 0) {
                // The checksum of all zeros is 0xffff, which an incremental update can't distinguish from 0.
                transport.adjust(|_| u16::MAX);
            }
        }
        _ => {
            for (at, new) in [
                (offset_of!(Udp, source_port), to.source_port),
                (offset_of!(Udp, destination_port), to.destination_port),
            ] {
                let Some(old) = get16(transport.bytes, at) else { continue };
                set(transport.bytes, at, U16::new(new));
                change.add_u16(old, new);
            }
            transport.adjust(|sum| change.of(sum));
        }
    }
    match flow.tracking() {
        Tracking::Plain => {}
        Tracking::Udp => {
            flow.flags |= u8::from(reply);
            if flow.flags < 6 {
                flow.flags += 2;
            }
        }
        Tracking::Tcp => track(&mut transport, flow, reply, total.saturating_sub(header)),
    }
    to
}

/// Tracks a TCP connection by a segment of `length` bytes, and shifts sequence numbers.
fn track(transport: &mut Transport<'_>, flow: &mut Flow, reply: bool, length: usize) {
    if transport.bytes.len() <= offset_of!(Tcp, flags) {
        return;
    }
    let tcp = Tcp::padded(transport.bytes);
    let header = tcp.header_len();
    let way = u8::from(reply);
    let payload = header < length;
    if tcp.flags.has(Flags::RST) {
        flow.flags |= 3;
    } else if tcp.flags.has(Flags::FIN) {
        flow.flags |= 1 << way;
    } else if tcp.flags.has(Flags::SYN) || payload {
        flow.flags &= !(1 << way);
    }
    if payload {
        flow.flags |= 4 << way;
    }
    if transport.bytes.len() < header {
        return;
    }
    let Some(shifts) = &mut flow.shifts else { return };
    if let Some(new) = shifts.sequence(reply, tcp.sequence_number.get()) {
        transport.set32(offset_of!(Tcp, sequence_number), new);
    }
    let Some(new) = shifts.acknowledgement(reply, tcp.acknowledgment_number.get()) else { return };
    transport.set32(offset_of!(Tcp, acknowledgment_number), new);
    let mut at = Tcp::LEN;
    while at < header {
        let (kind, length) = (transport.bytes[at], transport.bytes.get(at + 1).copied().unwrap_or(0));
        let length = usize::from(length);
        match kind {
            option::END => break,
            option::NOP => {
                at += 1;
                continue;
            }
            _ if length < 2 || at + length > header => break,
            option::SACK if length % 8 == 2 => {
                for place in (at + 2..at + length).step_by(4) {
                    let number = get32(transport.bytes, place);
                    if let Some(new) = number.and_then(|number| shifts.acknowledgement(reply, number)) {
                        transport.set32(place, new);
                    }
                }
            }
            _ => {}
        }
        at += length;
    }
}
