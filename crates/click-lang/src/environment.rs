use alloc::string::String;

/// What the language has to ask of its surroundings while it reads.
pub trait Environment {
    /// Whether there is an element class of that name.
    fn has_class(&self, name: &str) -> bool;

    /// Whether a package that the configuration requires is there.
    fn has_package(&mut self, name: &str) -> bool;

    /// Finds the file of `require(library NAME)`, looking in `directory` first and then on Click's search path.
    /// The path found, and the text or why it can't be read.
    fn library(&mut self, name: &str, directory: &str) -> Option<(String, Result<String, String>)>;
}

/// Surroundings without a runtime: every plain name with a capital is a class, every package is there, no library.
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
