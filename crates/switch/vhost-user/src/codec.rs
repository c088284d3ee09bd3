//! Encoding and decoding of message fields.

use crate::header::name;

/// Why bytes and descriptors are not a valid message. The text names the message and the error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// An unsupported protocol version, or undefined flag bits.
    #[error("message {} has flags {flags:#x}: not version 1, or undefined flags", name(*request))]
    Flags {
        /// Number of the message.
        request: u32,
        /// The flags.
        flags: u32,
    },
    /// A payload longer than that of any message.
    #[error("message {} has a length of {size} bytes, more than the maximum", name(*request))]
    Oversize {
        /// Number of the message.
        request: u32,
        /// Length of the payload in bytes.
        size: u32,
    },
    /// A payload of the wrong length.
    #[error("message {} has an invalid length of {size} bytes", name(*request))]
    Size {
        /// Number of the message.
        request: u32,
        /// Length of the payload in bytes.
        size: usize,
    },
    /// A wrong number of descriptors.
    #[error("message {} carries {got} descriptors instead of {want}", name(*request))]
    Descriptors {
        /// Number of the message.
        request: u32,
        /// Number of received descriptors.
        got: usize,
        /// Number of required descriptors.
        want: usize,
    },
    /// More descriptors than any message carries; the surplus was closed.
    #[error("more descriptors were received than a message may carry")]
    DescriptorFlood,
    /// A field with an invalid value.
    #[error("message {} has an invalid {field}", name(*request))]
    Field {
        /// Number of the message.
        request: u32,
        /// The field.
        field: &'static str,
    },
    /// An unknown message.
    #[error("unknown message {request}")]
    Unknown {
        /// Number of the message.
        request: u32,
    },
    /// The stream ended within a message.
    #[error("the connection ended in the middle of a message")]
    Truncated,
}

/// Reads the fields of a payload. Numbers are in native byte order, as the protocol requires.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    request: u32,
    size: usize,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(request: u32, payload: &'a [u8]) -> Fields<'a> {
        Fields { request, size: payload.len(), rest: payload }
    }

    pub(crate) fn invalid_size(&self) -> CodecError {
        CodecError::Size { request: self.request, size: self.size }
    }

    pub(crate) fn invalid(&self, field: &'static str) -> CodecError {
        CodecError::Field { request: self.request, field }
    }

    pub(crate) fn request(&self) -> u32 {
        self.request
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let (first, rest) = self.rest.split_first_chunk::<N>().ok_or(self.invalid_size())?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, CodecError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, CodecError> {
        Ok(u16::from_ne_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, CodecError> {
        Ok(u32::from_ne_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, CodecError> {
        Ok(u64::from_ne_bytes(self.array()?))
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], CodecError> {
        let (first, rest) = self.rest.split_at_checked(count).ok_or(self.invalid_size())?;
        self.rest = rest;
        Ok(first)
    }

    /// Checks that at most `padding` bytes are left.
    pub(crate) fn end(&self, padding: usize) -> Result<(), CodecError> {
        if self.rest.len() > padding { Err(self.invalid_size()) } else { Ok(()) }
    }
}

/// Writes the fields of a payload.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u16(mut self, value: u16) -> Writer {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(crate) fn u32(mut self, value: u32) -> Writer {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Writer {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Writer {
        self.0.extend(bytes);
        self
    }
}
