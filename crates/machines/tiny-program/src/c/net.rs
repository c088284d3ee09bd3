//! Calls on sockets.

use super::abi::{
    AF_INET, AF_INET6, AF_UNSPEC, Errno, IPPROTO_TCP, IPPROTO_UDP, O_CLOEXEC, O_NONBLOCK, SOCK_DGRAM,
    SOCK_STREAM, event, message, number,
};
use super::files::{File, What};
use super::memory::Parts;
use super::socket::{Received, Socket};
use super::{Calls, Reply, Stop};
use crate::Network;
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use core::time::Duration;
use ringway_tiny::Machine;

/// Bytes of a `struct sockaddr_in`, and of a `struct sockaddr_in6`; the least of the latter, without its last field.
const V4: usize = 16;
const V6: usize = 28;
const V6_LEAST: usize = 24;
/// Where a `struct msghdr` has the length of the address, the parts, their number, the length of control data and the
/// flags.
const NAME_LEN: u64 = 8;
const PARTS: u64 = 16;
const CONTROL_LEN: u64 = 40;
const FLAGS: u64 = 48;

/// An address of a socket for one family, as its kind of address.
fn address_bytes(is_v6: bool, address: SocketAddr) -> ([u8; V6], usize) {
    let mut bytes = [0; V6];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    let ip = match (address.ip(), is_v6) {
        (IpAddr::V4(ip), false) => {
            bytes[..2].copy_from_slice(&AF_INET.to_le_bytes());
            bytes[4..8].copy_from_slice(&ip.octets());
            return (bytes, V4);
        }
        (IpAddr::V4(ip), true) => ip.to_ipv6_mapped(),
        (IpAddr::V6(ip), _) => ip,
    };
    bytes[..2].copy_from_slice(&AF_INET6.to_le_bytes());
    bytes[8..24].copy_from_slice(&ip.octets());
    (bytes, V6)
}

/// The address that bytes are, for a socket of one family; `None`: of no family.
fn address_of(is_v6: bool, bytes: &[u8]) -> Result<Option<SocketAddr>, Errno> {
    let family = bytes.first_chunk().map(|family| u16::from_le_bytes(*family)).ok_or(Errno::Invalid)?;
    let port = |bytes: &[u8]| u16::from_be_bytes([bytes[2], bytes[3]]);
    match (family, is_v6) {
        (AF_UNSPEC, _) => Ok(None),
        (AF_INET, false) => {
            let bytes: &[u8; V4] = bytes.first_chunk().ok_or(Errno::Invalid)?;
            let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
            Ok(Some((ip, port(bytes)).into()))
        }
        (AF_INET6, true) => {
            let bytes: &[u8; V6_LEAST] = bytes.first_chunk().ok_or(Errno::Invalid)?;
            let octets: [u8; 16] = bytes[8..].try_into().map_err(|_| Errno::Invalid)?;
            let address = SocketAddrV6::new(Ipv6Addr::from(octets), port(bytes), 0, 0);
            Ok(Some(match address.ip().to_ipv4_mapped() {
                Some(ip) => (ip, address.port()).into(),
                None => address.into(),
            }))
        }
        _ => Err(Errno::NoFamily),
    }
}

impl<M: Machine> Calls<M> {
    pub(super) fn net(&mut self, number: u64, arguments: [u64; 6]) -> Reply {
        let [a, b, c, d, e, f] = arguments;
        if number == number::SOCKET {
            return self.socket(a, b, c);
        }
        let file = self.files.get(a)?;
        file.socket(|_| Ok(()))?;
        match number {
            number::CONNECT => self.connect(&file, b, c),
            number::ACCEPT => self.accept(&file, b, c, 0),
            number::ACCEPT4 => self.accept(&file, b, c, d),
            number::SENDTO => self.send(a, Parts::one(b, c), d, Some([e, f])),
            number::RECVFROM => self.receive(a, Parts::one(b, c), d, Some([e, f])),
            number::SENDMSG => self.send_message(a, b, c),
            number::RECVMSG => self.receive_message(a, b, c),
            number::SHUTDOWN => {
                file.socket(|socket| socket.shutdown(b))?;
                self.runtime.put();
                Ok(0)
            }
            number::BIND => {
                let address = self.address(&file, b, c)?.ok_or(Errno::NoFamily)?;
                Ok(file.socket(|socket| socket.bind(address)).map(|()| 0)?)
            }
            number::LISTEN => Ok(file.socket(Socket::listen).map(|()| 0)?),
            number::GETSOCKNAME => {
                let (is_v6, local) = file.socket(|socket| Ok((socket.is_v6, socket.local())))?;
                self.write_address(is_v6, local, b, c)
            }
            number::GETPEERNAME => {
                let (is_v6, peer) = file.socket(|socket| Ok((socket.is_v6, socket.peer()?)))?;
                self.write_address(is_v6, peer, b, c)
            }
            number::SETSOCKOPT => self.set_option(&file, b, c, [d, e]),
            number::GETSOCKOPT => self.get_option(&file, b, c, [d, e]),
            _ => Err(Errno::NoCall.into()),
        }
    }

    fn socket(&mut self, family: u64, kind: u64, protocol: u64) -> Reply {
        let flags = kind & (O_NONBLOCK | O_CLOEXEC);
        let is_v6 = match u16::try_from(family as u32) {
            Ok(AF_INET) => false,
            Ok(AF_INET6) => true,
            _ => return Err(Errno::NoFamily.into()),
        };
        let (is_stream, own) = match u64::from(kind as u32) & !flags {
            SOCK_STREAM => (true, IPPROTO_TCP),
            SOCK_DGRAM => (false, IPPROTO_UDP),
            _ => return Err(Errno::NoType.into()),
        };
        if ![0, own].contains(&u64::from(protocol as u32)) {
            return Err(Errno::NoProtocol.into());
        }
        self.files.check_room()?;
        let socket = Socket::new(&self.network()?, is_v6, is_stream);
        Ok(self.files.open(File::new(What::Socket(Box::new(socket)), flags & O_NONBLOCK != 0), 0)?)
    }

    /// The fabric file's network, which exists from the first socket on.
    fn network(&mut self) -> Result<Network, Errno> {
        if let Some(network) = &self.network {
            return Ok(network.clone());
        }
        match self.program.network() {
            Ok(network) => {
                self.network = Some(network.clone());
                Ok(network)
            }
            Err(error) => {
                self.program.log(format_args!("{error}"));
                Err(Errno::NetworkDown)
            }
        }
    }

    /// Reads an address for a file's socket.
    fn address(&self, file: &File, at: u64, len: u64) -> Result<Option<SocketAddr>, Errno> {
        let (is_v6, only_v6) = file.socket(|socket| Ok((socket.is_v6, socket.only_v6)))?;
        let mut bytes = [0; V6];
        // A longer address has more bytes than are looked at.
        let len = usize::try_from(len as u32).map_or(V6, |len| len.min(V6));
        self.ram.read(at, &mut bytes[..len])?;
        match address_of(is_v6, &bytes[..len])? {
            Some(SocketAddr::V4(_)) if only_v6 => Err(Errno::Unreachable),
            address => Ok(address),
        }
    }

    /// Writes an address, as far as there is room, and its whole length.
    fn write_address(&self, is_v6: bool, address: SocketAddr, at: u64, len_at: u64) -> Reply {
        let room = self.ram.word(len_at)?;
        let len = self.put_address(is_v6, address, at, room)?;
        Ok(self.ram.write(len_at, &len.to_le_bytes()).map(|()| 0)?)
    }

    fn put_address(&self, is_v6: bool, address: SocketAddr, at: u64, room: u32) -> Result<u32, Errno> {
        let (bytes, len) = address_bytes(is_v6, address);
        // The length is an `int`.
        let room = usize::try_from(room as i32).map_err(|_| Errno::Invalid)?;
        self.ram.write(at, &bytes[..len.min(room)])?;
        Ok(len as u32)
    }

    /// Whether a call on a socket that begins waits, and up to which time: for reading or for writing.
    fn waits(&self, file: &File, flags: u64, writes: bool) -> Result<Option<Option<Duration>>, Errno> {
        let most = file.socket(|socket| Ok(socket.waits[usize::from(writes)]))?;
        let end = most.map(|most| self.program.now().saturating_add(most));
        Ok((!file.nonblocking.get() && flags & message::DONTWAIT == 0).then_some(end))
    }

    fn connect(&mut self, file: &Rc<File>, at: u64, len: u64) -> Reply {
        let Some(peer) = self.address(file, at, len)? else {
            return Ok(file.socket(Socket::disconnect).map(|()| 0)?);
        };
        match file.socket(|socket| socket.connect(peer)) {
            Ok(()) => return Ok(0),
            Err(Errno::InProgress) => self.runtime.put(),
            Err(errno) => return Err(errno.into()),
        }
        let wait = self.waits(file, 0, true)?;
        match self.until(file, event::OUT, wait, |_| file.socket(Socket::connected)) {
            Ok(()) => Ok(0),
            Err(Stop::Errno(Errno::Again)) => Err(Errno::InProgress.into()),
            Err(stop) => Err(stop),
        }
    }

    fn accept(&mut self, file: &Rc<File>, at: u64, len_at: u64, flags: u64) -> Reply {
        if flags & !(O_NONBLOCK | O_CLOEXEC) & u64::from(u32::MAX) != 0 {
            return Err(Errno::Invalid.into());
        }
        self.files.check_room()?;
        let wait = self.waits(file, 0, false)?;
        let (socket, peer) = self.until(file, event::IN, wait, |_| file.socket(Socket::accept))?;
        if at != 0 {
            self.write_address(socket.is_v6, peer, at, len_at)?;
        }
        Ok(self.files.open(File::new(What::Socket(Box::new(socket)), flags & O_NONBLOCK != 0), 0)?)
    }

    /// Writes to a file, or sends.
    pub(super) fn send(&mut self, descriptor: u64, parts: Parts, flags: u64, to: Option<[u64; 2]>) -> Reply {
        let file = self.files.get(descriptor)?;
        let is_stream = match &*file.what.borrow() {
            What::Socket(socket) => Some(socket.is_stream()),
            What::Null | What::Random => return Ok(parts.len() as u64),
            What::Console(_) => None,
        };
        let sent = match is_stream {
            None => return self.print(&file, &parts),
            Some(true) => self.send_stream(&file, &parts, flags),
            Some(false) => {
                let to = match to {
                    Some([at, len]) if at != 0 => self.address(&file, at, len)?,
                    _ => None,
                };
                self.send_datagram(&file, &parts, to)
            }
        };
        self.runtime.put();
        sent
    }

    fn send_stream(&mut self, file: &Rc<File>, parts: &Parts, flags: u64) -> Reply {
        let wait = self.waits(file, flags, true)?;
        let mut sent = 0;
        loop {
            let mut piece = core::mem::take(&mut self.piece);
            let result = match parts.gather(&self.ram, sent, &mut piece) {
                Ok(count) => self.until(file, event::OUT, wait, |_| {
                    file.socket(|socket| socket.send(&piece[..count], None))
                }),
                Err(errno) => Err(errno.into()),
            };
            self.piece = piece;
            match result {
                Ok(count) => sent += count,
                Err(Stop::Errno(_)) if sent > 0 => return Ok(sent as u64),
                Err(stop) => return Err(stop),
            }
            if sent >= parts.len() {
                return Ok(sent as u64);
            }
        }
    }

    fn send_datagram(&mut self, file: &Rc<File>, parts: &Parts, to: Option<SocketAddr>) -> Reply {
        if parts.len() > self.piece.len() {
            return Err(Errno::MessageTooLong.into());
        }
        for may_wait in [true, false] {
            let count = parts.gather(&self.ram, 0, &mut self.piece)?;
            match file.socket(|socket| socket.send(&self.piece[..count], to)) {
                // Too many wait for the port.
                Err(Errno::Again) if may_wait => self.turn()?,
                result => return Ok(result.map(|count| count as u64)?),
            }
        }
        Err(Errno::NoBuffers.into())
    }

    fn send_message(&mut self, descriptor: u64, at: u64, flags: u64) -> Reply {
        let name = u64::from_le_bytes(self.ram.array(at)?);
        let len = self.ram.word(at.wrapping_add(NAME_LEN))?;
        let [list, count] = self.ram.pair(at.wrapping_add(PARTS))?;
        let parts = self.ram.parts(list, count)?;
        self.send(descriptor, parts, flags, Some([name, len.into()]))
    }

    /// Reads a file, or receives; the sender's address goes to where `from` says.
    pub(super) fn receive(
        &mut self,
        descriptor: u64,
        parts: Parts,
        flags: u64,
        from: Option<[u64; 2]>,
    ) -> Reply {
        let file = self.files.get(descriptor)?;
        match &*file.what.borrow() {
            What::Socket(_) => {}
            What::Null | What::Console(_) => return Ok(0),
            What::Random => return self.fill_random(parts),
        }
        let received = self.receive_from(&file, &parts, flags)?;
        if let (Some([at, len_at]), Some(sender)) = (from.filter(|from| from[0] != 0), received.from) {
            let is_v6 = file.socket(|socket| Ok(socket.is_v6))?;
            self.write_address(is_v6, sender, at, len_at)?;
        }
        let shown = if flags & message::TRUNC != 0 { received.whole } else { received.count };
        Ok(shown as u64)
    }

    fn receive_message(&mut self, descriptor: u64, at: u64, flags: u64) -> Reply {
        let name = u64::from_le_bytes(self.ram.array(at)?);
        let room = self.ram.word(at.wrapping_add(NAME_LEN))?;
        let [list, count] = self.ram.pair(at.wrapping_add(PARTS))?;
        let parts = self.ram.parts(list, count)?;
        let file = self.files.get(descriptor)?;
        let received = self.receive_from(&file, &parts, flags)?;
        let len = match received.from.filter(|_| name != 0) {
            Some(sender) => {
                let is_v6 = file.socket(|socket| Ok(socket.is_v6))?;
                self.put_address(is_v6, sender, name, room)?
            }
            None => 0,
        };
        let is_cut = received.whole > received.count;
        let told = if is_cut { message::TRUNC as u32 } else { 0 };
        self.ram.write(at.wrapping_add(NAME_LEN), &len.to_le_bytes())?;
        // There are no control data.
        self.ram.write(at.wrapping_add(CONTROL_LEN), &[0; 8])?;
        self.ram.write(at.wrapping_add(FLAGS), &told.to_le_bytes())?;
        let shown = if flags & message::TRUNC != 0 { received.whole } else { received.count };
        Ok(shown as u64)
    }

    /// Receives a datagram, or bytes of a stream: those that there are, and at least one.
    fn receive_from(&mut self, file: &Rc<File>, parts: &Parts, flags: u64) -> Result<Received, Stop> {
        let (is_stream, peeks) = (file.socket(|socket| Ok(socket.is_stream()))?, flags & message::PEEK != 0);
        let mut wait = self.waits(file, flags, false)?;
        let mut all = Received::default();
        loop {
            let room = (parts.len() - all.count).min(self.piece.len());
            if room == 0 && is_stream {
                return Ok(all);
            }
            let mut piece = core::mem::take(&mut self.piece);
            let result = self.until(file, event::IN, wait, |_| {
                file.socket(|socket| socket.receive(&mut piece[..room], peeks))
            });
            self.piece = piece;
            let received = match result {
                Ok(received) => received,
                Err(Stop::Errno(_)) if all.count > 0 => return Ok(all),
                Err(stop) => return Err(stop),
            };
            parts.scatter(&self.ram, all.count, &self.piece[..received.count])?;
            all.count += received.count;
            all.whole += received.whole;
            all.from = received.from;
            if !is_stream || peeks || received.count == 0 {
                return Ok(all);
            }
            if flags & message::WAITALL == 0 {
                wait = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_bytes_and_back() {
        for (is_v6, text, shown) in [
            (false, "10.0.0.2:80", "10.0.0.2:80"),
            (true, "[fd00::2]:7", "[fd00::2]:7"),
            (true, "[::ffff:10.0.0.2]:7", "10.0.0.2:7"),
        ] {
            let address: SocketAddr = text.parse().unwrap();
            let (bytes, len) = address_bytes(is_v6, address);
            let shown: SocketAddr = shown.parse().unwrap();
            assert_eq!(address_of(is_v6, &bytes[..len]), Ok(Some(shown)));
            assert_eq!(address_bytes(is_v6, shown), (bytes, len));
            assert_eq!(address_of(!is_v6, &bytes[..len]), Err(Errno::NoFamily));
            for short in 2..if is_v6 { V6_LEAST } else { V4 } {
                assert_eq!(address_of(is_v6, &bytes[..short]), Err(Errno::Invalid));
            }
        }
        assert_eq!(address_of(true, &[0; 2]), Ok(None));
        assert_eq!(address_of(true, &[0; 1]), Err(Errno::Invalid));
        assert_eq!(address_of(false, &[1; 16]), Err(Errno::NoFamily));
    }
}
