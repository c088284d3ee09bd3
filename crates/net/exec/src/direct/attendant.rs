//! The attendant: a confined child process that leads the shared stack while no program does, and moves connections
//! there and back for the agent, which must not run code on memory that programs can write.
//!
//! It ends if the shared stack is lost, or the agent has ended; all that the agent learns of a loss is this end.
//!
//! Attack: a program that corrupts the shared memory may take over this process. It has the rights of the program's
//! socket calls only: no files, no other sockets, no other processes (`confine_data`).

use ringway_direct::{
    ADDRESS, ADDRESSES, Files, Image, Member, Notifiers, RingPeer, address_bytes, address_of,
    addresses_bytes, addresses_of,
};
use ringway_host::{Clock, HostError, LockError, confine_data, random, receive_with, send_with, spawn};
use ringway_netstack::{Diverted, SocketId};
use std::error::Error;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Longest message: a segment, and what says so.
const LONGEST: usize = 80 << 10;
/// Descriptors of the first message.
const DESCRIPTORS: usize = ringway_direct::requests::DESCRIPTORS as usize;
/// Longest state of a connection. Attack: an attendant that is taken over, and says that it is longer.
pub const LONGEST_STATE: u64 = 1 << 28;

/// Most connections that come back with a listener at once. Attack: an attendant that is taken over, and says that
/// there are more.
const MOST_STATES: usize = 4096;
/// How long a [`Command::Drain`] waits at most for peers' acknowledgments, and how often it looks for them.
const DRAIN_WAIT: Duration = Duration::from_millis(20);
const DRAIN_CHECK: Duration = Duration::from_millis(1);

/// The first message to the attendant, with the descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    pub lengths: [u64; 2],
    pub configuration: Vec<u8>,
}

/// What the agent asks for. `key` says which of its sockets is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Takes a connection, whose state of so many bytes is in the descriptor's file.
    Enter { key: u64, len: u64 },
    /// Lets a connection go, and writes its state to the descriptor's file.
    Leave { key: u64, socket: u64 },
    /// A segment for a connection that has entered, or for none that the agent knows.
    Divert(Vec<u8>),
    /// The process with this number, which shared the stack, has ended.
    Ended(u64),
    /// Listens at an address.
    Listen { key: u64, address: SocketAddr, backlog: u64 },
    /// Lets a listener take no more connections, and writes the states of those that it has to the descriptor's file,
    /// each after its length. To be repeated until the listener is gone: others may have begun.
    StopListening { key: u64, socket: u64 },
    /// Closes a listener, and its connections.
    CloseListener { key: u64, socket: u64 },
    /// Says whether peers have acknowledged all.
    Drain,
    /// The agent has a connection with this local and this remote address, which listeners are to leave alone.
    Reserve(SocketAddr, SocketAddr),
    /// The agent no longer has that connection.
    Unreserve(SocketAddr, SocketAddr),
}

/// What the attendant answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The connection has this handle in the shared stack; none: it could not enter.
    Entered { key: u64, socket: Option<u64> },
    /// Its state has so many bytes.
    Left { key: u64, len: u64 },
    /// A listener takes no more connections; the states of those that it had have so many bytes.
    Stopped { key: u64, len: u64, is_gone: bool },
    /// As [`Locked::undrained`](ringway_direct::Locked::undrained).
    Drained(u64),
}

/// Numbers as bytes, and what follows.
fn message(numbers: [u64; 3], rest: &[u8]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).chain(rest.iter().copied()).collect()
}

/// The parts of [`message`].
fn parts(bytes: &[u8]) -> Option<([u64; 3], &[u8])> {
    let (numbers, rest) = bytes.split_at_checked(24)?;
    let mut parts = [0; 3];
    for (part, number) in parts.iter_mut().zip(numbers.as_chunks::<8>().0) {
        *part = u64::from_le_bytes(*number);
    }
    Some((parts, rest))
}

impl Begin {
    pub fn to_bytes(&self) -> Vec<u8> {
        message([0, self.lengths[0], self.lengths[1]], &self.configuration)
    }

    fn from_bytes(bytes: &[u8]) -> Option<Begin> {
        let ([_, port, agent], configuration) = parts(bytes)?;
        Some(Begin { lengths: [port, agent], configuration: configuration.to_vec() })
    }
}

impl Command {
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Command::Enter { key, len } => message([1, *key, *len], &[]),
            Command::Leave { key, socket } => message([2, *key, *socket], &[]),
            Command::Divert(bytes) => message([3, 0, 0], bytes),
            Command::Ended(process) => message([4, *process, 0], &[]),
            Command::Listen { key, address, backlog } => {
                message([5, *key, *backlog], &address_bytes(*address))
            }
            Command::StopListening { key, socket } => message([6, *key, *socket], &[]),
            Command::CloseListener { key, socket } => message([7, *key, *socket], &[]),
            Command::Drain => message([8, 0, 0], &[]),
            Command::Reserve(local, remote) => message([9, 0, 0], &addresses_bytes(*local, *remote)),
            Command::Unreserve(local, remote) => message([10, 0, 0], &addresses_bytes(*local, *remote)),
        }
    }

    fn from_bytes(bytes: &[u8]) -> Option<Command> {
        let ([kind, key, value], rest) = parts(bytes)?;
        match kind {
            1 => Some(Command::Enter { key, len: value }),
            2 => Some(Command::Leave { key, socket: value }),
            3 => Some(Command::Divert(rest.to_vec())),
            4 => Some(Command::Ended(key)),
            5 => {
                let address = address_of(rest.first_chunk::<ADDRESS>()?)?;
                Some(Command::Listen { key, address, backlog: value })
            }
            6 => Some(Command::StopListening { key, socket: value }),
            7 => Some(Command::CloseListener { key, socket: value }),
            8 => Some(Command::Drain),
            9 | 10 => {
                let (local, remote) = addresses_of(rest.first_chunk::<ADDRESSES>()?)?;
                let (kept, freed) = (Command::Reserve(local, remote), Command::Unreserve(local, remote));
                Some(if kind == 9 { kept } else { freed })
            }
            _ => None,
        }
    }
}

impl Answer {
    /// Its length as bytes.
    pub const LEN: usize = 24;

    fn to_bytes(self) -> Vec<u8> {
        match self {
            Answer::Entered { key, socket: Some(socket) } => message([1, key, socket], &[]),
            Answer::Entered { key, socket: None } => message([2, key, 0], &[]),
            Answer::Left { key, len } => message([3, key, len], &[]),
            Answer::Drained(rest) => message([4, 0, rest], &[]),
            Answer::Stopped { key, len, is_gone } => message([if is_gone { 5 } else { 6 }, key, len], &[]),
        }
    }

    /// `None`: it is no answer.
    pub fn from_bytes(bytes: &[u8]) -> Option<Answer> {
        let ([kind, key, value], []) = parts(bytes)? else { return None };
        match kind {
            1 => Some(Answer::Entered { key, socket: Some(value) }),
            2 => Some(Answer::Entered { key, socket: None }),
            3 => Some(Answer::Left { key, len: value }),
            4 => Some(Answer::Drained(value)),
            5 | 6 => Some(Answer::Stopped { key, len: value, is_gone: kind == 5 }),
            _ => None,
        }
    }
}

/// What the child process does; its exit status.
pub fn run(socket: OwnedFd) -> i32 {
    // The agent sees that it ends, and there is nobody else to tell.
    i32::from(serve(&socket).is_err())
}

fn receive(socket: &OwnedFd, most: usize) -> Result<(Vec<u8>, Vec<OwnedFd>), HostError> {
    let mut bytes = vec![0; LONGEST];
    let (len, descriptors) = receive_with(socket, &mut bytes, most)?;
    bytes.truncate(len);
    Ok((bytes, descriptors))
}

fn serve(socket: &OwnedFd) -> Result<(), Box<dyn Error>> {
    let (bytes, descriptors) = receive(socket, DESCRIPTORS)?;
    let begin = Begin::from_bytes(&bytes).ok_or("not the first message")?;
    let descriptors: [OwnedFd; DESCRIPTORS] =
        descriptors.try_into().map_err(|_| "not all descriptors came")?;
    let [text, data, port, agent, notifiers @ ..] = descriptors;
    let image = Image::map(&Files { text, data })?;
    image.begin(&begin.configuration, [random()?, random()?])?;
    let [port_len, agent_len] = begin.lengths.map(|len| len as usize);
    image.map_ring(RingPeer::Port, port, port_len)?;
    image.map_ring(RingPeer::Agent, agent, agent_len)?;
    let mut locked = image.lock()?;
    locked.attach_ring(RingPeer::Port, port_len, false)?;
    locked.attach_ring(RingPeer::Agent, agent_len, true)?;
    drop(locked);
    // Its clock was measured before it became a process.
    let member = Arc::new(Member::new(image, Notifiers::from(notifiers), Clock::new()));
    confine_data()?;
    let leading = member.clone();
    spawn("exec-attendant", None, move || {
        // Only a loss ends it.
        let _ = leading.attend(&AtomicBool::new(false));
        std::process::exit(1);
    })?;
    loop {
        let (bytes, descriptors) = receive(socket, 1)?;
        if bytes.is_empty() {
            // The agent has ended, and with it the network.
            member.withdraw();
            return Ok(());
        }
        let command = Command::from_bytes(&bytes).ok_or("no command")?;
        let file = descriptors.into_iter().next().map(File::from);
        if let Some(answer) = obey(&member, command, file)? {
            send_with(socket.as_fd(), &answer.to_bytes(), &[])?;
        }
    }
}

fn obey(member: &Member, command: Command, file: Option<File>) -> Result<Option<Answer>, Box<dyn Error>> {
    match command {
        Command::Enter { key, len } => {
            let mut state = vec![0; len as usize];
            file.ok_or("no state")?.read_exact_at(&mut state, 0)?;
            let entered = member.turn(|locked, now| locked.attach(now, &state))?;
            Ok(Some(Answer::Entered { key, socket: entered.ok().map(SocketId::to_bits) }))
        }
        Command::Leave { key, socket } => {
            let id = SocketId::from_bits(socket);
            // Without a state, the agent resets the peer.
            let state = member.detach(id)?.unwrap_or_default();
            if state.is_empty() {
                // It may be gone already.
                let _ = member.turn(|locked, now| locked.close(now, id))?;
            }
            file.ok_or("no file")?.write_all_at(&state, 0)?;
            Ok(Some(Answer::Left { key, len: state.len() as u64 }))
        }
        Command::Divert(bytes) => {
            let diverted = Diverted::from_bytes(&bytes).ok_or("no segment")?;
            // One of a connection that has left is lost; the peer sends it again.
            member.turn(|locked, now| locked.receive_diverted(now, &diverted))?;
            Ok(None)
        }
        Command::Ended(process) => {
            member.handle_process_end()?;
            member.turn(|locked, now| ((), locked.end_process(now, process)))?;
            Ok(None)
        }
        Command::Listen { key, address, backlog } => {
            let listener = member.turn(|locked, now| locked.listen(now, address, backlog as usize))?;
            Ok(Some(Answer::Entered { key, socket: listener.ok().map(SocketId::to_bits) }))
        }
        Command::StopListening { key, socket } => {
            let most = LONGEST_STATE as usize - 8 * MOST_STATES;
            let (states, is_gone) = member.stop_listener(SocketId::from_bits(socket), MOST_STATES, most)?;
            let (file, mut len) = (file.ok_or("no file")?, 0);
            for state in &states {
                file.write_all_at(&(state.len() as u64).to_le_bytes(), len)?;
                file.write_all_at(state, len + 8)?;
                len += 8 + state.len() as u64;
            }
            Ok(Some(Answer::Stopped { key, len, is_gone }))
        }
        Command::CloseListener { key, socket } => {
            // It may be closed already.
            let _ = member.turn(|locked, now| locked.close(now, SocketId::from_bits(socket)))?;
            Ok(Some(Answer::Stopped { key, len: 0, is_gone: true }))
        }
        Command::Reserve(local, remote) => {
            // It may be here, in TIME-WAIT for its program.
            let _ = member.turn(|locked, now| locked.reserve(now, (local, remote)))?;
            Ok(None)
        }
        Command::Unreserve(local, remote) => {
            member.turn(|locked, now| ((), locked.unreserve(now, (local, remote))))?;
            Ok(None)
        }
        Command::Drain => Ok(Some(Answer::Drained(drain(member)?))),
    }
}

/// Waits a little until peers have acknowledged all; as [`Answer::Drained`].
fn drain(member: &Member) -> Result<u64, LockError> {
    let until = member.now() + DRAIN_WAIT.as_nanos() as u64;
    loop {
        let rest = member.turn(|locked, now| {
            let ran = locked.run(now);
            let (rest, turn) = locked.undrained(now);
            (rest, ran.merge(turn))
        })?;
        if rest == 0 || member.now() > until {
            return Ok(rest);
        }
        std::thread::sleep(DRAIN_CHECK);
    }
}

/// The states that a listener's connections had, of the file of [`Command::StopListening`]. Attack: an attendant that
/// is taken over, and wrote anything.
pub fn states(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut states = Vec::new();
    while states.len() < MOST_STATES
        && let Some((len, rest)) = bytes.split_first_chunk::<8>()
    {
        let len = usize::try_from(u64::from_le_bytes(*len)).unwrap_or(usize::MAX);
        let Some((state, rest)) = rest.split_at_checked(len) else { break };
        states.push(state);
        bytes = rest;
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let begin = Begin { lengths: [1 << 33, 7], configuration: vec![1, 2, 3] };
        assert_eq!(Begin::from_bytes(&begin.to_bytes()), Some(begin));
        let commands = [
            Command::Enter { key: 1 << 40, len: 3 },
            Command::Leave { key: 2, socket: u64::MAX },
            Command::Divert(vec![9; 100]),
            Command::Ended(8),
            Command::Listen { key: 7, address: "10.0.0.1:80".parse().unwrap(), backlog: 511 },
            Command::Listen { key: 7, address: "[fd00::1]:80".parse().unwrap(), backlog: 1 },
            Command::StopListening { key: 1, socket: 1 << 40 },
            Command::CloseListener { key: 3, socket: 1 << 40 },
            Command::Drain,
            Command::Reserve("10.0.0.1:80".parse().unwrap(), "10.0.0.2:1000".parse().unwrap()),
            Command::Unreserve("[fd00::1]:80".parse().unwrap(), "[fd00::2]:9".parse().unwrap()),
        ];
        for command in commands {
            assert_eq!(Command::from_bytes(&command.to_bytes()), Some(command));
        }
        let entered = |socket| Answer::Entered { key: 5, socket };
        let left = Answer::Left { key: 5, len: 6 };
        let [gone, stays] = [true, false].map(|is_gone| Answer::Stopped { key: 5, len: 6, is_gone });
        for answer in [entered(Some(0)), entered(None), left, gone, stays, Answer::Drained(9)] {
            let bytes = answer.to_bytes();
            assert_eq!((bytes.len(), Answer::from_bytes(&bytes)), (Answer::LEN, Some(answer)));
            assert_eq!(Answer::from_bytes(&bytes[1..]), None);
            assert_eq!(Answer::from_bytes(&[&bytes[..], b"x"].concat()), None);
        }
        assert_eq!(Answer::from_bytes(&message([7, 0, 0], &[])), None);
        assert_eq!(Command::from_bytes(&message([9, 0, 0], &[4; 37])), None);
        assert_eq!(Command::from_bytes(&message([11, 0, 0], &[4; 38])), None);
        assert_eq!(Command::from_bytes(&message([5, 0, 0], &[4; 18])), None);
    }

    #[test]
    fn states_of_a_listener_are_those_whose_bytes_are_there() {
        let mut bytes = Vec::new();
        for state in [&b"one"[..], b"", b"three"] {
            bytes.extend((state.len() as u64).to_le_bytes());
            bytes.extend(state);
        }
        assert_eq!(states(&bytes), [&b"one"[..], b"", b"three"]);
        assert_eq!(states(&bytes[..bytes.len() - 1]), [&b"one"[..], b""]);
        bytes.extend(u64::MAX.to_le_bytes());
        assert_eq!(states(&bytes).len(), 3);
        assert_eq!(states(&vec![0; 8 * (MOST_STATES + 1)]).len(), MOST_STATES);
    }
}
