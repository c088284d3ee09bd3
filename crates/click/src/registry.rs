//! Which element classes there are.
use crate::{Class, elements};
use alloc::collections::BTreeMap;

/// What each class of a crate is told to be: its name, and its documentation in Markdown. A crate with elements
/// collects it by a build script such as this one's.
pub type Documentation = &'static [(&'static str, &'static str)];

/// This crate's.
const DOCUMENTATION: Documentation = include!(concat!(env!("OUT_DIR"), "/documentation.rs"));

/// Element classes by name.
#[derive(Clone, Debug)]
pub struct Registry {
    classes: BTreeMap<&'static str, &'static Class>,
    documentation: BTreeMap<&'static str, &'static str>,
}

impl Default for Registry {
    /// The classes of this crate.
    fn default() -> Self {
        let mut registry = Self::empty();
        for group in elements::GROUPS {
            registry.add(group);
        }
        registry.document(DOCUMENTATION);
        registry
    }
}

impl Registry {
    /// No class at all.
    pub fn empty() -> Self {
        Self { classes: BTreeMap::new(), documentation: BTreeMap::new() }
    }

    /// Adds classes; one that has the name of an earlier one takes its place.
    pub fn add(&mut self, classes: &[&'static Class]) {
        self.classes.extend(classes.iter().map(|class| (class.name, *class)));
    }

    /// Adds documentation of classes.
    pub fn document(&mut self, documentation: Documentation) {
        self.documentation.extend(documentation.iter().copied());
    }

    /// What a class is told to be, in Markdown: a line with its arguments and what it does, ports, arguments,
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_class_stands_twice() {
        let names: Vec<&str> =
            elements::GROUPS.iter().flat_map(|group| group.iter()).map(|c| c.name).collect();
        let distinct: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), distinct.len());
        assert!(Registry::default().find("Discard").is_some());
    }
}
