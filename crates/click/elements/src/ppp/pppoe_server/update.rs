//! Taking over the sessions of a server whose configuration is replaced.
use super::super::session::Cause;
use super::{Client, PppoeServer, ROUNDS};
use ringway_click::prelude::*;

impl PppoeServer {
    /// Takes over the sessions, and users that were written by the handler.
    pub(super) fn take_over(&mut self, from: &mut Self, cx: &mut Context<'_>) {
        (self.counts, self.number) = (from.counts, from.number);
        self.records = core::mem::take(&mut from.records);
        if from.are_written {
            (self.users, self.are_written) = (core::mem::take(&mut from.users), true);
        }
        // Cookies and numbers of checks stay valid; the concentrator takes over its sessions by itself.
        self.nonce = core::mem::take(&mut from.nonce);
        self.table = core::mem::take(&mut from.table);
        for session in self.table.onward_mut(0) {
            if let Some(grant) = &mut session.grant {
                grant.is_pooled = self.pool.take(grant.address);
            }
        }
        if let (Some(client), Some(old)) = (&mut self.client, &mut from.client) {
            client.take_state(old);
        }
        // The concentrator may take over its sessions after this element.
        self.unsettled = Some(0);
        self.arm(cx);
    }

    /// Settles some of the sessions that were taken over. Not all at once, so that packets don't wait long.
    pub(super) fn settle_taken_over(&mut self, now: u64, cx: &mut Context<'_>) {
        let Some(first) = self.unsettled.take() else { return };
        let ids: Vec<u16> = self.table.onward(first).take(ROUNDS).map(|session| session.id).collect();
        self.unsettled = ids.get(ROUNDS - 1).map(|last| last + 1);
        for id in ids {
            self.settle_one(id, now, cx);
        }
    }

    /// Ends a session of another Ethernet address, or one that the concentrator could not take over; decides on a
    /// proof for which no request waits any more.
    fn settle_one(&mut self, id: u16, now: u64, cx: &mut Context<'_>) {
        let Some(session) = self.table.get(id) else { return };
        let waiting = (id, session.check());
        let concentrator = self.concentrator(cx);
        let is_served = concentrator.is_some_and(|concentrator| concentrator.serves(session.peer, id));
        let is_lost = session.online.is_some() && !is_served;
        if is_lost || session.server != self.settings.ethernet {
            self.finish(id, Cause::AdminReset, true, now, cx);
        } else if waiting.1 != 0 && !self.client.as_ref().is_some_and(|client| Client::waits(client, waiting))
        {
            self.unanswered(waiting, now, cx);
        }
    }
}
