//! UDP sockets.

use super::address::{self, Destination};
use super::calls::{DONTWAIT, Reply};
use super::local;
use super::message::{self, Message};
use super::options::OptionValues;
use super::stream::{destination, errno};
use super::table::{Datagrams, Key, Kind, Socket};
use super::{Agent, OBSERVED, ROOM};
use ringway_host::{Call, numbers, read_memory, write_memory};
use ringway_netstack::{ConnectionError, SocketError, SocketId};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The longest datagram.
pub const MAX_DATAGRAM: usize = 65_507;
/// `MSG_PEEK` and `MSG_TRUNC`.
const PEEK: u64 = 2;
const TRUNC: u64 = 0x20;
/// Most senders that are remembered. A program's socket never holds more datagrams. Attack: a program that never asks.
const MAX_SENDERS: usize = 1024;
/// Messages that one call sends or receives at most (`UIO_MAXIOV`), and how long that may take. Attack: as many long
/// ones as fit, while others wait.
const MAX_MESSAGES: u64 = 1024;
const CALL_TIME: u64 = 5 * ringway_netstack::MS;

/// A datagram that a program receives.
struct Received {
    bytes: Vec<u8>,
    from: Option<SocketAddr>,
}

/// Most datagrams of a program that are sent before others are served.
const MAX_SENT_AT_ONCE: usize = 64;

/// Whether the other end of a pair has shut down writing only.
fn is_shut(end: BorrowedFd<'_>) -> bool {
    let both = PollFlags::RDHUP | PollFlags::HUP;
    local::ready(end, PollFlags::RDHUP).intersection(both) == PollFlags::RDHUP
}

impl Agent {
    pub(super) fn open_datagrams(&mut self, v6: bool, nonblocking: bool) -> Result<(OwnedFd, Key), Errno> {
        let (program_socket, agent_socket) = local::datagrams(nonblocking)?;
        let cookie = local::cookie(program_socket.as_fd()).ok_or(Errno::NOTSOCK)?;
        let datagrams = Datagrams {
            udp: Vec::new(),
            agent_socket,
            peer: None,
            source: None,
            senders: VecDeque::new(),
            undelivered: None,
        };
        let key = self.table.add(Socket {
            cookie,
            watch: None,
            v6,
            pending_client: None,
            local: None,
            options: OptionValues::default(),
            error: None,
            kind: Kind::Datagrams(Box::new(datagrams)),
        })?;
        if let Some(Kind::Datagrams(datagrams)) = self.table.get(key).map(|socket| &socket.kind) {
            self.observe(datagrams.agent_socket.as_fd(), key, OBSERVED | ROOM)?;
        }
        Ok((program_socket, key))
    }

    /// Opens sockets of the stack for an address.
    pub(super) fn bind_datagrams(&mut self, key: Key, address: SocketAddr) -> Result<(), Errno> {
        let socket = self.table.get(key).ok_or(Errno::BADF)?;
        let mut opened = Vec::new();
        for address in socket.options.addresses(address, socket.v6) {
            match self.host.stack().bind(address).or_else(|error| self.shared(address).ok_or(error)) {
                Ok(id) => opened.push(id),
                Err(error) => {
                    let now = self.host.now();
                    for id in opened.iter().filter(|id| self.table.keys_of(**id).is_empty()) {
                        // The socket has just been opened.
                        let _ = self.host.stack().close(now, *id);
                    }
                    return Err(errno(error));
                }
            }
        }
        opened.iter().for_each(|id| self.table.add_stack_socket(*id, key));
        self.table.datagrams(key).ok_or(Errno::BADF)?.udp = opened;
        Ok(())
    }

    /// The stack's socket of an address that programs share.
    fn shared(&mut self, address: SocketAddr) -> Option<SocketId> {
        let all = self.table.bound_to_port(address.port()).filter_map(|(_, socket)| match &socket.kind {
            Kind::Datagrams(datagrams) => Some(datagrams.udp.clone()),
            _ => None,
        });
        let ids: Vec<SocketId> = all.flatten().collect();
        let stack = self.host.stack();
        ids.into_iter().find(|id| stack.local_address(*id) == Ok(address))
    }

    /// Binds a socket to an unused port if it is not bound.
    fn bind_some(&mut self, key: Key) -> Result<(), Errno> {
        let socket = self.table.get(key).ok_or(Errno::BADF)?;
        match (socket.local, socket.v6) {
            (Some(_), _) => Ok(()),
            (None, false) => self.bind_to(key, (Ipv4Addr::UNSPECIFIED, 0).into()),
            (None, true) => self.bind_to(key, (Ipv6Addr::UNSPECIFIED, 0).into()),
        }
    }

    /// `connect` of a UDP socket.
    pub(super) fn connect_datagrams(&mut self, call: &Call, key: Key) -> Result<Reply, Errno> {
        let v6 = self.table.get(key).ok_or(Errno::BADF)?.v6;
        let named = address::read(call.thread, call.arguments[1], call.arguments[2], v6)?;
        self.trap.check_waiting(call.id)?;
        let Destination::Address(remote) = named else {
            let datagrams = self.table.datagrams(key).ok_or(Errno::BADF)?;
            (datagrams.peer, datagrams.source) = (None, None);
            return Ok(Reply::Value(0));
        };
        let remote = destination(remote);
        let source = self.host.stack().source_address(remote.ip()).map_err(errno)?;
        self.bind_some(key)?;
        let datagrams = self.table.datagrams(key).ok_or(Errno::BADF)?;
        (datagrams.peer, datagrams.source) = (Some(remote), Some(source));
        Ok(Reply::Value(0))
    }

    fn send_to(&mut self, key: Key, bytes: &[u8], to: Option<SocketAddr>) -> Result<i64, Errno> {
        let socket = self.table.get_mut(key).ok_or(Errno::BADF)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let peer = self.table.datagrams(key).ok_or(Errno::BADF)?.peer;
        let to = to.map(destination).or(peer).ok_or(Errno::DESTADDRREQ)?;
        self.bind_some(key)?;
        let ids = self.table.datagrams(key).ok_or(Errno::BADF)?.udp.clone();
        let stack = self.host.stack();
        let fits = |id: &&_| stack.local_address(**id).is_ok_and(|local| local.is_ipv4() == to.is_ipv4());
        let id = *ids.iter().find(fits).ok_or(Errno::NETUNREACH)?;
        let now = self.host.now();
        match self.host.stack().send_to(now, id, bytes, to) {
            // As from a device whose queue is full.
            Ok(()) | Err(SocketError::WouldBlock) => Ok(bytes.len() as i64),
            Err(error) => Err(errno(error)),
        }
    }

    /// `sendto` with an address.
    pub(super) fn send_datagram(&mut self, call: &Call, key: Key) -> Result<Reply, Errno> {
        let [_, at, len, _, to, to_len] = call.arguments;
        let v6 = self.table.get(key).ok_or(Errno::BADF)?.v6;
        if len > MAX_DATAGRAM as u64 {
            return Err(Errno::MSGSIZE);
        }
        let mut bytes = vec![0; len as usize];
        if read_memory(call.thread, at, &mut bytes)? < bytes.len() {
            return Err(Errno::FAULT);
        }
        let to = match address::read(call.thread, to, to_len, v6)? {
            Destination::Address(to) => Some(to),
            Destination::Unspecified => None,
        };
        self.trap.check_waiting(call.id)?;
        self.send_to(key, &bytes, to).map(Reply::Value)
    }

    /// `sendmsg`.
    pub(super) fn send_message(&mut self, call: &Call, key: Key) -> Result<Reply, Errno> {
        self.send_one(call, key, call.arguments[1]).map(Reply::Value)
    }

    fn send_one(&mut self, call: &Call, key: Key, at: u64) -> Result<i64, Errno> {
        let v6 = self.table.get(key).ok_or(Errno::BADF)?.v6;
        let message = Message::read(call.thread, at)?;
        let bytes = message.gather(call.thread, MAX_DATAGRAM)?;
        let to = match message.name {
            (0, _) | (_, 0) => None,
            (at, len) => match address::read(call.thread, at, len.into(), v6)? {
                Destination::Address(to) => Some(to),
                Destination::Unspecified => None,
            },
        };
        self.trap.check_waiting(call.id)?;
        self.send_to(key, &bytes, to)
    }

    /// `sendmmsg`.
    pub(super) fn send_messages(&mut self, call: &Call, key: Key) -> Result<Reply, Errno> {
        let [_, at, count, ..] = call.arguments;
        let (mut done, end) = (0, self.host.now() + CALL_TIME);
        for number in 0..u64::from(count as u32).min(MAX_MESSAGES) {
            let header = at.wrapping_add(number * message::MMSGHDR_LEN);
            let sent = self.send_one(call, key, header).and_then(|sent| {
                let place = header.wrapping_add(message::MSGHDR_LEN as u64);
                write_memory(call.thread, place, &(sent as u32).to_ne_bytes())
            });
            match sent {
                Ok(()) => {
                    done += 1;
                    if self.host.now() > end {
                        break;
                    }
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(Reply::Value(done))
    }

    /// Sends what the program wrote without an address. Attack: a program that writes without pause, while others and
    /// the stack wait.
    fn send_written(&mut self, key: Key) {
        let mut bytes = std::mem::take(&mut self.buffer);
        let mut left = MAX_SENT_AT_ONCE;
        while let Some(datagrams) = self.table.datagrams(key) {
            if left == 0 {
                // The edge-triggered event does not come again.
                self.recheck.push(key);
                break;
            }
            left -= 1;
            match recv(&datagrams.agent_socket, &mut bytes[..], RecvFlags::DONTWAIT) {
                // The program has shut down writing: it sends no more, and may still receive.
                Ok((0, _)) if is_shut(datagrams.agent_socket.as_fd()) => break,
                Ok((0, _)) | Err(Errno::CONNRESET)
                    if local::ready(datagrams.agent_socket.as_fd(), PollFlags::empty())
                        .contains(PollFlags::HUP) =>
                {
                    self.close(key);
                }
                Ok((len, _)) => {
                    if let Err(error) = self.send_to(key, &bytes[..len], None)
                        && let Some(socket) = self.table.get_mut(key)
                    {
                        socket.error = Some(error);
                    }
                }
                Err(_) => break,
            }
        }
        self.buffer = bytes;
    }

    /// Moves datagrams in both directions.
    pub(super) fn pump_datagrams(&mut self, key: Key) {
        self.send_written(key);
        if let Some(datagrams) = self.table.datagrams(key)
            && let Some((bytes, from)) = datagrams.undelivered.take()
        {
            self.deliver_datagram(key, bytes, from);
        }
        let ids = self.table.datagrams(key).map(|datagrams| datagrams.udp.clone());
        ids.into_iter().flatten().for_each(|id| self.receive_datagrams(id));
    }

    /// Gives the datagrams of a socket of the stack to the programs that have it.
    fn receive_datagrams(&mut self, id: SocketId) {
        loop {
            let keys = self.table.keys_of(id).to_vec();
            let mut full =
                |key: &Key| self.table.datagrams(*key).is_some_and(|own| own.undelivered.is_some());
            if keys.iter().all(&mut full) {
                return;
            }
            match self.host.stack().recv_from(id) {
                Ok((bytes, from)) => {
                    let wants = |key: &Key, peer| {
                        matches!(self.table.get(*key).map(|socket| &socket.kind),
                            Some(Kind::Datagrams(own)) if own.peer == peer)
                    };
                    // As in Linux: that of this peer before one of any, and the newest of those.
                    let connected = keys.iter().find(|key| wants(key, Some(from)));
                    let chosen = connected.or_else(|| keys.iter().rev().find(|key| wants(key, None)));
                    if let Some(key) = chosen {
                        self.deliver_datagram(*key, bytes, from);
                    }
                }
                Err(SocketError::Connection(ConnectionError::Refused)) => {
                    for key in keys {
                        // Linux tells only those who asked for one peer.
                        if let Some(socket) = self.table.get_mut(key)
                            && matches!(&socket.kind, Kind::Datagrams(own) if own.peer.is_some())
                        {
                            socket.error = Some(Errno::CONNREFUSED);
                            self.wake(key);
                        }
                    }
                }
                Err(_) => return,
            }
        }
    }

    fn deliver_datagram(&mut self, key: Key, bytes: Vec<u8>, from: SocketAddr) {
        let Some(datagrams) = self.table.datagrams(key) else { return };
        if datagrams.undelivered.is_some() {
            // Another socket's turn has come, and this one's program does not read: it is lost, as in Linux.
            return;
        }
        match send(&datagrams.agent_socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) => {
                datagrams.senders.push_back((from, bytes.len()));
                if datagrams.senders.len() > MAX_SENDERS {
                    datagrams.senders.pop_front();
                }
                self.wake(key);
            }
            Err(Errno::AGAIN | Errno::NOBUFS) => datagrams.undelivered = Some((bytes, from)),
            // The program has closed it.
            Err(_) => {}
        }
    }

    /// Puts the datagrams that did not reach their call back into the program's socket.
    pub(super) fn requeue_datagrams(&mut self, key: Key) {
        for (bytes, from) in std::mem::take(&mut self.received) {
            self.deliver_datagram(key, bytes, from);
        }
    }

    /// Reads the next datagram for a program. `None`: the program is to wait.
    fn read_datagram(&mut self, key: Key, socket: &OwnedFd, flags: u64) -> Result<Option<Received>, Errno> {
        let own = self.table.get_mut(key).ok_or(Errno::BADF)?;
        if let Some(error) = own.error.take() {
            return Err(error);
        }
        let mut bytes = vec![0; MAX_DATAGRAM + 1];
        let peek = if flags & PEEK != 0 { RecvFlags::PEEK } else { RecvFlags::empty() };
        let before = rustix::io::ioctl_fionread(socket).unwrap_or(0);
        let taken = match recv(socket, &mut bytes[..], peek | RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) if flags & DONTWAIT != 0 || local::is_nonblocking(socket.as_fd()) => {
                return Err(Errno::AGAIN);
            }
            Err(Errno::AGAIN) => return Ok(None),
            taken => taken?.0,
        };
        bytes.truncate(taken);
        let from = self.table.datagrams(key).and_then(|datagrams| datagrams.sender(before, peek.is_empty()));
        if peek.is_empty()
            && let Some(from) = from
        {
            self.received.push((bytes.clone(), from));
        }
        // There may be room for one that was held.
        self.recheck.push(key);
        Ok(Some(Received { bytes, from }))
    }

    /// `recvfrom` with an address.
    pub(super) fn receive_from(&mut self, call: &Call, key: Key, socket: &OwnedFd) -> Result<Reply, Errno> {
        let [_, at, len, flags, from, from_len] = call.arguments;
        let v6 = self.table.get(key).ok_or(Errno::BADF)?.v6;
        let most = usize::try_from(len).unwrap_or(usize::MAX);
        self.trap.check_waiting(call.id)?;
        let Some(taken) = self.read_datagram(key, socket, flags)? else { return Ok(Reply::Wait(key)) };
        let len = taken.bytes.len().min(most);
        write_memory(call.thread, at, &taken.bytes[..len])?;
        if from_len != 0 {
            let name = taken.from.map_or_else(Vec::new, |from| address::encode(from, v6));
            address::write(call.thread, from, from_len, &name)?;
        }
        Ok(Reply::Value(if flags & TRUNC != 0 { taken.bytes.len() } else { len } as i64))
    }

    /// `recvmsg`.
    pub(super) fn receive_message(
        &mut self,
        call: &Call,
        key: Key,
        socket: &OwnedFd,
    ) -> Result<Reply, Errno> {
        let [_, at, flags, ..] = call.arguments;
        let message = Message::read(call.thread, at)?;
        match self.receive_one(call, key, socket, &message, flags)? {
            Some(len) => Ok(Reply::Value(len)),
            None => Ok(Reply::Wait(key)),
        }
    }

    fn receive_one(
        &mut self,
        call: &Call,
        key: Key,
        socket: &OwnedFd,
        message: &Message,
        flags: u64,
    ) -> Result<Option<i64>, Errno> {
        let socket_v6 = self.table.get(key).ok_or(Errno::BADF)?.v6;
        // As Linux, before a datagram is taken.
        message.room()?;
        // A datagram must not be lost, nor written to another one's memory.
        self.trap.check_waiting(call.id)?;
        let Some(taken) = self.read_datagram(key, socket, flags)? else { return Ok(None) };
        let name = taken.from.map_or_else(Vec::new, |from| address::encode(from, socket_v6));
        let len = message.scatter(call.thread, &taken.bytes, &name)?;
        let whole = if flags & TRUNC != 0 { taken.bytes.len() } else { len };
        Ok(Some(whole as i64))
    }

    /// `recvmmsg`. It waits for the first datagram only.
    pub(super) fn receive_messages(
        &mut self,
        call: &Call,
        key: Key,
        socket: &OwnedFd,
    ) -> Result<Reply, Errno> {
        debug_assert_eq!(call.number, numbers::RECVMMSG);
        let [_, at, count, flags, ..] = call.arguments;
        let (mut done, end) = (0, self.host.now() + CALL_TIME);
        for number in 0..u64::from(count as u32).min(MAX_MESSAGES) {
            let header = at.wrapping_add(number * message::MMSGHDR_LEN);
            let flags = if done == 0 { flags } else { flags | DONTWAIT };
            let received = Message::read(call.thread, header)
                .and_then(|message| self.receive_one(call, key, socket, &message, flags));
            match received {
                Ok(Some(len)) => {
                    let place = header.wrapping_add(message::MSGHDR_LEN as u64);
                    write_memory(call.thread, place, &(len as u32).to_ne_bytes())?;
                    done += 1;
                    if self.host.now() > end {
                        break;
                    }
                    self.pump_datagrams(key);
                }
                Ok(None) => return Ok(Reply::Wait(key)),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(Reply::Value(done))
    }
}

impl Datagrams {
    /// The sender of the first of the datagrams that have `queued` bytes in all. The program may have read some
    /// without asking for their senders.
    fn sender(&mut self, queued: u64, is_taken: bool) -> Option<SocketAddr> {
        let mut known: u64 = self.senders.iter().map(|(_, len)| *len as u64).sum();
        while known > queued
            && let Some((_, len)) = self.senders.pop_front()
        {
            known -= len as u64;
        }
        let (from, _) = *self.senders.front()?;
        if is_taken {
            self.senders.pop_front();
        }
        Some(from)
    }
}
