//! The available element classes.
use crate::Class;
use alloc::collections::BTreeMap;

/// A crate's classes, each with its documentation in Markdown, as collected by `crates/click/elements/build.rs`;
/// other crates with elements use the same build script.
pub type Documentation = &'static [(&'static str, &'static str)];

/// Element classes by name.
#[derive(Clone, Debug)]
pub struct Registry {
    classes: BTreeMap<&'static str, &'static Class>,
    documentation: BTreeMap<&'static str, &'static str>,
}

impl Registry {
    /// A registry without classes.
    pub fn empty() -> Self {
        Self { classes: BTreeMap::new(), documentation: BTreeMap::new() }
    }

    /// Adds classes; a class replaces an earlier one of the same name.
    pub fn add(&mut self, classes: &[&'static Class]) {
        self.classes.extend(classes.iter().map(|class| (class.name, *class)));
    }

    /// Adds documentation of classes.
    pub fn document(&mut self, documentation: Documentation) {
        self.documentation.extend(documentation.iter().copied());
    }

    /// A class's documentation in Markdown: a line with its arguments and purpose, ports, arguments,
    /// handlers.
    pub fn documentation(&self, class: &str) -> Option<&'static str> {
        self.documentation.get(class).copied()
    }

    /// The class of this name.
    pub fn find(&self, name: &str) -> Option<&'static Class> {
        self.classes.get(name).copied()
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = &'static Class> + '_ {
        self.classes.values().copied()
    }
}
