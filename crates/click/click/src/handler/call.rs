//! Handler calls and their errors.
use crate::ElementId;
use crate::arg::ArgError;
use alloc::string::{String, ToString};
use core::fmt;

/// Why a handler could not be read or written. The texts are Click's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerError {
    /// There is no element of this name.
    NoElement(String),
    /// There is no such handler: its full name, and whether it was to be read or written.
    NoHandler(String, &'static str),
    /// The handler with this full name takes no parameters.
    NoParameters(String),
    /// The element is running: its full name. Writes are deferred instead.
    Busy(String),
    /// The value is not of the handler's type.
    Value(String),
    /// The handler's own error.
    Failed(String),
    /// The element's arguments, of which the value is one, are wrong.
    Arguments(String),
    /// A script ended by `error`, with this text.
    Script(String),
}

impl HandlerError {
    /// There is no handler of this name.
    pub fn missing(name: &str) -> Self {
        Self::NoHandler(name.to_string(), "")
    }

    /// The status that a script sees: Click's for errors of elements (EINVAL), of their arguments, and of scripts.
    /// None if there was no call.
    pub fn status(&self) -> Option<i32> {
        match self {
            Self::Busy(_) | Self::Value(_) | Self::Failed(_) => Some(-22),
            Self::Arguments(_) | Self::Script(_) => Some(-1),
            Self::NoElement(_) | Self::NoHandler(..) | Self::NoParameters(_) => None,
        }
    }

    /// The handler reports an error.
    // Not in each of the functions that fail.
    #[cold]
    #[inline(never)]
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }
}

impl From<ArgError> for HandlerError {
    fn from(error: ArgError) -> Self {
        Self::Value(error.to_string())
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoElement(name) => write!(f, "no element named '{name}'"),
            Self::NoHandler(name, "") => write!(f, "no '{name}' handler"),
            Self::NoHandler(name, way) => write!(f, "no '{name}' {way} handler"),
            Self::NoParameters(name) => write!(f, "read handler '{name}' does not take parameters"),
            Self::Busy(name) => write!(f, "'{name}' is in the middle of something"),
            Self::Value(text) | Self::Failed(text) | Self::Arguments(text) | Self::Script(text) => {
                f.write_str(text)
            }
        }
    }
}

impl core::error::Error for HandlerError {}

/// A handler to call later: `element.handler value`, or `handler value` for one of the router's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerCall {
    /// The element; none for one of the router's own.
    pub element: Option<ElementId>,
    /// The handler's name.
    pub handler: String,
    /// The value to write, or the parameters for reading.
    pub value: String,
}
