//! A line of text about an IPv4 packet.
use super::names;
use crate::packet::{is_later_fragment, u16_at, u32_at};
use alloc::string::String;
use core::fmt::{Display, Write};
use core::net::Ipv4Addr;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// What to tell of a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fields {
    pub(super) id: bool,
    pub(super) ttl: bool,
    pub(super) tos: bool,
    pub(super) length: bool,
    pub(super) swap: bool,
}

fn address(data: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32_at(data, at))
}

impl Fields {
    /// Tells of a packet of at least 20 bytes, in a frame of `frame` bytes.
    pub(super) fn describe(&self, line: &mut String, data: &[u8], frame: usize) {
        let mut field = |wanted: bool, name: &str, value: &dyn Display| {
            if wanted {
                let _ = write!(line, "{name} {value} ");
            }
        };
        field(self.id, "id", &u16_at(data, 4));
        field(self.ttl, "ttl", &data[8]);
        field(self.tos, "tos", &data[1]);
        field(self.length, "length", &u16_at(data, 2));
        let header = usize::from(data[0] & 15) * 4;
        let payload = i32::from(u16_at(data, 2)) - header as i32;
        let transport = data.get(header..).unwrap_or_default();
        let transport = &transport[..transport.len().min(payload.max(0) as usize)];
        let (source, destination) = (address(data, 12), address(data, 16));
        match data[9] {
            protocol @ (6 | 17) => {
                let name = if protocol == 6 { "tcp" } else { "udp" };
                let later = is_later_fragment(data);
                if later || transport.len() < 4 {
                    let truncated = if later { "" } else { "truncated-" };
                    let _ = write!(line, "{source} > {destination}: {truncated}{name}");
                } else {
                    let (from, to) = (u16_at(transport, 0), u16_at(transport, 2));
                    let _ = write!(line, "{source}.{from} > {destination}.{to}: ");
                    match protocol {
                        6 => tcp(line, transport, payload, u16_at(data, 2), frame),
                        _ if transport.len() < 8 => line.push_str("truncated-udp"),
                        _ => {
                            let _ = write!(line, "udp {}", u16_at(transport, 4));
                        }
                    }
                }
            }
            1 => {
                let _ = write!(line, "{source} > {destination}: ");
                if is_later_fragment(data) {
                    line.push_str("icmp");
                } else if self.icmp(line, transport).is_none() {
                    line.push_str("truncated-icmp");
                }
            }
            other => {
                let _ = write!(line, "{source} > {destination}: ip-proto-{other}");
            }
        }
        let fragment = u16_at(data, 6);
        if fragment & 0x3fff != 0 {
            let (id, offset) = (u16_at(data, 4), (fragment & 0x1fff) << 3);
            let more = if fragment & 0x2000 != 0 { "+" } else { "" };
            let _ = write!(line, " (frag {id}:{payload}@{offset}{more})");
        }
    }

    /// Nothing if it is truncated.
    fn icmp(&self, line: &mut String, message: &[u8]) -> Option<()> {
        let (&kind, &code) = (message.first()?, message.get(1)?);
        match kind {
            0 | 8 => {
                line.push_str(if kind == 0 { "icmp echo-reply " } else { "icmp echo " });
                message.get(..8)?;
                let number = |at| {
                    let number = u16_at(message, at);
                    if self.swap { number } else { number.swap_bytes() }
                };
                let _ = write!(line, "({}, {})", number(4), number(6));
            }
            3 => unreachable(line, message, code)?,
            _ => {
                let _ = match names::icmp_type_name(kind) {
                    Some(name) => write!(line, "icmp {name}"),
                    None => write!(line, "icmp type {kind}"),
                };
                let _ = match names::icmp_code_name(kind, code) {
                    Some(name) => write!(line, " {name}"),
                    None if code > 0 => write!(line, " code {code}"),
                    None => Ok(()),
                };
            }
        }
        Some(())
    }
}

fn tcp(line: &mut String, segment: &[u8], payload: i32, ip_length: u16, frame: usize) {
    if segment.len() < 14 {
        line.push_str("truncated-tcp");
        return;
    }
    let flags = segment[13];
    let counted = i32::from(flags & SYN != 0) + i32::from(flags & FIN != 0);
    let length = payload - i32::from(segment[12] >> 4) * 4 + counted;
    for (flag, letter) in [(SYN, 'S'), (FIN, 'F'), (RST, 'R'), (PSH, 'P')] {
        if flags & flag != 0 {
            line.push(letter);
        }
    }
    if flags & (SYN | FIN | RST | PSH) == 0 {
        line.push('.');
    }
    let first = u32_at(segment, 4);
    let _ = write!(line, " {first}:{}({length},{frame},{ip_length})", first.wrapping_add_signed(length));
    if flags & ACK != 0 {
        let _ = write!(line, " ack {}", u32_at(segment, 8));
    }
    let _ = match segment.get(14..16) {
        Some(_) => write!(line, " win {}", u16_at(segment, 14)),
        None => line.write_str("truncated-tcp"),
    };
}

fn unreachable(line: &mut String, message: &[u8], code: u8) -> Option<()> {
    let inner = message.get(8..).unwrap_or_default();
    let _ = match names::icmp_code_name(3, code) {
        Some(name) if inner.len() < 20 => write!(line, "icmp unreachable {name} "),
        None if inner.len() < 20 => write!(line, "icmp unreachable code {code} "),
        Some(name) => write!(line, "icmp {} unreachable {name}", address(inner, 16)),
        None => write!(line, "icmp {} unreachable code {code}", address(inner, 16)),
    };
    let protocol = *inner.get(9).filter(|_| inner.len() >= 20)?;
    let name = names::protocol_name(protocol);
    let _ = match (code, name) {
        (2 | 3, Some(name)) => write!(line, " {name}"),
        (2, None) => write!(line, " {protocol}"),
        (3, None) => write!(line, " protocol {protocol}"),
        (4, _) if u16_at(message, 6) != 0 => write!(line, " (mtu {})", u16_at(message, 6)),
        _ => Ok(()),
    };
    if code == 3 {
        let ports = inner.get(usize::from(inner[0] & 15) * 4..)?;
        ports.get(..4)?;
        let _ = write!(line, "/{}", u16_at(ports, 2));
    }
    Some(())
}
