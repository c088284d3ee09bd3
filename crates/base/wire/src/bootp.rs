//! BOOTP (RFC 951), the message of DHCP (RFC 2131), and its options (RFC 2132).

use crate::{Header, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Ports of the client and the server.
pub const CLIENT_PORT: u16 = 68;
/// The server's.
pub const SERVER_PORT: u16 = 67;
/// `op`: from the client.
pub const REQUEST: u8 = 1;
/// `op`: from the server.
pub const REPLY: u8 = 2;
/// `flags`: the answer must be a broadcast.
pub const BROADCAST: u16 = 0x8000;
/// The magic cookie before the options (RFC 2131, 3).
const COOKIE: U32 = U32::new(0x6382_5363);

/// Option: padding of one byte.
pub const PAD: u8 = 0;
/// Option: subnet mask.
pub const SUBNET_MASK: u8 = 1;
/// Option: routers.
pub const ROUTER: u8 = 3;
/// Option: name servers.
pub const DNS: u8 = 6;
/// Option: requested address.
pub const REQUESTED_ADDRESS: u8 = 50;
/// Option: lease time in seconds.
pub const LEASE_TIME: u8 = 51;
/// Option: type of the message.
pub const MESSAGE_TYPE: u8 = 53;
/// Option: the server's address.
pub const SERVER_IDENTIFIER: u8 = 54;
/// Option: which options the client wants.
pub const PARAMETER_LIST: u8 = 55;
/// Option: time until the renewal.
pub const RENEWAL_TIME: u8 = 58;
/// Option: time until the rebinding.
pub const REBINDING_TIME: u8 = 59;
/// Option: the client's identifier.
pub const CLIENT_IDENTIFIER: u8 = 61;
/// The end of the options.
pub const END: u8 = 255;

/// A message, up to its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are the RFC's")]
pub struct Bootp {
    pub op: u8,
    pub htype: u8,
    pub hlen: u8,
    pub hops: u8,
    pub xid: U32,
    pub secs: U16,
    pub flags: U16,
    pub ciaddr: U32,
    pub yiaddr: U32,
    pub siaddr: U32,
    pub giaddr: U32,
    pub chaddr: [u8; 16],
    pub sname: [u8; 64],
    pub file: [u8; 128],
    pub cookie: U32,
}

impl Bootp {
    /// A message of zeros before the magic cookie.
    pub const EMPTY: Bootp = Bootp {
        op: 0,
        htype: 0,
        hlen: 0,
        hops: 0,
        xid: U32::ZERO,
        secs: U16::ZERO,
        flags: U16::ZERO,
        ciaddr: U32::ZERO,
        yiaddr: U32::ZERO,
        siaddr: U32::ZERO,
        giaddr: U32::ZERO,
        chaddr: [0; 16],
        sname: [0; 64],
        file: [0; 128],
        cookie: COOKIE,
    };

    /// A DHCP message for Ethernet, and its options.
    pub fn parse(bytes: &[u8]) -> Option<(&Bootp, &[u8])> {
        Bootp::split(bytes).filter(|(bootp, _)| bootp.cookie == COOKIE && (bootp.htype, bootp.hlen) == (1, 6))
    }
}

/// The value of the first option of this kind.
pub fn option(mut options: &[u8], kind: u8) -> Option<&[u8]> {
    loop {
        let (&found, rest) = options.split_first()?;
        if found == PAD {
            options = rest;
            continue;
        }
        if found == END {
            return None;
        }
        let (&len, rest) = rest.split_first()?;
        let (value, rest) = rest.split_at_checked(len.into())?;
        if found == kind {
            return Some(value);
        }
        options = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn options_are_found_behind_padding_and_not_behind_the_end() {
        let options = [PAD, MESSAGE_TYPE, 1, 5, PAD, LEASE_TIME, 4, 0, 0, 1, 0, END, ROUTER, 0];
        assert_eq!(option(&options, LEASE_TIME), Some(&[0, 0, 1, 0][..]));
        assert_eq!((option(&options, ROUTER), option(&options[..8], LEASE_TIME)), (None, None));
        assert_eq!(Bootp::LEN, 240);
    }

    proptest! {
        #[test]
        fn any_bytes_parse(bytes in prop::collection::vec(any::<u8>(), 0..300), kind: u8) {
            let _ = Bootp::parse(&bytes);
            let _ = option(&bytes, kind);
        }
    }
}
