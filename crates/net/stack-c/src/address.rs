//! `struct sockaddr_in` and `struct sockaddr_in6` as bytes.

use crate::Result;
use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The address of a socket of `family`.
pub fn parse(bytes: &[u8], family: c_int) -> Result<SocketAddr> {
    let Some((&tag, rest)) = bytes.split_first_chunk::<2>() else { return Err(libc::EINVAL) };
    if c_int::from(u16::from_ne_bytes(tag)) != family {
        return Err(libc::EAFNOSUPPORT);
    }
    let Some((&port, rest)) = rest.split_first_chunk::<2>() else { return Err(libc::EINVAL) };
    let port = u16::from_be_bytes(port);
    if family == libc::AF_INET {
        let ip: [u8; 4] = *rest.first_chunk().filter(|_| bytes.len() >= 16).ok_or(libc::EINVAL)?;
        return Ok(SocketAddr::new(Ipv4Addr::from(ip).into(), port));
    }
    let ip: [u8; 16] = *rest.get(4..).and_then(|rest| rest.first_chunk()).ok_or(libc::EINVAL)?;
    let ip = Ipv6Addr::from(ip);
    // IPv4 in an IPv6 socket is not served.
    if ip.to_ipv4_mapped().is_some() { Err(libc::EAFNOSUPPORT) } else { Ok(SocketAddr::new(ip.into(), port)) }
}

/// The address as C has it.
pub fn bytes(address: SocketAddr) -> Vec<u8> {
    let mut out = Vec::with_capacity(28);
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    out.extend_from_slice(&(family as u16).to_ne_bytes());
    out.extend_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            out.extend_from_slice(&address.ip().octets());
            out.extend_from_slice(&[0; 8]);
        }
        SocketAddr::V6(address) => {
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&address.ip().octets());
            out.extend_from_slice(&SocketAddrV6::scope_id(&address).to_ne_bytes());
        }
    }
    out
}

/// Any address of a family, with port 0.
pub fn any(family: c_int) -> SocketAddr {
    let ip: IpAddr =
        if family == libc::AF_INET { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(ip, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_c() {
        for (text, len, family) in [("10.0.0.2:80", 16, libc::AF_INET), ("[fd00::1]:443", 28, libc::AF_INET6)]
        {
            let address: SocketAddr = text.parse().unwrap_or(any(family));
            let form = bytes(address);
            assert_eq!((form.len(), parse(&form, family)), (len, Ok(address)));
            for short in 0..form.len().min(24) {
                let parsed = parse(&form[..short], family);
                assert!(parsed == Err(libc::EINVAL), "{short} bytes of {text}: {parsed:?}");
            }
            assert_eq!(parse(&form, libc::AF_INET + libc::AF_INET6 - family), Err(libc::EAFNOSUPPORT));
        }
        let mapped = SocketAddr::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), 1);
        assert_eq!(parse(&bytes(mapped), libc::AF_INET6), Err(libc::EAFNOSUPPORT));
    }
}
