//! A guest behind an IOMMU: resolving its rings' addresses, and prefetching translations of buffers.

use super::{Guest, RECEIVES, RingSlot};
use crate::session_loop::SHARE;
use crate::vhost_user::iommu::{Denied, Granted, Iommu};
#[cfg(test)]
use crate::vhost_user::plants::{Plant, strikes};
use crate::vhost_user::vring::{Space, parts};
use ringway_frame::add;
use ringway_host::Clock;
use ringway_mem::Readers;
use ringway_mem::iotlb::{Change, Lookaside, Lookup, Missed};
use ringway_vhost_user::feature::virtio;
use ringway_vhost_user::{Iotlb, Kick, Refused, Ring};
use ringway_virtq::{QueueError, disable_kicks, enable_kicks, is_available, prefetch_translations};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

/// Buffers whose translations are prefetched together.
const AHEAD: usize = 64;
/// Number of consecutive prefetches without a miss after which the driver's mappings count as static, and its kicks
/// as useless.
const KNOWN: u32 = 32;
/// Invalidations of more bytes cause translations of posted buffers to be prefetched again: a whole domain was
/// flushed, not the buffer of one frame.
const WIDE: u64 = 2 << 20;

impl Guest {
    /// Creates or drops the IOMMU after features were negotiated; forgets its translations while no ring is started.
    ///
    /// Attack: an unmapping that is not reported. A front-end reports none while the device is stopped: QEMU resets
    /// devices before their IOMMU, so that mappings of before a reboot would stay, and a later driver's ring or buffer
    /// at the same address would be read or written where the former driver's was.
    pub(super) fn set_iommu(&mut self) {
        let wanted = self.features & virtio::ACCESS_PLATFORM != 0;
        let is_stopped = self.slots.iter().all(|slot| slot.ring.is_none());
        match &mut self.iotlb.iommu {
            Some(iommu) if wanted && is_stopped => iommu.forget(&self.shared.memory),
            Some(_) if wanted => {}
            None if wanted => {
                let outbox = std::mem::take(self.iotlb.outbox());
                self.iotlb.iommu = Some(Iommu::new(&self.shared.memory, self.counters.clone(), outbox));
            }
            _ => {
                self.iotlb.outbox = std::mem::take(self.iotlb.outbox());
                self.iotlb.iommu = None;
            }
        }
    }

    /// The address space of ring `index`.
    pub(super) fn space(&self, index: usize) -> Space<'_> {
        match &self.iotlb.iommu {
            None => Space::Direct(&self.shared.memory),
            Some(iommu) => {
                let miss_queue = self.slots[index].miss_queue.clone();
                let granted = Granted { iotlb: iommu.editor.shared().clone(), miss_queue };
                Space::Granted(&iommu.editor, granted, &self.shared.account)
            }
        }
    }

    /// Whether the guest's IOMMU grants all of a ring; always without one.
    pub(super) fn is_granted(&self, ring: &Ring) -> bool {
        let (Some(iommu), Ok(parts)) = (&self.iotlb.iommu, parts(self.features, ring)) else { return true };
        parts.iter().all(|&(iova, len, access)| iommu.editor.parts(iova, len, access).is_some())
    }

    /// Queues misses for the parts of a ring that are not granted.
    pub(super) fn want_ring(&mut self, index: usize) {
        let (Some(iommu), Some(ring)) = (&mut self.iotlb.iommu, &self.slots[index].ring) else { return };
        let Ok(parts) = parts(self.features, ring) else { return };
        let mut missing = Vec::new();
        for (iova, len, access) in parts {
            iommu.editor.missing(iova, len, access, |iova| missing.push(Missed { iova, access }));
        }
        let now = Clock::new().now();
        missing.into_iter().for_each(|missed| _ = iommu.miss(index, missed, now));
    }

    /// Applies an IOTLB update or invalidation. `true`: workers may use former translations until they end their turns.
    pub(super) fn change(&mut self, message: Iotlb) -> Result<bool, Refused> {
        let Some(iommu) = &mut self.iotlb.iommu else { return Ok(false) };
        if message.kind == Iotlb::INVALIDATE {
            #[cfg(test)]
            if strikes(Plant::StaleTranslation) {
                return Ok(true);
            }
            iommu.invalidate(message);
            self.counters.iter().for_each(|counters| _ = counters.iotlb_invalidations.fetch_add(1, Relaxed));
            self.withdraw(message.iova, message.size, false);
            self.iotlb.ahead |= message.size == 0 || message.size > WIDE;
            return Ok(true);
        }
        let (change, denied) = iommu.update(message).map_err(Refused)?;
        if change != Change::None {
            // A ring may already lie in a newly granted range: random eviction may have dropped its former translation.
            self.withdraw(message.iova, message.size, change == Change::Granted);
        }
        self.iotlb.changed |= change != Change::None || denied.is_some();
        if let Some(Denied { ring }) = denied {
            self.deny(ring);
        }
        Ok(change == Change::Altered)
    }

    /// Republishes rings that overlap a range that was invalidated or granted differently; with `placed`, only those
    /// whose addresses were resolved.
    fn withdraw(&mut self, iova: u64, size: u64, placed: bool) {
        let (first, last) = match size.checked_sub(1) {
            Some(more) => (iova, iova.saturating_add(more)),
            None => (0, u64::MAX),
        };
        let lies = |&(iova, len, _): &(u64, u32, _)| {
            iova <= last && iova.saturating_add(u64::from(len).saturating_sub(1)) >= first
        };
        let is_there = |slot: &RingSlot| {
            let ring = slot.ring.as_ref().filter(|_| !(placed && slot.is_waiting));
            ring.and_then(|ring| parts(self.features, ring).ok()).is_some_and(|parts| parts.iter().any(lies))
        };
        let found: Vec<usize> = (0..self.slots.len()).filter(|&index| is_there(&self.slots[index])).collect();
        if !found.is_empty() {
            self.publish_each(found.into_iter());
        }
    }

    /// Breaks ring `index`: the guest's IOMMU refused an address that the driver put in it.
    fn deny(&mut self, index: usize) {
        let counters = self.counters.get(index / 2).or(self.counters.first());
        counters.inspect(|counters| {
            counters.iotlb_faults.fetch_add(1, Relaxed);
            add(&counters.faults, 1);
        });
        self.slots[index].state.fail(QueueError::Address);
    }

    /// Performs the pending work of messages and workers: starts rings that are granted now, wakes queues, and sends
    /// misses.
    pub(in crate::vhost_user) fn look_around(&mut self) {
        if self.iotlb.iommu.is_none() {
            return self.send_outbox();
        }
        if std::mem::take(&mut self.iotlb.changed) {
            self.go_on();
        }
        let now = Clock::new().now();
        self.look_all_ahead(now);
        for index in 0..self.slots.len() {
            let (Some(iommu), slot) = (&mut self.iotlb.iommu, &self.slots[index]) else { return };
            let mut lacks = false;
            slot.miss_queue.take(|missed| lacks |= iommu.miss(index, missed, now));
            if lacks && slot.known > 0 && self.is_receiving(index) {
                // Resume prefetching for this ring.
                self.slots[index].known = 0;
                self.look_ahead(index);
            }
        }
        let (Some(iommu), slots) = (&mut self.iotlb.iommu, &self.slots) else { return };
        if let (Some(control), Some(ring)) = (&mut self.control, slots.len().checked_sub(1)) {
            control.aside.missed().iter().for_each(|missed| _ = iommu.miss(ring, *missed, now));
            control.aside.forget_missed();
        }
        // Rings and queues whose miss was given up report it again in the next call.
        self.iotlb.changed |= iommu.remind(now);
        if iommu.editor.retired().len() > RETIRED {
            ringway_host::reclaim_all(std::mem::take(iommu.editor.retired()));
        }
        self.send_outbox();
    }

    /// Sends requests that wait for room on the back-end channel.
    fn send_outbox(&mut self) {
        let outbox = self.iotlb.outbox();
        if let Some(channel) = self.session.channel.as_ref().filter(|_| !outbox.is_empty()) {
            self.session.budget.wake(|| outbox.send(channel.as_fd()));
        }
    }

    /// Prefetches translations on rings whose driver has posted buffers. Attack: many long rings that are
    /// refilled continuously, so that other ports are not served; the rest is done in the next call.
    fn look_all_ahead(&mut self, now: u64) {
        let (clock, until) = (Clock::new(), now.saturating_add(SHARE));
        let kicked = std::mem::take(&mut self.iotlb.kicked);
        let ahead = std::mem::take(&mut self.iotlb.ahead);
        for index in 0..self.slots.len() {
            if !self.is_receiving(index) || !(ahead || kicked.contains(&index)) {
                continue;
            }
            if clock.now() < until {
                self.look_ahead(index);
            } else {
                self.iotlb.kicked.push(index);
            }
        }
        if !self.iotlb.kicked.is_empty() {
            self.session.wakeup.get().inspect(|wakeup| wakeup.signal());
        }
    }

    /// Repeats unanswered misses as of `now`.
    #[cfg(test)]
    pub(in crate::vhost_user) fn remind(&mut self, now: u64) {
        let (Some(iommu), Some(channel)) = (&mut self.iotlb.iommu, &self.session.channel) else { return };
        self.iotlb.changed |= iommu.remind(now);
        iommu.outbox.send(channel.as_fd());
    }

    /// When this returns, no worker uses translations that were invalidated before.
    pub(in crate::vhost_user) fn revoke(&mut self) {
        // A queue with a cached translation reads its ring, but not the IOTLB's map.
        let readers =
            self.slots.iter().fold(Readers::default(), |all, slot| all.with(slot.published.readers()));
        let retired = self.iotlb.iommu.as_mut().map(|iommu| std::mem::take(iommu.editor.retired()));
        ringway_host::reclaim_after(readers, retired.unwrap_or_default());
    }

    /// Starts rings and wakes queues after more translations were granted.
    fn go_on(&mut self) {
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            let Some(ring) = slot.ring.clone().filter(|_| slot.is_waiting) else { continue };
            if !self.is_granted(&ring) {
                self.want_ring(index);
            } else if self.begin(index, &ring).is_err() {
                // The ring's addresses are granted, but it is not a valid ring.
                self.slots[index].ring = Some(ring);
                self.slots[index].state.fail(QueueError::RingMemory);
            }
        }
        for index in (1..self.slots.len()).step_by(2) {
            if self.slots[index].miss_queue.take_waiting() {
                self.doorbell(index).inspect(|doorbell| doorbell.wake());
            }
        }
    }

    fn is_receiving(&self, index: usize) -> bool {
        index.is_multiple_of(2) && self.control_ring() != Some(index)
    }

    /// Prefetches translations of the RX buffers that the driver has posted, so that no frame waits for them, and asks
    /// for a kick when the driver posts more.
    pub(super) fn look_ahead(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let Some(iommu) = &mut self.iotlb.iommu else { return };
        let described = slot.described.clone();
        let Some(vring) = Option::as_ref(&described).filter(|vring| !vring.is_broken()) else { return };
        let Some(ring) = vring.ring() else { return };
        let aside = self.iotlb.aside.get_or_insert_with(|| Box::new(Lookaside::default()));
        let (mut at, now) = (vring.places().0, Clock::new().now());
        let mut lacks = false;
        // Attack: a driver that posts buffers continuously, so that other ports are not served.
        for _ in 0..usize::from(vring.size()).div_ceil(AHEAD) + 1 {
            let before = at;
            at = prefetch_translations(&ring, at, true, AHEAD, &mut Lookup::of(&iommu.editor, aside));
            aside.missed().iter().for_each(|missed| lacks |= iommu.miss(index, *missed, now));
            aside.forget_missed();
            if at != before {
                continue;
            }
            slot.known = if lacks { 0 } else { slot.known.saturating_add(1) };
            if slot.known > KNOWN {
                return disable_kicks(&ring, at);
            }
            enable_kicks(&ring, at);
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            if !is_available(&ring, at) {
                return;
            }
        }
        // The next buffer has too many descriptors for a prefetch; later ones may have fewer.
        enable_kicks(&ring, at);
    }

    /// Watches an RX ring's kick fd if the guest is behind an IOMMU, then prefetches once in case a kick already
    /// arrived.
    pub(super) fn listen_ahead(&mut self, index: usize, ring: &Ring) {
        self.unlisten(index);
        if self.iotlb.iommu.is_none() || !self.is_receiving(index) {
            return;
        }
        if let (Kick::Fd(kick), Some(epoll)) = (&ring.kick, &self.session.epoll)
            // A front-end may have one for several rings; it is kicked once then.
            && epoll.add_edge(kick.as_fd(), RECEIVES + index as u64).is_ok()
        {
            self.slots[index].kick = Some(kick.clone());
        }
        self.look_ahead(index);
    }

    /// Stops watching the RX ring's kick fd.
    pub(super) fn unlisten(&mut self, index: usize) {
        if let (Some(kick), Some(epoll)) = (self.slots[index].kick.take(), &self.session.epoll) {
            let _ = epoll.delete(kick.as_fd());
        }
    }

    /// Reads two bytes at an address in a ring.
    pub(super) fn word(&self, address: u64) -> Option<u16> {
        let mut bytes = [0; 2];
        let read = match &self.iotlb.iommu {
            None => self.shared.memory.user_span(address, 2)?.as_span().read(&mut bytes),
            Some(iommu) => {
                let kept = iommu.editor.keep(address, 2, ringway_mem::iotlb::Access::READ)?;
                kept.span().as_span().read(&mut bytes)
            }
        };
        (read == 2).then_some(u16::from_le_bytes(bytes))
    }
}

/// Largest number of retired IOTLB maps; when there are more, workers are waited for and the maps reclaimed.
const RETIRED: usize = 64;
