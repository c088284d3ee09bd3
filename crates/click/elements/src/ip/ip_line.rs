//! A text line that describes an IPv4 packet.
use super::names;
use alloc::string::String;
use core::fmt::{Display, Write};
use ringway_wire::icmp::v4;
use ringway_wire::tcp::Flags;
use ringway_wire::{Header, Icmp, Ipv4, Protocol, Tcp, U16, Udp};

/// The fields of a packet to print.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fields {
    pub(super) id: bool,
    pub(super) ttl: bool,
    pub(super) tos: bool,
    pub(super) length: bool,
    pub(super) swap: bool,
}

impl Fields {
    /// Describes a packet that begins with `ip`, in a frame of `frame` bytes.
    pub(super) fn describe(&self, line: &mut String, ip: &Ipv4, data: &[u8], frame: usize) {
        let mut field = |wanted: bool, name: &str, value: &dyn Display| {
            if wanted {
                let _ = write!(line, "{name} {value} ");
            }
        };
        let id = ip.identification;
        field(self.id, "id", &id);
        field(self.ttl, "ttl", &ip.ttl);
        field(self.tos, "tos", &ip.tos);
        field(self.length, "length", &ip.total_length);
        let payload = i32::from(ip.total_length.get()) - ip.header_len() as i32;
        let transport = data.get(ip.header_len()..).unwrap_or_default();
        let transport = &transport[..transport.len().min(payload.max(0) as usize)];
        let (source, destination) = (ip.source_addr(), ip.destination_addr());
        match ip.protocol {
            protocol @ (Protocol::TCP | Protocol::UDP) => {
                let name = if protocol == Protocol::TCP { "tcp" } else { "udp" };
                let later = ip.is_later_fragment();
                match <[U16; 2]>::of(transport).filter(|_| !later) {
                    None => {
                        let truncated = if later { "" } else { "truncated-" };
                        let _ = write!(line, "{source} > {destination}: {truncated}{name}");
                    }
                    Some([from, to]) => {
                        let _ = write!(line, "{source}.{from} > {destination}.{to}: ");
                        match Udp::of(transport) {
                            _ if protocol == Protocol::TCP => {
                                tcp(line, transport, payload, ip.total_length.get(), frame);
                            }
                            None => line.push_str("truncated-udp"),
                            Some(udp) => {
                                let _ = write!(line, "udp {}", udp.length);
                            }
                        }
                    }
                }
            }
            Protocol::ICMP => {
                let _ = write!(line, "{source} > {destination}: ");
                if ip.is_later_fragment() {
                    line.push_str("icmp");
                } else if self.icmp(line, transport).is_none() {
                    line.push_str("truncated-icmp");
                }
            }
            Protocol(other) => {
                let _ = write!(line, "{source} > {destination}: ip-proto-{other}");
            }
        }
        if ip.is_fragment() {
            let (offset, more) = (ip.fragment_offset(), if ip.more_fragments() { "+" } else { "" });
            let _ = write!(line, " (frag {id}:{payload}@{offset}{more})");
        }
    }

    /// Returns `None` if the message is truncated.
    fn icmp(&self, line: &mut String, message: &[u8]) -> Option<()> {
        let (&kind, &code) = (message.first()?, message.get(1)?);
        match kind {
            v4::ECHO_REPLY | v4::ECHO => {
                line.push_str(if kind == v4::ECHO { "icmp echo " } else { "icmp echo-reply " });
                let echo = Icmp::of(message)?;
                let [id, sequence] = [echo.identifier.get(), echo.sequence_number.get()]
                    .map(|number| if self.swap { number } else { number.swap_bytes() });
                let _ = write!(line, "({id}, {sequence})");
            }
            v4::UNREACHABLE => unreachable(line, message, code)?,
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
    let tcp = Tcp::padded(segment);
    if segment.len() < 14 {
        line.push_str("truncated-tcp");
        return;
    }
    let counted = i32::from(tcp.flags.has(Flags::SYN)) + i32::from(tcp.flags.has(Flags::FIN));
    let length = payload - tcp.header_len() as i32 + counted;
    let letters = [(Flags::SYN, 'S'), (Flags::FIN, 'F'), (Flags::RST, 'R'), (Flags::PSH, 'P')];
    let before = line.len();
    line.extend(letters.iter().filter(|(flag, _)| tcp.flags.has(*flag)).map(|(_, letter)| letter));
    if line.len() == before {
        line.push('.');
    }
    let first = tcp.sequence_number.get();
    let _ = write!(line, " {first}:{}({length},{frame},{ip_length})", first.wrapping_add_signed(length));
    if tcp.flags.has(Flags::ACK) {
        let _ = write!(line, " ack {}", tcp.acknowledgment_number);
    }
    let _ = match segment.len() {
        16.. => write!(line, " win {}", tcp.window),
        _ => line.write_str("truncated-tcp"),
    };
}

fn unreachable(line: &mut String, message: &[u8], code: u8) -> Option<()> {
    let inner = message.get(Icmp::LEN..).unwrap_or_default();
    let ip = Ipv4::of(inner);
    let _ = match (names::icmp_code_name(v4::UNREACHABLE, code), ip.map(Ipv4::destination_addr)) {
        (Some(name), None) => write!(line, "icmp unreachable {name} "),
        (None, None) => write!(line, "icmp unreachable code {code} "),
        (Some(name), Some(address)) => write!(line, "icmp {address} unreachable {name}"),
        (None, Some(address)) => write!(line, "icmp {address} unreachable code {code}"),
    };
    let (ip, mtu) = (ip?, Icmp::padded(message).sequence_number);
    let protocol = ip.protocol.0;
    let _ = match (code, names::protocol_name(protocol)) {
        (2 | 3, Some(name)) => write!(line, " {name}"),
        (2, None) => write!(line, " {protocol}"),
        (3, None) => write!(line, " protocol {protocol}"),
        (v4::NEEDS_FRAGMENTATION, _) if mtu != 0 => write!(line, " (mtu {mtu})"),
        _ => Ok(()),
    };
    if code == 3 {
        let [_, port] = <[U16; 2]>::of(inner.get(ip.header_len()..)?)?;
        let _ = write!(line, "/{port}");
    }
    Some(())
}
