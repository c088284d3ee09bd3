//! Reading and writing the fields of messages.

use crate::header::name;

/// Why bytes and descriptors aren't a message. The text names the message and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Another version of the protocol, or bits of the flags that nobody defined.
    #[error("message {} has flags {flags:#x}; this end speaks version 1", name(*request))]
    Flags {
        /// Number of the message.
        request: u32,
        /// Its flags.
        flags: u32,
    },
    /// A payload longer than any message has.
    #[error("message {} claims {size} bytes; no message has that many", name(*request))]
    Oversize {
        /// Number of the message.
        request: u32,
        /// The size it claims.
        size: u32,
    },
    /// A payload of the wrong length.
    #[error("message {} has {size} bytes, which is not its length", name(*request))]
    Size {
        /// Number of the message.
        request: u32,
        /// Its size.
        size: usize,
    },
    /// Too many descriptors, or too few.
    #[error("message {} carries {got} descriptors instead of {want}", name(*request))]
    Descriptors {
        /// Number of the message.
        request: u32,
        /// How many came.
        got: usize,
        /// How many it should have.
        want: usize,
    },
    /// More descriptors than the receiver made room for; those were lost.
    #[error("more descriptors came than any message carries")]
    DescriptorFlood,
    /// A field that can't have this value.
    #[error("message {} has an impossible {field}", name(*request))]
    Field {
        /// Number of the message.
        request: u32,
        /// Which field.
        field: &'static str,
    },
    /// No such message.
    #[error("message {request} is not known")]
    Unknown {
        /// Its number.
        request: u32,
    },
    /// The stream ended within a message.
    #[error("the connection ended in the middle of a message")]
    Truncated,
}

/// A payload that is being read. Numbers are in the machine's own byte order, as the protocol has them.
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

    pub(crate) fn wrong_size(&self) -> CodecError {
        CodecError::Size { request: self.request, size: self.size }
    }

    pub(crate) fn wrong(&self, field: &'static str) -> CodecError {
        CodecError::Field { request: self.request, field }
    }

    pub(crate) fn request(&self) -> u32 {
        self.request
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let (first, rest) = self.rest.split_first_chunk::<N>().ok_or(self.wrong_size())?;
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
        let (first, rest) = self.rest.split_at_checked(count).ok_or(self.wrong_size())?;
        self.rest = rest;
        Ok(first)
    }

    /// Nothing but up to `padding` bytes may be left.
    pub(crate) fn end(&self, padding: usize) -> Result<(), CodecError> {
        if self.rest.len() > padding { Err(self.wrong_size()) } else { Ok(()) }
    }
}

/// A payload that is being written.
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
