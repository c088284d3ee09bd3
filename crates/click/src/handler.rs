//! Handlers: named values and actions of elements and of the router.
use crate::ElementId;
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

/// A handler: its name and what can be done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    /// Its name.
    pub name: Cow<'static, str>,
    /// It can be read.
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
    /// Reading takes parameters.
    pub parameters: bool,
    /// Its value is handed over as it is: no newline is added to what is read.
    pub raw: bool,
    /// Its value changes rarely.
    pub calm: bool,
    /// Reading it costs much.
    pub expensive: bool,
    /// What is written does not matter.
    pub button: bool,
    /// It is a Boolean.
    pub checkbox: bool,
    /// Programs for people need not show it.
    pub uncommon: bool,
    /// It is there for old configurations only.
    pub deprecated: bool,
    /// It is read from inside the configuration only.
    pub read_private: bool,
    /// It is written from inside the configuration only.
    pub write_private: bool,
}

impl Handler {
    const fn new(name: &'static str, readable: bool, writable: bool) -> Self {
        Self {
            name: Cow::Borrowed(name),
            readable,
            writable,
            parameters: false,
            raw: false,
            calm: false,
            expensive: false,
            button: false,
            checkbox: false,
            uncommon: false,
            deprecated: false,
            read_private: false,
            write_private: false,
        }
    }

    /// A handler to read.
    pub const fn read(name: &'static str) -> Self {
        Self::new(name, true, false)
    }

    /// A handler to write.
    pub const fn write(name: &'static str) -> Self {
        Self::new(name, false, true)
    }

    /// A handler to read and write.
    pub const fn both(name: &'static str) -> Self {
        Self::new(name, true, true)
    }

    /// The same under a name found at run time.
    pub fn named(mut self, name: String) -> Self {
        self.name = Cow::Owned(name);
        self
    }

    /// Reading takes parameters.
    pub const fn parameters(mut self) -> Self {
        self.parameters = true;
        self
    }

    /// Its value is handed over as it is.
    pub const fn raw(mut self) -> Self {
        self.raw = true;
        self
    }

    /// Its value changes rarely.
    pub const fn calm(mut self) -> Self {
        self.calm = true;
        self
    }

    /// Reading it costs much.
    pub const fn expensive(mut self) -> Self {
        self.expensive = true;
        self
    }

    /// What is written does not matter.
    pub const fn button(mut self) -> Self {
        self.button = true;
        self
    }

    /// It is a Boolean.
    pub const fn checkbox(mut self) -> Self {
        self.checkbox = true;
        self
    }

    /// Programs for people need not show it.
    pub const fn uncommon(mut self) -> Self {
        self.uncommon = true;
        self
    }

    /// It is there for old configurations only.
    pub const fn deprecated(mut self) -> Self {
        self.deprecated = true;
        self
    }

    /// It can be read and written from inside the configuration only.
    pub const fn private(mut self) -> Self {
        self.read_private = true;
        self.write_private = true;
        self
    }

    /// Whether it can be read from outside.
    pub fn read_visible(&self) -> bool {
        self.readable && !self.read_private
    }

    /// Whether it can be written from outside.
    pub fn write_visible(&self) -> bool {
        self.writable && !self.write_private
    }

    /// Adds what another handler of the same name can do and this one can't.
    pub(crate) fn combine(&mut self, other: &Handler) {
        if !self.readable && other.readable {
            self.readable = true;
            self.parameters |= other.parameters;
        }
        self.writable |= other.writable;
        self.raw |= other.raw;
        self.calm |= other.calm;
        self.checkbox |= other.checkbox;
        self.button |= other.button;
    }

    /// Its line in a `handlers` handler: the name, a tab, letters.
    pub(crate) fn line(&self) -> String {
        let letters = [
            (self.read_visible(), 'r'),
            (self.write_visible(), 'w'),
            (self.parameters, '+'),
            (self.raw, '%'),
            (self.calm, '.'),
            (self.expensive, '$'),
            (self.uncommon, 'U'),
            (self.deprecated, 'D'),
            (self.button, 'b'),
            (self.checkbox, 'c'),
        ];
        let letters: String = letters.iter().filter(|(on, _)| *on).map(|(_, letter)| letter).collect();
        format!("{}\t{letters}\n", self.name)
    }
}

/// Why a handler could not be read or written. The texts are Click's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerError {
    /// No element has this name.
    NoElement(String),
    /// There is no such handler: its full name, and which way it was to be called.
    NoHandler(String, &'static str),
    /// It takes no parameters: its full name.
    NoParameters(String),
    /// The element is in the middle of something: its full name. Writes are not answered so but done afterwards.
    Busy(String),
    /// The handler said so.
    Failed(String),
}

impl HandlerError {
    /// There is no handler of this name.
    pub fn missing(name: &str) -> Self {
        Self::NoHandler(name.to_string(), "")
    }

    /// The handler says what is wrong.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
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
            Self::Failed(text) => f.write_str(text),
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
    /// What to write, or the parameters to read with.
    pub value: String,
}
