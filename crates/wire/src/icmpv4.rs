//! ICMP for IPv4 (RFC 792, RFC 1191).

use crate::WireError;
use crate::bytes::u16_at;
use crate::checksum::{Sum, checksum};
use core::net::Ipv4Addr;

const NAME: &str = "ICMPv4";
/// Bytes of the header.
pub const HEADER_LEN: usize = 8;

/// A view of a message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    header: &'a [u8; HEADER_LEN],
    data: &'a [u8],
}

impl<'a> Message<'a> {
    /// Checks that there is a whole header. Not the checksum.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Message<'a>, WireError> {
        let (header, data) = bytes.split_first_chunk().ok_or(WireError::Truncated { header: NAME })?;
        Ok(Message { header, data })
    }

    /// Type.
    pub fn kind(&self) -> u8 {
        self.header[0]
    }

    /// Code.
    pub fn code(&self) -> u8 {
        self.header[1]
    }

    /// Checksum.
    pub fn checksum(&self) -> u16 {
        u16_at(self.header, 2)
    }

    /// Whether the checksum is right.
    pub fn is_checksum_valid(&self) -> bool {
        let mut sum = Sum::new();
        sum.add(self.header);
        sum.add(self.data);
        sum.is_valid()
    }

    /// The four bytes behind the checksum, which each type uses its own way.
    pub fn rest(&self) -> [u8; 4] {
        [self.header[4], self.header[5], self.header[6], self.header[7]]
    }

    /// What follows the header.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }
}

/// A message's values. `data` of an error is the packet that caused it: its header and the first bytes
/// behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repr<'a> {
    /// Echo request.
    EchoRequest {
        /// Identifier.
        identifier: u16,
        /// Sequence number.
        sequence_number: u16,
        /// What is to come back.
        data: &'a [u8],
    },
    /// Echo reply.
    EchoReply {
        /// Identifier.
        identifier: u16,
        /// Sequence number.
        sequence_number: u16,
        /// What came.
        data: &'a [u8],
    },
    /// Destination unreachable.
    DestinationUnreachable {
        /// Which part of the way: 0 net, 1 host, 2 protocol, 3 port, 4 too big, and others.
        code: u8,
        /// With code 4 the next hop's MTU in bytes (RFC 1191), else 0.
        mtu: u16,
        /// The packet.
        data: &'a [u8],
    },
    /// Redirect.
    Redirect {
        /// For what: 0 net, 1 host, 2 and 3 the same with a type of service.
        code: u8,
        /// The better router.
        gateway: Ipv4Addr,
        /// The packet.
        data: &'a [u8],
    },
    /// Time exceeded.
    TimeExceeded {
        /// 0 in transit, 1 in reassembly.
        code: u8,
        /// The packet.
        data: &'a [u8],
    },
    /// Parameter problem.
    ParameterProblem {
        /// 0: the pointer shows the error.
        code: u8,
        /// Which byte is wrong.
        pointer: u8,
        /// The packet.
        data: &'a [u8],
    },
    /// Any other.
    Other {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// The four bytes behind the checksum.
        rest: [u8; 4],
        /// What follows.
        data: &'a [u8],
    },
}

impl<'a> Repr<'a> {
    /// Reads a view whose checksum is right.
    pub fn parse(message: &Message<'a>) -> Result<Repr<'a>, WireError> {
        if !message.is_checksum_valid() {
            return Err(WireError::Illegal { header: NAME, field: "Checksum" });
        }
        let (kind, code, rest, data) = (message.kind(), message.code(), message.rest(), message.data);
        let [a, b, c, d] = rest;
        let (first, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Ok(match (kind, code, rest) {
            (8, 0, _) => Repr::EchoRequest { identifier: first, sequence_number: second, data },
            (0, 0, _) => Repr::EchoReply { identifier: first, sequence_number: second, data },
            (3, _, [0, 0, ..]) if code == 4 || second == 0 => {
                Repr::DestinationUnreachable { code, mtu: second, data }
            }
            (5, ..) => Repr::Redirect { code, gateway: rest.into(), data },
            (11, _, [0, 0, 0, 0]) => Repr::TimeExceeded { code, data },
            (12, _, [pointer, 0, 0, 0]) => Repr::ParameterProblem { code, pointer, data },
            _ => Repr::Other { kind, code, rest, data },
        })
    }

    /// Type, code, the four bytes behind the checksum, and what follows.
    fn parts(&self) -> (u8, u8, [u8; 4], &'a [u8]) {
        let pair = |first: u16, second: u16| {
            let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
            [a, b, c, d]
        };
        match *self {
            Repr::EchoRequest { identifier, sequence_number, data } => {
                (8, 0, pair(identifier, sequence_number), data)
            }
            Repr::EchoReply { identifier, sequence_number, data } => {
                (0, 0, pair(identifier, sequence_number), data)
            }
            Repr::DestinationUnreachable { code, mtu, data } => (3, code, pair(0, mtu), data),
            Repr::Redirect { code, gateway, data } => (5, code, gateway.octets(), data),
            Repr::TimeExceeded { code, data } => (11, code, [0; 4], data),
            Repr::ParameterProblem { code, pointer, data } => (12, code, [pointer, 0, 0, 0], data),
            Repr::Other { kind, code, rest, data } => (kind, code, rest, data),
        }
    }

    /// Bytes that `emit` writes.
    pub fn len(&self) -> usize {
        HEADER_LEN + self.parts().3.len()
    }

    /// Never: a message has a header.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the message, with its checksum, to the start of `out`.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), WireError> {
        let (kind, code, rest, data) = self.parts();
        let out = out.get_mut(..HEADER_LEN + data.len()).ok_or(WireError::NoRoom { header: NAME })?;
        out[..4].copy_from_slice(&[kind, code, 0, 0]);
        out[4..8].copy_from_slice(&rest);
        out[8..].copy_from_slice(data);
        let sum = checksum(out).to_be_bytes();
        out[2..4].copy_from_slice(&sum);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden() {
        let repr = Repr::EchoRequest { identifier: 0x1234, sequence_number: 1, data: b"ping" };
        let mut out = [0; 12];
        repr.emit(&mut out).unwrap();
        assert_eq!(out, *b"\x08\x00\x06\xfa\x12\x34\x00\x01ping");
        assert_eq!(Repr::parse(&Message::new_checked(&out).unwrap()), Ok(repr));
        out[11] ^= 1;
        assert!(Repr::parse(&Message::new_checked(&out).unwrap()).is_err());
        assert!(Message::new_checked(&out[..7]).is_err());
    }

    proptest! {
        #[test]
        fn round_trip(
            kind in 0u8..20, code in 0u8..6, rest: [u8; 4], zeroes in 0usize..5,
            data in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut rest = rest;
            rest[..zeroes].fill(0);
            let raw = Repr::Other { kind, code, rest, data: &data };
            let (mut first, mut second) = (vec![0; raw.len()], vec![0; raw.len()]);
            raw.emit(&mut first).unwrap();
            let repr = Repr::parse(&Message::new_checked(&first).unwrap()).unwrap();
            repr.emit(&mut second).unwrap();
            prop_assert_eq!(first, second);
        }
    }
}
