//! Requests of a back-end, on the channel that the front-end supplied.

use crate::codec::{CodecError, Fields, Writer};
use crate::header::{Header, Packet};
use crate::payload::{Iotlb, VringState};
use std::os::fd::OwnedFd;

const IOTLB_MSG: u32 = 1;
const CONFIG_CHANGE_MSG: u32 = 2;
const VRING_CALL: u32 = 4;
const VRING_ERR: u32 = 5;

/// A back-end's message (vhost-user protocol, "Back-end message types").
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendRequest {
    /// An IOTLB miss or a failed access.
    Iotlb(Iotlb),
    /// The configuration space changed.
    ConfigChange,
    /// Buffers of a ring were used.
    VringCall(VringState),
    /// A ring is broken.
    VringErr(VringState),
}

impl BackendRequest {
    /// Decodes a message. Messages with descriptors are refused.
    pub fn decode(request: u32, payload: &[u8], fds: Vec<OwnedFd>) -> Result<BackendRequest, CodecError> {
        if !fds.is_empty() {
            return Err(CodecError::Descriptors { request, got: fds.len(), want: 0 });
        }
        let mut fields = Fields::new(request, payload);
        match request {
            IOTLB_MSG => Ok(BackendRequest::Iotlb(Iotlb::decode(&mut fields)?)),
            CONFIG_CHANGE_MSG => {
                fields.end(0)?;
                Ok(BackendRequest::ConfigChange)
            }
            VRING_CALL => Ok(BackendRequest::VringCall(VringState::decode(&mut fields)?)),
            VRING_ERR => Ok(BackendRequest::VringErr(VringState::decode(&mut fields)?)),
            _ => Err(CodecError::Unknown { request }),
        }
    }

    /// Encodes the message, without requesting an acknowledgement: the channel may be a one-way pipe.
    pub fn encode(&self) -> Packet {
        let (request, payload) = match self {
            BackendRequest::Iotlb(iotlb) => (IOTLB_MSG, iotlb.encode()),
            BackendRequest::ConfigChange => (CONFIG_CHANGE_MSG, Writer::default()),
            BackendRequest::VringCall(state) => (VRING_CALL, state.encode()),
            BackendRequest::VringErr(state) => (VRING_ERR, state.encode()),
        };
        Header::request_packet(request, false, &payload.0, Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        let iotlb = Iotlb { iova: 0x1000, size: 0x2000, user: 0x3000, permissions: 1, kind: 1 };
        let state = VringState { index: 1, num: 0 };
        for message in [
            BackendRequest::Iotlb(iotlb),
            BackendRequest::ConfigChange,
            BackendRequest::VringCall(state),
            BackendRequest::VringErr(state),
        ] {
            let bytes = message.encode().bytes;
            let header = Header::decode(bytes[..12].try_into().unwrap()).unwrap();
            assert!(!header.need_reply && !header.reply);
            let read = BackendRequest::decode(header.request, &bytes[12..], Vec::new()).unwrap();
            assert_eq!(read, message);
        }
    }
}
