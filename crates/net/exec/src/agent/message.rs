//! `struct msghdr` in programs' memory, as 64-bit programs have it.

use ringway_host::{MEMORY_PIECES, Piece, read_memory, read_pieces, write_memory, write_pieces};
use rustix::io::Errno;

/// Size of `struct msghdr`, and of `struct mmsghdr`.
pub const MSGHDR_LEN: usize = 56;
pub const MMSGHDR_LEN: u64 = 64;
/// `MSG_TRUNC`.
const TRUNC: u32 = 0x20;

/// A message's header.
#[derive(Debug)]
pub struct Message {
    at: u64,
    /// The address of `msg_name`, and `msg_namelen`.
    pub name: (u64, u32),
    pieces: Vec<Piece>,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

impl Message {
    /// Reads a header, and the list of its pieces.
    ///
    /// # Errors
    /// As Linux's.
    pub fn read(thread: i32, at: u64) -> Result<Message, Errno> {
        let mut header = [0; MSGHDR_LEN];
        if read_memory(thread, at, &mut header)? < MSGHDR_LEN {
            return Err(Errno::FAULT);
        }
        let count = usize::try_from(word(&header, 24)).unwrap_or(usize::MAX);
        if count > MEMORY_PIECES {
            return Err(Errno::MSGSIZE);
        }
        let mut list = vec![0; count * 16];
        if read_memory(thread, word(&header, 16), &mut list)? < list.len() {
            return Err(Errno::FAULT);
        }
        let piece = |piece: &[u8]| (word(piece, 0), usize::try_from(word(piece, 8)).unwrap_or(usize::MAX));
        Ok(Message {
            at,
            name: (word(&header, 0), word(&header, 8) as u32),
            pieces: list.as_chunks::<16>().0.iter().map(|bytes| piece(bytes)).collect(),
        })
    }

    /// Bytes that the message has room for.
    pub fn room(&self) -> Result<usize, Errno> {
        self.pieces.iter().try_fold(0_usize, |all, (_, len)| all.checked_add(*len)).ok_or(Errno::INVAL)
    }

    /// The bytes of the message, at most `most`.
    ///
    /// # Errors
    /// There are more, or some can't be read.
    pub fn gather(&self, thread: i32, most: usize) -> Result<Vec<u8>, Errno> {
        // Attack: lengths whose sum is huge.
        let len = self.room()?;
        if len > most {
            return Err(Errno::MSGSIZE);
        }
        let mut bytes = vec![0; len];
        if read_pieces(thread, &self.pieces, &mut bytes)? < len {
            return Err(Errno::FAULT);
        }
        Ok(bytes)
    }

    /// Writes received bytes, as many as have room, and their sender's address. Returns how many.
    ///
    /// # Errors
    /// Some can't be written.
    pub fn scatter(&self, thread: i32, bytes: &[u8], name: &[u8]) -> Result<usize, Errno> {
        let (given, rest) = bytes.split_at(self.room()?.min(bytes.len()));
        write_pieces(thread, &self.pieces, given)?;
        let (name_at, room) = self.name;
        if name_at != 0 {
            write_memory(thread, name_at, &name[..name.len().min(room as usize)])?;
            write_memory(thread, self.at + 8, &(name.len() as u32).to_ne_bytes())?;
        }
        let flags = if rest.is_empty() { 0 } else { TRUNC };
        // No control messages, and the flags.
        write_memory(thread, self.at + 40, &[0; 8])?;
        write_memory(thread, self.at + 48, &flags.to_ne_bytes())?;
        Ok(given.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This process's own memory serves as a program's.
    fn own() -> i32 {
        rustix::process::getpid().as_raw_nonzero().get()
    }

    fn header(name: &mut [u8], pieces: &[u64]) -> Vec<u8> {
        let words = [name.as_mut_ptr() as u64, name.len() as u64, pieces.as_ptr() as u64];
        let words = words.into_iter().chain([pieces.len() as u64 / 2, 0, 0, 0]);
        words.flat_map(u64::to_ne_bytes).collect()
    }

    #[test]
    fn messages_are_gathered_and_scattered_over_their_pieces() {
        let (mut one, mut two, mut name) = ([0_u8; 3], [0_u8; 4], [0_u8; 8]);
        let pieces = [one.as_mut_ptr() as u64, 3, two.as_mut_ptr() as u64, 4];
        let header = header(&mut name, &pieces);
        let at = header.as_ptr() as u64;
        let message = Message::read(own(), at).unwrap();
        assert_eq!((message.room(), message.name.1), (Ok(7), 8));
        assert_eq!(message.scatter(own(), b"a datagram", b"1234"), Ok(7));
        assert_eq!((&one, &two, &name), (b"a d", b"atag", b"1234\0\0\0\0"));
        assert_eq!(Message::read(own(), at).unwrap().name.1, 4);
        assert_eq!(header[48], TRUNC as u8);
        assert_eq!(message.gather(own(), 7).unwrap(), b"a datag");
        assert_eq!(message.gather(own(), 6), Err(Errno::MSGSIZE));
    }

    #[test]
    fn lengths_that_nobody_has_are_refused() {
        for len in [u64::MAX, u64::MAX / 2 + 1] {
            let pieces = [0x1000, len, 0x1000, len];
            let header = header(&mut [], &pieces);
            let message = Message::read(own(), header.as_ptr() as u64).unwrap();
            assert!(message.room().is_err() || message.gather(own(), 100).is_err());
        }
        assert!(Message::read(own(), 8).is_err());
    }
}
