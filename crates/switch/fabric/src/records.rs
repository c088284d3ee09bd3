//! Records of ports' peers, from `data` to the process that keeps them: one datagram each, with its descriptors.

use ringway_host::{HostError, send_with};
use ringway_port::UNRESTORABLE;
use std::os::fd::{AsFd, BorrowedFd};

/// Longest record in bytes: several times the longest message.
pub const LONGEST: usize = 16 << 10;
/// Bytes in front of a port's name: the key, whether a message follows the name, the name's length.
const HEAD: usize = 4 + 1 + 2;
/// Room for any datagram.
pub const DATAGRAM: usize = HEAD + u16::MAX as usize + LONGEST;

/// A record as a datagram carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The port's name.
    pub port: &'a str,
    /// The record replaces a former one with the same key.
    pub key: u32,
    /// The message; `None`: what was kept counts no longer.
    pub bytes: Option<&'a [u8]>,
}

impl Record<'_> {
    /// Its datagram.
    pub fn encode(&self) -> Vec<u8> {
        let name = &self.port.as_bytes()[..self.port.floor_char_boundary(u16::MAX.into())];
        let mut datagram = self.key.to_le_bytes().to_vec();
        datagram.push(self.bytes.is_some().into());
        datagram.extend_from_slice(&(name.len() as u16).to_le_bytes());
        datagram.extend_from_slice(name);
        datagram.extend_from_slice(self.bytes.unwrap_or_default());
        datagram
    }

    /// The record of a datagram; `None` if it is not one.
    pub fn decode(datagram: &[u8]) -> Option<Record<'_>> {
        let (key, rest) = datagram.split_first_chunk()?;
        let ([has_message], rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (port, bytes) = rest.split_at_checked(u16::from_le_bytes(*len).into())?;
        let port = std::str::from_utf8(port).ok()?;
        Some(Record { port, key: u32::from_le_bytes(*key), bytes: (*has_message != 0).then_some(bytes) })
    }

    /// Sends the record with its descriptors. One that is too long says that the port's peer can't go on.
    ///
    /// # Errors
    /// Nobody keeps it.
    pub fn send(&self, to: impl AsFd, descriptors: &[BorrowedFd<'_>]) -> Result<(), HostError> {
        if self.bytes.is_some_and(|bytes| bytes.len() > LONGEST) {
            let lost = Record { key: UNRESTORABLE, bytes: Some(&[]), ..*self };
            return send_with(to, &lost.encode(), &[]).map(drop);
        }
        send_with(to, &self.encode(), descriptors).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_other_datagrams_are_none() {
        for bytes in [None, Some(&[][..]), Some(&[1, 2, 3][..])] {
            let record = Record { port: "a.b", key: 0x2_0001, bytes };
            let datagram = record.encode();
            assert_eq!(Record::decode(&datagram), Some(record));
            for len in 0..HEAD + 3 {
                assert_eq!(Record::decode(&datagram[..len]), None);
            }
        }
        assert_eq!(Record::decode(&[0, 0, 0, 0, 1, 1, 0, 0xff]), None, "the name is not UTF-8");
    }
}
