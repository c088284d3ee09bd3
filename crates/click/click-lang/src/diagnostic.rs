use crate::Landmark;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Severity of a [`Diagnostic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Belongs to the previous diagnostic, such as the candidates of "no match".
    Note,
    /// The configuration is accepted.
    Warning,
    /// The configuration is refused.
    Error,
}

/// A message about a configuration, with Click's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The severity.
    pub severity: Severity,
    /// The position, if known.
    pub landmark: Option<Landmark>,
    /// Whether Click prints the position.
    pub shown: bool,
    /// Click's text; may have several lines.
    pub text: String,
    /// A suggestion, which Click doesn't print.
    pub hint: Option<String>,
}

impl fmt::Display for Diagnostic {
    /// Formats as Click does: `file:line: text`, each line with the landmark if Click prints it, and
    /// `warning: ` before a warning. The alternate form also has columns and hints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, line) in self.text.lines().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            match self.landmark.as_ref().filter(|_| self.shown) {
                Some(landmark) if f.alternate() => write!(f, "{landmark:#}: ")?,
                Some(landmark) => write!(f, "{landmark}: ")?,
                None => {}
            }
            if number == 0 && self.severity == Severity::Warning {
                write!(f, "warning: ")?;
            }
            write!(f, "{line}")?;
        }
        match &self.hint {
            Some(hint) if f.alternate() => write!(f, "; {hint}"),
            _ => Ok(()),
        }
    }
}

/// Diagnostics in Click's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    errors: usize,
    limit: usize,
}

impl Diagnostics {
    /// An empty list of at most `limit` entries. Further errors are only counted.
    pub fn new(limit: usize) -> Self {
        Self { list: Vec::new(), errors: 0, limit }
    }

    /// Adds an error.
    pub fn error(&mut self, landmark: impl Into<Option<Landmark>>, text: impl Into<String>) {
        self.push(Severity::Error, landmark.into(), true, text.into());
    }

    /// Adds an error whose position Click doesn't print.
    pub fn error_at(&mut self, landmark: Landmark, text: impl Into<String>) {
        self.push(Severity::Error, Some(landmark), false, text.into());
    }

    /// Adds a warning.
    pub fn warning(&mut self, landmark: impl Into<Option<Landmark>>, text: impl Into<String>) {
        self.push(Severity::Warning, landmark.into(), true, text.into());
    }

    /// Adds a note to the last diagnostic.
    pub fn note(&mut self, landmark: impl Into<Option<Landmark>>, text: impl Into<String>) {
        self.push(Severity::Note, landmark.into(), true, text.into());
    }

    fn push(&mut self, severity: Severity, landmark: Option<Landmark>, shown: bool, text: String) {
        self.errors += usize::from(severity == Severity::Error);
        // Attack: a configuration with an error in every byte.
        if self.list.len() < self.limit {
            self.list.push(Diagnostic { severity, landmark, shown, text, hint: None });
        }
    }

    /// Adds a suggestion to the last diagnostic.
    pub fn hint(&mut self, hint: Option<String>) {
        if let Some(last) = self.list.last_mut().filter(|_| hint.is_some()) {
            last.hint = hint;
        }
    }

    /// Number of errors, including those beyond the limit.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// Whether there are no diagnostics.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The diagnostics in order.
    pub fn iter(&self) -> core::slice::Iter<'_, Diagnostic> {
        self.list.iter()
    }
}

impl Extend<Diagnostic> for Diagnostics {
    fn extend<T: IntoIterator<Item = Diagnostic>>(&mut self, more: T) {
        for Diagnostic { severity, landmark, shown, text, hint } in more {
            self.push(severity, landmark, shown, text);
            self.hint(hint);
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
    /// One diagnostic per line, as Click's programs print them. The alternate form also has columns and
    /// hints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.iter().try_for_each(|diagnostic| match f.alternate() {
            true => writeln!(f, "{diagnostic:#}"),
            false => writeln!(f, "{diagnostic}"),
        })
    }
}
