//! Socket addresses in programs' memory.

use ringway_host::{read_memory, write_pieces};
use rustix::io::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const AF_UNSPEC: u16 = 0;
/// `AF_INET`.
pub const INET: u16 = 2;
/// `AF_INET6`.
pub const INET6: u16 = 10;
/// Sizes of `sockaddr_in` and `sockaddr_in6` without its scope, which old programs leave out.
const LEN_V4: usize = 16;
const LEN_V6: usize = 24;
/// Size of `sockaddr_storage`, the largest address.
const LARGEST: u64 = 128;

/// The address that a call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// `AF_UNSPEC`: a datagram socket is to be disconnected.
    Unspecified,
    /// An address; an IPv4-mapped one of IPv6 is one of IPv4.
    Address(SocketAddr),
}

/// Reads an address for a socket of IPv6, or of IPv4.
///
/// # Errors
/// As Linux's.
pub fn read(thread: i32, at: u64, len: u64, v6: bool) -> Result<Destination, Errno> {
    // The length is an `int`.
    let len = u64::from(len as u32);
    if len > LARGEST {
        return Err(Errno::INVAL);
    }
    let mut bytes = [0; LARGEST as usize];
    let bytes = &mut bytes[..len as usize];
    if read_memory(thread, at, bytes)? < bytes.len() {
        return Err(Errno::FAULT);
    }
    parse(bytes, v6)
}

fn parse(bytes: &[u8], v6: bool) -> Result<Destination, Errno> {
    let family = bytes.first_chunk().map(|family| u16::from_ne_bytes(*family)).ok_or(Errno::INVAL)?;
    let port = bytes.get(2..4).and_then(|port| port.try_into().ok()).map_or(0, u16::from_be_bytes);
    match (family, v6) {
        (AF_UNSPEC, _) => Ok(Destination::Unspecified),
        (INET, _) => {
            let ip = bytes.get(4..8).filter(|_| bytes.len() >= LEN_V4).and_then(|ip| ip.first_chunk());
            Ok(Destination::Address(SocketAddr::new(Ipv4Addr::from(*ip.ok_or(Errno::INVAL)?).into(), port)))
        }
        (INET6, true) => {
            let ip = bytes.get(8..LEN_V6).and_then(|ip| ip.first_chunk());
            let ip = Ipv6Addr::from(*ip.ok_or(Errno::INVAL)?);
            Ok(Destination::Address(SocketAddr::new(ip.to_ipv4_mapped().map_or(ip.into(), IpAddr::V4), port)))
        }
        _ => Err(Errno::AFNOSUPPORT),
    }
}

/// The `sockaddr` of an address for a socket of IPv6, or of IPv4.
pub fn encode(address: SocketAddr, v6: bool) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    match (address.ip(), v6) {
        (IpAddr::V4(ip), false) => [&INET.to_ne_bytes()[..], &port, &ip.octets(), &[0; 8]].concat(),
        (ip, _) => {
            let ip = match ip {
                IpAddr::V4(ip) if ip.is_unspecified() => Ipv6Addr::UNSPECIFIED,
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            [&INET6.to_ne_bytes()[..], &port, &[0; 4], &ip.octets(), &[0; 4]].concat()
        }
    }
}

/// Writes an address, as much of it as there is room for, and its length where the room is given.
///
/// # Errors
/// The pointers are wrong.
pub fn write(thread: i32, at: u64, len_at: u64, address: &[u8]) -> Result<(), Errno> {
    let mut room = [0; 4];
    if read_memory(thread, len_at, &mut room)? < room.len() {
        return Err(Errno::FAULT);
    }
    let room = usize::try_from(i32::from_ne_bytes(room)).map_err(|_| Errno::INVAL)?;
    let given = &address[..room.min(address.len())];
    let bytes = [given, &(address.len() as u32).to_ne_bytes()].concat();
    write_pieces(thread, &[(at, given.len()), (len_at, 4)], &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_keep_their_form() {
        let four: SocketAddr = "10.0.0.2:80".parse().unwrap();
        let six: SocketAddr = "[fd00::2]:80".parse().unwrap();
        assert_eq!(encode(four, false), [2, 0, 0, 80, 10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
        for (address, v6) in [(four, false), (four, true), (six, true)] {
            assert_eq!(parse(&encode(address, v6), v6), Ok(Destination::Address(address)));
        }
        assert_eq!(encode(four, true)[8..24], "::ffff:10.0.0.2".parse::<Ipv6Addr>().unwrap().octets());
        // IPv6's sockets show an address that is not chosen in their own form.
        assert_eq!(encode("0.0.0.0:0".parse().unwrap(), true)[8..24], [0; 16]);
    }

    #[test]
    fn wrong_addresses_are_refused_as_by_linux() {
        assert_eq!(parse(&[], false), Err(Errno::INVAL));
        assert_eq!(parse(&[2, 0, 0, 80], false), Err(Errno::INVAL));
        assert_eq!(parse(&encode("[fd00::2]:80".parse().unwrap(), true), false), Err(Errno::AFNOSUPPORT));
        assert_eq!(parse(&[1, 0, b'x'], true), Err(Errno::AFNOSUPPORT));
        assert_eq!(parse(&[0; 16], false), Ok(Destination::Unspecified));
    }
}
