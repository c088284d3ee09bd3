//! The sockets of a group of programs, and how each is found.

use super::local::{End, Place};
use super::options::Values;
use ringway_netstack::{Diverted, SocketId};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

/// Sockets of a group. Attack: a program that opens sockets without an end.
const SOCKETS: usize = 65_536;
/// Descriptors for other things than sockets: two of each thread, that of the call that is served, that of the device.
const OTHERS: usize = 576;
/// Sockets that are watched for their closing: they are not connected. Attack: a program that closes more at once than
/// the kernel keeps events of (`fs.inotify.max_queued_events`).
const WATCHED: usize = 8192;
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
    /// The name by which a program may accept it.
    pub offered: Option<u64>,
    /// The address that it is bound to, set by [`Table::bind`].
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
    /// Where the program's UNIX socket is reached.
    pub place: Place,
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
    pub place: StackPlace,
    /// When it comes back from the shared stack, it may enter again.
    pub pauses: bool,
}

/// Which stack has a connection.
#[derive(Debug, Default)]
pub enum StackPlace {
    /// The agent's.
    #[default]
    Own,
    /// It is on its way to the shared one, with these bytes.
    Entering(Vec<u8>),
    /// The shared one, where it has this handle.
    Shared(SocketId),
    /// It is on its way back. Meanwhile these segments came.
    Leaving(File, Vec<Diverted>),
    /// The agent's, for good.
    Left,
}

impl StackPlace {
    /// Whether the agent's stack has the connection.
    pub fn is_own(&self) -> bool {
        matches!(self, StackPlace::Own | StackPlace::Left)
    }
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
#[derive(Debug)]
pub struct Table {
    most: usize,
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_number: HashMap<u64, Key>,
    by_watch: HashMap<i32, Key>,
    by_name: HashMap<u64, Key>,
    by_stack: HashMap<SocketId, Vec<Key>>,
    by_port: HashMap<u16, HashSet<Key>>,
    ended: VecDeque<Key>,
}

impl Table {
    /// A table of as many sockets as a process with that many descriptors can serve. What it needs besides must be
    /// left: a call whose socket can't be looked at would be left to the kernel.
    pub fn new(descriptors: Option<u64>) -> Table {
        let most = descriptors.map_or(SOCKETS, |most| usize::try_from(most).unwrap_or(SOCKETS));
        Table {
            most: most.saturating_sub(OTHERS).min(SOCKETS),
            slots: Vec::new(),
            free: Vec::new(),
            by_number: HashMap::new(),
            by_watch: HashMap::new(),
            by_name: HashMap::new(),
            by_stack: HashMap::new(),
            by_port: HashMap::new(),
            ended: VecDeque::new(),
        }
    }

    /// Adds a socket.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&mut self, mut socket: Socket) -> Result<Key, Errno> {
        if socket.watch.is_some() && self.by_watch.len() >= WATCHED {
            return Err(Errno::NFILE);
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < self.most => {
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
        let local = socket.local.take();
        slot.socket = Some(socket);
        if let Some(local) = local {
            self.bind(key, local);
        }
        Ok(key)
    }

    /// Whether no socket can be added.
    pub fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() >= self.most
    }

    /// Binds a socket to an address.
    pub fn bind(&mut self, key: Key, address: SocketAddr) {
        if let Some(socket) = self.get_mut(key) {
            socket.local = Some(address);
            self.by_port.entry(address.port()).or_default().insert(key);
        }
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

    /// A connection that the agent's stack has. Any call that is served may let one leave.
    pub fn own_stream(&mut self, key: Key) -> Option<&mut Stream> {
        self.stream(key).filter(|stream| stream.place.is_own())
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
        if let Some(name) = socket.offered {
            self.by_name.remove(&name);
        }
        if let Some(local) = socket.local
            && let Some(keys) = self.by_port.get_mut(&local.port())
        {
            keys.remove(&key);
            if keys.is_empty() {
                self.by_port.remove(&local.port());
            }
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
        let Some(socket) = self.get_mut(key) else { return };
        let number = std::mem::take(&mut socket.number);
        socket.offered = Some(name);
        if self.by_number.get(&number) == Some(&key) {
            self.by_number.remove(&number);
        }
        self.by_name.insert(name, key);
    }

    /// A program has accepted the connection of this name.
    pub fn accept(&mut self, name: u64, number: u64) -> Option<Key> {
        let key = self.by_name.remove(&name)?;
        let socket = self.get_mut(key)?;
        (socket.number, socket.offered) = (number, None);
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

    /// All sockets.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &Socket)> {
        self.slots.iter().zip(0..).filter_map(|(slot, index)| {
            Some((Key { index, generation: slot.generation }, slot.socket.as_ref()?))
        })
    }

    /// The sockets that are bound to a port. Attack: a program that binds as many as it can, while each is compared
    /// with the others.
    pub fn of_port(&self, port: u16) -> impl Iterator<Item = (Key, &Socket)> {
        let keys = self.by_port.get(&port).into_iter().flatten();
        keys.filter_map(|key| Some((*key, self.get(*key)?)))
    }

    /// Whether another socket of the kind prevents that one is bound to an address, as in Linux: one of the same port,
    /// and of the same address or of any, unless both may share it, and neither listens or both agree to.
    pub fn is_taken(&self, own: Key, address: SocketAddr, values: &Values) -> bool {
        let is_udp = self.get(own).is_some_and(|socket| matches!(socket.kind, Kind::Datagrams(_)));
        self.of_port(address.port()).any(|(key, socket)| {
            let same_kind = matches!(socket.kind, Kind::Datagrams(_)) == is_udp;
            let listens = matches!(socket.kind, Kind::Listening(_));
            let shared = values.reuses_port() && socket.values.reuses_port();
            let reused = values.reuses_address() && socket.values.reuses_address() && !listens;
            let own_end = (address.ip(), values.is_v6_only());
            let collides =
                socket.local.is_some_and(|local| overlap((local.ip(), socket.values.is_v6_only()), own_end));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(watch: Option<i32>, local: Option<SocketAddr>) -> Socket {
        let (values, kind) = (Values::default(), Kind::Idle);
        Socket { number: 0, watch, v6: false, offered: None, local, values, error: None, kind }
    }

    #[test]
    fn a_removed_socket_leaves_nothing() {
        let mut table = Table::new(None);
        let local = "10.0.0.1:80".parse().unwrap();
        let key = table.add(socket(Some(1), Some(local))).unwrap();
        table.offer(7, key);
        assert!(table.of_port(80).next().is_some());
        table.remove(key).unwrap();
        assert!(table.by_name.is_empty() && table.by_port.is_empty() && table.by_watch.is_empty());
        assert_eq!((table.accept(7, 1), table.remove(key).is_none()), (None, true));
    }

    #[test]
    fn sockets_and_those_that_are_watched_are_limited() {
        let mut table = Table::new(None);
        for watch in 0..WATCHED as i32 {
            table.add(socket(Some(watch), None)).unwrap();
        }
        assert_eq!(table.add(socket(Some(-1), None)), Err(Errno::NFILE));
        table.add(socket(None, None)).unwrap();
        let mut small = Table::new(Some(OTHERS as u64 + 2));
        let keys = [(); 2].map(|()| small.add(socket(None, None)).unwrap());
        assert_eq!((small.add(socket(None, None)), small.is_full()), (Err(Errno::NFILE), true));
        small.remove(keys[0]).unwrap();
        assert!(!small.is_full());
        small.add(socket(None, None)).unwrap();
    }
}
