//! The sessions of a server, by number, by the subscriber's Ethernet address, and by time.
use super::automaton::NEVER;
use super::session::Session;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ringway_click::OrderedSet;
use ringway_wire::MacAddress;

/// The last session number; 0 and 65535 are reserved (RFC 2516, 4 and 5.4).
pub(super) const LAST: u16 = u16::MAX - 1;

#[derive(Debug, Default)]
pub(super) struct Table {
    sessions: BTreeMap<u16, Session>,
    peers: OrderedSet<(MacAddress, u16)>,
    dues: OrderedSet<(u64, u16)>,
    /// The number used last, so that numbers are not reused at once.
    last: u16,
}

impl Table {
    /// An empty table whose numbers begin somewhere.
    pub(super) fn new(last: u16) -> Self {
        Self { last: last % LAST, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// A number for a new session; `None` if all are in use.
    pub(super) fn free(&mut self) -> Option<u16> {
        if self.sessions.len() >= LAST.into() {
            return None;
        }
        loop {
            self.last = self.last % LAST + 1;
            if !self.sessions.contains_key(&self.last) {
                return Some(self.last);
            }
        }
    }

    pub(super) fn insert(&mut self, session: Session) {
        let id = session.id;
        self.peers.insert((session.peer, id));
        self.sessions.insert(id, session);
        self.schedule(id);
    }

    pub(super) fn remove(&mut self, id: u16) -> Option<Session> {
        let session = self.sessions.remove(&id)?;
        self.peers.remove((session.peer, id));
        self.dues.remove((session.scheduled, id));
        Some(session)
    }

    pub(super) fn get(&self, id: u16) -> Option<&Session> {
        self.sessions.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: u16) -> Option<&mut Session> {
        self.sessions.get_mut(&id)
    }

    /// Numbers of the sessions of an address.
    pub(super) fn of(&self, peer: MacAddress) -> Vec<u16> {
        self.peers.range((peer, 0)).take_while(|(other, _)| *other == peer).map(|(_, id)| id).collect()
    }

    /// Sessions from a number on.
    pub(super) fn onward(&self, id: u16) -> impl Iterator<Item = &Session> {
        self.sessions.range(id..).map(|(_, session)| session)
    }

    /// Mutable sessions from a number on.
    pub(super) fn onward_mut(&mut self, id: u16) -> impl Iterator<Item = &mut Session> {
        self.sessions.range_mut(id..).map(|(_, session)| session)
    }

    /// Notes when a session has something to do.
    pub(super) fn schedule(&mut self, id: u16) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let due = session.due();
        if due != session.scheduled {
            self.dues.remove((session.scheduled, id));
            if due != NEVER {
                self.dues.insert((due, id));
            }
            session.scheduled = due;
        }
    }

    /// The session that has something to do first, and when.
    pub(super) fn first(&self) -> Option<(u64, u16)> {
        self.dues.first()
    }
}
