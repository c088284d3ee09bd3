//! Replies of a back-end.

use crate::codec::{CodecError, Fields, Writer};
use crate::header::{Header, Packet};
use crate::payload::{Config, Inflight, VringState};
use crate::request::number;
use std::os::fd::OwnedFd;

/// Content of a reply.
#[derive(Debug)]
pub enum Reply {
    /// A number: features, a count, a status, or an acknowledgement (0 means success).
    Number(u64),
    /// A ring's position.
    Vring(VringState),
    /// A part of the configuration space; empty on failure.
    Config(Config),
    /// Shared memory for in-flight descriptors.
    Inflight(Inflight, OwnedFd),
}

impl Reply {
    /// Decodes the reply to message number `request`.
    pub fn decode(request: u32, payload: &[u8], fds: Vec<OwnedFd>) -> Result<Reply, CodecError> {
        let mut fields = Fields::new(request, payload);
        let want = usize::from(request == number::GET_INFLIGHT_FD);
        if fds.len() != want {
            return Err(CodecError::Descriptors { request, got: fds.len(), want });
        }
        match (request, fds.into_iter().next()) {
            (number::GET_VRING_BASE, _) => Ok(Reply::Vring(VringState::decode(&mut fields)?)),
            (number::GET_CONFIG, _) => Ok(Reply::Config(Config::decode(&mut fields)?)),
            (number::GET_INFLIGHT_FD, Some(fd)) => Ok(Reply::Inflight(Inflight::decode(&mut fields)?, fd)),
            _ => {
                let value = fields.u64()?;
                fields.end(0)?;
                Ok(Reply::Number(value))
            }
        }
    }

    /// Encodes the reply to message number `request`.
    pub fn encode(self, request: u32) -> Packet {
        let (payload, fds) = match self {
            Reply::Number(value) => (Writer::default().u64(value), Vec::new()),
            Reply::Vring(state) => (state.encode(), Vec::new()),
            Reply::Config(config) => (config.encode(), Vec::new()),
            Reply::Inflight(inflight, fd) => (inflight.encode(), vec![fd]),
        };
        Header::reply_packet(request, &payload.0, fds)
    }
}
