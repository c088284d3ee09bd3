//! Notifiers: an element signals that it has packets, or room for them; elements that wait for this sleep
//! meanwhile.
use crate::{Router, Task};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The condition that a notifier signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// Active while there may be packets to pull (Click's empty notifier).
    Empty,
    /// Active while there is room to push to (Click's full notifier).
    Full,
}

/// How a search for notifiers continues at one that it found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// The search ends there.
    #[default]
    Stop,
    /// Continues behind it too.
    Continue,
    /// Continues behind it too, and notifiers found there wake the searcher directly.
    ContinueWake,
}

/// A notifier of an element; created by [`crate::Context::new_note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note(pub(crate) u32);

/// The listener of a notifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listener {
    Task(Task),
    Note(Note),
}

#[derive(Debug)]
pub(crate) struct NoteState {
    pub(crate) kind: NoteKind,
    pub(crate) search: Search,
    /// Its output (for [`NoteKind::Empty`]) or input; all of them if none.
    pub(crate) port: Option<usize>,
    pub(crate) element: crate::ElementId,
    pub(crate) active: bool,
    pub(crate) listeners: Vec<Listener>,
}

/// Result of a search: whether there may be something to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Signal {
    /// Always: some element has no notifier.
    #[default]
    Busy,
    /// Never: there is no element.
    Idle,
    /// While any of these is active.
    Notes(Vec<Note>),
}

impl Router {
    pub(crate) fn set_note(&mut self, note: Note, active: bool) {
        let Some(state) = self.notes.get_mut(note.0 as usize) else { return };
        if state.active == active {
            return;
        }
        state.active = active;
        if !active {
            return;
        }
        for index in 0..self.notes[note.0 as usize].listeners.len() {
            match self.notes[note.0 as usize].listeners[index] {
                Listener::Task(task) => self.tasks.reschedule(task),
                Listener::Note(note) => self.set_note(note, true),
            }
        }
    }

    /// A signal as text, for debugging: a word for each 32 notifiers of a kind, with its mask and value.
    pub fn signal_text(&self, signal: &Signal) -> String {
        let notes = match signal {
            Signal::Busy => return "busy*".into(),
            Signal::Idle => return "idle".into(),
            Signal::Notes(notes) => notes,
        };
        let mut words: BTreeMap<(&str, usize), (u32, u32)> = BTreeMap::new();
        for note in notes {
            let Some(state) = self.notes.get(note.0 as usize) else { continue };
            let before = self.notes.iter().take(note.0 as usize).filter(|own| own.kind == state.kind).count();
            let kind = if state.kind == NoteKind::Empty { "empty" } else { "full" };
            let (mask, value) = words.entry((kind, before / 32)).or_default();
            *mask |= 1 << (before % 32);
            *value |= u32::from(state.active) << (before % 32);
        }
        let words: Vec<String> = words
            .into_iter()
            .map(|((kind, word), (mask, value))| {
                format!("{kind}.{word}/{mask:x}:{value:x}{}", if value == 0 { "" } else { "*" })
            })
            .collect();
        words.join("+")
    }

    #[inline]
    pub(crate) fn is_active(&self, signal: &Signal) -> bool {
        match signal {
            Signal::Busy => true,
            Signal::Idle => false,
            Signal::Notes(notes) => notes.iter().any(|note| self.notes[note.0 as usize].active),
        }
    }
}
