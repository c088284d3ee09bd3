//! Connections that their programs have closed.

use super::{Socket, Stack};
use crate::connection::{Connection, State};
use alloc::collections::VecDeque;

impl Stack {
    /// A closed connection, if it has not ended.
    fn orphan(&self, index: u32, generation: u32) -> Option<&Connection> {
        let slot = self.slots.get(index as usize).filter(|slot| slot.generation == generation)?;
        match &slot.socket {
            Some(Socket::Tcp(connection)) if connection.is_orphan() => Some(connection),
            _ => None,
        }
    }

    /// Remembers a connection that was closed. Attack: peers that take a byte now and then, or send their FIN again and
    /// again, so that no timer ends the connection. Beyond `tcp_max_orphans` a quarter ends, which pays for the search:
    /// those in TIME-WAIT first, the oldest ones first.
    pub(super) fn add_orphan(&mut self, index: u32) {
        let generation = self.slots[index as usize].generation;
        if self.orphan(index, generation).is_none() {
            return;
        }
        self.orphans.push_back((index, generation));
        let most = self.settings.tcp_max_orphans.min(self.settings.max_sockets / 2).max(1);
        if self.orphans.len() <= most {
            return;
        }
        let mut orphans: VecDeque<(u32, u32)> = core::mem::take(&mut self.orphans);
        orphans.retain(|&(index, generation)| self.orphan(index, generation).is_some());
        let mut excess = orphans.len().saturating_sub((most - most / 4).max(1));
        for waits in [true, false] {
            orphans.retain(|&(index, generation)| {
                let state = self.orphan(index, generation).map(|connection| connection.state);
                let ends = excess > 0 && (state == Some(State::TimeWait)) == waits;
                if ends {
                    excess -= 1;
                    self.statistics.orphans_ended += 1;
                    self.abort_index(index);
                }
                !ends
            });
        }
        self.orphans = orphans;
    }
}
