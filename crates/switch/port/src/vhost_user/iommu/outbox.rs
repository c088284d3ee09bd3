//! Requests that the back-end channel had no room for yet.

use ringway_vhost_user::Packet;
use std::os::fd::AsFd;

/// Largest size in bytes of requests that wait for room on the channel. Attack: a front-end that never reads
/// them.
pub(super) const OUTBOX: usize = 1 << 16;

/// Messages that the channel had no room for yet; the first may be partly sent. It is emptied only for another channel:
/// the front-end would otherwise read a half of a message, and the next one as the rest of it.
#[derive(Default)]
pub(in crate::vhost_user) struct Outbox {
    pub(super) bytes: Vec<u8>,
}

impl Outbox {
    /// Queues a message; it is lost if too many wait.
    pub(in crate::vhost_user) fn post(&mut self, packet: &Packet) {
        if self.bytes.len() < OUTBOX {
            self.bytes.extend_from_slice(&packet.bytes);
        }
    }

    pub(in crate::vhost_user) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets all messages: those that follow go to another channel.
    pub(in crate::vhost_user) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Sends as much as the channel has room for.
    pub(in crate::vhost_user) fn send(&mut self, channel: impl AsFd) {
        while !self.is_empty() {
            let sent = ringway_host::try_write(&channel, &self.bytes).min(self.bytes.len());
            if sent == 0 {
                return;
            }
            self.bytes.drain(..sent);
        }
    }
}
