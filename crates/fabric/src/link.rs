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
pub enum LinkError {
    /// The other process is gone.
    #[error("the other process closed the link")]
    Closed,
    /// The system refused.
    #[error("the link failed: {0}")]
    Host(#[from] HostError),
    /// Not a message of ours.
    #[error("a message on the link can't be read: {0}")]
    Json(#[from] serde_json::Error),
    /// Longer than any message is.
    #[error("a message of {0} bytes is longer than any")]
    TooLong(usize),
}

/// One end of the link. Calls block until a whole message has passed.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
}

impl Link {
    /// An end of the link over `socket`, a stream socket.
    pub fn new(socket: OwnedFd) -> Link {
        Link { socket }
    }

    /// Sends a message, and descriptors with it.
    pub fn send<T: Serialize>(&self, message: &T, descriptors: &[BorrowedFd<'_>]) -> Result<(), LinkError> {
        let text = serde_json::to_vec(message)?;
        if text.len() > LONGEST {
            return Err(LinkError::TooLong(text.len()));
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
    pub fn receive<T: DeserializeOwned>(&self) -> Result<(T, Vec<OwnedFd>), LinkError> {
        let mut descriptors = Vec::new();
        let mut length = [0; 4];
        self.fill(&mut length, &mut descriptors)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > LONGEST {
            return Err(LinkError::TooLong(length));
        }
        let mut text = vec![0; length];
        self.fill(&mut text, &mut descriptors)?;
        Ok((serde_json::from_slice(&text)?, descriptors))
    }

    fn fill(&self, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> Result<(), LinkError> {
        let mut filled = 0;
        while filled < bytes.len() {
            let (count, mut new) = receive_with(self.socket.as_fd(), &mut bytes[filled..], DESCRIPTORS)?;
            if count == 0 {
                return Err(LinkError::Closed);
            }
            filled += count;
            descriptors.append(&mut new);
        }
        Ok(())
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
