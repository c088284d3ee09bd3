//! The messages between `ringway exec` and the first process of its guest, on a serial line in raw mode: a byte for the
//! kind, four for the length (little-endian), then the bytes.

/// Attack: a guest that says it sends more. Most bytes of a message.
pub const LARGEST: usize = 1 << 16;
/// Bytes before those of a message.
const HEADER: usize = 5;

/// Kinds of messages from the guest.
pub mod from_guest {
    /// The program wrote to its standard output.
    pub const OUTPUT: u8 = 1;
    /// The program wrote to its standard error.
    pub const ERRORS: u8 = 2;
    /// It has room for so many more bytes of standard input (four bytes).
    pub const ROOM: u8 = 3;
    /// The program runs.
    pub const STARTED: u8 = 4;
    /// The program can't be executed (four bytes: the error's number).
    pub const REFUSED: u8 = 5;
    /// The program could not be prepared (text).
    pub const FAILED: u8 = 6;
    /// The program has ended with a status (four bytes).
    pub const ENDED: u8 = 7;
    /// The program has ended by a signal (four bytes).
    pub const KILLED: u8 = 8;
}

/// Kinds of messages to the guest.
pub mod to_guest {
    /// Standard input; none: its end.
    pub const INPUT: u8 = 1;
    /// A signal for the program (four bytes).
    pub const SIGNAL: u8 = 2;
    /// The terminal's size has changed (four bytes: rows, four: columns).
    pub const SIZE: u8 = 3;
    /// Nobody reads the program's output any more (one byte: `OUTPUT` or `ERRORS`).
    pub const CLOSED: u8 = 4;
}

/// A message's bytes.
pub fn message(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend((bytes.len() as u32).to_le_bytes());
    message.extend(bytes);
    message
}

/// The number in a message.
pub fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

/// Takes messages out of a stream of bytes.
#[derive(Debug, Default)]
pub struct Messages(Vec<u8>);

/// A message that is too long.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

impl Messages {
    /// More bytes have arrived.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// The next whole message.
    ///
    /// # Errors
    /// It is longer than any may be.
    pub fn next(&mut self) -> Result<Option<(u8, Vec<u8>)>, TooLong> {
        let Some((kind, rest)) = self.0.split_first() else { return Ok(None) };
        let Some(len) = rest.first_chunk().map(|word| u32::from_le_bytes(*word) as usize) else {
            return Ok(None);
        };
        if len > LARGEST {
            return Err(TooLong);
        }
        let Some(bytes) = self.0.get(HEADER..HEADER + len) else { return Ok(None) };
        let found = (*kind, bytes.to_vec());
        self.0.drain(..HEADER + len);
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_in_pieces() {
        let stream = [message(1, b"one"), message(2, b""), message(3, &[7; 300])].concat();
        for step in [1, 2, 7, 400] {
            let (mut messages, mut found) = (Messages::default(), Vec::new());
            for piece in stream.chunks(step) {
                messages.extend(piece);
                while let Some(message) = messages.next().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, [(1, b"one".to_vec()), (2, Vec::new()), (3, vec![7; 300])]);
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_refused() {
        let mut messages = Messages::default();
        messages.extend(&[1, 1, 0, 1, 0]);
        assert_eq!(messages.next(), Err(TooLong));
        assert_eq!((number(&[1, 2, 0, 0, 9]), number(&[1])), (0x201, 0));
    }
}
