//! The stream between `control` and `data`: a length, then JSON, with descriptors on the first byte.

use ringway_host::{HostError, receive_with, send_with};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum message length in bytes, for the state of the maximum number of ports.
const LONGEST: usize = 64 << 20;
/// Maximum number of descriptors per message.
pub const DESCRIPTORS: usize = 64;

/// Why a message could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The other process is gone.
    #[error("the other process closed the stream")]
    Closed,
    /// The system refused.
    #[error("the stream failed: {0}")]
    Host(#[from] HostError),
    /// Not a message of ours.
    #[error("a message on the stream can't be read: {0}")]
    Json(#[from] serde_json::Error),
    /// Longer than any message is.
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
}

/// One end of the stream. Calls block until a whole message has passed.
#[derive(Debug)]
pub struct MessageStream {
    socket: OwnedFd,
}

impl MessageStream {
    /// An end of the stream over `socket`, a stream socket.
    pub fn new(socket: OwnedFd) -> MessageStream {
        MessageStream { socket }
    }

    /// Sends a message, and descriptors with it.
    pub fn send<T: Serialize>(&self, message: &T, descriptors: &[BorrowedFd<'_>]) -> Result<(), StreamError> {
        let text = serde_json::to_vec(message)?;
        if text.len() > LONGEST {
            return Err(StreamError::TooLong(text.len()));
        }
        let mut bytes = (text.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&text);
        let mut sent = send_with(self.socket.as_fd(), &bytes, descriptors)?;
        while sent < bytes.len() {
            sent += send_with(self.socket.as_fd(), &bytes[sent..], &[])?;
        }
        Ok(())
    }

    /// Receives the next message and the descriptors that came with it.
    pub fn receive<T: DeserializeOwned>(&self) -> Result<(T, Vec<OwnedFd>), StreamError> {
        let mut descriptors = Vec::new();
        let text = self.text(LONGEST, DESCRIPTORS, &mut descriptors)?;
        Ok((serde_json::from_slice(&text)?, descriptors))
    }

    /// Receives the next message of a process that is not trusted: at most `longest` bytes, and no descriptors.
    pub fn receive_plain<T: DeserializeOwned>(&self, longest: usize) -> Result<T, StreamError> {
        let text = self.text(longest.min(LONGEST), 0, &mut Vec::new())?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// The bytes of the next message.
    fn text(
        &self,
        longest: usize,
        most: usize,
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<Vec<u8>, StreamError> {
        let mut length = [0; 4];
        self.fill(&mut length, most, descriptors)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > longest {
            return Err(StreamError::TooLong(length));
        }
        let mut text = vec![0; length];
        self.fill(&mut text, most, descriptors)?;
        Ok(text)
    }

    fn fill(&self, bytes: &mut [u8], most: usize, descriptors: &mut Vec<OwnedFd>) -> Result<(), StreamError> {
        let mut filled = 0;
        while filled < bytes.len() {
            let (count, mut new) = receive_with(self.socket.as_fd(), &mut bytes[filled..], most)?;
            if count == 0 {
                return Err(StreamError::Closed);
            }
            filled += count;
            descriptors.append(&mut new);
        }
        Ok(())
    }
}

impl AsFd for MessageStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_plain_message_has_a_limit_and_no_descriptors() {
        let (one, other) = UnixStream::pair().unwrap();
        let (one, other) = (MessageStream::new(one.into()), MessageStream::new(other.into()));
        one.send(&"text", &[one.as_fd()]).unwrap();
        let (text, descriptors): (String, _) = other.receive().unwrap();
        assert_eq!((text.as_str(), descriptors.len()), ("text", 1));
        one.send(&"text", &[one.as_fd()]).unwrap();
        assert_eq!(other.receive_plain::<String>(6).unwrap(), "text");
        one.send(&"text", &[]).unwrap();
        assert!(matches!(other.receive_plain::<String>(5), Err(StreamError::TooLong(6))));
    }
}
