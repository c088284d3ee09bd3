//! A frame in a line, as tcpdump shows it.

use crate::MacAddress;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::Write;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Most VLAN tags that are shown.
const TAGS: usize = 4;

/// A big-endian number, if the frame has it.
fn number(data: &[u8], at: usize, size: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

fn mac(data: &[u8], at: usize) -> String {
    let bytes = data.get(at..).and_then(|rest| rest.first_chunk::<6>());
    bytes.map_or_else(String::new, |bytes| MacAddress(*bytes).to_string())
}

/// What a frame is.
pub fn summary(data: &[u8], len: u32) -> String {
    let (mut text, mut at) = (String::new(), 12);
    for _ in 0..=TAGS {
        let Some(kind) = number(data, at, 2) else { break };
        let body = data.get(at + 2..).unwrap_or(&[]);
        let found = match kind {
            0x8100 | 0x88a8 | 0x9100 => {
                let Some(tag) = number(body, 0, 2) else { break };
                let _ = write!(text, "vlan {}, ", tag & 0xfff);
                at += 4;
                continue;
            }
            0x0800 => ipv4(body),
            0x86dd => ipv6(body),
            0x0806 => arp(body),
            _ => None,
        };
        let what = found.unwrap_or_else(|| {
            let (from, to) = (mac(data, 6), mac(data, 0));
            format!("{from} > {to}, ethertype {kind:#06x}, length {len}")
        });
        return text + &what;
    }
    text + &format!("[truncated frame], length {len}")
}

fn arp(body: &[u8]) -> Option<String> {
    let address = |at| number(body, at, 4).map(Ipv4Addr::from_bits);
    let (sender, target) = (address(14)?, address(24)?);
    if number(body, 0, 4)? != 0x0001_0800 {
        return None;
    }
    Some(match number(body, 6, 2)? {
        1 => format!("ARP, Request who-has {target} tell {sender}, length {}", body.len()),
        2 => format!("ARP, Reply {sender} is-at {}, length {}", mac(body, 8), body.len()),
        operation => format!("ARP, operation {operation}, length {}", body.len()),
    })
}

fn ipv4(body: &[u8]) -> Option<String> {
    let header = 4 * (number(body, 0, 1)? as usize & 15);
    let total = number(body, 2, 2)? as usize;
    let fragment = number(body, 6, 2)?;
    let (from, to) = (number(body, 12, 4)?, number(body, 16, 4)?);
    let (from, to) = (Ipv4Addr::from_bits(from).to_string(), Ipv4Addr::from_bits(to).to_string());
    let payload = body.get(header..).unwrap_or(&[]);
    // A frame with pending segmentation may have no length.
    let len = if total == 0 { payload.len() } else { total.saturating_sub(header) };
    if fragment & 0x1fff != 0 {
        let offset = 8 * (fragment & 0x1fff);
        return Some(format!("IP {from} > {to}: fragment at {offset}, length {len}"));
    }
    Some(format!("IP {}", transport(number(body, 9, 1)?, payload, len, (&from, &to))))
}

fn ipv6(body: &[u8]) -> Option<String> {
    let len = number(body, 4, 2)? as usize;
    let address = |at: usize| {
        let bytes: [u8; 16] = body.get(at..at + 16)?.try_into().ok()?;
        Some(Ipv6Addr::from(bytes).to_string())
    };
    let (from, to) = (address(8)?, address(24)?);
    let payload = body.get(40..)?;
    let len = if len == 0 { payload.len() } else { len };
    Some(format!("IP6 {}", transport(number(body, 6, 1)?, payload, len, (&from, &to))))
}

/// A packet without its IP header.
fn transport(protocol: u32, payload: &[u8], len: usize, (from, to): (&str, &str)) -> String {
    let ports = || Some((number(payload, 0, 2)?, number(payload, 2, 2)?));
    let known = match protocol {
        6 => ports().and_then(|ports| tcp(payload, len, (from, to), ports)),
        17 => ports().map(|(source, destination)| {
            format!("{from}.{source} > {to}.{destination}: UDP, length {}", len.saturating_sub(8))
        }),
        1 => icmp(payload).map(|what| format!("{from} > {to}: ICMP {what}, length {len}")),
        58 => icmp6(payload).map(|what| format!("{from} > {to}: ICMP6, {what}, length {len}")),
        _ => None,
    };
    known.unwrap_or_else(|| format!("{from} > {to}: protocol {protocol}, length {len}"))
}

fn tcp(payload: &[u8], len: usize, (from, to): (&str, &str), ports: (u32, u32)) -> Option<String> {
    let header = 4 * (number(payload, 12, 1)? as usize >> 4);
    let bits = number(payload, 13, 1)?;
    let names = [(2, 'S'), (1, 'F'), (4, 'R'), (8, 'P'), (32, 'U'), (64, 'E'), (128, 'W'), (16, '.')];
    let mut flags: String = names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    if flags.is_empty() {
        flags.push_str("none");
    }
    let (sequence, acknowledged) = (number(payload, 4, 4)?, number(payload, 8, 4)?);
    let data = len.saturating_sub(header);
    let mut text = format!("{from}.{} > {to}.{}: Flags [{flags}]", ports.0, ports.1);
    if data > 0 {
        let _ = write!(text, ", seq {sequence}:{}", sequence.wrapping_add(data as u32));
    } else if bits & 7 != 0 {
        let _ = write!(text, ", seq {sequence}");
    }
    if bits & 16 != 0 {
        let _ = write!(text, ", ack {acknowledged}");
    }
    let _ = write!(text, ", win {}, length {data}", number(payload, 14, 2)?);
    Some(text)
}

fn icmp(payload: &[u8]) -> Option<String> {
    let echo = |what| Some(format!("{what}, id {}, seq {}", number(payload, 4, 2)?, number(payload, 6, 2)?));
    match (number(payload, 0, 1)?, number(payload, 1, 1)?) {
        (8, _) => echo("echo request"),
        (0, _) => echo("echo reply"),
        (kind, code) => Some(format!("type {kind} code {code}")),
    }
}

fn icmp6(payload: &[u8]) -> Option<String> {
    let echo = |what| Some(format!("{what}, id {}, seq {}", number(payload, 4, 2)?, number(payload, 6, 2)?));
    match (number(payload, 0, 1)?, number(payload, 1, 1)?) {
        (128, _) => echo("echo request"),
        (129, _) => echo("echo reply"),
        (133, _) => Some("router solicitation".into()),
        (134, _) => Some("router advertisement".into()),
        (135, _) => Some("neighbor solicitation".into()),
        (136, _) => Some("neighbor advertisement".into()),
        (kind, code) => Some(format!("type {kind} code {code}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    #[test]
    fn frames_are_described_as_by_tcpdump() {
        let ethernet = "020000000002 020000000001";
        let ip = "4500 0030 0001 0000 40";
        for (frame, expected) in [
            (
                format!("{ethernet} 0806 0001 0800 0604 0001 020000000001 0a000001 000000000000 0a000002"),
                "ARP, Request who-has 10.0.0.2 tell 10.0.0.1, length 28",
            ),
            (
                format!(
                    "{ethernet} 0800 {ip} 06 0000 0a000001 0a000002 {}",
                    "03e8 0050 00000001 00000002 5002 0100 00000000"
                ),
                "IP 10.0.0.1.1000 > 10.0.0.2.80: Flags [S], seq 1:9, win 256, length 8",
            ),
            (
                format!("{ethernet} 8100 0005 0800 {ip} 11 0000 0a000001 0a000002 0035 0050 0010 0000"),
                "vlan 5, IP 10.0.0.1.53 > 10.0.0.2.80: UDP, length 20",
            ),
            (
                format!("{ethernet} 0800 {ip} 01 0000 0a000001 0a000002 0800 0000 0007 0001"),
                "IP 10.0.0.1 > 10.0.0.2: ICMP echo request, id 7, seq 1, length 28",
            ),
            (
                format!("{ethernet} 88cc 00"),
                "02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype 0x88cc, length 99",
            ),
            (
                format!("{ethernet} 0800 45"),
                "02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype 0x0800, length 99",
            ),
            (ethernet.into(), "[truncated frame], length 99"),
        ] {
            assert_eq!(summary(&hex(&frame), 99), expected);
        }
    }

    #[test]
    fn no_truncated_frame_panics() {
        let ip6 = "6000000000082c40 fe800000000000000000000000000001 fe800000000000000000000000000002";
        for kind in ["06", "11", "3a", "01", "2c"] {
            let start = format!(
                "020000000002 020000000001 8100 0001 86dd {}",
                ip6.replace("2c40", &format!("{kind}40"))
            );
            let frame = hex(&format!("{start} {}", "8f".repeat(40)));
            (0..=frame.len()).for_each(|len| assert!(!summary(&frame[..len], 1).is_empty()));
        }
    }
}
