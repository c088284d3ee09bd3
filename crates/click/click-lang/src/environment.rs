use alloc::string::String;
use alloc::vec::Vec;

/// Information that the parser needs from its caller.
pub trait Environment {
    /// Whether there is an element class of that name.
    fn has_class(&self, name: &str) -> bool;

    /// The names of all element classes, for suggestions; none by default.
    fn classes(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Whether a package that the configuration requires is available.
    fn has_package(&mut self, name: &str) -> bool;

    /// Finds the file of `require(library NAME)`, first in `directory`, then on Click's search path. Returns
    /// its path, and its text or the error.
    fn library(&mut self, name: &str, directory: &str) -> Option<(String, Result<String, String>)>;
}

/// An environment without a runtime: every plain name that begins with a capital letter is a class, every
/// package is available, and no library.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anything;

impl Environment for Anything {
    fn has_class(&self, name: &str) -> bool {
        name.starts_with(|first: char| first.is_ascii_uppercase()) && !name.contains(['@', '/'])
    }

    fn has_package(&mut self, _: &str) -> bool {
        true
    }

    fn library(&mut self, _: &str, _: &str) -> Option<(String, Result<String, String>)> {
        None
    }
}
