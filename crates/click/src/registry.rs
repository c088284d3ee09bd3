//! Which element classes there are.
use crate::{Class, elements};
use alloc::collections::BTreeMap;

/// Element classes by name.
#[derive(Clone, Debug)]
pub struct Registry {
    classes: BTreeMap<&'static str, &'static Class>,
}

impl Default for Registry {
    /// The classes of this crate.
    fn default() -> Self {
        let mut registry = Self::empty();
        for group in elements::GROUPS {
            registry.add(group);
        }
        registry
    }
}

impl Registry {
    /// No class at all.
    pub fn empty() -> Self {
        Self { classes: BTreeMap::new() }
    }

    /// Adds classes; one that has the name of an earlier one takes its place.
    pub fn add(&mut self, classes: &[&'static Class]) {
        self.classes.extend(classes.iter().map(|class| (class.name, *class)));
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
