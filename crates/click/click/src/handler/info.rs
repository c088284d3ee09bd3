//! The description of a handler: its name and its properties.
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

/// A handler's name and properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerInfo {
    /// Its name.
    pub name: Cow<'static, str>,
    /// The handler can be read.
    pub readable: bool,
    /// The handler can be written.
    pub writable: bool,
    /// Reading takes parameters.
    pub parameters: bool,
    /// Raw: no newline is appended to the value read.
    pub raw: bool,
    /// Its value changes rarely.
    pub calm: bool,
    /// Reading it is expensive.
    pub expensive: bool,
    /// The written value is ignored.
    pub button: bool,
    /// The value is a Boolean.
    pub checkbox: bool,
    /// User interfaces need not show it.
    pub uncommon: bool,
    /// The handler is there for old configurations only.
    pub deprecated: bool,
    /// The handler is read from inside the configuration only.
    pub read_private: bool,
    /// The handler is written from inside the configuration only.
    pub write_private: bool,
}

impl HandlerInfo {
    /// Properties of a handler that can be neither read nor written.
    pub(crate) const fn new(name: Cow<'static, str>) -> Self {
        Self {
            name,
            readable: false,
            writable: false,
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

    /// The description of one of the runtime's own handlers.
    pub(crate) const fn of(name: &'static str, readable: bool, writable: bool) -> Self {
        let mut info = Self::new(Cow::Borrowed(name));
        (info.readable, info.writable) = (readable, writable);
        info
    }

    /// Whether it can be read from outside.
    pub fn read_visible(&self) -> bool {
        self.readable && !self.read_private
    }

    /// Whether it can be written from outside.
    pub fn write_visible(&self) -> bool {
        self.writable && !self.write_private
    }

    /// Adds the properties of the runtime's handler of the same name, which this one overrides.
    pub(crate) fn combine(&mut self, other: &HandlerInfo) {
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
