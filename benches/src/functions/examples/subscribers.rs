//! Subscribers of an access server: discovery of PPP over Ethernet (RFC 2516), LCP (RFC 1661), PAP (RFC 1334) and IPCP
//! (RFC 1332), as far as a server needs it that loses nothing.

use super::ends::Opening;
use crate::click::frames::Session;
use ringway_wire::{EtherType, Ethernet, Header, MacAddress};
use std::net::Ipv4Addr;

const DISCOVERY: EtherType = EtherType::new(0x8863);
const VERSION_TYPE: u8 = 0x11;
/// Codes of discovery.
const PADI: u8 = 0x09;
const PADO: u8 = 0x07;
const PADR: u8 = 0x19;
const PADS: u8 = 0x65;
/// Tags.
const SERVICE_NAME: u16 = 0x0101;
const COOKIE: u16 = 0x0104;
/// Protocols of PPP.
const LCP: u16 = 0xc021;
const PAP: u16 = 0xc023;
const IPCP: u16 = 0x8021;
/// Codes of control protocols; PAP's acknowledgment is the same number as theirs.
const REQUEST: u8 = 1;
const ACK: u8 = 2;
const NAK: u8 = 3;
const PROTOCOL_REJECT: u8 = 8;
/// LCP's option with the protocol of the login, IPCP's with the address.
const OPTION_AUTH: u8 = 3;
const OPTION_ADDRESS: u8 = 3;
/// LCP's magic number of all subscribers.
const MAGIC: [u8; 6] = [5, 6, 1, 2, 3, 4];

/// A subscriber's progress.
#[derive(Clone, Copy, Debug)]
struct Subscriber {
    session: u16,
    /// LCP's requests that were acknowledged: ours, and the server's.
    is_acked: [bool; 2],
    address: Ipv4Addr,
    is_open: bool,
}

const NEW: Subscriber =
    Subscriber { session: 0, is_acked: [false; 2], address: Ipv4Addr::UNSPECIFIED, is_open: false };

/// Subscribers with the same name and password.
pub struct Subscribers {
    all: Vec<Subscriber>,
    server: MacAddress,
    name: &'static str,
    password: &'static str,
}

fn mac(number: usize) -> MacAddress {
    let [.., a, b, c] = (number as u32).to_be_bytes();
    MacAddress([2, 0, 7, a, b, c])
}

fn number(mac: MacAddress) -> usize {
    let [.., a, b, c] = mac.0;
    u32::from_be_bytes([0, a, b, c]) as usize
}

impl Subscribers {
    /// `count` subscribers of a server.
    pub fn new(count: usize, server: MacAddress, [name, password]: [&'static str; 2]) -> Subscribers {
        Subscribers { all: vec![NEW; count], server, name, password }
    }

    /// A subscriber's session, and its address.
    pub fn session(&self, number: usize) -> (Session, Ipv4Addr) {
        let Subscriber { session, address, .. } = self.all[number];
        (Session { subscriber: mac(number).0, number: session }, address)
    }

    /// The answers to a frame.
    fn answers(&mut self, frame: &[u8]) -> Option<Vec<Vec<u8>>> {
        let (ethernet, rest) = Ethernet::split(frame)?;
        let ([_, code, high, low, _, _], rest) = rest.split_first_chunk::<6>()?;
        let (at, session) = (number(ethernet.destination), u16::from_be_bytes([*high, *low]));
        let known = self.all.get(at)?.session;
        match ethernet.ethertype {
            DISCOVERY => Some(vec![self.discovered(at, *code, session, rest)?]),
            EtherType::PPPOE_SESSION if session == known => {
                let ([high, low], packet) = rest.split_first_chunk::<2>()?;
                self.controlled(at, u16::from_be_bytes([*high, *low]), packet)
            }
            _ => None,
        }
    }

    /// The answer to discovery.
    fn discovered(&mut self, at: usize, code: u8, session: u16, tags: &[u8]) -> Option<Vec<u8>> {
        match code {
            PADO => {
                Some(discovery(self.server, at, PADR, &[(SERVICE_NAME, &[]), (COOKIE, tag(tags, COOKIE)?)]))
            }
            PADS if session > 0 => {
                self.all[at] = Subscriber { session, ..NEW };
                Some(self.control(at, LCP, REQUEST, 1, &MAGIC))
            }
            _ => None,
        }
    }

    /// The answers to a packet of a control protocol.
    fn controlled(&mut self, at: usize, protocol: u16, packet: &[u8]) -> Option<Vec<Vec<u8>>> {
        let (header, data) = packet.split_first_chunk::<4>()?;
        let [code, id, high, low] = *header;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (packet, data) = (packet.get(..length)?, data.get(..length.checked_sub(4)?)?);
        let answer = match (protocol, code) {
            (LCP, REQUEST) => {
                let [high, low] = PAP.to_be_bytes();
                if option(data, OPTION_AUTH)? != [high, low] {
                    return Some(vec![self.control(at, LCP, NAK, id, &[OPTION_AUTH, 4, high, low])]);
                }
                self.all[at].is_acked[1] = true;
                let ack = self.control(at, LCP, ACK, id, data);
                return Some([ack].into_iter().chain(self.login(at)).collect());
            }
            (LCP, ACK) => {
                self.all[at].is_acked[0] = true;
                self.login(at)?
            }
            (PAP, ACK) => self.addressed(at),
            (IPCP, REQUEST) => self.control(at, IPCP, ACK, id, data),
            (IPCP, NAK) => {
                let address: [u8; 4] = option(data, OPTION_ADDRESS)?.try_into().ok()?;
                self.all[at].address = address.into();
                self.addressed(at)
            }
            (IPCP, ACK) => {
                self.all[at].is_open = !self.all[at].address.is_unspecified();
                return None;
            }
            (LCP | PAP | IPCP, _) => return None,
            (_, REQUEST) => {
                let rejected = [&protocol.to_be_bytes(), packet].concat();
                self.control(at, LCP, PROTOCOL_REJECT, id, &rejected)
            }
            _ => return None,
        };
        Some(vec![answer])
    }

    /// The login, when LCP is open.
    fn login(&self, at: usize) -> Option<Vec<u8>> {
        let Subscriber { is_acked: [true, true], .. } = self.all[at] else { return None };
        let mut data = Vec::new();
        for text in [self.name, self.password] {
            data.push(text.len() as u8);
            data.extend_from_slice(text.as_bytes());
        }
        Some(self.control(at, PAP, REQUEST, 1, &data))
    }

    /// IPCP's request for the subscriber's address.
    fn addressed(&self, at: usize) -> Vec<u8> {
        let address = self.all[at].address.octets();
        self.control(at, IPCP, REQUEST, 2, &[&[OPTION_ADDRESS, 6], &address[..]].concat())
    }

    fn control(&self, at: usize, protocol: u16, code: u8, id: u8, data: &[u8]) -> Vec<u8> {
        let length = (data.len() + 4) as u16;
        let [high, low] = length.to_be_bytes();
        let packet = [&protocol.to_be_bytes()[..], &[code, id, high, low], data].concat();
        let ethernet =
            Ethernet { destination: self.server, source: mac(at), ethertype: EtherType::PPPOE_SESSION };
        pppoe(ethernet, 0, self.all[at].session, &packet)
    }
}

fn pppoe(ethernet: Ethernet, code: u8, session: u16, payload: &[u8]) -> Vec<u8> {
    let [[a, b], [c, d]] = [session, payload.len() as u16].map(u16::to_be_bytes);
    [ethernet.bytes(), &[VERSION_TYPE, code, a, b, c, d], payload].concat()
}

/// A frame of discovery.
fn discovery(to: MacAddress, from: usize, code: u8, tags: &[(u16, &[u8])]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (kind, value) in tags {
        payload.extend_from_slice(&kind.to_be_bytes());
        payload.extend_from_slice(&(value.len() as u16).to_be_bytes());
        payload.extend_from_slice(value);
    }
    pppoe(Ethernet { destination: to, source: mac(from), ethertype: DISCOVERY }, code, 0, &payload)
}

/// The value of the first tag of this kind.
fn tag(mut tags: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some(([a, b, c, d], rest)) = tags.split_first_chunk::<4>() {
        let (value, rest) = rest.split_at_checked(u16::from_be_bytes([*c, *d]).into())?;
        if u16::from_be_bytes([*a, *b]) == wanted {
            return Some(value);
        }
        tags = rest;
    }
    None
}

/// The value of the first option of this kind.
fn option(mut options: &[u8], wanted: u8) -> Option<&[u8]> {
    while let [kind, length, ..] = *options {
        let (option, rest) = options.split_at_checked(length.max(2).into())?;
        if kind == wanted {
            return option.get(2..);
        }
        options = rest;
    }
    None
}

impl Opening for Subscribers {
    fn count(&self) -> usize {
        self.all.len()
    }

    fn is_open(&self, number: usize) -> bool {
        self.all[number].is_open
    }

    fn begin(&mut self, number: usize) -> Vec<u8> {
        self.all[number] = NEW;
        discovery(MacAddress::BROADCAST, number, PADI, &[(SERVICE_NAME, &[])])
    }

    fn near(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        self.answers(frame).unwrap_or_default()
    }

    fn far(&mut self, _: &[u8]) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers to a packet from the server in the session 9 of subscriber 3.
    fn told(all: &mut Subscribers, protocol: u16, packet: &[u8]) -> Vec<Vec<u8>> {
        let ethernet =
            Ethernet { destination: mac(3), source: all.server, ethertype: EtherType::PPPOE_SESSION };
        let answers = all.near(&pppoe(ethernet, 0, 9, &[&protocol.to_be_bytes(), packet].concat()));
        answers.into_iter().map(|frame| frame[Ethernet::LEN + 6..].to_vec()).collect()
    }

    #[test]
    fn a_session_is_negotiated() {
        let server = MacAddress([2, 0, 0, 0, 1, 1]);
        let mut all = Subscribers::new(4, server, ["a", "bc"]);
        assert_eq!(all.begin(3)[..12], [&[0xff; 6][..], &mac(3).0].concat());
        let from_server = Ethernet { destination: mac(3), source: server, ethertype: DISCOVERY };
        let offer = pppoe(from_server, PADO, 0, &[1, 2, 0, 1, 5, 1, 4, 0, 2, 7, 8]);
        let asks = all.near(&offer).remove(0);
        assert_eq!((asks[15], tag(&asks[20..], COOKIE)), (PADR, Some(&[7, 8][..])));
        assert_eq!(all.near(&pppoe(from_server, PADS, 9, &[])).len(), 1);

        let chap = [1, 7, 0, 9, 3, 5, 0xc2, 0x23, 5];
        assert_eq!(told(&mut all, LCP, &chap), [vec![0xc0, 0x21, 3, 7, 0, 8, 3, 4, 0xc0, 0x23]]);
        let pap = [1, 8, 0, 8, 3, 4, 0xc0, 0x23];
        assert_eq!(told(&mut all, LCP, &pap), [vec![0xc0, 0x21, 2, 8, 0, 8, 3, 4, 0xc0, 0x23]]);
        let login = vec![0xc0, 0x23, 1, 1, 0, 9, 1, b'a', 2, b'b', b'c'];
        assert_eq!(told(&mut all, LCP, &[2, 1, 0, 10, 5, 6, 1, 2, 3, 4]), [login]);
        assert_eq!(told(&mut all, PAP, &[2, 1, 0, 5, 0]).len(), 1);
        assert_eq!(
            told(&mut all, 0x8057, &[1, 1, 0, 4]),
            [vec![0xc0, 0x21, 8, 1, 0, 10, 0x80, 0x57, 1, 1, 0, 4]]
        );
        let asked = told(&mut all, IPCP, &[3, 2, 0, 10, 3, 6, 10, 0, 0, 9]);
        assert_eq!(asked, [vec![0x80, 0x21, 1, 2, 0, 10, 3, 6, 10, 0, 0, 9]]);
        assert!(!all.is_open(3));
        assert_eq!(told(&mut all, IPCP, &[2, 2, 0, 10, 3, 6, 10, 0, 0, 9]), [[0; 0]; 0]);
        assert_eq!((all.is_open(3), all.session(3).0.number), (true, 9));
        assert_eq!(all.session(3).1, Ipv4Addr::new(10, 0, 0, 9));
    }
}
