//! Packets of RADIUS (RFC 2865, RFC 2866): requests as they are built, and answers as they are checked.
use super::users::Proof;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use md5::{Digest, Md5};
use ringway_click::arg::Prefix6;

pub(super) const ACCESS_REQUEST: u8 = 1;
pub(super) const ACCESS_ACCEPT: u8 = 2;
pub(super) const ACCESS_REJECT: u8 = 3;
pub(super) const ACCOUNTING_REQUEST: u8 = 4;
pub(super) const ACCOUNTING_RESPONSE: u8 = 5;
pub(super) const ACCESS_CHALLENGE: u8 = 11;

/// Types of attributes.
pub(super) mod attribute {
    pub const USER_NAME: u8 = 1;
    pub const USER_PASSWORD: u8 = 2;
    pub const CHAP_PASSWORD: u8 = 3;
    pub const NAS_IP_ADDRESS: u8 = 4;
    pub const NAS_PORT: u8 = 5;
    pub const SERVICE_TYPE: u8 = 6;
    pub const FRAMED_PROTOCOL: u8 = 7;
    pub const FRAMED_IP_ADDRESS: u8 = 8;
    pub const REPLY_MESSAGE: u8 = 18;
    pub const CLASS: u8 = 25;
    pub const SESSION_TIMEOUT: u8 = 27;
    pub const CALLING_STATION_ID: u8 = 31;
    pub const NAS_IDENTIFIER: u8 = 32;
    pub const ACCT_STATUS_TYPE: u8 = 40;
    pub const ACCT_INPUT_OCTETS: u8 = 42;
    pub const ACCT_OUTPUT_OCTETS: u8 = 43;
    pub const ACCT_SESSION_ID: u8 = 44;
    pub const ACCT_AUTHENTIC: u8 = 45;
    pub const ACCT_SESSION_TIME: u8 = 46;
    pub const ACCT_INPUT_PACKETS: u8 = 47;
    pub const ACCT_OUTPUT_PACKETS: u8 = 48;
    pub const ACCT_TERMINATE_CAUSE: u8 = 49;
    pub const ACCT_INPUT_GIGAWORDS: u8 = 52;
    pub const ACCT_OUTPUT_GIGAWORDS: u8 = 53;
    pub const EVENT_TIMESTAMP: u8 = 55;
    pub const CHAP_CHALLENGE: u8 = 60;
    pub const NAS_PORT_TYPE: u8 = 61;
    pub const MESSAGE_AUTHENTICATOR: u8 = 80;
    pub const ACCT_INTERIM_INTERVAL: u8 = 85;
    pub const DELEGATED_IPV6_PREFIX: u8 = 123;
}

/// The Service-Type of PPP (RFC 2865, 5.6).
pub(super) const FRAMED: u32 = 2;
/// Bytes of code, identifier, length and authenticator.
pub(super) const HEADER: usize = 20;
/// Attack: an answer of any length. Most bytes of a packet (RFC 2865, 3).
const MOST: usize = 4096;
/// Most bytes of an attribute's value.
pub(super) const MOST_VALUE: usize = 253;
/// Where a request's Message-Authenticator is: it comes first, so that nothing before it can be forged.
const MESSAGE_AUTHENTICATOR_AT: usize = HEADER + 2;
/// MD5's block and digest in bytes.
const BLOCK: usize = 64;
const DIGEST: usize = 16;

/// HMAC with MD5 (RFC 2104) of several parts.
pub(super) fn hmac(secret: &[u8], parts: &[&[u8]]) -> [u8; DIGEST] {
    let mut key = [0; BLOCK];
    let digest = Md5::digest(secret);
    let secret = if secret.len() > BLOCK { digest.as_slice() } else { secret };
    key.iter_mut().zip(secret).for_each(|(place, byte)| *place = *byte);
    let pad = |byte: u8| Md5::new().chain_update(key.map(|own| own ^ byte));
    let mut inner = pad(0x36);
    parts.iter().for_each(|part| inner.update(part));
    pad(0x5c).chain_update(inner.finalize()).finalize().into()
}

#[derive(Debug)]
pub(super) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// An Access-Request (RFC 2865, 4.1) with its Message-Authenticator still empty.
    pub(super) fn access(id: u8, authenticator: [u8; DIGEST]) -> Self {
        let mut request = Self::new(ACCESS_REQUEST, id, authenticator);
        request.put(attribute::MESSAGE_AUTHENTICATOR, &[0; DIGEST]);
        request
    }

    /// An Accounting-Request (RFC 2866, 4.1).
    pub(super) fn accounting(id: u8) -> Self {
        Self::new(ACCOUNTING_REQUEST, id, [0; DIGEST])
    }

    fn new(code: u8, id: u8, authenticator: [u8; DIGEST]) -> Self {
        let mut bytes = [code, id, 0, 0].to_vec();
        bytes.extend_from_slice(&authenticator);
        Self { bytes }
    }

    pub(super) fn authenticator(&self) -> [u8; DIGEST] {
        self.bytes.get(4..HEADER).and_then(<[u8]>::first_chunk).copied().unwrap_or_default()
    }

    /// Appends an attribute; longer values are cut.
    pub(super) fn put(&mut self, kind: u8, value: &[u8]) {
        let value = value.get(..MOST_VALUE).unwrap_or(value);
        self.bytes.push(kind);
        self.bytes.push(2 + value.len() as u8);
        self.bytes.extend_from_slice(value);
    }

    pub(super) fn put_number(&mut self, kind: u8, value: u32) {
        self.put(kind, &value.to_be_bytes());
    }

    pub(super) fn put_address(&mut self, kind: u8, value: Ipv4Addr) {
        self.put(kind, &value.octets());
    }

    /// Appends what a subscriber sent to prove its name; a password is hidden (RFC 2865, 5.2).
    pub(super) fn put_proof(&mut self, proof: &Proof, secret: &[u8]) {
        match proof {
            Proof::Password(password) => {
                let mut hidden = password.clone();
                hidden.resize(password.len().next_multiple_of(DIGEST).max(DIGEST), 0);
                let mut before = self.authenticator();
                for block in hidden.as_chunks_mut::<DIGEST>().0 {
                    let mask = Md5::new().chain_update(secret).chain_update(before).finalize();
                    block.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
                    before = *block;
                }
                self.put(attribute::USER_PASSWORD, &hidden);
            }
            Proof::Hash { id, response, challenge } => {
                let mut value = [0; 1 + DIGEST];
                value[0] = *id;
                value[1..].copy_from_slice(response);
                self.put(attribute::CHAP_PASSWORD, &value);
                self.put(attribute::CHAP_CHALLENGE, challenge);
            }
        }
    }

    /// Fills length and authenticators.
    pub(super) fn seal(mut self, secret: &[u8]) -> Vec<u8> {
        let length = (self.bytes.len() as u16).to_be_bytes();
        let (place, value) = match self.bytes.first() {
            Some(&ACCESS_REQUEST) => {
                self.bytes[2..4].copy_from_slice(&length);
                (MESSAGE_AUTHENTICATOR_AT, hmac(secret, &[&self.bytes]))
            }
            _ => {
                self.bytes[2..4].copy_from_slice(&length);
                (4, Md5::new().chain_update(&self.bytes).chain_update(secret).finalize().into())
            }
        };
        self.bytes[place..place + DIGEST].copy_from_slice(&value);
        self.bytes
    }
}

/// An answer of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply<'a> {
    pub(super) code: u8,
    pub(super) id: u8,
    bytes: &'a [u8],
}

impl<'a> Reply<'a> {
    /// Parses a datagram's payload. `None` if it is malformed.
    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        let [code, id, high, low, ..] = *bytes else { return None };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let bytes = bytes.get(..length).filter(|_| (HEADER..=MOST).contains(&length))?;
        let reply = Self { code, id, bytes };
        let counted: usize = reply.attributes().map(|(_, value)| 2 + value.len()).sum();
        (HEADER + counted == length).then_some(reply)
    }

    pub(super) fn attributes(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let mut rest = self.bytes.get(HEADER..).unwrap_or_default();
        core::iter::from_fn(move || {
            let [kind, length, ..] = *rest else { return None };
            let (attribute, more) = rest.split_at_checked(length.into())?;
            rest = more;
            Some((kind, attribute.get(2..)?))
        })
    }

    /// Whether the reply answers the request with this authenticator, and a server that knows the secret sent it: by
    /// the response authenticator (RFC 2865, 3) and the Message-Authenticator (RFC 3579, 3.2). Without the latter,
    /// which not every server sends, the reply is genuine only if `lax`.
    /// Attack: an answer that is made to have another one's MD5 (CVE-2024-3596).
    pub(super) fn is_genuine(&self, authenticator: [u8; DIGEST], secret: &[u8], lax: bool) -> bool {
        let (Some(head), Some(own)) = (self.bytes.get(..4), self.bytes.get(4..HEADER)) else { return false };
        let attributes = self.bytes.get(HEADER..).unwrap_or_default();
        let parts = [head, &authenticator, attributes, secret];
        let digest = parts.iter().fold(Md5::new(), |hash, part| hash.chain_update(part)).finalize();
        if !super::packet::same(&digest, own) {
            return false;
        }
        let mut at = HEADER;
        for (kind, value) in self.attributes() {
            if kind == attribute::MESSAGE_AUTHENTICATOR && value.len() == DIGEST {
                let (before, rest) = (self.bytes.get(HEADER..at + 2), self.bytes.get(at + 2 + DIGEST..));
                let parts = [
                    head,
                    &authenticator,
                    before.unwrap_or_default(),
                    &[0; DIGEST],
                    rest.unwrap_or_default(),
                ];
                return super::packet::same(&hmac(secret, &parts), value);
            }
            at += 2 + value.len();
        }
        lax || self.code == ACCOUNTING_RESPONSE
    }

    /// Whether the server lets the subscriber in. Another Service-Type than Framed means that it does not (RFC 2865,
    /// 5.6): the account is for logins of another kind.
    pub(super) fn accepts(&self) -> bool {
        let is_framed = |value: &[u8]| value == FRAMED.to_be_bytes();
        self.code == ACCESS_ACCEPT && self.find(attribute::SERVICE_TYPE).is_none_or(is_framed)
    }

    pub(super) fn find(&self, wanted: u8) -> Option<&'a [u8]> {
        self.attributes().find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
    }

    pub(super) fn number(&self, wanted: u8) -> Option<u32> {
        self.find(wanted)?.try_into().ok().map(u32::from_be_bytes)
    }

    /// Delegated-IPv6-Prefix (RFC 4818).
    pub(super) fn prefix(&self) -> Option<Prefix6> {
        let [_, length, bytes @ ..] = self.find(attribute::DELEGATED_IPV6_PREFIX)? else { return None };
        let mut address = [0; 16];
        address.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (1..=64).contains(length).then_some(Prefix6 { address: address.into(), length: *length })
    }
}
