//! Splits a byte stream into messages.

use crate::codec::CodecError;
use crate::header::{DESCRIPTORS, HEADER, Header, PAYLOAD};
use std::os::fd::OwnedFd;

/// A complete message, not decoded yet.
#[derive(Debug)]
pub struct Message {
    /// The header.
    pub header: Header,
    /// The payload.
    pub payload: Vec<u8>,
    /// The descriptors received with the message.
    pub fds: Vec<OwnedFd>,
}

/// The message being received. [`Inbox::space`] ends with the current message, so that received descriptors
/// belong to it and not to the next one.
#[derive(Debug)]
pub struct Inbox {
    bytes: [u8; HEADER + PAYLOAD],
    filled: usize,
    header: Option<Header>,
    fds: Vec<OwnedFd>,
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox { bytes: [0; HEADER + PAYLOAD], filled: 0, header: None, fds: Vec::new() }
    }
}

impl Inbox {
    /// The buffer to read the next bytes into, never empty.
    pub fn space(&mut self) -> &mut [u8] {
        let end = self.end();
        &mut self.bytes[self.filled..end]
    }

    /// Whether part of a message was received.
    pub fn is_partial(&self) -> bool {
        self.filled > 0
    }

    fn end(&self) -> usize {
        HEADER + self.header.map_or(0, |header| header.size as usize)
    }

    /// Processes `count` bytes read into [`Inbox::space`] and the descriptors received with them. After an
    /// error the stream is unusable.
    pub fn filled(&mut self, count: usize, fds: Vec<OwnedFd>) -> Result<Option<Message>, CodecError> {
        self.filled += count.min(self.end() - self.filled);
        // Attack: descriptors with every part of a message.
        if self.fds.len() + fds.len() > DESCRIPTORS {
            return Err(CodecError::DescriptorFlood);
        }
        self.fds.extend(fds);
        if self.header.is_none() {
            let Some(bytes) = self.bytes[..self.filled].first_chunk::<HEADER>() else {
                return Ok(None);
            };
            self.header = Some(Header::decode(bytes)?);
        }
        match self.header {
            Some(header) if self.filled == self.end() => {
                let payload = self.bytes[HEADER..self.filled].to_vec();
                (self.filled, self.header) = (0, None);
                Ok(Some(Message { header, payload, fds: std::mem::take(&mut self.fds) }))
            }
            _ => Ok(None),
        }
    }

    /// The one message that `bytes` are.
    pub fn whole(bytes: &[u8], fds: Vec<OwnedFd>) -> Result<Message, CodecError> {
        let mut inbox = Inbox::default();
        let head = bytes.len().min(HEADER);
        inbox.space()[..head].copy_from_slice(&bytes[..head]);
        let mut message = inbox.filled(head, fds)?;
        let rest = &bytes[head..];
        if message.is_none() && !rest.is_empty() {
            let space = inbox.space();
            let count = rest.len().min(space.len());
            space[..count].copy_from_slice(&rest[..count]);
            message = inbox.filled(count, Vec::new())?;
        }
        message.ok_or(CodecError::Truncated)
    }

    /// Call at the end of the stream. An error if the stream ended within a message.
    pub fn ended(&self) -> Result<(), CodecError> {
        if self.is_partial() { Err(CodecError::Truncated) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, VringState};
    use proptest::prelude::*;

    fn feed(inbox: &mut Inbox, mut bytes: &[u8], step: usize) -> Result<Vec<Message>, CodecError> {
        let mut messages = Vec::new();
        while !bytes.is_empty() {
            let space = inbox.space();
            let count = space.len().min(step).min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            messages.extend(inbox.filled(count, Vec::new())?);
        }
        Ok(messages)
    }

    #[test]
    fn messages_are_reassembled_from_any_split() {
        let mut stream = Request::SetVringNum(VringState { index: 1, num: 256 }).encode(true).bytes;
        stream.extend(Request::GetFeatures.encode(false).bytes);
        for step in 1..=stream.len() {
            let messages = feed(&mut Inbox::default(), &stream, step).unwrap();
            assert_eq!(messages.len(), 2);
            assert_eq!(messages[0].payload, stream[12..20]);
            assert!(messages[0].header.need_reply && !messages[1].header.need_reply);
        }
    }

    #[test]
    fn too_many_descriptors_are_refused() {
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let mut inbox = Inbox::default();
        assert!(inbox.filled(1, (0..8).map(|_| null()).collect()).unwrap().is_none());
        assert_eq!(inbox.filled(1, vec![null()]).unwrap_err(), CodecError::DescriptorFlood);
    }

    #[test]
    fn end_of_stream_within_a_message_is_an_error() {
        let mut inbox = Inbox::default();
        assert_eq!(inbox.ended(), Ok(()));
        feed(&mut inbox, &[1, 0, 0], 3).unwrap();
        assert_eq!(inbox.ended(), Err(CodecError::Truncated));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..2048),
            step in 1usize..600,
        ) {
            if let Ok(messages) = feed(&mut Inbox::default(), &bytes, step) {
                for message in messages {
                    let _ = Request::decode(message.header.request, &message.payload, message.fds);
                }
            }
        }
    }
}
