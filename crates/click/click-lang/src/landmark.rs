use alloc::sync::Arc;
use core::fmt;

/// A position in a configuration.
///
/// `Display` prints Click's form, `file:line`; the alternate form also has the column.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Landmark {
    /// The file's name, from the user or from a `# line` directive; may be empty.
    pub file: Arc<str>,
    /// Line, counted from 1; 0 if unknown.
    pub line: u32,
    /// Column in bytes, counted from 1; 0 if unknown.
    pub column: u32,
}

impl Landmark {
    /// The landmark of `line` in `file`, column unknown.
    pub fn new(file: impl Into<Arc<str>>, line: u32) -> Self {
        Self { file: file.into(), line, column: 0 }
    }
}

impl fmt::Display for Landmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.file.ends_with(|last: char| last == ':' || last.is_ascii_whitespace());
        match (self.line, open) {
            (0, _) => write!(f, "{}", self.file)?,
            (line, true) => write!(f, "{}{line}", self.file)?,
            (line, false) => write!(f, "{}:{line}", self.file)?,
        }
        if f.alternate() && self.line > 0 && self.column > 0 { write!(f, ":{}", self.column) } else { Ok(()) }
    }
}
