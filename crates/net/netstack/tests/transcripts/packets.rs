//! Lines about packets that are no segments: ARP, ICMP echo and its fragments, of any host of the network.
use super::{Described, EtherType, Header, Icmp, Ipv4, Run, Sum, U16, U32, address, packet, pair, v4};
use ringway_wire::{Arp, MacAddress, Protocol, arp, ipv4};

pub(super) const WORDS: &[&str] = &["echo", "fragment", "arp", "is-at"];

fn hardware(host: u8) -> MacAddress {
    [2, 0, 0, 0, 0, host].into()
}

fn bits(host: u8) -> u32 {
    u32::from_be_bytes([10, 0, 0, host])
}

/// An echo request of so many bytes behind the IP header.
fn echo_request(len: usize) -> Result<Vec<u8>, String> {
    let payload: Vec<u8> = (Icmp::LEN..len).map(|at| at as u8).collect();
    let mut message = [Icmp { kind: v4::ECHO, ..Icmp::default() }.bytes(), &payload].concat();
    Icmp::fill_checksum(&mut message, Sum::new()).ok_or("an echo request has at least 8 bytes")?;
    Ok(message)
}

/// What the stack answers to an echo request.
pub(super) fn echo_reply(packet: &[u8]) -> Described {
    let packet = ipv4::Packet::parse(packet).unwrap();
    let (icmp, payload) = Icmp::split(packet.payload).unwrap();
    assert_eq!(icmp.kind, v4::ECHO_REPLY);
    assert!(payload.iter().enumerate().all(|(at, &byte)| byte == (Icmp::LEN + at) as u8), "other bytes");
    let to = packet.header.destination.get() as u8;
    Described::other(format!("echo {} to {to}", packet.payload.len()))
}

impl Run {
    /// Answers a request for a host that is not silent.
    pub(super) fn stack_sent_arp(&mut self, payload: &[u8]) {
        let sent = *Arp::parse(payload).unwrap();
        let host = sent.target_protocol.get() as u8;
        if sent.operation.get() != arp::REQUEST {
            self.note_sent(Described::other(format!("is-at {host}")));
            return;
        }
        if self.silent.contains(&host) {
            self.note_sent(Described::other(format!("arp {host}")));
            return;
        }
        self.host_sends_arp(host, arp::REPLY);
    }

    fn host_sends_arp(&mut self, host: u8, operation: u16) {
        let packet = Arp {
            sender_hardware: hardware(host),
            sender_protocol: U32::new(bits(host)),
            target_hardware: super::OURS.into(),
            target_protocol: U32::new(bits(1)),
            ..Arp::new(operation)
        };
        self.receive(EtherType::ARP, packet.bytes());
    }

    /// What a line with one of the words sends to the stack.
    pub(super) fn host_sends(&mut self, word: &str, words: &str) -> Result<(), String> {
        match word {
            "arp" => {
                let host = words.parse().map_err(|_| "arp HOST")?;
                self.host_sends_arp(host, arp::REQUEST);
            }
            "echo" => {
                let (len, host) = words.split_once(" from ").ok_or("echo LENGTH from HOST")?;
                let message = echo_request(len.parse().map_err(|_| "a length")?)?;
                let hosts = [host.parse().map_err(|_| "a host")?, 1].map(|last| address(false, last));
                let (header, _) = packet(hosts, Protocol::ICMP, 0, message.len());
                self.receive_ip(&header, &message);
            }
            "fragment" => {
                let (id, rest) = words.split_once(' ').ok_or("fragment ID START:END of LENGTH")?;
                let (part, len) = rest.split_once(" of ").ok_or("fragment ID START:END of LENGTH")?;
                let (start, end): (usize, usize) = pair(part, ':');
                let message = echo_request(len.parse().map_err(|_| "a length")?)?;
                let more = if end < message.len() { ipv4::MORE_FRAGMENTS } else { 0 };
                let part = message.get(start..end).ok_or("bytes of the message")?;
                let mut header = Ipv4 {
                    total_length: U16::new((Ipv4::LEN + part.len()) as u16),
                    identification: U16::new(id.parse().map_err(|_| "an identification")?),
                    fragment: U16::new((start / 8) as u16 | more),
                    ttl: 64,
                    protocol: Protocol::ICMP,
                    source: U32::new(bits(2)),
                    destination: U32::new(bits(1)),
                    ..Ipv4::EMPTY
                };
                header.fill_checksum(&[]);
                self.receive_ip(header.bytes(), part);
            }
            _ => return Err(format!("only the stack sends {word}")),
        }
        Ok(())
    }
}
