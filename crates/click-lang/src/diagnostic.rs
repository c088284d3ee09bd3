use crate::Landmark;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// How bad a [`Diagnostic`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Belongs to the diagnostic before it, as candidates belong to "no match".
    Note,
    /// Worth saying; the configuration is used.
    Warning,
    /// The configuration is refused.
    Error,
}

/// A message about a configuration, with Click's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Where it is, if it is anywhere.
    pub landmark: Option<Landmark>,
    /// Whether Click's own message says where.
    pub shown: bool,
    /// Click's text; may have several lines.
    pub text: String,
}

impl fmt::Display for Diagnostic {
    /// Click's form: `file:line: text`, each line with the landmark if Click's has it, a warning with `warning: `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, line) in self.text.lines().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            if let Some(landmark) = self.landmark.as_ref().filter(|_| self.shown) {
                write!(f, "{landmark}: ")?;
            }
            if number == 0 && self.severity == Severity::Warning {
                write!(f, "warning: ")?;
            }
            write!(f, "{line}")?;
        }
        Ok(())
    }
}

/// Diagnostics in the order in which Click prints them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    errors: usize,
    limit: usize,
}

impl Diagnostics {
    /// An empty list that keeps at most `limit` entries; errors beyond it are counted only.
    pub fn new(limit: usize) -> Self {
        Self { list: Vec::new(), errors: 0, limit }
    }

    /// Adds an error.
    pub fn error(&mut self, landmark: impl Into<Option<Landmark>>, text: impl Into<String>) {
        self.push(Severity::Error, landmark.into(), true, text.into());
    }

    /// Adds an error whose place Click's own message does not tell.
    pub fn error_at(&mut self, landmark: Landmark, text: impl Into<String>) {
        self.push(Severity::Error, Some(landmark), false, text.into());
    }

    /// Adds a warning.
    pub fn warning(&mut self, landmark: impl Into<Option<Landmark>>, text: impl Into<String>) {
        self.push(Severity::Warning, landmark.into(), true, text.into());
    }

    /// Adds a note to what was added last.
    pub fn note(&mut self, landmark: impl Into<Option<Landmark>>, text: impl Into<String>) {
        self.push(Severity::Note, landmark.into(), true, text.into());
    }

    fn push(&mut self, severity: Severity, landmark: Option<Landmark>, shown: bool, text: String) {
        self.errors += usize::from(severity == Severity::Error);
        // Attack: a configuration in which every byte is an error.
        if self.list.len() < self.limit {
            self.list.push(Diagnostic { severity, landmark, shown, text });
        }
    }

    /// How many errors there were, those beyond the limit included.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// Whether nothing was said at all.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// What was said, in order.
    pub fn iter(&self) -> core::slice::Iter<'_, Diagnostic> {
        self.list.iter()
    }
}

impl Extend<Diagnostic> for Diagnostics {
    fn extend<T: IntoIterator<Item = Diagnostic>>(&mut self, more: T) {
        for Diagnostic { severity, landmark, shown, text } in more {
            self.push(severity, landmark, shown, text);
        }
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = core::slice::Iter<'a, Diagnostic>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Diagnostics {
    /// One diagnostic a line, as Click's programs print them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.iter().try_for_each(|diagnostic| writeln!(f, "{diagnostic}"))
    }
}
