//! The sixteen bytes before every message.

use crate::codec::CodecError;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a header.
pub const HEADER: usize = 16;
/// Largest number of bytes that one message reads or writes: the whole configuration space of PCI Express.
pub const TRANSFER: usize = 4096;
/// Largest payload in bytes: QEMU merges up to 200 writes, of 24 bytes each. Attack: without the limit, the
/// size field would make the receiver allocate 4 GB.
pub const PAYLOAD: usize = 8192;
/// Largest number of descriptors of a message; QEMU sends eventfds in chunks of that many.
pub const DESCRIPTORS: usize = 8;

const REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// Numbers of the messages (vfio-user protocol, "Commands").
#[allow(missing_docs)]
pub mod command {
    pub const VERSION: u16 = 1;
    pub const DMA_MAP: u16 = 2;
    pub const DMA_UNMAP: u16 = 3;
    pub const DEVICE_GET_INFO: u16 = 4;
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    pub const DEVICE_GET_REGION_IO_FDS: u16 = 6;
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    pub const DEVICE_SET_IRQS: u16 = 8;
    pub const REGION_READ: u16 = 9;
    pub const REGION_WRITE: u16 = 10;
    pub const DMA_READ: u16 = 11;
    pub const DMA_WRITE: u16 = 12;
    pub const DEVICE_RESET: u16 = 13;
    pub const REGION_WRITE_MULTI: u16 = 15;
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A command.
    Command {
        /// Its sender expects no reply, not even of an error.
        no_reply: bool,
    },
    /// The reply to a command.
    Reply {
        /// The error number of a command that failed; it may be zero.
        error: Option<u32>,
    },
}

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Chosen by the sender of the command, echoed by the reply.
    pub id: u16,
    /// Number of the message.
    pub command: u16,
    /// Whether it is a command or a reply.
    pub kind: Kind,
    /// Bytes of payload.
    pub size: usize,
}

/// A message ready to be sent, by one call: receivers read a header whole, and descriptors with it.
#[derive(Debug, Default)]
pub struct Packet {
    /// Header and payload.
    pub bytes: Vec<u8>,
    /// Descriptors sent with the first byte.
    pub fds: Vec<Arc<OwnedFd>>,
}

#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Raw {
    id: u16,
    command: u16,
    size: u32,
    flags: u32,
    error: u32,
}

impl Header {
    /// Decodes a header; refuses undefined flags and sizes beyond the limit.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Header, CodecError> {
        let Raw { id, command, size, flags, error } = zerocopy::transmute!(*bytes);
        let kind = match flags {
            0 | NO_REPLY => Kind::Command { no_reply: flags == NO_REPLY },
            REPLY => Kind::Reply { error: None },
            _ if flags == REPLY | ERROR => Kind::Reply { error: Some(error) },
            _ => return Err(CodecError::Flags { command, flags }),
        };
        let payload = (size as usize).checked_sub(HEADER).filter(|payload| *payload <= PAYLOAD);
        let payload = payload.ok_or(CodecError::MessageSize { command, size })?;
        Ok(Header { id, command, kind, size: payload })
    }

    /// Puts a header before the parts of a payload.
    pub(crate) fn packet(id: u16, command: u16, kind: Kind, parts: &[&[u8]]) -> Packet {
        let (flags, error) = match kind {
            Kind::Command { no_reply } => (if no_reply { NO_REPLY } else { 0 }, 0),
            Kind::Reply { error: None } => (REPLY, 0),
            Kind::Reply { error: Some(error) } => (REPLY | ERROR, error),
        };
        let size = HEADER + parts.iter().map(|part| part.len()).sum::<usize>();
        let mut bytes = Vec::with_capacity(size);
        bytes.extend_from_slice(Raw { id, command, size: size as u32, flags, error }.as_bytes());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        Packet { bytes, fds: Vec::new() }
    }
}

/// The protocol's name of a message, for people.
pub fn name(command: u16) -> &'static str {
    const NAMES: [&str; 19] = [
        "NONE",
        "VERSION",
        "DMA_MAP",
        "DMA_UNMAP",
        "DEVICE_GET_INFO",
        "DEVICE_GET_REGION_INFO",
        "DEVICE_GET_REGION_IO_FDS",
        "DEVICE_GET_IRQ_INFO",
        "DEVICE_SET_IRQS",
        "REGION_READ",
        "REGION_WRITE",
        "DMA_READ",
        "DMA_WRITE",
        "DEVICE_RESET",
        "DIRTY_PAGES",
        "REGION_WRITE_MULTI",
        "DEVICE_FEATURE",
        "MIG_DATA_READ",
        "MIG_DATA_WRITE",
    ];
    NAMES.get(usize::from(command)).copied().unwrap_or("of an unknown number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undefined_flags_and_sizes_are_refused() {
        let header = |flags: u32, size: u32| {
            let raw = Raw { id: 7, command: 9, size, flags, error: 22 };
            Header::decode(&zerocopy::transmute!(raw))
        };
        assert_eq!(header(0, 16).unwrap().kind, Kind::Command { no_reply: false });
        assert_eq!(header(0x10, 16).unwrap().kind, Kind::Command { no_reply: true });
        assert_eq!(
            header(1, 17).unwrap(),
            Header { id: 7, command: 9, kind: Kind::Reply { error: None }, size: 1 }
        );
        assert_eq!(header(0x21, 16).unwrap().kind, Kind::Reply { error: Some(22) });
        for flags in [2, 0x11, 0x20, 0x30, 0x40, u32::MAX] {
            assert!(matches!(header(flags, 16), Err(CodecError::Flags { .. })), "{flags:#x}");
        }
        assert_eq!(header(0, (HEADER + PAYLOAD) as u32).unwrap().size, PAYLOAD);
        for size in [0, 15, (HEADER + PAYLOAD + 1) as u32, u32::MAX] {
            assert!(matches!(header(0, size), Err(CodecError::MessageSize { .. })), "{size}");
        }
    }

    #[test]
    fn names_match_their_numbers() {
        assert_eq!(name(command::DEVICE_RESET), "DEVICE_RESET");
        assert_eq!(name(command::REGION_WRITE_MULTI), "REGION_WRITE_MULTI");
        assert_eq!(name(19), "of an unknown number");
    }
}
