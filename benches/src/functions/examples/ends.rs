//! The programs at both ends of an example: they answer requests for any address, and open what frames need to pass.

use crate::Failure;
use ringway_ring_client::Ring;
use ringway_wire::icmp::{LinkOption, Neighbor, v6};
use ringway_wire::{Arp, EtherType, Ethernet, Header, Icmp, Ipv6, MacAddress, Protocol, arp};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// What is opened at the same time: fewer frames than any ring, lane or queue of a resolver holds.
const AT_ONCE: usize = 32;
/// Time for these, then those that are not open are tried again, as often as this.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
const TRIES: usize = 50;
/// Longest frame, in bytes.
const MOST: usize = 2048;
/// Advertisements have the largest hop limit (RFC 4861, 7.1.2).
const HOP_LIMIT: u8 = 255;

/// The Ethernet address of whoever has an IP address.
pub fn station(address: IpAddr) -> MacAddress {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            MacAddress([2, 0, a, b, c, d])
        }
        IpAddr::V6(address) => {
            let [.., a, b, c, d] = address.octets();
            MacAddress([2, 6, a, b, c, d])
        }
    }
}

/// What has to be open before frames pass: flows, connections or sessions, by number.
pub trait Opening {
    /// Their number.
    fn count(&self) -> usize;

    /// Whether one is open.
    fn is_open(&self, number: usize) -> bool;

    /// The first frame of the sender, also if it is sent again.
    fn begin(&mut self, number: usize) -> Vec<u8>;

    /// The sender's answers to a frame.
    fn near(&mut self, frame: &[u8]) -> Vec<Vec<u8>>;

    /// The receiver's answers to a frame.
    fn far(&mut self, frame: &[u8]) -> Vec<Vec<u8>>;
}

/// The rings of the sender and of the receiver; if that is the same, there is one.
pub struct Ends<'s> {
    /// The sender's.
    pub near: &'s mut Ring,
    /// The receiver's.
    pub far: Option<&'s mut Ring>,
}

impl Ends<'_> {
    /// Opens everything.
    pub fn open(&mut self, opening: &mut dyn Opening) -> Result<(), Failure> {
        let count = opening.count();
        for first in (0..count).step_by(AT_ONCE) {
            let mut left: Vec<usize> = (first..count.min(first + AT_ONCE)).collect();
            for _ in 0..TRIES {
                for number in &left {
                    // A ring without room is tried again.
                    self.near.tx.push(&opening.begin(*number))?;
                }
                self.near.tx.sync()?;
                let end = Instant::now() + RETRY_INTERVAL;
                while !left.is_empty() && Instant::now() < end {
                    self.exchange(opening)?;
                    left.retain(|number| !opening.is_open(*number));
                }
                if left.is_empty() {
                    break;
                }
            }
            if let Some(number) = left.first() {
                return Err(format!("of {count} flows number {number} does not open").into());
            }
        }
        Ok(())
    }

    /// Answers what has come.
    fn exchange(&mut self, opening: &mut dyn Opening) -> Result<(), Failure> {
        let came = match &mut self.far {
            Some(far) => {
                serve(self.near, |frame| opening.near(frame))? + serve(far, |frame| opening.far(frame))?
            }
            None => serve(self.near, |frame| [opening.near(frame), opening.far(frame)].concat())?,
        };
        if came == 0 {
            // The function's process may wait for this core.
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// Takes all frames and answers them; returns their number.
fn serve(ring: &mut Ring, mut answers: impl FnMut(&[u8]) -> Vec<Vec<u8>>) -> Result<usize, Failure> {
    let (mut frame, mut came) = ([0; MOST], 0);
    while let Some(received) = ring.rx.pop(&mut frame)? {
        let frame = &frame[..received.len];
        let answers = match reply(frame).or_else(|| advertisement(frame)) {
            Some(answer) => vec![answer],
            None => answers(frame),
        };
        for answer in answers {
            // The other side asks again for an answer that had no room.
            ring.tx.push(&answer)?;
        }
        came += 1;
    }
    if came > 0 {
        ring.sync()?;
    }
    Ok(came)
}

/// The reply to an ARP request, for any address.
fn reply(frame: &[u8]) -> Option<Vec<u8>> {
    let (ethernet, rest) = Ethernet::split(frame)?;
    let asked = Arp::parse(rest).filter(|asked| asked.operation.get() == arp::REQUEST)?;
    let own = station(Ipv4Addr::from(asked.target_protocol.get()).into());
    let reply = Arp {
        sender_hardware: own,
        sender_protocol: asked.target_protocol,
        target_hardware: asked.sender_hardware,
        target_protocol: asked.sender_protocol,
        ..Arp::new(arp::REPLY)
    };
    let ethernet = Ethernet { destination: ethernet.source, source: own, ..*ethernet };
    (ethernet.ethertype == EtherType::ARP).then(|| [ethernet.bytes(), reply.bytes()].concat())
}

/// The advertisement that answers a neighbor solicitation, for any address.
fn advertisement(frame: &[u8]) -> Option<Vec<u8>> {
    let (ethernet, rest) = Ethernet::split(frame)?;
    let (ip, rest) = Ipv6::split(rest)?;
    let asked = Neighbor::of(rest)?;
    let is_solicitation = ethernet.ethertype == EtherType::IPV6
        && ip.next_header == Protocol::ICMPV6
        && asked.icmp.kind == v6::NEIGHBOR_SOLICITATION;
    if !is_solicitation {
        return None;
    }
    let own = station(std::net::Ipv6Addr::from_bits(asked.target.get()).into());
    let mut icmp = Icmp { kind: v6::NEIGHBOR_ADVERTISEMENT, ..Icmp::default() };
    icmp.set_rest(Neighbor::SOLICITED);
    let neighbor = Neighbor { icmp, target: asked.target };
    let option = LinkOption { kind: LinkOption::TARGET, length: 1, address: own };
    let mut message = [neighbor.bytes(), option.bytes()].concat();
    let answer = Ipv6 {
        payload_length: (message.len() as u16).into(),
        next_header: Protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        source: asked.target,
        destination: ip.source,
        ..Ipv6::EMPTY
    };
    let sum = answer.pseudo_header(Protocol::ICMPV6, message.len() as u32);
    Icmp::fill_checksum(&mut message, sum)?;
    let ethernet = Ethernet { destination: ethernet.source, source: own, ethertype: EtherType::IPV6 };
    Some([ethernet.bytes(), answer.bytes(), &message].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_any_address_are_answered() {
        let asker = MacAddress([2, 0, 0, 0, 2, 1]);
        let ethernet =
            Ethernet { destination: MacAddress::BROADCAST, source: asker, ethertype: EtherType::ARP };
        let asked = Arp {
            sender_hardware: asker,
            sender_protocol: 0x0a00_0201.into(),
            target_protocol: 0x0a00_0214.into(),
            ..Arp::new(arp::REQUEST)
        };
        let answer = reply(&[ethernet.bytes(), asked.bytes()].concat()).unwrap();
        let (ethernet, rest) = Ethernet::split(&answer).unwrap();
        let arp = Arp::parse(rest).unwrap();
        let own = MacAddress([2, 0, 10, 0, 2, 20]);
        assert_eq!((ethernet.destination, ethernet.source), (asker, own));
        assert_eq!((arp.operation.get(), arp.sender_hardware), (arp::REPLY, own));
        assert_eq!(arp.sender_protocol, asked.target_protocol);
        assert_eq!(reply(&answer), None);
    }

    #[test]
    fn solicitations_of_any_address_are_answered() {
        let asker = MacAddress([2, 0, 0, 0, 2, 1]);
        let target = "2001:db8:2::14".parse::<std::net::Ipv6Addr>().unwrap();
        let neighbor = Neighbor {
            icmp: Icmp { kind: v6::NEIGHBOR_SOLICITATION, ..Icmp::default() },
            target: target.to_bits().into(),
        };
        let ip = Ipv6 { next_header: Protocol::ICMPV6, source: 7.into(), ..Ipv6::EMPTY };
        let ethernet = Ethernet { destination: asker, source: asker, ethertype: EtherType::IPV6 };
        let answer = advertisement(&[ethernet.bytes(), ip.bytes(), neighbor.bytes()].concat()).unwrap();
        let (_, rest) = Ethernet::split(&answer).unwrap();
        let (ip, message) = Ipv6::split(rest).unwrap();
        assert_eq!((ip.source_addr(), ip.destination.get(), ip.hop_limit), (target, 7, HOP_LIMIT));
        let mut sum = ip.pseudo_header(Protocol::ICMPV6, message.len() as u32);
        sum.add(message);
        assert!(sum.is_valid());
        assert_eq!(LinkOption::find(LinkOption::TARGET, &message[24..]), Some(Some(station(target.into()))));
        assert_eq!(advertisement(&answer), None);
    }
}
