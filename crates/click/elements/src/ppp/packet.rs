//! Packets of PPP's control protocols (RFC 1661, 5 and 6), and those to send.
use alloc::vec::Vec;
use md5::{Digest, Md5};

pub(super) const LCP: u16 = 0xc021;
pub(super) const PAP: u16 = 0xc023;
pub(super) const CHAP: u16 = 0xc223;
pub(super) const IPCP: u16 = 0x8021;
pub(super) const IPV6CP: u16 = 0x8057;

/// Codes of LCP; IPCP and IPV6CP have the first seven.
pub(super) mod code {
    pub const CONFIGURE_REQUEST: u8 = 1;
    pub const CONFIGURE_ACK: u8 = 2;
    pub const CONFIGURE_NAK: u8 = 3;
    pub const CONFIGURE_REJECT: u8 = 4;
    pub const TERMINATE_REQUEST: u8 = 5;
    pub const TERMINATE_ACK: u8 = 6;
    pub const CODE_REJECT: u8 = 7;
    pub const PROTOCOL_REJECT: u8 = 8;
    pub const ECHO_REQUEST: u8 = 9;
    pub const ECHO_REPLY: u8 = 10;
    pub const DISCARD_REQUEST: u8 = 11;
}

/// Maximum receive unit of PPPoE in bytes (RFC 2516, 7).
pub(super) const MRU: u16 = 1492;
/// Bytes of code, identifier and length.
const HEADER: usize = 4;
/// Most bytes of a control packet; with PPP's protocol they fill the MRU.
/// Attack: a jumbo frame, whose answer would not fit.
const MOST: usize = MRU as usize - 2;
/// Most bytes of a rejected packet that are returned.
const REJECTED: usize = MOST - HEADER - 2;

/// A control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Control<'a> {
    pub(super) code: u8,
    pub(super) id: u8,
    pub(super) data: &'a [u8],
    /// All of it, without padding.
    whole: &'a [u8],
}

impl<'a> Control<'a> {
    /// Parses the payload of a PPP packet; padding is ignored. `None` if its length is wrong.
    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        let [code, id, high, low, ..] = *bytes else { return None };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let whole = bytes.get(..length).filter(|_| (HEADER..=MOST).contains(&length))?;
        Some(Self { code, id, data: whole.get(HEADER..)?, whole })
    }
}

/// An option: its type, its value, and both with the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opt<'a> {
    pub(super) kind: u8,
    pub(super) value: &'a [u8],
    pub(super) bytes: &'a [u8],
}

/// Splits the first option off.
fn first(data: &[u8]) -> Option<(Opt<'_>, &[u8])> {
    let [kind, length, ..] = *data else { return None };
    let (bytes, rest) = data.split_at_checked(length.into())?;
    Some((Opt { kind, value: bytes.get(2..)?, bytes }, rest))
}

/// The options in a packet's data, as far as they are well-formed.
pub(super) fn options(mut data: &[u8]) -> impl Iterator<Item = Opt<'_>> {
    core::iter::from_fn(move || {
        let (option, rest) = first(data)?;
        data = rest;
        Some(option)
    })
}

/// Whether the data consists of options and nothing else.
pub(super) fn are_options(mut data: &[u8]) -> bool {
    while let Some((_, rest)) = first(data) {
        data = rest;
    }
    data.is_empty()
}

/// Appends an option.
pub(super) fn put_option(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    out.push(kind);
    out.push(2 + value.len() as u8);
    out.extend_from_slice(value);
}

/// Packets to send: PPP's protocol and payload of each. Its memory is used again and again.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    /// Protocol and end of each packet.
    ends: Vec<(u16, usize)>,
}

impl Outbox {
    /// Adds a control packet, whose data `write` appends.
    pub(super) fn send(&mut self, protocol: u16, code: u8, id: u8, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[code, id, 0, 0]);
        write(&mut self.bytes);
        let length = (self.bytes.len() - start) as u16;
        if let Some(place) = self.bytes.get_mut(start + 2..start + HEADER) {
            place.copy_from_slice(&length.to_be_bytes());
        }
        self.ends.push((protocol, self.bytes.len()));
    }

    /// Adds a Code-Reject.
    pub(super) fn reject_code(&mut self, protocol: u16, id: u8, packet: &Control<'_>) {
        let rejected = packet.whole.get(..REJECTED).unwrap_or(packet.whole);
        self.send(protocol, code::CODE_REJECT, id, |out| out.extend_from_slice(rejected));
    }

    /// Adds LCP's Protocol-Reject of a packet.
    pub(super) fn reject_protocol(&mut self, protocol: u16, id: u8, payload: &[u8]) {
        let rejected = payload.get(..REJECTED).unwrap_or(payload);
        self.send(LCP, code::PROTOCOL_REJECT, id, |out| {
            out.extend_from_slice(&protocol.to_be_bytes());
            out.extend_from_slice(rejected);
        });
    }

    pub(super) fn packets(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let starts = core::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        let parts = self.ends.iter().zip(starts);
        parts.map(|((protocol, end), start)| (*protocol, self.bytes.get(start..*end).unwrap_or_default()))
    }

    /// Removes all packets.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// Random values: MD5 of a secret and a counter, so that no value tells another.
#[derive(Debug, Default)]
pub(super) struct Nonce {
    key: [u8; 16],
    count: u64,
}

impl Nonce {
    pub(super) fn new(key: [u8; 16]) -> Self {
        Self { key, count: 0 }
    }

    /// Takes another secret. Numbers of [`Nonce::serial`] go on.
    pub(super) fn renew(&mut self, key: [u8; 16]) {
        self.key = key;
    }

    /// The next value.
    pub(super) fn next(&mut self) -> [u8; 16] {
        self.count += 1;
        Md5::new().chain_update(self.key).chain_update(self.count.to_be_bytes()).finalize().into()
    }

    /// A number that no other call returns.
    pub(super) fn serial(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// The next number, not 0.
    pub(super) fn number(&mut self) -> u32 {
        let [a, b, c, d, ..] = self.next();
        u32::from_be_bytes([a, b, c, d]).max(1)
    }

    /// An IPv6 interface identifier that claims no manufacturer (RFC 4291, 2.5.1).
    pub(super) fn interface(&mut self) -> [u8; 8] {
        let [a, b, c, d, e, f, g, h, ..] = self.next();
        [a & !0x02, b, c, d, e, f, g, h | 1]
    }

    /// A value that only this object can tell for these bytes.
    pub(super) fn seal(&self, parts: &[&[u8]]) -> [u8; 16] {
        let mut hash = Md5::new().chain_update(self.key).chain_update([0; 8]);
        parts.iter().for_each(|part| hash.update(part));
        hash.finalize().into()
    }
}

/// Whether two values are equal, in a time that does not tell where they differ.
/// Attack: a password or cookie guessed byte by byte.
pub(super) fn same(one: &[u8], other: &[u8]) -> bool {
    let differ = one.iter().zip(other).fold(0, |differ, (one, other)| differ | (one ^ other));
    one.len() == other.len() && core::hint::black_box(differ) == 0
}
