//! The sockets of a group of programs, and how each is found.

use super::local::End;
use super::options::Values;
use ringway_netstack::SocketId;
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

/// Sockets of a group. Attack: a program that opens sockets without an end.
const SOCKETS: usize = 65_536;
/// Connections that have ended with an error and are still known, so that their programs can ask for it. Attack: a
/// program that keeps many such sockets.
const ENDED: usize = 1024;

/// A socket's place in the table. That of a former one is never valid again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl From<u64> for Key {
    fn from(number: u64) -> Key {
        Key { index: number as u32, generation: (number >> 32) as u32 }
    }
}

impl From<Key> for u64 {
    fn from(key: Key) -> u64 {
        u64::from(key.generation) << 32 | u64::from(key.index)
    }
}

/// A program's socket.
#[derive(Debug)]
pub struct Socket {
    /// The number of its file; 0: the program has not accepted it yet.
    pub number: u64,
    /// Tells when the program closes it. One that has an end of ours needs none.
    pub watch: Option<i32>,
    /// Whether it is one of IPv6.
    pub v6: bool,
    /// The address that it is bound to.
    pub local: Option<SocketAddr>,
    pub values: Values,
    /// The error that the program has not been told.
    pub error: Option<Errno>,
    pub kind: Kind,
}

/// What a socket is at present.
#[derive(Debug)]
pub enum Kind {
    /// For a TCP connection, or for listening.
    Idle,
    Listening(Listening),
    Stream(Box<Stream>),
    Datagrams(Box<Datagrams>),
    /// A connection that has ended with an error.
    Ended {
        local: SocketAddr,
        peer: SocketAddr,
    },
}

#[derive(Debug)]
pub struct Listening {
    /// The program's UNIX socket.
    pub name: SocketAddrUnix,
    /// Listeners of the stack: one for each version of IP.
    pub listeners: Vec<SocketId>,
}

#[derive(Debug)]
pub struct Stream {
    pub tcp: SocketId,
    /// `None`: a blocking call is connecting it.
    pub end: Option<End>,
    pub local: SocketAddr,
    pub peer: SocketAddr,
    /// What was written to `end` so that the program's socket is not writable yet.
    pub filled: usize,
    pub is_up: bool,
    /// The program was told that it is connected.
    pub is_told: bool,
    /// The program writes no more.
    pub is_shut: bool,
    /// The peer sends no more, and the program was told.
    pub is_finished: bool,
    /// The stack has no room for what the program has written.
    pub is_held: bool,
    /// The program has no room for what has arrived, and it is told when there is some.
    pub is_full: bool,
}

#[derive(Debug)]
pub struct Datagrams {
    /// Sockets of the stack: one for each version of IP, once it has an address.
    pub udp: Vec<SocketId>,
    pub ours: OwnedFd,
    pub peer: Option<SocketAddr>,
    /// The own address to the peer, if the socket is bound to any.
    pub source: Option<IpAddr>,
    /// Senders of the datagrams that the program may not have read yet, and their lengths.
    pub senders: VecDeque<(SocketAddr, usize)>,
    /// A datagram that has no room in the program's socket.
    pub held: Option<(Vec<u8>, SocketAddr)>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    socket: Option<Socket>,
}

/// All sockets.
#[derive(Debug, Default)]
pub struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_number: HashMap<u64, Key>,
    by_watch: HashMap<i32, Key>,
    by_name: HashMap<u64, Key>,
    by_stack: HashMap<SocketId, Vec<Key>>,
    ended: VecDeque<Key>,
}

impl Table {
    /// Adds a socket.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&mut self, socket: Socket) -> Result<Key, Errno> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < SOCKETS => {
                self.slots.push(Slot::default());
                self.slots.len() as u32 - 1
            }
            None => return Err(Errno::NFILE),
        };
        let slot = &mut self.slots[index as usize];
        let key = Key { index, generation: slot.generation };
        if socket.number != 0 {
            self.by_number.insert(socket.number, key);
        }
        if let Some(watch) = socket.watch {
            self.by_watch.insert(watch, key);
        }
        slot.socket = Some(socket);
        Ok(key)
    }

    pub fn get(&self, key: Key) -> Option<&Socket> {
        let slot = self.slots.get(key.index as usize).filter(|slot| slot.generation == key.generation);
        slot?.socket.as_ref()
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut Socket> {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation);
        slot?.socket.as_mut()
    }

    pub fn stream(&mut self, key: Key) -> Option<&mut Stream> {
        match &mut self.get_mut(key)?.kind {
            Kind::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    pub fn datagrams(&mut self, key: Key) -> Option<&mut Datagrams> {
        match &mut self.get_mut(key)?.kind {
            Kind::Datagrams(datagrams) => Some(datagrams),
            _ => None,
        }
    }

    /// Removes a socket, with all that leads to it but what is in the stack.
    pub fn remove(&mut self, key: Key) -> Option<Socket> {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        let socket = slot.socket.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        if self.by_number.get(&socket.number) == Some(&key) {
            self.by_number.remove(&socket.number);
        }
        if let Some(watch) = socket.watch {
            self.by_watch.remove(&watch);
        }
        Some(socket)
    }

    pub fn of_number(&self, number: u64) -> Option<Key> {
        self.by_number.get(&number).copied()
    }

    pub fn of_watch(&self, watch: i32) -> Option<Key> {
        self.by_watch.get(&watch).copied()
    }

    /// The watch is not needed any more.
    pub fn unwatch(&mut self, key: Key) -> Option<i32> {
        let watch = self.get_mut(key)?.watch.take()?;
        self.by_watch.remove(&watch);
        Some(watch)
    }

    /// A connection that a program may accept.
    pub fn offer(&mut self, name: u64, key: Key) {
        self.by_name.insert(name, key);
    }

    /// A program has accepted the connection of this name.
    pub fn accept(&mut self, name: u64, number: u64) -> Option<Key> {
        let key = self.by_name.remove(&name)?;
        self.get_mut(key)?.number = number;
        self.by_number.insert(number, key);
        Some(key)
    }

    /// A socket of the stack is one of this one's.
    pub fn join(&mut self, id: SocketId, key: Key) {
        self.by_stack.entry(id).or_default().push(key);
    }

    /// The sockets that a socket of the stack belongs to: several if they share an address to listen at.
    pub fn of_stack(&self, id: SocketId) -> &[Key] {
        self.by_stack.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Puts the first of them last.
    pub fn rotate(&mut self, id: SocketId) {
        if let Some(keys) = self.by_stack.get_mut(&id) {
            keys.rotate_left(1);
        }
    }

    /// Undoes [`Table::join`]; whether it belongs to no socket any more.
    pub fn part(&mut self, id: SocketId, key: Key) -> bool {
        let Some(keys) = self.by_stack.get_mut(&id) else { return true };
        keys.retain(|other| *other != key);
        let is_empty = keys.is_empty();
        if is_empty {
            self.by_stack.remove(&id);
        }
        is_empty
    }

    /// Remembers a connection that has ended. Returns one to forget for it.
    pub fn end(&mut self, key: Key) -> Option<Key> {
        self.ended.push_back(key);
        (self.ended.len() > ENDED).then(|| self.ended.pop_front())?
    }

    /// All sockets, and whether each is for datagrams.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &Socket)> {
        self.slots.iter().zip(0..).filter_map(|(slot, index)| {
            Some((Key { index, generation: slot.generation }, slot.socket.as_ref()?))
        })
    }

    /// Whether another socket of the kind prevents that one is bound to an address, as in Linux: one of the same port,
    /// and of the same address or of any, unless both may share it, and neither listens or both agree to.
    pub fn is_taken(&self, own: Key, address: SocketAddr, values: &Values) -> bool {
        let is_udp = self.get(own).is_some_and(|socket| matches!(socket.kind, Kind::Datagrams(_)));
        self.iter().any(|(key, socket)| {
            let same_kind = matches!(socket.kind, Kind::Datagrams(_)) == is_udp;
            let bound = socket.local.filter(|local| local.port() == address.port());
            let listens = matches!(socket.kind, Kind::Listening(_));
            let shared = values.reuses_port() && socket.values.reuses_port();
            let reused = values.reuses_address() && socket.values.reuses_address() && !listens;
            let own_end = (address.ip(), values.is_v6_only());
            let collides =
                bound.is_some_and(|local| overlap((local.ip(), socket.values.is_v6_only()), own_end));
            key != own && same_kind && collides && !shared && !reused
        })
    }
}

/// Whether two sockets get the same packets: each by its address, and whether it serves IPv6 only (RFC 3493, 5.3).
fn overlap(one: (IpAddr, bool), other: (IpAddr, bool)) -> bool {
    let covers = |(any, v6_only): (IpAddr, bool), ip: IpAddr| {
        any.is_unspecified() && (any.is_ipv4() == ip.is_ipv4() || any.is_ipv6() && !v6_only)
    };
    one.0 == other.0 || covers(one, other.0) || covers(other, one.0)
}
