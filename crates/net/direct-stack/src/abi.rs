//! How the image is called, and what the processes that share it agree upon. The library that programs preload has this
//! file too, without the rest of the crate.

use core::net::{IpAddr, SocketAddr};

/// The addresses of the rings' memory, which are the same in each process: far above the image's heap.
pub const PORT_AT: u64 = 0x7210_0000_0000;
/// That of the ring to the agent.
pub const AGENT_AT: u64 = 0x7220_0000_0000;

/// What the image is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Operation {
    /// Makes the stack: `input` is the configuration of the agent's, `socket` the end of the memory behind the image,
    /// and `numbers` the seed.
    Begin,
    /// The memory of the ring to the port is mapped: its length, and whether it is a pipe's second end.
    Port,
    /// That of the ring to the agent.
    Agent,
    /// Moves a connection to the stack. The result is its handle.
    Attach,
    /// Moves a connection out of the stack. The result is the length of its state.
    Detach,
    /// Copies the state of the connection that left last, from the first of `numbers` on.
    Saved,
    /// Receives bytes. The result is their number.
    Receive,
    /// Sends bytes. The result is their number.
    Send,
    /// Ends the stream.
    Shutdown,
    /// Gives the connection up.
    Close,
    /// The bits of [`Flags`]. The result is the number of bytes that can be read.
    Readiness,
    /// A segment that the agent received for a connection of the stack; or, if the first of `numbers` is not 0, for
    /// none of the agent's.
    Diverted,
    /// Only what each call does.
    Run,
    /// Prepares to sleep until the port or the agent notifies; 0: there is work already.
    Arm,
    /// Listens at the [address](address_bytes) in `input`, with the backlog in the first of `numbers`. The result is
    /// the listener's handle.
    Listen,
    /// Takes the next connection of a listener for the process with the number in the first of `numbers`; 0: for none.
    /// The result is its handle, and `output` gets its [addresses](ADDRESSES).
    Accept,
    /// Leaves the connections that begin from now on to the agent's listener; for programs, the handle is no listener's
    /// any more. The result is the number of those that have begun, and may still be established.
    StopListening,
    /// Closes what the process with the number in the first of `numbers` has accepted and not closed: it has ended.
    EndProcess,
    /// The result is 0 if peers have acknowledged all that was sent; otherwise a number that changes when they answer.
    Drained,
    /// The agent has a connection with the [addresses](ADDRESSES) in `input`: no listener of the stack takes its
    /// segments.
    Reserve,
    /// The agent no longer has a connection with these addresses.
    Unreserve,
}

impl Operation {
    /// All, in their order.
    pub(crate) const ALL: [Operation; 21] = [
        Operation::Begin,
        Operation::Port,
        Operation::Agent,
        Operation::Attach,
        Operation::Detach,
        Operation::Saved,
        Operation::Receive,
        Operation::Send,
        Operation::Shutdown,
        Operation::Close,
        Operation::Readiness,
        Operation::Diverted,
        Operation::Run,
        Operation::Arm,
        Operation::Listen,
        Operation::Accept,
        Operation::StopListening,
        Operation::EndProcess,
        Operation::Drained,
        Operation::Reserve,
        Operation::Unreserve,
    ];

    /// The operation of a number.
    pub fn from_number(number: u64) -> Option<Operation> {
        Operation::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

/// Bytes of an address: the version of IP, the address, and the port.
pub const ADDRESS: usize = 19;
/// Bytes of the local address of a connection, and of the remote one.
pub const ADDRESSES: usize = 2 * ADDRESS;

/// An address as bytes.
pub fn address_bytes(address: SocketAddr) -> [u8; ADDRESS] {
    let mut bytes = [0; ADDRESS];
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes[0] = 4;
            bytes[1..5].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes[0] = 6;
            bytes[1..17].copy_from_slice(&ip.octets());
        }
    }
    bytes[17..].copy_from_slice(&address.port().to_le_bytes());
    bytes
}

/// The local and the remote address of a connection as bytes.
pub fn addresses_bytes(local: SocketAddr, remote: SocketAddr) -> [u8; ADDRESSES] {
    let mut bytes = [0; ADDRESSES];
    bytes[..ADDRESS].copy_from_slice(&address_bytes(local));
    bytes[ADDRESS..].copy_from_slice(&address_bytes(remote));
    bytes
}

/// What [`addresses_bytes`] returned; `None`: these are no addresses.
pub fn addresses_of(bytes: &[u8; ADDRESSES]) -> Option<(SocketAddr, SocketAddr)> {
    let (local, remote) = bytes.split_first_chunk()?;
    address_of(local).zip(address_of(remote.first_chunk()?))
}

/// What [`address_bytes`] returned; `None`: it is no address.
pub fn address_of(bytes: &[u8; ADDRESS]) -> Option<SocketAddr> {
    let [version, ip @ .., low, high] = *bytes;
    let ip = match version {
        4 => IpAddr::from(*ip.first_chunk::<4>()?),
        6 => IpAddr::from(ip),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_le_bytes([low, high])))
}

/// A set of what a call says besides its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u64);

impl Flags {
    /// The port is to be notified.
    pub const KICK_PORT: Flags = Flags(1);
    /// The agent is to be notified.
    pub const KICK_AGENT: Flags = Flags(2);
    /// A socket can be read.
    pub const READABLE: Flags = Flags(4);
    /// It can be written.
    pub const WRITABLE: Flags = Flags(8);
    /// It has ended.
    pub const CLOSED: Flags = Flags(16);
    /// All that the peer sent was read, and no more comes.
    pub const FINISHED: Flags = Flags(32);

    /// Adds `other` if `holds`.
    pub fn with(self, other: Flags, holds: bool) -> Flags {
        Flags(if holds { self.0 | other.0 } else { self.0 })
    }

    /// Whether `other` is part of it.
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A call: what the caller writes, and then what the image does.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Call {
    /// The number of an [`Operation`].
    pub operation: u64,
    /// The time.
    pub now: u64,
    /// The handle of a connection: the bits of a `SocketId` of `ringway-netstack`.
    pub socket: u64,
    /// The address and the length of bytes to read.
    pub input: [u64; 2],
    /// The address and the length of bytes to write.
    pub output: [u64; 2],
    /// Arguments of the operation.
    pub numbers: [u64; 2],
    /// What came out; negative if it is an error.
    pub result: i64,
    /// [`Flags`].
    pub flags: u64,
    /// Which connections became ready: the bits of their places, which several share.
    pub ready: u64,
    /// When the image is to be called again although nothing arrives; the largest number if never.
    pub deadline: u64,
}

/// The result of an operation that would have to wait.
pub const WOULD_BLOCK: i64 = -7;
/// That of one on a handle of no connection, such as one that has left the stack.
pub const BAD_SOCKET: i64 = -3;

/// Offsets of words in the first page of the image's data, which all processes use. The locks are the C library's.
pub mod words {
    /// Bits of connections.
    pub const BITS: usize = 64;
    /// The number, behind those of the bits, that stands for all.
    pub const ANY: usize = BITS;
    /// The lock of the stack.
    pub const LOCK: usize = 0;
    /// The lock that the one has who sleeps for all.
    pub const LEAD: usize = 64;
    /// For each bit, and for all, how often one of its connections became ready.
    pub const READY_COUNTS: usize = 128;
    /// And how many threads sleep on that count.
    pub const SLEEPER_COUNTS: usize = READY_COUNTS + 4 * (ANY + 1);
    /// And how many sleep until the followers are notified.
    pub const FOLLOWER_COUNTS: usize = SLEEPER_COUNTS + 4 * (ANY + 1);
    /// Whether the attendant sleeps until it is called.
    pub const ATTENDANT_SLEEPS: usize = FOLLOWER_COUNTS + 4 * (ANY + 1);
    /// Whether it leads.
    pub const ATTENDANT_LEADS: usize = ATTENDANT_SLEEPS + 4;
    /// Until when the one who leads sleeps at most; 0: nobody leads, or the one who does is awake.
    pub const LEADER_DEADLINE: usize = (ATTENDANT_LEADS + 4).next_multiple_of(8);
    /// The bits of the connections that the one who leads waits for.
    pub const LEADER_BITS: usize = LEADER_DEADLINE + 8;
    /// Not 0: the agent has withdrawn the stack.
    pub const WITHDRAWN: usize = LEADER_BITS + 8;
    /// How many connections were accepted here: a word of eight bytes.
    pub const ACCEPTED: usize = WITHDRAWN + 8;
    /// How long the one who leads sleeps at most while there are timers, in nanoseconds: one that another thread sets
    /// later, and that is not due before, needs no call then.
    pub const MAX_LEADER_SLEEP: u64 = 10_000_000;
}

/// What a process asks its agent by `getsockopt` on one of its sockets, a call that waits for the agent anyway.
pub mod requests {
    /// The level of these options, which no protocol has.
    pub const LEVEL: i32 = 0x5257;
    /// The options with numbers below this one are answered by a new descriptor: the two files of the image, the memory
    /// of the rings to the port and to the agent, and the notifiers: of the processes, of the port, of the agent, of
    /// the attendant, and of the processes' followers.
    pub const DESCRIPTORS: i32 = 9;
    /// The socket's connection moves to the shared stack. The answer is an entry.
    pub const ENTER: i32 = DESCRIPTORS;
    /// The same, although bytes may be in the socket that came before: the process reads them first.
    pub const ENTER_UNREAD: i32 = ENTER + 1;
    /// It moves back for good.
    pub const LEAVE: i32 = ENTER + 2;
    /// It moves back, and may enter again.
    pub const PAUSE: i32 = ENTER + 3;
    /// After how many calls on a connection an unmodified program's may enter: an `i32`.
    pub const OFFER: i32 = ENTER + 4;
    /// As `LEAVE`, since another descriptor, or another process, gets the socket.
    pub const LEAVE_PASSED: i32 = ENTER + 5;
    /// As `LEAVE`, since its program makes a call that the shared stack does not serve, or the connection has ended.
    pub const LEAVE_UNSERVED: i32 = ENTER + 6;
    /// The connections of a listening socket come to the shared stack, as long as a process that has asked for it has
    /// not ended or asked for [`UNSHARE`]. The answer is an entry. `EAGAIN`: some wait in the socket's own queue; with
    /// any other error they never come to it.
    pub const SHARE: i32 = ENTER + 7;
    /// This process does not accept any more.
    pub const UNSHARE: i32 = ENTER + 8;
    /// The socket, which the agent does not know, is that of a connection that was accepted in the shared stack: it
    /// moves to the agent for good. The request is read: the connection's handle, and its addresses.
    pub const ADOPT: i32 = ENTER + 9;
    /// The same, and the connection may enter again.
    pub const ADOPT_PAUSED: i32 = ENTER + 10;
    /// The numbers of the request.
    pub const ADOPTION: usize = 1 + super::ADDRESSES.div_ceil(8);
    /// The numbers of an entry: the connection's handle, the lengths of the rings' memory (to the port, to the agent),
    /// the clock of all processes (three), the address of the image's function, that of its code and the length of it,
    /// that of its data, and the number of the process.
    pub const ENTRY: usize = 11;
}
