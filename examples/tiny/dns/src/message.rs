//! Questions and answers (RFC 1035, 4.1).

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

/// Bytes of an answer in a datagram without extensions (RFC 1035, 4.2.1), and in a stream.
pub const DATAGRAM: usize = 512;
pub const LARGEST: usize = u16::MAX as usize;
const HEADER: usize = 12;
/// Longest name, and longest label.
const NAME: usize = 255;
const LABEL: u8 = 63;
/// Types and classes.
const A: u16 = 1;
const AAAA: u16 = 28;
const ANY: u16 = 255;
const IN: u16 = 1;
/// Seconds that an answer may be kept.
const TTL: u32 = 60;
/// Response codes.
const FORMAT_ERROR: u8 = 1;
const NO_NAME: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;
const REFUSED: u8 = 5;

/// What is known.
pub struct Zone {
    /// Names in lower case without a final dot, and their addresses.
    pub records: Vec<(String, IpAddr)>,
    /// The name below which there are no others.
    pub name: Option<String>,
}

impl Zone {
    /// Whether a name is in the zone.
    fn contains(&self, name: &str) -> bool {
        let Some(zone) = &self.name else { return false };
        name == zone || name.strip_suffix(zone.as_str()).is_some_and(|rest| rest.ends_with('.'))
    }
}

/// The name at the begin of bytes, in lower case, and its length there. A question's name is not compressed.
fn name(bytes: &[u8]) -> Option<(String, usize)> {
    let (mut name, mut at) = (String::new(), 0);
    loop {
        let len = *bytes.get(at)?;
        at += 1;
        if len == 0 {
            return Some((name, at));
        }
        let label = bytes.get(at..at + usize::from(len)).filter(|_| len <= LABEL && at < NAME)?;
        if !name.is_empty() {
            name.push('.');
        }
        // Other bytes are in no name that is known.
        name.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
        at += usize::from(len);
    }
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The answer to a question, of at most so many bytes; `None` if it gets none.
pub fn answer(question: &[u8], zone: &Zone, most: usize) -> Option<Vec<u8>> {
    let header = question.first_chunk::<HEADER>()?;
    // Attack: two responders that answer each other.
    let is_answer = header[2] & 0x80 != 0;
    if is_answer {
        return None;
    }
    let (operation, count) = (header[2] >> 3 & 15, short(header, 4)?);
    let asked = name(&question[HEADER..]).and_then(|(name, len)| {
        let end = HEADER + len + 4;
        Some((name, short(question, end - 4)?, short(question, end - 2)?, &question[HEADER..end]))
    });
    let mut out = Vec::from(&header[..2]);
    let mut begin = |code: u8, authoritative: bool, copied: &[u8]| {
        out.push(0x80 | header[2] & 0x79 | u8::from(authoritative) << 2);
        out.push(code);
        out.extend_from_slice(&u16::from(!copied.is_empty()).to_be_bytes());
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(copied);
        core::mem::take(&mut out)
    };
    if operation != 0 {
        return Some(begin(NOT_IMPLEMENTED, false, &[]));
    }
    let (Some((name, kind, class, copied)), 1) = (asked, count) else {
        return Some(begin(FORMAT_ERROR, false, &[]));
    };
    let known = zone.records.iter().any(|(own, _)| *own == name);
    if class != IN || !known && !zone.contains(&name) {
        return Some(begin(REFUSED, false, copied));
    }
    let mut out = begin(if known { 0 } else { NO_NAME }, true, copied);
    let mut answers: u16 = 0;
    for (_, address) in zone.records.iter().filter(|(own, _)| *own == name) {
        let (own, bytes) = match address {
            IpAddr::V4(address) => (A, Vec::from(address.octets())),
            IpAddr::V6(address) => (AAAA, Vec::from(address.octets())),
        };
        if kind != own && kind != ANY {
            continue;
        }
        if out.len() + 12 + bytes.len() > most {
            // The question is asked again by TCP.
            out[2] |= 2;
            break;
        }
        answers += 1;
        // The question's name.
        out.extend_from_slice(&[0xc0, HEADER as u8]);
        out.extend_from_slice(&[own, IN].map(u16::to_be_bytes).concat());
        out.extend_from_slice(&TTL.to_be_bytes());
        out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
        out.extend_from_slice(&bytes);
    }
    out[6..8].copy_from_slice(&answers.to_be_bytes());
    Some(out)
}
