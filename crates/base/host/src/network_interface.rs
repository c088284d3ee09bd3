//! State of network interfaces, and its changes, by rtnetlink(7).

use crate::error::{HostError, Named};
use crate::tap::last_error;
use rustix::io::Errno;
use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const NEW_LINK: u16 = libc::RTM_NEWLINK;
/// Attributes of a link (linux/if_link.h).
const LINK_ADDRESS: u16 = 1;
const LINK_NAME: u16 = 3;
const LINK_MTU: u16 = 4;
const LINK_XDP: u16 = 43;
const XDP_PROGRAM: u16 = 4;
/// Attributes of an address (linux/if_addr.h).
const ADDRESS: u16 = 1;
const LOCAL_ADDRESS: u16 = 2;
/// Bits of an attribute's type that are flags.
const TYPE: u16 = 0x3fff;
const HEADER: usize = 16;
/// An Ethernet interface's type (linux/if_arp.h).
const ETHERNET: u16 = 1;
/// Longest reply: a link with its statistics has about 1.5 KB.
const REPLY: usize = 32 << 10;
/// Seconds that the kernel may take to answer.
const ANSWER: i64 = 5;

/// An interface as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkInterface {
    /// Its number in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its MTU.
    pub mtu: u32,
    /// Whether it is up.
    pub is_up: bool,
    /// Whether it is up and its line is connected.
    pub has_carrier: bool,
    /// Whether its frames are Ethernet's.
    pub is_ethernet: bool,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Number of the XDP program that is attached to it; 0 if none is.
    pub program: u32,
}

/// Two sockets of a network namespace: one for questions, one that reports changes of interfaces.
#[derive(Debug)]
pub struct InterfaceWatch {
    ask: OwnedFd,
    changes: OwnedFd,
}

impl AsFd for InterfaceWatch {
    /// Readable when something has changed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }
}

fn open(groups: c_int, more: c_int) -> Result<OwnedFd, Errno> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | more;
    // SAFETY: no memory is passed.
    let socket = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
    if socket < 0 {
        return Err(last_error());
    }
    // SAFETY: the kernel just created it, and it has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: all zeros is a valid address of this kind.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_groups = groups as u32;
    let (pointer, len) = (&raw const address, size_of_val(&address) as u32);
    // SAFETY: an address of its size, which the kernel only reads.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), pointer.cast(), len) };
    if bound < 0 { Err(last_error()) } else { Ok(socket) }
}

impl InterfaceWatch {
    /// Opens the sockets in this thread's network namespace.
    ///
    /// # Errors
    /// The system refused.
    pub fn new() -> Result<InterfaceWatch, HostError> {
        let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        let changes = open(groups, libc::SOCK_NONBLOCK).named("watching network interfaces")?;
        let ask = open(0, 0).named("opening a netlink socket")?;
        let limit = libc::timeval { tv_sec: ANSWER, tv_usec: 0 };
        crate::packet_socket::set(&ask, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &limit)
            .named("limiting a netlink socket's time")?;
        Ok(InterfaceWatch { ask, changes })
    }

    /// Takes all reports off the socket; returns whether there were some. What changed is asked for afterwards, so
    /// that lost reports do no harm.
    pub fn drain(&self) -> bool {
        let mut any = false;
        let mut buffer = [0; 8192];
        loop {
            match rustix::net::recv(&self.changes, &mut buffer[..], rustix::net::RecvFlags::TRUNC) {
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => any = true,
                Err(_) => return any,
            }
        }
    }

    /// The interface of this name; `None` if there is none.
    ///
    /// # Errors
    /// The system refused.
    pub fn by_name(&self, name: &str) -> Result<Option<NetworkInterface>, HostError> {
        let mut attribute = ((4 + name.len() + 1) as u16).to_ne_bytes().to_vec();
        attribute.extend(LINK_NAME.to_ne_bytes());
        attribute.extend(name.as_bytes());
        attribute.push(0);
        attribute.resize(attribute.len().next_multiple_of(4), 0);
        self.link(0, &attribute)
    }

    /// The interface with this number; `None` if there is none.
    ///
    /// # Errors
    /// The system refused.
    pub fn by_index(&self, index: u32) -> Result<Option<NetworkInterface>, HostError> {
        self.link(index, &[])
    }

    fn link(&self, index: u32, attributes: &[u8]) -> Result<Option<NetworkInterface>, HostError> {
        let mut body = [0; 16];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        let request = message(libc::RTM_GETLINK, 0, &[&body, attributes].concat());
        let mut found = None;
        match self.ask(&request, |kind, body| {
            if kind == NEW_LINK {
                found = read_link(body);
            }
        }) {
            Ok(()) => Ok(found),
            Err(Errno::NODEV) => Ok(None),
            Err(error) => Err(HostError::Call { call: "asking for a network interface", error }),
        }
    }

    /// The IP addresses of an interface.
    ///
    /// # Errors
    /// The system refused.
    pub fn addresses(&self, index: u32) -> Result<Vec<IpAddr>, HostError> {
        let request = message(libc::RTM_GETADDR, libc::NLM_F_DUMP as u16, &[0; 8]);
        let mut all = Vec::new();
        let asked = self.ask(&request, |_, body| {
            if body.get(4..8) == Some(&index.to_ne_bytes()) {
                all.extend(read_address(body));
            }
        });
        asked.named("asking for an interface's addresses")?;
        all.sort();
        Ok(all)
    }

    /// Sends a request, and passes type and body of each message of the answer.
    fn ask(&self, request: &[u8], mut each: impl FnMut(u16, &[u8])) -> Result<(), Errno> {
        rustix::net::send(&self.ask, request, rustix::net::SendFlags::empty())?;
        let is_dump = request.get(6..8).is_some_and(|flags| flags != 1_u16.to_ne_bytes());
        let mut buffer = vec![0; REPLY];
        loop {
            let (len, _) = rustix::net::recv(&self.ask, &mut buffer[..], rustix::net::RecvFlags::empty())?;
            for (kind, body) in messages(&buffer[..len]) {
                match c_int::from(kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => {
                        let number = body.first_chunk().map_or(0, |number| i32::from_ne_bytes(*number));
                        return if number == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(-number)) };
                    }
                    _ => each(kind, body),
                }
            }
            if !is_dump {
                return Ok(());
            }
        }
    }
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut message = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((libc::NLM_F_REQUEST as u16 | flags).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Splits off the first item, whose length stands in its first `N` bytes, with its padding.
fn split(bytes: &[u8], len: usize, least: usize) -> Option<(&[u8], &[u8])> {
    let item = bytes.get(..len).filter(|_| len >= least)?;
    Some((item, bytes.get(len.next_multiple_of(4)..).unwrap_or(&[])))
}

/// The messages in a buffer: type and body.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
        let (message, rest) = split(bytes, len, HEADER)?;
        bytes = rest;
        Some((u16::from_ne_bytes([message[4], message[5]]), &message[HEADER..]))
    })
}

/// Attributes: type and value.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let (attribute, rest) = split(bytes, len, 4)?;
        bytes = rest;
        Some((u16::from_ne_bytes([attribute[2], attribute[3]]) & TYPE, &attribute[4..]))
    })
}

fn number(value: &[u8]) -> u32 {
    value.first_chunk().map_or(0, |value| u32::from_ne_bytes(*value))
}

fn read_link(body: &[u8]) -> Option<NetworkInterface> {
    let flags = number(body.get(8..12)?) as c_int;
    let is_up = flags & libc::IFF_UP != 0;
    let mut link = NetworkInterface {
        index: number(body.get(4..8)?),
        is_up,
        // IFF_LOWER_UP: the device reports its line.
        has_carrier: is_up && flags & 0x1_0000 != 0,
        is_ethernet: body.get(2..4)? == ETHERNET.to_ne_bytes(),
        ..NetworkInterface::default()
    };
    for (kind, value) in attributes(body.get(16..)?) {
        match kind {
            LINK_NAME => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                link.name = String::from_utf8_lossy(name).into_owned();
            }
            LINK_MTU => link.mtu = number(value),
            LINK_ADDRESS => link.mac = value.first_chunk().copied().unwrap_or_default(),
            LINK_XDP => {
                let program = attributes(value).find(|(kind, _)| *kind == XDP_PROGRAM);
                link.program = program.map_or(0, |(_, value)| number(value));
            }
            _ => {}
        }
    }
    Some(link)
}

fn read_address(body: &[u8]) -> Option<IpAddr> {
    let all: Vec<(u16, &[u8])> = attributes(body.get(8..)?).collect();
    let of = |wanted| all.iter().find(|(kind, _)| *kind == wanted).map(|(_, value)| *value);
    let value = of(LOCAL_ADDRESS).or_else(|| of(ADDRESS))?;
    match value.len() {
        4 => value.first_chunk::<4>().map(|bytes| Ipv4Addr::from(*bytes).into()),
        _ => value.first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_described() {
        let watch = InterfaceWatch::new().unwrap();
        let lo = watch.by_name("lo").unwrap().unwrap();
        assert_eq!((lo.index, lo.name.as_str(), lo.is_ethernet, lo.program), (1, "lo", false, 0));
        assert_eq!(watch.by_index(1).unwrap(), Some(lo.clone()));
        assert!(watch.by_name("no-such-link").unwrap().is_none());
        assert!(watch.by_index(u32::MAX >> 1).unwrap().is_none());
        let addresses = watch.addresses(1).unwrap();
        assert_eq!(addresses.contains(&Ipv4Addr::LOCALHOST.into()), lo.is_up, "{addresses:?}");
    }

    #[test]
    fn truncated_messages_end_the_reading() {
        assert_eq!(messages(&[255; 40]).count(), 0);
        assert_eq!(messages(&[0; 40]).count(), 0);
        assert_eq!(attributes(&[3, 0, 1, 0]).count(), 0);
        assert_eq!(attributes(&[5, 0, 1, 0, 9, 0, 0, 0, 4]).count(), 1);
        assert_eq!(read_link(&[0; 15]), None);
    }
}
