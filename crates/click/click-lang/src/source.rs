use crate::elaborate::elaborate;
use crate::parse::{Dialect, parse};
use crate::{Diagnostics, Environment, Graph, Limits};
use alloc::string::String;

/// A configuration to read.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    /// The text.
    pub text: &'a str,
    /// The file's name in errors; `config` if empty.
    pub file: &'a str,
    /// Predefined variables.
    pub variables: &'a [(String, String)],
    /// Resource limits.
    pub limits: Limits,
}

/// The result of parsing.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The graph; valid only if there are no errors.
    pub graph: Graph,
    /// Errors and warnings, in Click's order.
    pub diagnostics: Diagnostics,
}

impl<'a> Source<'a> {
    /// A configuration without predefined variables, with default limits.
    pub fn new(text: &'a str, file: &'a str) -> Self {
        Self { text, file, variables: &[], limits: Limits::default() }
    }

    /// Parses as Click's drivers do: classes must be known, compounds and variables are expanded, and
    /// connections are sorted by input, then by output.
    pub fn read(&self, environment: &mut dyn Environment) -> Parsed {
        let mut diagnostics = Diagnostics::new(self.limits.diagnostics);
        let file = if self.file.is_empty() { "config" } else { self.file };
        let tree =
            parse(self.text, file, Dialect::Router, false, environment, &self.limits, &mut diagnostics);
        let graph = elaborate(tree, self.variables, &self.limits, &mut diagnostics);
        Parsed { graph, diagnostics }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Anything;
    use alloc::string::ToString;

    #[test]
    fn a_byte_order_mark_is_skipped() {
        let read = |text: &str| Source::new(text, "file").read(&mut Anything);
        let parsed = read("\u{feff}a :: Idle -> Discard;");
        assert_eq!(parsed.diagnostics.to_string(), "");
        assert_eq!(parsed.graph.elements[0].name, "a");
        for text in ["]\n", "Idle ->\n]\n"] {
            let (with, without) = (read(&["\u{feff}", text].concat()), read(text));
            assert_eq!(alloc::format!("{:#}", with.diagnostics), alloc::format!("{:#}", without.diagnostics));
        }
        assert_ne!(read("a :: Idle -> \u{feff}Discard;").diagnostics.to_string(), "");
    }
}
