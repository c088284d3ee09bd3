//! The sockets of a group of programs, and how each is found.

use super::journal::Record;
use super::local::{AgentEnd, ListenPath};
use super::options::OptionValues;
use ringway_netstack::{Diverted, SocketId};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

/// Most sockets of a group. Attack: a program that opens sockets without an end.
const MAX_SOCKETS: usize = 65_536;
/// Descriptors that the agent needs for other things than sockets: two of each thread, that of the call that is
/// served, that of the device.
const RESERVED_DESCRIPTORS: usize = 576;
/// Most sockets that are watched for their closing: those that are not connected. Attack: a program that closes more
/// at once than the kernel keeps events of (`fs.inotify.max_queued_events`).
const MAX_WATCHES: usize = 8192;
/// Most connections that have ended and are still known, so that their programs can ask for the error. Attack: a
/// program that keeps many such sockets.
const MAX_ENDED: usize = 1024;

/// Identifies a socket in the table. The key of a removed socket is never valid again.
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
    /// The cookie of the program's socket (`SO_COOKIE`); 0: the program has not accepted it yet.
    pub cookie: u64,
    /// The inotify watch that tells when the program closes the socket. A socket with an end of ours needs none.
    pub watch: Option<i32>,
    /// Whether the socket is one of IPv6.
    pub v6: bool,
    /// The number in the name of the UNIX socket that waits in the program's listen queue.
    pub pending_client: Option<u64>,
    /// The address that it is bound to, set by [`Table::bind`].
    pub local: Option<SocketAddr>,
    /// The options that the program has set.
    pub options: OptionValues,
    /// The pending error (`SO_ERROR`).
    pub error: Option<Errno>,
    /// What the socket is used for, with its state.
    pub kind: Kind,
}

/// What a socket is used for at present.
#[derive(Debug)]
pub enum Kind {
    /// A TCP socket that is neither connected nor listening.
    Unconnected,
    Listening(Listening),
    Stream(Box<Stream>),
    Datagrams(Box<Datagrams>),
    /// A TCP socket whose connection has ended.
    Ended {
        local: SocketAddr,
        peer: SocketAddr,
    },
}

/// A listening TCP socket.
#[derive(Debug)]
pub struct Listening {
    /// The path that the program's UNIX socket listens at.
    pub path: ListenPath,
    /// Listeners of the stack: one for each version of IP.
    pub listeners: Vec<SocketId>,
    /// What the next agent knows of it.
    pub record: Option<Record>,
    pub backlog: i32,
    pub sharing: Sharing,
    /// The numbers of the processes that have asked for it to be shared.
    pub askers: Vec<u64>,
    /// One of them was told to ask again, and waits for the socket itself until then.
    pub has_deferred: bool,
    /// A connection came to the socket itself while the attendant was asked.
    pub has_own: bool,
}

impl Listening {
    /// One that the agent alone serves.
    pub fn new(
        path: ListenPath,
        listeners: Vec<SocketId>,
        record: Option<Record>,
        backlog: i32,
    ) -> Listening {
        let (sharing, askers) = (Sharing::No, Vec::new());
        Listening { path, listeners, record, backlog, sharing, askers, has_deferred: false, has_own: false }
    }
}

/// Whether the shared stack takes a listener's connections.
#[derive(Debug)]
pub enum Sharing {
    No,
    /// The attendant was asked for it.
    Begins,
    /// The listener has this handle in the shared stack, and these processes accept.
    Shared(SocketId, Vec<u64>),
    /// The listener is on its way back; whether it may be shared again.
    Ends(bool),
    /// No, for good.
    Never,
}

impl Sharing {
    /// Whether the shared stack takes connections, or may.
    pub fn is_there(&self) -> bool {
        !matches!(self, Sharing::No | Sharing::Never)
    }

    /// Whether it is not about to change.
    pub fn is_settled(&self) -> bool {
        !matches!(self, Sharing::Begins | Sharing::Ends(..))
    }
}

/// A TCP connection.
#[derive(Debug)]
pub struct Stream {
    /// The socket of the agent's stack.
    pub tcp: SocketId,
    /// The agent's end of the program's UNIX socket; `None`: a blocking call is connecting it.
    pub end: Option<AgentEnd>,
    pub local: SocketAddr,
    pub peer: SocketAddr,
    /// Bytes that the agent wrote to the program's socket so that it is not writable yet.
    pub filler_bytes: usize,
    pub is_established: bool,
    /// The program was told that the socket is connected.
    pub is_connect_reported: bool,
    /// The program has shut down writing.
    pub is_write_shut: bool,
    /// The peer has sent a FIN, and the program's socket was shut down after the last byte.
    pub is_eof_delivered: bool,
    /// The stack's send buffer has no room for what the program has written.
    pub is_send_blocked: bool,
    /// The program's socket has no room for what has arrived; `end` is watched for room.
    pub is_receive_blocked: bool,
    pub owner: Owner,
    /// After the connection has come back from the shared stack, it may enter again.
    pub may_reenter: bool,
}

impl Stream {
    /// An established connection, without an end of ours yet. Its program knows that it is established.
    pub fn new(tcp: SocketId, (local, peer): (SocketAddr, SocketAddr), owner: Owner) -> Stream {
        Stream {
            tcp,
            end: None,
            local,
            peer,
            filler_bytes: 0,
            is_established: true,
            is_connect_reported: true,
            is_write_shut: false,
            is_eof_delivered: false,
            is_send_blocked: false,
            is_receive_blocked: false,
            owner,
            may_reenter: false,
        }
    }
}

/// The stack that has a connection.
#[derive(Debug, Default)]
pub enum Owner {
    /// The agent's stack.
    #[default]
    Agent,
    /// The connection is on its way to the shared stack, with this state.
    Entering(Vec<u8>),
    /// The shared stack, where the connection has this handle.
    Shared(SocketId),
    /// The connection is on its way back, its state in the file; these segments came meanwhile.
    Leaving(File, Vec<Diverted>),
    /// The agent's stack, for good: the connection has been in the shared one.
    Returned,
}

impl Owner {
    /// Whether the agent's stack has the connection.
    pub fn is_agent(&self) -> bool {
        matches!(self, Owner::Agent | Owner::Returned)
    }
}

/// A UDP socket.
#[derive(Debug)]
pub struct Datagrams {
    /// Sockets of the stack: one for each version of IP, once it has an address.
    pub udp: Vec<SocketId>,
    /// The agent's end of the program's UNIX socket.
    pub agent_socket: OwnedFd,
    pub peer: Option<SocketAddr>,
    /// The source address to the peer, if the socket is bound to the unspecified address.
    pub source: Option<IpAddr>,
    /// Senders of the datagrams that the program may not have read yet, and their lengths.
    pub senders: VecDeque<(SocketAddr, usize)>,
    /// A datagram that has no room in the program's socket.
    pub undelivered: Option<(Vec<u8>, SocketAddr)>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    socket: Option<Socket>,
}

/// All sockets of a group.
#[derive(Debug)]
pub struct Table {
    capacity: usize,
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_cookie: HashMap<u64, Key>,
    by_watch: HashMap<i32, Key>,
    by_client: HashMap<u64, Key>,
    by_stack_socket: HashMap<SocketId, Vec<Key>>,
    by_port: HashMap<u16, HashSet<Key>>,
    ended: VecDeque<Key>,
}

/// Most sockets that a process with that many descriptors can serve, of which its network needs `network`.
pub fn most_sockets(descriptors: Option<u64>, network: usize) -> usize {
    let most = descriptors.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    most.saturating_sub(RESERVED_DESCRIPTORS + network).min(MAX_SOCKETS)
}

impl Table {
    /// A table of as many sockets as a process with that many descriptors can serve, of which its network needs
    /// `network`. What it needs besides must be left: a call whose socket can't be looked at would be left to the
    /// kernel.
    pub fn new(descriptors: Option<u64>, network: usize) -> Table {
        Table {
            capacity: most_sockets(descriptors, network),
            slots: Vec::new(),
            free: Vec::new(),
            by_cookie: HashMap::new(),
            by_watch: HashMap::new(),
            by_client: HashMap::new(),
            by_stack_socket: HashMap::new(),
            by_port: HashMap::new(),
            ended: VecDeque::new(),
        }
    }

    /// Adds a socket.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&mut self, mut socket: Socket) -> Result<Key, Errno> {
        if socket.watch.is_some() && self.by_watch.len() >= MAX_WATCHES {
            return Err(Errno::NFILE);
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < self.capacity => {
                self.slots.push(Slot::default());
                self.slots.len() as u32 - 1
            }
            None => return Err(Errno::NFILE),
        };
        let slot = &mut self.slots[index as usize];
        let key = Key { index, generation: slot.generation };
        if socket.cookie != 0 {
            self.by_cookie.insert(socket.cookie, key);
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
        self.free.is_empty() && self.slots.len() >= self.capacity
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

    pub fn listening(&mut self, key: Key) -> Option<&mut Listening> {
        match &mut self.get_mut(key)?.kind {
            Kind::Listening(listening) => Some(listening),
            _ => None,
        }
    }

    /// A connection that the agent's stack has. Any call that is served may let one leave.
    pub fn agent_stream(&mut self, key: Key) -> Option<&mut Stream> {
        self.stream(key).filter(|stream| stream.owner.is_agent())
    }

    pub fn datagrams(&mut self, key: Key) -> Option<&mut Datagrams> {
        match &mut self.get_mut(key)?.kind {
            Kind::Datagrams(datagrams) => Some(datagrams),
            _ => None,
        }
    }

    /// Removes a socket and all its index entries but those of the stack's sockets.
    pub fn remove(&mut self, key: Key) -> Option<Socket> {
        let slot = self.slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        let socket = slot.socket.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        if self.by_cookie.get(&socket.cookie) == Some(&key) {
            self.by_cookie.remove(&socket.cookie);
        }
        if let Some(watch) = socket.watch {
            self.by_watch.remove(&watch);
        }
        if let Some(client) = socket.pending_client {
            self.by_client.remove(&client);
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

    /// The socket whose UNIX socket has a cookie.
    pub fn find_by_cookie(&self, cookie: u64) -> Option<Key> {
        self.by_cookie.get(&cookie).copied()
    }

    /// The socket that an inotify watch is for.
    pub fn find_by_watch(&self, watch: i32) -> Option<Key> {
        self.by_watch.get(&watch).copied()
    }

    /// Gives a socket that another agent served its cookie, and its watch.
    pub fn adopt(&mut self, key: Key, cookie: u64, watch: i32) {
        let Some(socket) = self.get_mut(key) else { return };
        (socket.cookie, socket.watch) = (cookie, Some(watch));
        self.by_cookie.insert(cookie, key);
        self.by_watch.insert(watch, key);
    }

    /// Removes the watch of a socket, which does not need one any more.
    pub fn take_watch(&mut self, key: Key) -> Option<i32> {
        let watch = self.get_mut(key)?.watch.take()?;
        self.by_watch.remove(&watch);
        Some(watch)
    }

    /// Makes a connection one that waits to be accepted, by the number in the name of its UNIX socket.
    pub fn set_pending(&mut self, client: u64, key: Key) {
        let Some(socket) = self.get_mut(key) else { return };
        let cookie = std::mem::take(&mut socket.cookie);
        socket.pending_client = Some(client);
        if self.by_cookie.get(&cookie) == Some(&key) {
            self.by_cookie.remove(&cookie);
        }
        self.by_client.insert(client, key);
    }

    /// A program has accepted the connection with this number, as the UNIX socket with this cookie.
    pub fn accept(&mut self, client: u64, cookie: u64) -> Option<Key> {
        let key = self.by_client.remove(&client)?;
        let socket = self.get_mut(key)?;
        (socket.cookie, socket.pending_client) = (cookie, None);
        self.by_cookie.insert(cookie, key);
        Some(key)
    }

    /// Makes a socket of the stack one that serves this socket.
    pub fn add_stack_socket(&mut self, id: SocketId, key: Key) {
        self.by_stack_socket.entry(id).or_default().push(key);
    }

    /// The sockets that a socket of the stack belongs to: several if they share an address to listen at.
    pub fn keys_of(&self, id: SocketId) -> &[Key] {
        self.by_stack_socket.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Moves the first of [`Table::keys_of`] to the end, so that each gets connections in turn.
    pub fn rotate_keys(&mut self, id: SocketId) {
        if let Some(keys) = self.by_stack_socket.get_mut(&id) {
            keys.rotate_left(1);
        }
    }

    /// Undoes [`Table::add_stack_socket`]; whether the stack's socket serves no socket any more.
    pub fn remove_stack_socket(&mut self, id: SocketId, key: Key) -> bool {
        let Some(keys) = self.by_stack_socket.get_mut(&id) else { return true };
        keys.retain(|other| *other != key);
        let is_empty = keys.is_empty();
        if is_empty {
            self.by_stack_socket.remove(&id);
        }
        is_empty
    }

    /// Remembers a connection that has ended. Returns the oldest one to remove if there are too many.
    pub fn add_ended(&mut self, key: Key) -> Option<Key> {
        self.ended.push_back(key);
        (self.ended.len() > MAX_ENDED).then(|| self.ended.pop_front())?
    }

    /// All sockets.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &Socket)> {
        self.slots.iter().zip(0..).filter_map(|(slot, index)| {
            Some((Key { index, generation: slot.generation }, slot.socket.as_ref()?))
        })
    }

    /// The sockets that are bound to a port. Attack: a program that binds as many as it can, while each is compared
    /// with the others.
    pub fn bound_to_port(&self, port: u16) -> impl Iterator<Item = (Key, &Socket)> {
        let keys = self.by_port.get(&port).into_iter().flatten();
        keys.filter_map(|key| Some((*key, self.get(*key)?)))
    }

    /// Whether another socket prevents that this one is bound to an address (EADDRINUSE), as in Linux: a socket of the
    /// same protocol and port, and of the same or the unspecified address, unless both have `SO_REUSEPORT`, or both
    /// have `SO_REUSEADDR` and the other one does not listen.
    pub fn is_address_in_use(&self, own: Key, address: SocketAddr, options: &OptionValues) -> bool {
        let is_udp = self.get(own).is_some_and(|socket| matches!(socket.kind, Kind::Datagrams(_)));
        self.bound_to_port(address.port()).any(|(key, socket)| {
            let same_kind = matches!(socket.kind, Kind::Datagrams(_)) == is_udp;
            let listens = matches!(socket.kind, Kind::Listening(_));
            let shared = options.reuses_port() && socket.options.reuses_port();
            let reused = options.reuses_address() && socket.options.reuses_address() && !listens;
            let own_end = (address.ip(), options.is_v6_only());
            let collides =
                socket.local.is_some_and(|local| overlap((local.ip(), socket.options.is_v6_only()), own_end));
            key != own && same_kind && collides && !shared && !reused
        })
    }
}

/// Whether packets to one address may be for either of two sockets: each by its address, and whether it serves IPv6
/// only (RFC 3493, 5.3).
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
        let (options, kind) = (OptionValues::default(), Kind::Unconnected);
        Socket { cookie: 0, watch, v6: false, pending_client: None, local, options, error: None, kind }
    }

    #[test]
    fn a_removed_socket_leaves_nothing() {
        let mut table = Table::new(None, 0);
        let local = "10.0.0.1:80".parse().unwrap();
        let key = table.add(socket(Some(1), Some(local))).unwrap();
        table.set_pending(7, key);
        assert!(table.bound_to_port(80).next().is_some());
        table.remove(key).unwrap();
        assert!(table.by_client.is_empty() && table.by_port.is_empty() && table.by_watch.is_empty());
        assert_eq!((table.accept(7, 1), table.remove(key).is_none()), (None, true));
    }

    #[test]
    fn sockets_and_those_that_are_watched_are_limited() {
        let mut table = Table::new(None, 0);
        for watch in 0..MAX_WATCHES as i32 {
            table.add(socket(Some(watch), None)).unwrap();
        }
        assert_eq!(table.add(socket(Some(-1), None)), Err(Errno::NFILE));
        table.add(socket(None, None)).unwrap();
        let mut small = Table::new(Some(RESERVED_DESCRIPTORS as u64 + 2), 0);
        let keys = [(); 2].map(|()| small.add(socket(None, None)).unwrap());
        assert_eq!((small.add(socket(None, None)), small.is_full()), (Err(Errno::NFILE), true));
        small.remove(keys[0]).unwrap();
        assert!(!small.is_full());
        small.add(socket(None, None)).unwrap();
    }
}
