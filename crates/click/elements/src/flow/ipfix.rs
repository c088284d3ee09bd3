//! Flow records as IPFIX messages (RFC 7011), with IANA's information element numbers.
use super::connection::Ends;
use ringway_click::prelude::*;
use ringway_wire::tcp::Flags;

/// IPFIX's version.
const VERSION: u16 = 10;
/// Set ID of a template set.
const TEMPLATES: u16 = 2;
/// Information elements and their lengths, in record order, after the two addresses.
const FIELDS: [(u16, u16); 10] = [
    (7, 2),   // sourceTransportPort
    (11, 2),  // destinationTransportPort
    (4, 1),   // protocolIdentifier
    (5, 1),   // ipClassOfService
    (6, 2),   // tcpControlBits
    (2, 8),   // packetDeltaCount
    (1, 8),   // octetDeltaCount
    (152, 8), // flowStartMilliseconds
    (153, 8), // flowEndMilliseconds
    (136, 1), // flowEndReason
];
/// Bytes of a record after the addresses.
const FIXED: usize = 41;
/// Bytes before the first record: message header, template set, header of the data set.
const HEADERS: usize = 16 + 4 + 4 + 4 * (2 + FIELDS.len()) + 4;

/// Bytes of a record.
const fn record_len<C: Ends>() -> usize {
    FIXED + 2 * C::ADDRESSES.1 as usize
}

/// Records per message, chosen so that the message with IPv6 and UDP headers fits a 1500-byte frame.
pub(super) const fn records<C: Ends>() -> usize {
    (1500 - 48 - HEADERS) / record_len::<C>()
}

/// Why a flow's record ended (IANA: flowEndReason).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Idle timeout.
    Idle = 1,
    /// Active timeout: the flow continues.
    Active = 2,
    /// End of flow detected by TCP flags.
    Detected = 3,
    /// Reporting of all flows was requested.
    Forced = 4,
    /// The flow was evicted to make room.
    Resources = 5,
}

/// A flow's record; times in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<C> {
    pub(super) connection: C,
    pub(super) tos: u8,
    pub(super) flags: Flags,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) reason: End,
}

/// A message with these records; each message repeats the template, since UDP may lose it.
pub(super) fn message<C: Ends>(all: &[Record<C>], domain: u32, sequence: u32, now: u64) -> Vec<u8> {
    let records = &all[..all.len().min(records::<C>())];
    let data = record_len::<C>() * records.len();
    let length = HEADERS + data;
    let mut out = Vec::with_capacity(length);
    let word = |out: &mut Vec<u8>, value: u16| out.extend(value.to_be_bytes());
    let long = |out: &mut Vec<u8>, value: u32| out.extend(value.to_be_bytes());
    let quad = |out: &mut Vec<u8>, value: u64| out.extend(value.to_be_bytes());
    word(&mut out, VERSION);
    word(&mut out, length as u16);
    long(&mut out, (now / SECOND) as u32);
    long(&mut out, sequence);
    long(&mut out, domain);
    word(&mut out, TEMPLATES);
    word(&mut out, 8 + 4 * (2 + FIELDS.len() as u16));
    word(&mut out, C::TEMPLATE);
    word(&mut out, 2 + FIELDS.len() as u16);
    let (addresses, bytes) = C::ADDRESSES;
    for (element, length) in addresses.map(|element| (element, bytes)).into_iter().chain(FIELDS) {
        word(&mut out, element);
        word(&mut out, length);
    }
    word(&mut out, C::TEMPLATE);
    word(&mut out, 4 + data as u16);
    for record in records {
        record.connection.write(&mut out);
        out.extend([record.connection.protocol().0, record.tos]);
        word(&mut out, record.flags.0.into());
        quad(&mut out, record.packets);
        quad(&mut out, record.bytes);
        quad(&mut out, record.start / 1_000_000);
        quad(&mut out, record.end / 1_000_000);
        out.push(record.reason as u8);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::connection::{Connection, Connection6};
    use super::*;

    fn lengths<C: Ends>() {
        let fixed = FIELDS.iter().map(|(_, length)| usize::from(*length)).sum::<usize>();
        assert_eq!(fixed, FIXED);
        let record = Record {
            connection: C::default(),
            tos: 1,
            flags: Flags::SYN,
            packets: 3,
            bytes: 4,
            start: 5_000_000,
            end: 6_000_000,
            reason: End::Idle,
        };
        for count in [0, 1, records::<C>(), records::<C>() + 9] {
            let made = message(&vec![record; count], 7, 8, 9 * SECOND);
            assert_eq!(u16::from_be_bytes([made[2], made[3]]) as usize, made.len());
            assert!(made.len() <= 1452);
            let mut at = 16;
            while at < made.len() {
                at += usize::from(u16::from_be_bytes([made[at + 2], made[at + 3]]));
            }
            assert_eq!(at, made.len());
        }
        assert_eq!(message(&[record], 7, 8, 9 * SECOND)[4..16], [0, 0, 0, 9, 0, 0, 0, 8, 0, 0, 0, 7]);
    }

    #[test]
    fn lengths_add_up() {
        lengths::<Connection>();
        lengths::<Connection6>();
    }
}
