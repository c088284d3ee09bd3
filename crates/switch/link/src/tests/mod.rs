//! Virtual time: nothing here waits.

mod disciplines;
mod stages;

use crate::{Delay, Frame, Link, Profile, Reason};
use alloc::vec::Vec;

pub const MS: u64 = 1_000_000;

/// A frame of the tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub number: u64,
    pub len: usize,
    pub flow: u64,
    pub capable: bool,
    pub marked: bool,
    pub damaged: bool,
}

impl Note {
    pub fn new(number: u64, len: usize) -> Note {
        Note { number, len, flow: 0, capable: false, marked: false, damaged: false }
    }
}

impl Frame for Note {
    fn len(&self) -> usize {
        self.len
    }

    fn link_header(&self) -> usize {
        14
    }

    fn duplicate(&mut self) -> Option<Note> {
        Some(self.clone())
    }

    fn invert(&mut self, bit: usize) {
        assert!(bit < self.len * 8);
        self.damaged = true;
    }

    fn mark(&mut self) -> bool {
        self.marked |= self.capable;
        self.capable
    }

    fn flow(&self, _: u64) -> u64 {
        self.flow
    }
}

pub fn link(profile: Profile) -> Link<Note> {
    Link::new(profile, 1).unwrap()
}

/// Everything that arrives until the link is empty, with its time.
pub fn drain(link: &mut Link<Note>) -> Vec<(Note, u64)> {
    let mut all = Vec::new();
    while let Some(due) = link.due() {
        let before = link.backlog();
        all.extend(core::iter::from_fn(|| link.receive(due)));
        assert!(link.due().is_none_or(|next| next > due) || link.backlog() != before, "no progress at {due}");
    }
    all
}

pub fn drops(link: &Link<Note>, reason: Reason) -> u64 {
    link.counters().drops[reason as usize]
}

/// Sends `count` frames, one every `interval`.
pub fn send(link: &mut Link<Note>, count: u64, interval: u64, len: usize) {
    (0..count).for_each(|number| link.send(Note::new(number, len), number * interval));
}

pub fn after(delay: u64) -> Profile {
    Profile { delay: Delay::Constant(delay), ..Profile::default() }
}
