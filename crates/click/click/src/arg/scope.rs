//! The context for parsing an argument.
use super::Names;
use crate::ElementId;
use alloc::rc::Rc;
use alloc::string::String;
use core::fmt;

/// The names visible to an element; by default none.
#[derive(Clone, Default)]
pub struct Scope {
    names: Rc<Names>,
    element: String,
}

impl Scope {
    pub(crate) fn new(names: Rc<Names>, element: &str) -> Self {
        Self { names, element: element.into() }
    }

    /// The element's own name.
    pub fn element_name(&self) -> &str {
        &self.element
    }

    /// All names.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The element of this name, searched from this element's compound outwards.
    pub fn find(&self, name: &str) -> Option<ElementId> {
        self.names.find(name, &self.element)
    }
}

/// Why an argument is bad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgError {
    /// The text does not have the syntax of the type.
    Parse,
    /// The text is not a number.
    Number,
    /// Something else, in words.
    Other(String),
}

impl ArgError {
    /// The error's message.
    #[cold]
    #[inline(never)]
    pub fn other(text: impl Into<String>) -> Self {
        Self::Other(text.into())
    }
}

impl fmt::Display for ArgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parse => f.write_str("parse error"),
            Self::Number => f.write_str("invalid number"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// A type of argument.
pub trait Arg: Sized {
    /// Parses a value.
    ///
    /// # Errors
    /// [`ArgError::Parse`] for invalid syntax; [`ArgError::Other`] with details.
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError>;
}

impl<T: Arg> Arg for Option<T> {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        T::parse(text, scope).map(Some)
    }
}

/// An element's name.
impl Arg for ElementId {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        scope.find(text).ok_or_else(|| ArgError::other("does not name an element"))
    }
}
