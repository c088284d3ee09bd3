//! The TX queue: frames from a guest.

use super::iommu::{Seeker, through};
use super::vring::Vring;
use ringway_frame::{Burst, CountersRef, LARGEST, Needs, Offload, Reason, TxQueue};
use ringway_mem::{Hint, Pinned, Published, Span, Turn};
use ringway_ring::{Notifier, Policy, View};
use ringway_virtq::{Cursor, Look, Ring, TxDevice, Verdict};
use std::sync::Arc;

/// Shortest interval in nanoseconds between two interrupts for taken frames. A driver doesn't wait for one to send
/// more, unless its ring is full; it is then interrupted when the interval ends.
const COMPLETION: u64 = 100_000;
/// Longest time in nanoseconds for which taken frames of a polling driver are held back, unless it sends more. DPDK's
/// virtio-user frees all completed frames once they are nearly the whole ring, a thousand frames whose memory has left
/// its caches by then, and otherwise just as many as it needs: it is faster if some are always outstanding.
const HOLD: u64 = 20_000;
/// Smallest number of frames in a burst that is held back: drivers that send fewer at once don't benefit.
const MANY: usize = 32;
/// Maximum number of pieces of a frame.
const PIECES: usize = 64;

/// A guest's transmit queue, used by one worker, in separate cache lines.
#[repr(align(128))]
pub(super) struct VringTx {
    published: Arc<Published<Option<Vring>>>,
    /// The description of the turn: frames are released by the one by which they were taken, so that none is taken
    /// twice and a ring that stops meanwhile stops behind them.
    pinned: Pinned<Option<Vring>>,
    counters: CountersRef,
    device: TxDevice,
    notifier: Notifier,
    /// Generation of the description that `device` was set up from; 0: none.
    generation: u64,
    hint: Hint,
    seeker: Seeker,
    skips: Skips,
    /// Until when the device holds back used descriptors.
    held_until: u64,
    /// Serial number of the last announcement sent.
    announced: u64,
    /// Whether the current burst is an announcement, not frames of the guest.
    own: bool,
    /// Frames of the last burst that were not released. Some ports may have got the first of them already, since a
    /// flood takes several turns; it stays the first.
    unreleased: usize,
}

impl VringTx {
    /// The queue of the ring that `published` describes.
    pub(super) fn new(published: Arc<Published<Option<Vring>>>, counters: CountersRef) -> VringTx {
        VringTx {
            published,
            pinned: Pinned::default(),
            counters,
            device: TxDevice::new(Cursor::default(), Cursor::default()),
            notifier: Notifier::new(Policy::default()),
            generation: 0,
            hint: Hint::default(),
            seeker: Seeker::default(),
            skips: Skips::default(),
            held_until: 0,
            announced: 0,
            own: false,
            unreleased: 0,
        }
    }

    /// The ring by its current description, if it can be used. A disabled ring is not accessed, and its frames wait:
    /// Linux's virtio-uml disables rings, never stops them, and frees their memory, so discarding frames would
    /// overwrite other data.
    #[inline]
    fn vring<'t>(&mut self, turn: &'t Turn<'_>) -> Option<(&'t Vring, Ring<'t>)> {
        let vring = self.published.read_pinned(turn, &mut self.pinned).as_ref()?;
        if !vring.enabled || vring.is_broken() {
            return None;
        }
        let ring = vring.ring()?;
        if vring.generation != self.generation {
            self.adopt(vring);
        }
        Some((vring, ring))
    }

    #[cold]
    fn adopt(&mut self, vring: &Vring) {
        let (at, used) = vring.places();
        self.device = TxDevice::new(at, used).in_order(vring.in_order);
        let moderate = vring.policy.moderate.max(COMPLETION);
        self.notifier = Notifier::new(Policy { moderate, ..vring.policy });
        self.generation = vring.generation;
        self.hint = Hint::default();
        self.seeker.restart();
        self.skips = Skips::default();
        // The driver may be polling for, or waiting for an interrupt of, frames held back under the former description;
        // and a front-end that replaces the call descriptor may have missed the last interrupt on the former one.
        vring.publish_held_back();
        if let Some(ring) = vring.ring() {
            vring.view(&ring, &mut self.device, &self.counters).notify(false);
        }
    }

    /// Returns `frames` frames, and the chains skipped around them, to the driver.
    #[inline]
    fn give_back(&mut self, turn: &Turn<'_>, vring: &Vring, ring: &Ring<'_>, frames: usize) {
        self.show(turn, vring, ring);
        let count = self.device.release(ring, frames);
        if count == 0 {
            return;
        }
        for reason in self.skips.take(count.saturating_sub(frames)) {
            self.counters.drop_tx(reason, 1);
        }
        vring.record(self.device.progress());
        if count >= MANY && self.device.may_hold(ring, count) {
            self.held_until = turn.now.saturating_add(HOLD);
        } else {
            self.show(turn, vring, ring);
        }
    }

    /// Makes returned descriptors visible to the driver.
    #[inline]
    fn show(&mut self, turn: &Turn<'_>, vring: &Vring, ring: &Ring<'_>) {
        if self.device.publish(ring) {
            vring.wrote();
            self.notifier.published(turn.now, &mut vring.view(ring, &mut self.device, &self.counters));
        }
    }

    /// After a turn without frames: publishes held-back descriptors and sends a held-back interrupt, if due.
    #[inline]
    fn idle(&mut self, turn: &Turn<'_>, vring: &Vring, ring: &Ring<'_>) {
        if self.device.holds() && turn.now >= self.held_until {
            self.show(turn, vring, ring);
        }
        self.notifier.due(turn.now, &mut vring.view(ring, &mut self.device, &self.counters));
    }
}

impl TxQueue for VringTx {
    fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>) {
        let Some((vring, ring)) = self.vring(turn) else { return };
        self.skips.clear();
        if self.seeker.is_blocked(vring.iommu.as_ref()) {
            return self.idle(turn, vring, &ring);
        }
        self.own = false;
        if let Some(rarp) = &vring.rarp
            && rarp.serial != self.announced
            && self.unreleased == 0
        {
            self.own = burst.push(Offload::default(), Span::of(&rarp.frame)).is_ok();
            return;
        }
        let before = burst.len();
        let (header, granted, max) = (vring.rx_header.header as usize, vring.granted, burst.room());
        let result = through!(self, vring, turn, translate => {
            let reader = Reader { header, granted, burst, skips: &mut self.skips };
            self.device.peek(&ring, translate, max, reader)
        });
        self.unreleased = burst.len() - before;
        if self.unreleased > 0 {
            return;
        }
        if let Err(error) = result
            && error.is_breach()
            && self.skips.is_empty()
        {
            self.counters.drop_tx(vring.fail(error, &self.counters), 1);
            return;
        }
        if !self.skips.is_empty() {
            self.give_back(turn, vring, &ring, 0);
        }
        self.idle(turn, vring, &ring);
    }

    fn release(&mut self, turn: &Turn<'_>, frames: usize) {
        let known = self.generation;
        let Some((vring, ring)) = self.vring(turn) else { return };
        if std::mem::take(&mut self.own) {
            // An announcement that was not released is sent again.
            self.announced = vring.rarp.filter(|_| frames > 0).map_or(self.announced, |rarp| rarp.serial);
            return;
        }
        #[cfg(test)]
        if frames > 0 && super::plants::strikes(super::plants::Plant::UnreleasedFrames) {
            return;
        }
        // Frames taken under an earlier description can't be released on this one.
        self.unreleased = self.unreleased.saturating_sub(frames);
        if vring.generation == known && frames > 0 {
            self.give_back(turn, vring, &ring, frames);
        }
    }

    fn arm(&mut self, turn: &Turn<'_>) -> bool {
        let Some((vring, ring)) = self.vring(turn) else {
            // Attack: an interrupt held back for a guest that is gone would be due forever, so that the
            // worker never sleeps.
            self.notifier = Notifier::new(self.notifier.policy());
            return true;
        };
        self.show(turn, vring, &ring);
        if self.seeker.sleep(vring.iommu.as_ref()) {
            return true;
        }
        if vring.polled {
            return false;
        }
        self.notifier.arm(&mut vring.view(&ring, &mut self.device, &self.counters))
    }

    fn disarm(&mut self, turn: &Turn<'_>) {
        if let Some((vring, ring)) = self.vring(turn) {
            self.notifier.disarm(&mut vring.view(&ring, &mut self.device, &self.counters));
        }
    }

    fn next_due(&self) -> Option<u64> {
        self.notifier.next_due()
    }
}

/// Makes frames from descriptor chains.
struct Reader<'a, 't> {
    /// Bytes of `virtio_net_hdr`.
    header: usize,
    granted: Needs,
    burst: &'a mut Burst<'t>,
    skips: &'a mut Skips,
}

impl<'t> Look<'t> for Reader<'_, 't> {
    #[inline(always)]
    fn whole(&mut self, frame: Span<'t>) -> Verdict {
        self.take(frame).unwrap_or_else(|reason| self.skips.add(reason))
    }

    fn parts(&mut self, parts: &[Span<'t>]) -> Verdict {
        let taken = if let [whole] = parts { self.take(*whole) } else { self.take_parts(parts) };
        taken.unwrap_or_else(|reason| self.skips.add(reason))
    }
}

impl<'t> Reader<'_, 't> {
    #[inline(always)]
    fn take(&mut self, whole: Span<'t>) -> Result<Verdict, Reason> {
        if whole.len() < self.header {
            return Err(Reason::Short);
        }
        let (header, frame) = whole.split(self.header);
        let (front, back) = header.split(8);
        let front = front.read_array().map(u64::from_le_bytes).ok_or(Reason::Short)?;
        let back = back.read_array().map(u16::from_le_bytes).ok_or(Reason::Short)?;
        let offload = Offload::from_words(front, back);
        if !offload.is_done() || frame.len() > LARGEST as usize {
            return self.take_undone(front, back, frame);
        }
        Ok(verdict(self.burst.push(offload.done(), frame).is_ok()))
    }

    #[inline(never)]
    fn take_undone(&mut self, front: u64, back: u16, frame: Span<'t>) -> Result<Verdict, Reason> {
        let offload = self.offload(Offload::from_words(front, back), frame.len())?;
        Ok(verdict(self.burst.push(offload, frame).is_ok()))
    }

    fn take_parts(&mut self, parts: &[Span<'t>]) -> Result<Verdict, Reason> {
        // A chain of too many parts is passed as an empty slice.
        if parts.is_empty() {
            return Err(Reason::BadDescriptor);
        }
        // Attack: a header in several parts, of which a later one is too short (CVE-2022-2132).
        let mut header = [0; 12];
        let header = &mut header[..self.header.min(12)];
        let (mut filled, mut len) = (0, 0usize);
        let mut frame = [Span::empty(); PIECES];
        let mut count = 0;
        for part in parts {
            let (front, rest) = part.split(header.len() - filled);
            filled += front.read(&mut header[filled..]);
            if !rest.is_empty() {
                *frame.get_mut(count).ok_or(Reason::BadDescriptor)? = rest;
                count += 1;
                len = len.saturating_add(rest.len());
            }
        }
        if filled < header.len() {
            return Err(Reason::Short);
        }
        let header = header.first_chunk().ok_or(Reason::Short)?;
        let offload = self.offload(Offload::from_bytes(header), len)?;
        Ok(verdict(self.burst.push_pieces(offload, &frame[..count]).is_ok()))
    }

    fn offload(&self, offload: Offload, len: usize) -> Result<Offload, Reason> {
        if len > LARGEST as usize {
            return Err(Reason::Long);
        }
        offload.check(len as u32, self.granted).map_err(|_| Reason::BadOffload)
    }
}

/// A full burst leaves the frame in the ring.
#[inline]
fn verdict(fitted: bool) -> Verdict {
    if fitted { Verdict::Take } else { Verdict::Stop }
}

/// Why chains were skipped, in order; counted when they are released, since until then they may be found again.
#[derive(Default)]
struct Skips {
    reasons: Vec<Reason>,
    counted: usize,
}

impl Skips {
    #[cold]
    fn add(&mut self, reason: Reason) -> Verdict {
        self.reasons.push(reason);
        Verdict::Skip
    }

    #[inline]
    fn clear(&mut self) {
        self.reasons.clear();
        self.counted = 0;
    }

    fn is_empty(&self) -> bool {
        self.reasons.is_empty()
    }

    /// The next `count` of them.
    #[inline]
    fn take(&mut self, count: usize) -> impl Iterator<Item = Reason> {
        let first = self.counted;
        self.counted = (first + count).min(self.reasons.len());
        self.reasons.get(first..self.counted).unwrap_or(&[]).iter().copied()
    }
}
