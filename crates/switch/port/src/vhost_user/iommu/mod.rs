//! A guest's IOMMU: granted translations and outstanding IOTLB misses.
//!
//! A queue whose burst meets unknown addresses posts all of its misses on its ring's [`MissQueue`] and rests; the
//! session thread sends them to the front-end together, and wakes the queue when they are answered. Nothing is held
//! while a miss is outstanding, and other queues are still served.

mod miss_queue;
mod queue;
#[cfg(test)]
mod tests;

pub(super) use miss_queue::{MissQueue, Wakeup};
pub(super) use queue::{Seeker, through};

use ringway_frame::CountersRef;
use ringway_mem::Memory;
use ringway_mem::iotlb::{Access, Change, ENTRIES, Editor, Iotlb, Missed};
use ringway_vhost_user::{BackendRequest, Iotlb as Message, Packet};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Largest number of translations; small in tests, so that they can exceed it.
const MOST: usize = if cfg!(test) { 4096 } else { ENTRIES };
/// Largest number of outstanding IOTLB misses. Attack: a driver that uses ever new addresses.
const PENDING: usize = 4096;
/// Largest size in bytes of requests that wait for room on the channel. Attack: a front-end that never reads
/// them.
const OUTBOX: usize = 1 << 16;
/// Nanoseconds after which an unanswered miss is sent again, since it may have been lost, and how often it is repeated.
const AGAIN: u64 = 1_000_000_000;
const TIMES: u8 = 8;
/// A page: the smallest range that an IOTLB update grants.
const PAGE: u64 = 4096;

/// A ring's data for translating addresses and reporting misses.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    pub(super) iotlb: Arc<Iotlb>,
    pub(super) miss_queue: Arc<MissQueue>,
}

/// An IOTLB miss that is not answered yet.
#[derive(Clone, Copy)]
struct Question {
    iova: u64,
    ring: usize,
    asked: u64,
    times: u8,
}

/// An access that the front-end refused: it granted less than requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct Denied {
    pub(super) ring: usize,
}

/// The session thread's side of a guest's IOMMU.
pub(super) struct Iommu {
    pub(super) editor: Editor,
    /// Outstanding misses by page and access.
    pending: BTreeMap<(u64, u8), Question>,
    /// Messages that the back-end channel had no room for yet; the first may be partly sent.
    outbox: Vec<u8>,
    asked_again: u64,
    /// Counters of each queue pair.
    counters: Vec<CountersRef>,
}

impl Iommu {
    /// An IOMMU that has granted none of `memory` yet.
    pub(super) fn new(memory: &Arc<Memory>, counters: Vec<CountersRef>) -> Iommu {
        let editor = Editor::new(memory.clone(), MOST);
        Iommu { editor, pending: BTreeMap::new(), outbox: Vec::new(), asked_again: 0, counters }
    }

    /// Moves to a memory table that only gained regions; granted translations stay.
    pub(super) fn extend(&mut self, memory: &Arc<Memory>) {
        let retired = std::mem::take(self.editor.retired());
        self.editor = self.editor.moved(memory.clone());
        ringway_host::reclaim_all(retired);
    }

    /// Queues a miss of ring `ring` for sending, unless it is granted by now, already outstanding, or beyond the
    /// limit. Returns whether it was queued.
    pub(super) fn miss(&mut self, ring: usize, missed: Missed, now: u64) -> bool {
        let Missed { iova, access } = missed;
        if self.editor.grants(iova, access) == Some(true) {
            return false;
        }
        let key = (iova / PAGE, access.bits());
        if self.pending.contains_key(&key) || self.pending.len() >= PENDING {
            return false;
        }
        self.pending.insert(key, Question { iova, ring, asked: now, times: 1 });
        // A queue meets the same miss again until it is answered; it is counted once.
        let counters = self.counters.get(ring / 2).or(self.counters.first());
        counters.inspect(|counters| _ = counters.iotlb_misses.fetch_add(1, Relaxed));
        self.ask(Message::MISS, missed);
        true
    }

    fn ask(&mut self, kind: u8, missed: Missed) {
        let (iova, permissions) = (missed.iova, missed.access.bits());
        let message = Message { iova, size: 0, user: 0, permissions, kind };
        self.post(&BackendRequest::Iotlb(message).encode());
    }

    fn post(&mut self, packet: &Packet) {
        if self.outbox.len() < OUTBOX {
            self.outbox.extend_from_slice(&packet.bytes);
        }
    }

    /// Sends another request on the channel, behind queued misses.
    pub(super) fn send_request(&mut self, packet: &Packet, channel: impl AsFd) {
        self.post(packet);
        self.send(channel);
    }

    /// Queues all outstanding misses again, for a new back-end channel.
    pub(super) fn ask_anew(&mut self) {
        self.outbox.clear();
        let pending = self.pending.iter().filter_map(|(key, question)| {
            Some(Missed { iova: question.iova, access: Access::from_bits(key.1)? })
        });
        let pending: Vec<Missed> = pending.collect();
        pending.into_iter().for_each(|missed| self.ask(Message::MISS, missed));
    }

    /// Applies an IOTLB update. `Err`: the update is invalid.
    pub(super) fn update(&mut self, message: Message) -> Result<(Change, Option<Denied>), String> {
        let access = Access::from_bits(message.permissions).ok_or("a translation grants nothing")?;
        let change = self.editor.update(message.iova, message.size, message.user, access);
        let change = change.map_err(|error| error.to_string())?;
        let last = message.iova + (message.size - 1);
        let range = (message.iova / PAGE, 0)..=(last / PAGE, u8::MAX);
        let answered: Vec<_> = self.pending.range(range).map(|(key, asked)| (*key, *asked)).collect();
        let mut denied = None;
        for (key, Question { iova, ring, .. }) in answered {
            let Some(access) = Access::from_bits(key.1) else { continue };
            match self.editor.grants(iova, access) {
                Some(true) => {}
                // The miss is answered, and the access denied.
                Some(false) => {
                    self.ask(Message::ACCESS_FAIL, Missed { iova, access });
                    denied = Some(Denied { ring });
                }
                None => continue,
            }
            self.pending.remove(&key);
        }
        Ok((change, denied))
    }

    /// Applies an IOTLB invalidation. Outstanding misses stay outstanding.
    pub(super) fn invalidate(&mut self, message: Message) {
        self.editor.invalidate(message.iova, message.size);
    }

    /// Repeats misses that were not answered for `AGAIN` nanoseconds, and gives up after `TIMES` repetitions. Returns
    /// whether any was given up: what waits for it must be woken, and reports it again if it still needs it.
    pub(super) fn remind(&mut self, now: u64) -> bool {
        if self.pending.is_empty() || now.saturating_sub(self.asked_again) < AGAIN / 2 {
            return false;
        }
        self.asked_again = now;
        let (mut again, before) = (Vec::new(), self.pending.len());
        self.pending.retain(|key, question| {
            if now.saturating_sub(question.asked) < AGAIN {
                return true;
            }
            question.asked = now;
            question.times += 1;
            again.extend(Access::from_bits(key.1).map(|access| Missed { iova: question.iova, access }));
            question.times <= TIMES
        });
        let is_given_up = self.pending.len() < before;
        // A queue that still needs a translation given up here posts the miss again.
        self.editor.retry_misses();
        again.into_iter().for_each(|missed| self.ask(Message::MISS, missed));
        is_given_up
    }

    /// Sends as much of the outbox as the channel has room for.
    pub(super) fn send(&mut self, channel: impl AsFd) {
        while !self.outbox.is_empty() {
            let sent = ringway_host::try_write(&channel, &self.outbox).min(self.outbox.len());
            if sent == 0 {
                return;
            }
            self.outbox.drain(..sent);
        }
    }
}

impl Drop for Iommu {
    fn drop(&mut self) {
        ringway_host::reclaim_all(std::mem::take(self.editor.retired()));
    }
}
