use crate::elaborate::elaborate;
use crate::parse::{Dialect, parse};
use crate::{Diagnostics, Environment, Graph, Limits};
use alloc::string::String;

/// A configuration to read.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    /// Its text.
    pub text: &'a str,
    /// The name that errors call it by; `config` if empty.
    pub file: &'a str,
    /// Variables given outside of it, which go before its own `define`s.
    pub variables: &'a [(String, String)],
    /// What it may cost.
    pub limits: Limits,
}

/// What a configuration came to.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The graph; to be used only if there are no errors.
    pub graph: Graph,
    /// Errors and warnings, in Click's order.
    pub diagnostics: Diagnostics,
}

impl<'a> Source<'a> {
    /// A configuration with no variables and the usual limits.
    pub fn new(text: &'a str, file: &'a str) -> Self {
        Self { text, file, variables: &[], limits: Limits::default() }
    }

    /// Reads it as Click's drivers do: classes must exist; everything is expanded and connections are sorted
    /// by input, then by output.
    pub fn read(&self, environment: &mut dyn Environment) -> Parsed {
        let mut diagnostics = Diagnostics::new(self.limits.diagnostics);
        let file = if self.file.is_empty() { "config" } else { self.file };
        let tree =
            parse(self.text, file, Dialect::Router, false, environment, &self.limits, &mut diagnostics);
        let graph = elaborate(tree, self.variables, &self.limits, &mut diagnostics);
        Parsed { graph, diagnostics }
    }
}
