//! Splits a byte stream into messages.

use crate::codec::CodecError;
use crate::header::{DESCRIPTORS, HEADER, Header, PAYLOAD};
use std::os::fd::OwnedFd;

/// A complete message, not decoded yet.
#[derive(Debug)]
pub struct Message<'a> {
    /// Its header.
    pub header: Header,
    /// Its payload.
    pub payload: &'a [u8],
    /// The descriptors that came with it.
    pub fds: Vec<OwnedFd>,
}

/// Received bytes. One system call may receive many messages, such as posted writes; the kernel ends it after a
/// message with descriptors, so descriptors belong to the message of the last byte received with them.
#[derive(Debug)]
pub struct Inbox {
    bytes: Box<[u8]>,
    begin: usize,
    end: usize,
    /// Descriptors, each with the end of the bytes received with it.
    fds: Vec<(usize, OwnedFd)>,
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox { bytes: vec![0; HEADER + PAYLOAD].into(), begin: 0, end: 0, fds: Vec::new() }
    }
}

impl Inbox {
    /// The buffer for the next bytes, not empty when all complete messages were taken. Receive at most
    /// [`DESCRIPTORS`] with them.
    pub fn space(&mut self) -> &mut [u8] {
        self.bytes.copy_within(self.begin..self.end, 0);
        self.fds.iter_mut().for_each(|(end, _)| *end -= self.begin);
        self.end -= std::mem::take(&mut self.begin);
        &mut self.bytes[self.end..]
    }

    /// Adds `count` bytes read into [`Inbox::space`] and the descriptors received with them. After an error the
    /// stream is unusable.
    pub fn filled(&mut self, count: usize, fds: Vec<OwnedFd>) -> Result<(), CodecError> {
        self.end += count.min(self.bytes.len() - self.end);
        // Attack: descriptors with every piece of an endless message.
        if self.fds.len() + fds.len() > 2 * DESCRIPTORS {
            return Err(CodecError::DescriptorFlood);
        }
        self.fds.extend(fds.into_iter().map(|fd| (self.end, fd)));
        Ok(())
    }

    /// Takes the next message; `None` if it is not complete. After an error the stream is unusable.
    pub fn message(&mut self) -> Result<Option<Message<'_>>, CodecError> {
        let bytes = &self.bytes[self.begin..self.end];
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let header = Header::decode(header)?;
        let Some(payload) = rest.get(..header.size) else { return Ok(None) };
        self.begin += HEADER + header.size;
        let with_it = self.fds.iter().take_while(|(end, _)| *end <= self.begin).count();
        if with_it > DESCRIPTORS {
            return Err(CodecError::DescriptorFlood);
        }
        let fds = self.fds.drain(..with_it).map(|(_, fd)| fd).collect();
        Ok(Some(Message { header, payload, fds }))
    }

    /// Call at the end of the stream.
    pub fn ended(&self) -> Result<(), CodecError> {
        if self.begin < self.end { Err(CodecError::Truncated) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Request};
    use proptest::prelude::*;

    fn nulls(count: usize) -> Vec<OwnedFd> {
        (0..count).map(|_| std::fs::File::open("/dev/null").unwrap().into()).collect()
    }

    fn write(id: u16) -> Vec<u8> {
        let access = Access { offset: 0x3818, region: 0, count: 4 };
        Request::RegionWrite(access, &[1, 2, 3, 4]).encode(id, true).bytes
    }

    /// Fills in a part, and returns the ids and numbers of descriptors of the messages that are complete then.
    fn feed(inbox: &mut Inbox, bytes: &[u8], fds: usize) -> Result<Vec<(u16, usize)>, CodecError> {
        inbox.space()[..bytes.len()].copy_from_slice(bytes);
        inbox.filled(bytes.len(), nulls(fds))?;
        let mut taken = Vec::new();
        while let Some(message) = inbox.message()? {
            taken.push((message.header.id, message.fds.len()));
        }
        Ok(taken)
    }

    #[test]
    fn messages_are_reassembled_from_any_split() {
        let stream: Vec<u8> = (0..5).flat_map(write).collect();
        for step in 1..=stream.len() {
            let mut inbox = Inbox::default();
            let parts = stream.chunks(step).map(|part| feed(&mut inbox, part, 0).unwrap());
            let ids: Vec<u16> = parts.flatten().map(|(id, _)| id).collect();
            assert_eq!(ids, [0, 1, 2, 3, 4]);
            assert_eq!(inbox.ended(), Ok(()));
        }
    }

    #[test]
    fn descriptors_belong_to_the_message_of_the_last_byte() {
        let (one, two, three) = (write(1), write(2), write(3));
        let mut inbox = Inbox::default();
        let both = [&one[..], &two].concat();
        assert_eq!(feed(&mut inbox, &both, 2).unwrap(), [(1, 0), (2, 2)]);
        // The second message is cut after its descriptors; the third has some of its own.
        let cut = [&one[..], &two[..9]].concat();
        assert_eq!(feed(&mut inbox, &cut, 1).unwrap(), [(1, 0)]);
        assert_eq!(inbox.ended(), Err(CodecError::Truncated));
        let rest = [&two[9..], &three].concat();
        assert_eq!(feed(&mut inbox, &rest, 8).unwrap(), [(2, 1), (3, 8)]);
    }

    #[test]
    fn too_many_descriptors_are_refused() {
        let bytes = write(1);
        let mut inbox = Inbox::default();
        for at in 0..2 {
            assert_eq!(feed(&mut inbox, &bytes[at..=at], 8).unwrap(), []);
        }
        assert_eq!(feed(&mut inbox, &bytes[2..3], 1), Err(CodecError::DescriptorFlood));
        let mut inbox = Inbox::default();
        feed(&mut inbox, &bytes[..1], 8).unwrap();
        assert_eq!(feed(&mut inbox, &bytes[1..], 1), Err(CodecError::DescriptorFlood));
    }

    proptest! {
        #[test]
        fn any_stream_is_split_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = feed(&mut Inbox::default(), &bytes, 1);
        }
    }
}
