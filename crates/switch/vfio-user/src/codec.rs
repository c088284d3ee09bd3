//! Errors of messages, and the decoding of their fixed parts.

use crate::errno;
use crate::header::name;
use zerocopy::FromBytes;

/// Why bytes and descriptors are not a valid message. The text names the message and the error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Undefined flags in a header, or flags that contradict each other.
    #[error("message {} has flags {flags:#x}", name(*command))]
    Flags {
        /// Number of the message.
        command: u16,
        /// Its flags.
        flags: u32,
    },
    /// A message shorter than a header or longer than any message.
    #[error("message {} claims {size} bytes", name(*command))]
    MessageSize {
        /// Number of the message.
        command: u16,
        /// The size it claims.
        size: u32,
    },
    /// More descriptors than the receiver accepts; the surplus is lost.
    #[error("more descriptors were received than a message may carry")]
    DescriptorFlood,
    /// The stream ended within a message.
    #[error("the connection ended in the middle of a message")]
    Truncated,
    /// A payload of the wrong length.
    #[error("message {} has {size} bytes of payload, a wrong length", name(*command))]
    Size {
        /// Number of the message.
        command: u16,
        /// Bytes of its payload.
        size: usize,
    },
    /// Too many descriptors, or too few.
    #[error("message {} carries {got} descriptors instead of {want}", name(*command))]
    Descriptors {
        /// Number of the message.
        command: u16,
        /// Number that arrived.
        got: usize,
        /// Number that the message should have.
        want: usize,
    },
    /// A field with an invalid value.
    #[error("message {} has an invalid {field}", name(*command))]
    Field {
        /// Number of the message.
        command: u16,
        /// Which field.
        field: &'static str,
    },
    /// An unknown message, or one that this end does not serve.
    #[error("message {} is not supported", name(*command))]
    Unsupported {
        /// Its number.
        command: u16,
    },
}

impl CodecError {
    /// The error number of a reply.
    pub(crate) fn errno(&self) -> u32 {
        if matches!(self, CodecError::Unsupported { .. }) { errno::ENOTSUP } else { errno::EINVAL }
    }
}

/// A payload that begins with a `T`, and the rest of it.
pub(crate) fn split<T: FromBytes>(command: u16, payload: &[u8]) -> Result<(T, &[u8]), CodecError> {
    let error = |_| CodecError::Size { command, size: payload.len() };
    T::read_from_prefix(payload).map_err(error)
}

/// A payload that is a `T`.
pub(crate) fn whole<T: FromBytes>(command: u16, payload: &[u8]) -> Result<T, CodecError> {
    match split(command, payload)? {
        (value, []) => Ok(value),
        _ => Err(CodecError::Size { command, size: payload.len() }),
    }
}
