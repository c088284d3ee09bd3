//! ICMP for IPv6 (RFC 4443) and its neighbor discovery (RFC 4861).

use crate::bytes::{sixteen_at, u16_at};
use crate::checksum::Sum;
use crate::{MacAddress, WireError};
use core::net::Ipv6Addr;

const NAME: &str = "ICMPv6";
/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
/// Options of a neighbor discovery message that are read. Attack: a message of many small options.
const OPTIONS: usize = 16;

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

    /// Whether the checksum is right; `pseudo` is the pseudo header's sum.
    pub fn is_checksum_valid(&self, mut pseudo: Sum) -> bool {
        pseudo.add(self.header);
        pseudo.add(self.data);
        pseudo.is_valid()
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

/// The link-layer address in the options of a neighbor discovery message: option `kind` (1 source, 2 target).
fn link_address(kind: u8, mut options: &[u8]) -> Result<Option<MacAddress>, WireError> {
    let mut found = None;
    for _ in 0..OPTIONS {
        let Some((&[this, len], _)) = options.split_first_chunk::<2>() else { break };
        // Attack: a length of 0 has its reader go in circles (RFC 4861, 4.6).
        let option = match usize::from(len) * 8 {
            0 => None,
            len => options.split_at_checked(len),
        };
        let (option, rest) = option.ok_or(WireError::Illegal { header: NAME, field: "option length" })?;
        if let (true, &[_, _, a, b, c, d, e, f]) = (this == kind, option) {
            found = Some(MacAddress([a, b, c, d, e, f]));
        }
        options = rest;
    }
    Ok(found)
}

/// A message's values. `data` of an error is the packet that caused it, as much of it as fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repr<'a> {
    /// Destination unreachable.
    DestinationUnreachable {
        /// Why: 0 no route, 1 prohibited, 3 address, 4 port, and others.
        code: u8,
        /// The packet.
        data: &'a [u8],
    },
    /// Packet too big.
    PacketTooBig {
        /// The next hop's MTU in bytes.
        mtu: u32,
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
        /// What: 0 field, 1 next header, 2 option.
        code: u8,
        /// Which byte is wrong.
        pointer: u32,
        /// The packet.
        data: &'a [u8],
    },
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
    /// Neighbor solicitation.
    NeighborSolicitation {
        /// Whose link-layer address is wanted.
        target: Ipv6Addr,
        /// The asker's.
        source_link: Option<MacAddress>,
    },
    /// Neighbor advertisement.
    NeighborAdvertisement {
        /// R: the sender is a router.
        router: bool,
        /// S: the answer to a solicitation.
        solicited: bool,
        /// O: it replaces what was known.
        override_known: bool,
        /// Whose link-layer address this is.
        target: Ipv6Addr,
        /// The address.
        target_link: Option<MacAddress>,
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
    /// Reads a view; its checksum is the caller's to check. Unknown neighbor discovery options are left out.
    pub fn parse(message: &Message<'a>) -> Result<Repr<'a>, WireError> {
        let (kind, code, rest, data) = (message.kind(), message.code(), message.rest(), message.data);
        let [a, b, c, d] = rest;
        let (identifier, sequence_number) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let discovery = || {
            let (target, options) =
                data.split_first_chunk::<16>().ok_or(WireError::Truncated { header: NAME })?;
            let target = Ipv6Addr::from(sixteen_at(target, 0));
            if target.is_multicast() {
                return Err(WireError::Illegal { header: NAME, field: "Target Address" });
            }
            Ok((target, options))
        };
        Ok(match (kind, code, rest) {
            (1, _, [0, 0, 0, 0]) => Repr::DestinationUnreachable { code, data },
            (2, 0, _) => Repr::PacketTooBig { mtu: u32::from_be_bytes(rest), data },
            (3, _, [0, 0, 0, 0]) => Repr::TimeExceeded { code, data },
            (4, ..) => Repr::ParameterProblem { code, pointer: u32::from_be_bytes(rest), data },
            (128, 0, _) => Repr::EchoRequest { identifier, sequence_number, data },
            (129, 0, _) => Repr::EchoReply { identifier, sequence_number, data },
            (135, 0, _) => {
                let (target, options) = discovery()?;
                Repr::NeighborSolicitation { target, source_link: link_address(1, options)? }
            }
            (136, 0, _) => {
                let (target, options) = discovery()?;
                Repr::NeighborAdvertisement {
                    router: a & 0x80 != 0,
                    solicited: a & 0x40 != 0,
                    override_known: a & 0x20 != 0,
                    target,
                    target_link: link_address(2, options)?,
                }
            }
            _ => Repr::Other { kind, code, rest, data },
        })
    }

    /// Bytes that `emit` writes.
    pub fn len(&self) -> usize {
        HEADER_LEN
            + match self {
                Repr::NeighborSolicitation { source_link: link, .. }
                | Repr::NeighborAdvertisement { target_link: link, .. } => 16 + link.map_or(0, |_| 8),
                Repr::DestinationUnreachable { data, .. }
                | Repr::PacketTooBig { data, .. }
                | Repr::TimeExceeded { data, .. }
                | Repr::ParameterProblem { data, .. }
                | Repr::EchoRequest { data, .. }
                | Repr::EchoReply { data, .. }
                | Repr::Other { data, .. } => data.len(),
            }
    }

    /// Never: a message has a header.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the message, with its checksum, to the start of `out`.
    pub fn emit(&self, out: &mut [u8], mut pseudo: Sum) -> Result<(), WireError> {
        let out = out.get_mut(..self.len()).ok_or(WireError::NoRoom { header: NAME })?;
        let mut put = |kind: u8, code: u8, rest: [u8; 4], data: &[u8]| {
            out[..4].copy_from_slice(&[kind, code, 0, 0]);
            out[4..8].copy_from_slice(&rest);
            out[8..8 + data.len()].copy_from_slice(data);
        };
        let pair = |first: u16, second: u16| (u32::from(first) << 16 | u32::from(second)).to_be_bytes();
        let mut link = None;
        match *self {
            Repr::DestinationUnreachable { code, data } => put(1, code, [0; 4], data),
            Repr::PacketTooBig { mtu, data } => put(2, 0, mtu.to_be_bytes(), data),
            Repr::TimeExceeded { code, data } => put(3, code, [0; 4], data),
            Repr::ParameterProblem { code, pointer, data } => put(4, code, pointer.to_be_bytes(), data),
            Repr::EchoRequest { identifier, sequence_number, data } => {
                put(128, 0, pair(identifier, sequence_number), data);
            }
            Repr::EchoReply { identifier, sequence_number, data } => {
                put(129, 0, pair(identifier, sequence_number), data);
            }
            Repr::NeighborSolicitation { target, source_link } => {
                put(135, 0, [0; 4], &target.octets());
                link = source_link.map(|address| (1, address));
            }
            Repr::NeighborAdvertisement { router, solicited, override_known, target, target_link } => {
                let flags = u8::from(router) << 7 | u8::from(solicited) << 6 | u8::from(override_known) << 5;
                put(136, 0, [flags, 0, 0, 0], &target.octets());
                link = target_link.map(|address| (2, address));
            }
            Repr::Other { kind, code, rest, data } => put(kind, code, rest, data),
        }
        if let Some((kind, address)) = link {
            out[24..26].copy_from_slice(&[kind, 1]);
            out[26..32].copy_from_slice(&address.0);
        }
        pseudo.add(out);
        out[2..4].copy_from_slice(&pseudo.finish().to_be_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pseudo(len: usize) -> Sum {
        Sum::pseudo_v6("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap(), 58, len as u32)
    }

    #[test]
    fn golden_solicitation() {
        let repr = Repr::NeighborSolicitation {
            target: "fe80::2".parse().unwrap(),
            source_link: Some(MacAddress([0x52, 0x54, 0, 0, 0, 1])),
        };
        let mut out = [0; 32];
        repr.emit(&mut out, pseudo(32)).unwrap();
        assert_eq!(out[..2], [135, 0]);
        assert_eq!(out[4..], *b"\0\0\0\0\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\x01\x01\x52\x54\0\0\0\x01");
        let message = Message::new_checked(&out).unwrap();
        assert!(message.is_checksum_valid(pseudo(32)));
        assert_eq!(Repr::parse(&message), Ok(repr));
        out[25] = 0;
        assert!(Repr::parse(&Message::new_checked(&out).unwrap()).is_err());
    }

    proptest! {
        #[test]
        fn round_trip(
            kind in prop::sample::select(vec![1u8, 2, 3, 4, 100, 128, 129, 133, 135, 136]), code in 0u8..3,
            rest: [u8; 4], zeroes in 0usize..5, data in prop::collection::vec(0u8..200, 0..60),
        ) {
            let mut rest = rest;
            rest[..zeroes].fill(0);
            let raw = Repr::Other { kind, code, rest, data: &data };
            let mut first = vec![0; raw.len()];
            raw.emit(&mut first, pseudo(raw.len())).unwrap();
            if let Ok(repr) = Repr::parse(&Message::new_checked(&first).unwrap()) {
                let mut second = vec![0; repr.len()];
                repr.emit(&mut second, pseudo(repr.len())).unwrap();
                let message = Message::new_checked(&second).unwrap();
                prop_assert!(message.is_checksum_valid(pseudo(repr.len())));
                prop_assert_eq!(Repr::parse(&message), Ok(repr));
            }
        }
    }
}
