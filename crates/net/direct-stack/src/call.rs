//! Results of the image's operations as numbers.

use ringway_netstack::{ConnectionError, RepairError, SocketError, SocketId};

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
    use crate::abi::{BAD_SOCKET, Operation, WOULD_BLOCK};

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
        assert_eq!(result_code(Err(SocketError::WouldBlock.into())), WOULD_BLOCK);
        assert_eq!(result_code(Err(SocketError::BadSocket.into())), BAD_SOCKET);
    }
}
