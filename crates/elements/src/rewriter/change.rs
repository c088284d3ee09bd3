//! Writing a flow's new addresses, ports and sequence numbers into a packet, with its checksums (RFC 1624).
use super::base::Kind;
use super::table::{Flow, Tracking};
use ringway_click::Packet;
use ringway_wire::checksum::{update, update_u32};

const TCP: u8 = 6;
const UDP: u8 = 17;
const SACK: u8 = 5;

/// Where the checksum of a transport header is.
fn checksum_at(kind: Kind, protocol: u8) -> Option<usize> {
    match (kind, protocol) {
        (Kind::Ping, _) => Some(2),
        (_, TCP) => Some(16),
        (_, UDP) => Some(6),
        _ => None,
    }
}

fn get16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn get32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn set<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    if let Some(place) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = value;
    }
}

/// A transport header and its checksum, which follows what is written.
struct Transport<'a> {
    bytes: &'a mut [u8],
    checksum: Option<usize>,
}

impl Transport<'_> {
    fn adjust(&mut self, change: impl FnOnce(u16) -> u16) {
        if let Some(at) = self.checksum
            && let Some(old) = get16(self.bytes, at)
        {
            set(self.bytes, at, change(old).to_be_bytes());
        }
    }

    fn set16(&mut self, at: usize, new: u16) {
        if let Some(old) = get16(self.bytes, at) {
            set(self.bytes, at, new.to_be_bytes());
            self.adjust(|sum| update(sum, old, new));
        }
    }

    /// At an odd place the bytes count in the other order.
    fn set32(&mut self, at: usize, new: u32) {
        if let Some(old) = get32(self.bytes, at) {
            set(self.bytes, at, new.to_be_bytes());
            let turn = |number: u32| if at % 2 == 1 { number.rotate_left(8) } else { number };
            self.adjust(|sum| update_u32(sum, turn(old), turn(new)));
        }
    }
}

/// Makes a packet of a flow one of the rewritten flow, and takes note of it.
pub(super) fn rewrite(packet: &mut Packet, flow: &mut Flow, reply: bool, kind: Kind) {
    let to = flow.rewritten(reply);
    let Some(ip) = packet.network_data_mut() else { return };
    let header = usize::from(ip.first().copied().unwrap_or(0) & 15) * 4;
    if ip.len() < header || header < 20 {
        return;
    }
    let (ip, transport) = ip.split_at_mut(header);
    let (protocol, fragment) = (ip[9], get16(ip, 6).unwrap_or(0));
    let first = fragment & 0x1fff == 0;
    let total = usize::from(get16(ip, 2).unwrap_or(0));
    let checksum = checksum_at(kind, protocol).filter(|_| first);
    // A UDP checksum of 0 is none.
    let checksum = checksum.filter(|at| protocol != UDP || get16(transport, *at) != Some(0));
    let mut transport = Transport { bytes: transport, checksum };
    let addresses = match (kind, reply) {
        (Kind::Address, false) => [Some(to.source), None],
        (Kind::Address, true) => [None, Some(to.destination)],
        _ => [Some(to.source), Some(to.destination)],
    };
    for (at, new) in [12, 16].into_iter().zip(addresses) {
        let (Some(old), Some(new)) = (get32(ip, at), new) else { continue };
        set(ip, at, new.to_be_bytes());
        let sum = get16(ip, 10).unwrap_or(0);
        set(ip, 10, update_u32(sum, old, new).to_be_bytes());
        if kind != Kind::Ping {
            transport.adjust(|sum| update_u32(sum, old, new));
        }
    }
    if !first {
        return;
    }
    match kind {
        Kind::Address | Kind::Pair => {}
        Kind::Ping => {
            transport.set16(4, if reply { to.destination_port } else { to.source_port });
            let message = transport.bytes.get(..total.saturating_sub(header)).unwrap_or(&[]);
            if message.iter().all(|byte| *byte == 0) {
                // Of nothing but zeros the checksum is 0xffff, which an update can't tell from 0.
                transport.adjust(|_| u16::MAX);
            }
        }
        _ => {
            transport.set16(0, to.source_port);
            transport.set16(2, to.destination_port);
        }
    }
    match flow.tracking {
        Tracking::Plain => {}
        Tracking::Udp => {
            flow.flags |= u8::from(reply);
            if flow.flags < 6 {
                flow.flags += 2;
            }
        }
        Tracking::Tcp => track(&mut transport, flow, reply, total.saturating_sub(header)),
    }
}

/// Follows a TCP connection through a segment of `length` bytes, and shifts sequence numbers.
fn track(transport: &mut Transport<'_>, flow: &mut Flow, reply: bool, length: usize) {
    let Some(&[offset, flags]) = transport.bytes.get(12..).and_then(<[u8]>::first_chunk) else { return };
    let header = usize::from(offset >> 4) * 4;
    let way = u8::from(reply);
    let payload = header < length;
    let (fin, syn, reset) = (flags & 1 > 0, flags & 2 > 0, flags & 4 > 0);
    if reset {
        flow.flags |= 3;
    } else if fin {
        flow.flags |= 1 << way;
    } else if syn || payload {
        flow.flags &= !(1 << way);
    }
    if payload {
        flow.flags |= 4 << way;
    }
    if transport.bytes.len() < header {
        return;
    }
    let Some(shifts) = &mut flow.shifts else { return };
    if let Some(new) = get32(transport.bytes, 4).and_then(|number| shifts.sequence(reply, number)) {
        transport.set32(4, new);
    }
    let Some(new) = get32(transport.bytes, 8).and_then(|number| shifts.acknowledgement(reply, number)) else {
        return;
    };
    transport.set32(8, new);
    let mut at = 20;
    while at < header {
        let (kind, length) = (transport.bytes[at], transport.bytes.get(at + 1).copied().unwrap_or(0));
        let length = usize::from(length);
        match kind {
            0 => break,
            1 => {
                at += 1;
                continue;
            }
            _ if length < 2 || at + length > header => break,
            SACK if length % 8 == 2 => {
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
