//! Click's tools, which read a configuration and write a changed one.
pub mod align;
mod aligner;
mod alignment;
pub mod combine;
mod flatten;
mod router;
mod tunnel;
pub mod undead;
pub mod xform;

pub use router::{Class, Router, RouterElement};

use crate::archive::{self, Member};
use crate::parse::{Dialect, parse};
use crate::tree::{ROOT, Tree};
use crate::{Diagnostics, Environment, Landmark, Limits};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Input of a tool.
#[derive(Clone, Debug)]
pub struct ToolSource<'a> {
    /// The file's bytes: a configuration, or an archive with one.
    pub bytes: &'a [u8],
    /// The file's name in errors.
    pub file: &'a str,
    /// Variables from the command line.
    pub variables: &'a [(String, String)],
    /// Whether an empty file is accepted without a warning.
    pub may_be_empty: bool,
    /// Resource limits.
    pub limits: Limits,
}

/// A configuration as loaded by a tool, before expanding compounds.
pub struct Loaded {
    tree: Tree,
    archive: Vec<Member>,
    variables: Vec<(String, String)>,
    limits: Limits,
}

impl ToolSource<'_> {
    /// Parses as Click's tools do: every name can be a class.
    pub fn load(&self, environment: &mut dyn Environment, diagnostics: &mut Diagnostics) -> Loaded {
        let (config, archive) = self.members(diagnostics);
        let text = String::from_utf8_lossy(&config);
        if text.is_empty() && !self.may_be_empty {
            diagnostics.warning(Landmark::new(self.file, 0), "empty configuration");
        }
        let tree = parse(&text, self.file, Dialect::Tools, false, environment, &self.limits, diagnostics);
        Loaded { tree, archive, variables: self.variables.into(), limits: self.limits }
    }

    /// The configuration, and the other members of the archive.
    fn members(&self, diagnostics: &mut Diagnostics) -> (Vec<u8>, Vec<Member>) {
        if !archive::is_archive(self.bytes) {
            return (self.bytes.into(), Vec::new());
        }
        let mut members = match archive::parse(self.bytes) {
            Ok(members) => members,
            Err(error) => {
                diagnostics.error(Landmark::new(self.file, 0), format!("{error}"));
                return (Vec::new(), Vec::new());
            }
        };
        match members.iter().position(|member| member.name == "config") {
            Some(place) => (members.remove(place).data, members),
            None => {
                diagnostics.error(Landmark::new(self.file, 0), "archive has no 'config' section");
                (Vec::new(), members)
            }
        }
    }
}

impl Loaded {
    /// The flat configuration. Variables of the file stay variables unless `expand_variables`.
    pub fn flatten(&self, expand_variables: bool, diagnostics: &mut Diagnostics) -> Router {
        let mut router = Router::of_compound(&self.tree, ROOT);
        router.archive.clone_from(&self.archive);
        for (name, value) in &self.variables {
            router.define(name, value);
        }
        flatten::flatten(&mut router, &self.tree, expand_variables, &self.limits, diagnostics);
        router
    }
}
