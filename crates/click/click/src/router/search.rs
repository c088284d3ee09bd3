//! Searching the graph.
use super::Router;
use crate::notifier::Listener;
use crate::{ElementId, Note, NoteKind, Search, Signal};
use alloc::vec::Vec;
use ringway_click_lang::check::Flow;

/// How a search continues behind a port.
enum Way {
    /// Stops.
    Ends,
    /// Continues.
    GoesOn,
}

impl Router {
    /// The signal of all notifiers that packets to (or from) a port depend on; `listener` is called when one
    /// wakes.
    pub(crate) fn signal(
        &mut self,
        from: ElementId,
        port: usize,
        kind: NoteKind,
        listener: Option<Listener>,
    ) -> Signal {
        let Some(found) = self.find_notes(from, port, kind) else { return Signal::Busy };
        if let Some(listener) = listener {
            for note in &found {
                let listeners = &mut self.notes[note.0 as usize].listeners;
                if !listeners.contains(&listener) {
                    listeners.push(listener);
                }
            }
        }
        if found.is_empty() { Signal::Idle } else { Signal::Notes(found) }
    }

    /// The notifiers themselves; `None` if an element on the way has none.
    fn find_notes(&self, from: ElementId, port: usize, kind: NoteKind) -> Option<Vec<Note>> {
        let forward = kind == NoteKind::Full;
        let mut found: Vec<Note> = Vec::new();
        let all = self.walk((from, port), forward, |(element, port)| {
            if let Some(note) = self.note_at(element, port, kind) {
                if !found.contains(&note) {
                    found.push(note);
                }
                let stops = self.notes[note.0 as usize].search == Search::Stop;
                Some(if stops { Way::Ends } else { Way::GoesOn })
            } else {
                (!self.ends_the_search(element, port, forward)).then_some(Way::GoesOn)
            }
        });
        all.then_some(found)
    }

    /// Visits each port that packets at a port reach, down- or upstream; `look` returns for each whether to
    /// continue behind it, or `None` to abort the search, which then returns false.
    fn walk(
        &self,
        from: (ElementId, usize),
        forward: bool,
        mut look: impl FnMut((ElementId, usize)) -> Option<Way>,
    ) -> bool {
        let mut seen: Vec<(ElementId, usize)> = Vec::new();
        let mut ends = alloc::vec![from];
        while let Some(end) = ends.pop() {
            for other in self.other_ends(end, forward) {
                if seen.contains(&other) {
                    continue;
                }
                seen.push(other);
                match look(other) {
                    None => return false,
                    Some(Way::Ends) => {}
                    Some(Way::GoesOn) => {
                        let (element, port) = other;
                        let behind = self.flows_to(element, port, forward);
                        ends.extend(behind.into_iter().map(|port| (element, port)));
                    }
                }
            }
        }
        true
    }

    fn note_at(&self, element: ElementId, port: usize, kind: NoteKind) -> Option<Note> {
        let position = self.notes.iter().position(|note| {
            note.element == element && note.kind == kind && note.port.is_none_or(|own| own == port)
        })?;
        Some(Note(position as u32))
    }

    /// Whether a port without a notifier is at a push-pull boundary, or belongs to an element that creates
    /// packets.
    fn ends_the_search(&self, element: ElementId, port: usize, forward: bool) -> bool {
        let info = self.info(element);
        let side = if forward { &info.inputs } else { &info.outputs };
        let active = side.get(port).is_some_and(|port| port.pull == forward);
        active || self.flows_to(element, port, forward).is_empty() && info.class.flag('S') != Some(0)
    }

    /// The nearest elements of a kind, down- or upstream of a port.
    pub(crate) fn nearby(&self, from: ElementId, port: usize, forward: bool, kind: &str) -> Vec<ElementId> {
        let mut found: Vec<ElementId> = Vec::new();
        self.walk((from, port), forward, |(element, _)| {
            if !self.element(element).is_some_and(|there| there.cast(kind)) {
                return Some(Way::GoesOn);
            }
            if !found.contains(&element) {
                found.push(element);
            }
            Some(Way::Ends)
        });
        found
    }

    /// Whether packets reach an element by pushes alone (FastClick): not from a queue, and not through a
    /// Pipeliner, behind which another task sends them.
    pub(super) fn is_fullpush(&self, id: ElementId) -> bool {
        let pushed = |id: ElementId| self.info(id).inputs.iter().all(|port| !port.pull);
        let passes = |id: ElementId| pushed(id) && !self.is_kind(id, "Pipeliner");
        let mut inputs = 0..self.info(id).inputs.len();
        pushed(id)
            && inputs
                .all(|port| self.walk((id, port), false, |(from, _)| passes(from).then_some(Way::GoesOn)))
    }

    /// The ports that connections lead to from a port, down- or upstream.
    pub(super) fn other_ends(
        &self,
        (element, port): (ElementId, usize),
        forward: bool,
    ) -> Vec<(ElementId, usize)> {
        let ends =
            self.graph.connections.iter().map(|c| if forward { (c.from, c.to) } else { (c.to, c.from) });
        ends.filter(|(near, _)| near.element == element.index() && near.port == port)
            .map(|(_, far)| (ElementId(far.element as u32), far.port))
            .collect()
    }

    /// The ports on the other side of an element that packets at a port leave by, or come from, by the
    /// class's flow code.
    pub(super) fn flows_to(&self, element: ElementId, port: usize, forward: bool) -> Vec<usize> {
        let info = self.info(element);
        let (here, there) = (info.inputs.len(), info.outputs.len());
        let (here, there) = if forward { (here, there) } else { (there, here) };
        let flow = Flow::parse(info.class.flow);
        if port >= here {
            return Vec::new();
        }
        (0..there)
            .filter(|other| {
                let (input, output) = if forward { (port, *other) } else { (*other, port) };
                flow.joins(input, output)
            })
            .collect()
    }
}
