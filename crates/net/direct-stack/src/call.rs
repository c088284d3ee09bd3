//! How the image is called.

use ringway_netstack::{ConnectionError, RepairError, SocketError, SocketId};

/// The addresses of the rings' memory, which are the same in each process: far above the image's heap.
pub const PORT_AT: u64 = 0x7210_0000_0000;
/// That of the ring to the agent.
pub const AGENT_AT: u64 = 0x7220_0000_0000;

/// What the image is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Operation {
    /// Makes the stack: `input` is the agent's [`configuration`](ringway_netstack::Stack::configuration), `socket` the
    /// end of the memory behind the image, and `numbers` the seed.
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
    /// The bits of [`Flags`].
    Readiness,
    /// A segment that the agent received for a connection of the stack.
    Diverted,
    /// Only what each call does.
    Run,
    /// Prepares to sleep until the port or the agent notifies; 0: there is work already.
    Arm,
}

impl Operation {
    /// All, in their order.
    const ALL: [Operation; 14] = [
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
    ];

    /// The operation of a number.
    pub fn from_number(number: u64) -> Option<Operation> {
        Operation::ALL.get(usize::try_from(number).ok()?).copied()
    }
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
    /// The handle of a connection, see [`SocketId::to_bits`](ringway_netstack::SocketId::to_bits).
    pub socket: u64,
    /// The address and the length of bytes to read.
    pub input: [u64; 2],
    /// The address and the length of bytes to write.
    pub output: [u64; 2],
    /// Arguments of the operation.
    pub numbers: [u64; 2],
    /// What came out; see [`result_of`].
    pub result: i64,
    /// [`Flags`].
    pub flags: u64,
    /// Which connections became ready: the bits of their places, see [`bit`].
    pub ready: u64,
    /// When the image is to be called again although nothing arrives; the largest number if never.
    pub deadline: u64,
}

/// The bit of a connection, which several of them share.
pub fn bit(socket: SocketId) -> u32 {
    socket.index() as u32 % u64::BITS
}

/// Errors in the order of their numbers, from -1 downwards.
const ERRORS: [RepairError; 16] = [
    RepairError::NotMovable,
    RepairError::Invalid,
    RepairError::Socket(SocketError::BadSocket),
    RepairError::Socket(SocketError::AddressInUse),
    RepairError::Socket(SocketError::AddressNotAvailable),
    RepairError::Socket(SocketError::Unreachable),
    RepairError::Socket(SocketError::WouldBlock),
    RepairError::Socket(SocketError::MessageTooLong),
    RepairError::Socket(SocketError::TooManySockets),
    RepairError::Socket(SocketError::BrokenPipe),
    RepairError::Socket(SocketError::Connection(ConnectionError::Refused)),
    RepairError::Socket(SocketError::Connection(ConnectionError::Reset)),
    RepairError::Socket(SocketError::Connection(ConnectionError::TimedOut)),
    RepairError::Socket(SocketError::Connection(ConnectionError::Unreachable)),
    RepairError::Socket(SocketError::Connection(ConnectionError::SourceLost)),
    RepairError::Socket(SocketError::Connection(ConnectionError::NetworkDown)),
];

/// A result as a number.
pub fn result_code(result: Result<u64, RepairError>) -> i64 {
    match result {
        Ok(value) => i64::try_from(value).unwrap_or(i64::MAX),
        Err(error) => {
            let place = ERRORS.iter().position(|one| *one == error).unwrap_or_default();
            -1 - place as i64
        }
    }
}

/// The result of a number.
///
/// # Errors
/// Those of the operation.
pub fn result_of(code: i64) -> Result<u64, RepairError> {
    let place = usize::try_from(-1 - code);
    match place {
        Ok(place) => Err(ERRORS.get(place).copied().unwrap_or(RepairError::Invalid)),
        Err(_) => Ok(code as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_for_operations_and_results() {
        for (number, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(
                (operation as usize, Operation::from_number(number as u64)),
                (number, Some(operation))
            );
        }
        assert_eq!(Operation::from_number(Operation::ALL.len() as u64), None);
        for result in ERRORS.into_iter().map(Err).chain([Ok(0), Ok(1), Ok(1 << 40)]) {
            assert_eq!(result_of(result_code(result)), result);
        }
        assert_eq!(result_of(i64::MIN), Err(RepairError::Invalid));
    }
}
