//! Which elements a configuration's text may name.
use super::{Member, Reach};
use crate::arg::Names;
use alloc::collections::BTreeSet;
use ringway_click_lang::config;

/// The names of a configuration.
pub(super) struct Mentions<'a> {
    members: &'a [Member<'a>],
    names: Names,
    /// The last components of all names, to reject most words quickly.
    ends: BTreeSet<&'a str>,
}

/// The last component of a name.
fn end(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Whether a byte may be in an element's name.
fn is_in_names(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '@' | '/')
}

impl<'a> Mentions<'a> {
    pub(super) fn new(members: &'a [Member<'a>]) -> Self {
        let names = Names::of(members.iter().map(|member| member.name));
        let mut ends = BTreeSet::new();
        ends.extend(members.iter().map(|member| end(member.name)));
        Self { members, names, ends }
    }

    /// Calls `found` for each pair of an element and another one that a word of its configuration names: a
    /// word alone, before a handler's name, or in a script.
    pub(super) fn each(&self, mut found: impl FnMut(usize, usize)) {
        for (by, member) in self.members.iter().enumerate().filter(|(_, m)| m.reach != Reach::Each) {
            let mut look = |text: &str| {
                for word in text.split(|c| !is_in_names(c)).filter(|word| self.ends.contains(end(word))) {
                    if let Some(id) = self.names.find(word, member.name).filter(|id| id.index() != by) {
                        found(by, id.index());
                    }
                }
            };
            look(member.configuration);
            if member.configuration.contains(['"', '\'', '\\']) {
                look(&config::unquote_text(member.configuration));
            }
        }
    }
}
