//! The header of every message.

use crate::codec::{CodecError, Fields, Writer};
use std::os::fd::OwnedFd;

/// Bytes of a header.
pub const HEADER: usize = 12;
/// Largest payload in bytes: more than a table of eight regions, or 256 bytes of configuration space with
/// their header. Attack: without the limit, the receiver would allocate 4 GB for a large size field.
pub const PAYLOAD: usize = 512;
/// Largest number of descriptors of a message: one for each region of a memory table.
pub const DESCRIPTORS: usize = 8;

const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of the message.
    pub request: u32,
    /// Whether this is a reply to the message with the same number.
    pub reply: bool,
    /// Whether the receiver must acknowledge the message.
    pub need_reply: bool,
    /// Length of the payload in bytes.
    pub size: u32,
}

/// A message ready to be sent.
#[derive(Debug, Default)]
pub struct Packet {
    /// Header and payload.
    pub bytes: Vec<u8>,
    /// Descriptors to send with the first byte.
    pub fds: Vec<OwnedFd>,
}

impl Header {
    /// Decodes a header; refuses other versions, undefined flags, and sizes above [`PAYLOAD`].
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Header, CodecError> {
        let mut fields = Fields::new(0, bytes);
        let (request, flags, size) = (fields.u32()?, fields.u32()?, fields.u32()?);
        if flags & !(REPLY | NEED_REPLY) != VERSION {
            return Err(CodecError::Flags { request, flags });
        }
        if size as usize > PAYLOAD {
            return Err(CodecError::Oversize { request, size });
        }
        Ok(Header { request, reply: flags & REPLY != 0, need_reply: flags & NEED_REPLY != 0, size })
    }

    /// A message with this payload.
    fn packet(request: u32, flags: u32, payload: &[u8], fds: Vec<OwnedFd>) -> Packet {
        let size = payload.len() as u32;
        let bytes = Writer::default().u32(request).u32(VERSION | flags).u32(size).bytes(payload).0;
        Packet { bytes, fds }
    }

    pub(crate) fn request_packet(
        request: u32,
        need_reply: bool,
        payload: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Packet {
        Header::packet(request, if need_reply { NEED_REPLY } else { 0 }, payload, fds)
    }

    pub(crate) fn reply_packet(request: u32, payload: &[u8], fds: Vec<OwnedFd>) -> Packet {
        Header::packet(request, REPLY, payload, fds)
    }
}

/// The protocol's name of a front-end message, for errors.
pub fn name(request: u32) -> &'static str {
    const NAMES: [&str; 44] = [
        "NONE",
        "GET_FEATURES",
        "SET_FEATURES",
        "SET_OWNER",
        "RESET_OWNER",
        "SET_MEM_TABLE",
        "SET_LOG_BASE",
        "SET_LOG_FD",
        "SET_VRING_NUM",
        "SET_VRING_ADDR",
        "SET_VRING_BASE",
        "GET_VRING_BASE",
        "SET_VRING_KICK",
        "SET_VRING_CALL",
        "SET_VRING_ERR",
        "GET_PROTOCOL_FEATURES",
        "SET_PROTOCOL_FEATURES",
        "GET_QUEUE_NUM",
        "SET_VRING_ENABLE",
        "SEND_RARP",
        "NET_SET_MTU",
        "SET_BACKEND_REQ_FD",
        "IOTLB_MSG",
        "SET_VRING_ENDIAN",
        "GET_CONFIG",
        "SET_CONFIG",
        "CREATE_CRYPTO_SESSION",
        "CLOSE_CRYPTO_SESSION",
        "POSTCOPY_ADVISE",
        "POSTCOPY_LISTEN",
        "POSTCOPY_END",
        "GET_INFLIGHT_FD",
        "SET_INFLIGHT_FD",
        "GPU_SET_SOCKET",
        "RESET_DEVICE",
        "VRING_KICK",
        "GET_MAX_MEM_SLOTS",
        "ADD_MEM_REG",
        "REM_MEM_REG",
        "SET_STATUS",
        "GET_STATUS",
        "GET_SHARED_OBJECT",
        "SET_DEVICE_STATE_FD",
        "CHECK_DEVICE_STATE",
    ];
    NAMES.get(request as usize).copied().unwrap_or("of an unknown number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_versions_flags_and_sizes_are_refused() {
        let header = |flags: u32, size: u32| {
            let bytes = Writer::default().u32(1).u32(flags).u32(size).0;
            Header::decode(bytes.as_slice().try_into().unwrap())
        };
        assert!(header(1, 0).is_ok());
        assert_eq!(header(1 | 4 | 8, 512).unwrap().size, 512);
        assert!(matches!(header(0, 0), Err(CodecError::Flags { .. })));
        assert!(matches!(header(2, 0), Err(CodecError::Flags { .. })));
        assert!(matches!(header(0x11, 0), Err(CodecError::Flags { .. })));
        assert!(matches!(header(1, 513), Err(CodecError::Oversize { .. })));
        assert!(matches!(header(1, u32::MAX), Err(CodecError::Oversize { .. })));
    }

    #[test]
    fn request_names_match_their_numbers() {
        assert_eq!(name(18), "SET_VRING_ENABLE");
        assert_eq!(name(34), "RESET_DEVICE");
        assert_eq!(name(43), "CHECK_DEVICE_STATE");
        assert_eq!(name(44), "of an unknown number");
    }
}
