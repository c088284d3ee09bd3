//! The RX queue: frames to a guest.

use super::iommu::{Seeker, through};
use super::vring::{LINK, Vring};
use ringway_frame::{Burst, Caps, Counters, CountersRef, FrameReader, Lost, Needs, Reason, RxQueue};
use ringway_mem::{DirtyLog, Hint, Logged, Pinned, Published, Span, SpanMut, Trail, Turn, copy};
use ringway_ring::{Notifier, Policy, View};
use ringway_virtq::{Cursor, FRAMES, Fill, QueueError, Ring, RxDevice};
use std::sync::Arc;

/// A guest's receive queue, used by one worker at a time, in separate cache lines.
#[repr(align(128))]
pub(super) struct VringRx {
    published: Arc<Published<Option<Vring>>>,
    /// The description of the turn: frames are published by the one by which they were put.
    pinned: Pinned<Option<Vring>>,
    counters: CountersRef,
    device: RxDevice,
    notifier: Notifier,
    /// Generation of the description that `device` was set up from; 0: none.
    generation: u64,
    /// Whether a frame may span buffers. Otherwise a large one may find no room, however many there are.
    mergeable: bool,
    hint: Hint,
    seeker: Seeker,
    trail: Trail,
}

impl VringRx {
    /// The queue of the ring that `published` describes.
    pub(super) fn new(published: Arc<Published<Option<Vring>>>, counters: CountersRef) -> VringRx {
        VringRx {
            published,
            pinned: Pinned::default(),
            counters,
            device: RxDevice::new(Cursor::default(), Cursor::default()),
            notifier: Notifier::new(Policy::default()),
            generation: 0,
            mergeable: false,
            hint: Hint::default(),
            seeker: Seeker::receiving(),
            trail: Trail::default(),
        }
    }

    /// The ring by its current description, if frames can be written to it.
    #[inline]
    fn vring<'t>(&mut self, turn: &'t Turn<'_>) -> Option<(&'t Vring, Ring<'t>)> {
        let vring = self.published.read_pinned(turn, &mut self.pinned).as_ref()?;
        if !vring.enabled || vring.is_broken() {
            return None;
        }
        let ring = vring.ring()?;
        if vring.generation != self.generation {
            self.adopt(vring, &ring);
        }
        Some((vring, ring))
    }

    #[cold]
    fn adopt(&mut self, vring: &Vring, ring: &Ring<'_>) {
        let (at, used) = vring.places();
        self.device = RxDevice::new(at, used);
        self.notifier = Notifier::new(vring.policy);
        self.generation = vring.generation;
        self.hint = Hint::default();
        self.seeker.restart();
        // A front-end that replaces the call descriptor may have missed the last interrupt on the former one.
        vring.view(ring, &mut self.device, &self.counters).notify(false);
        // No worker waits for the driver to post buffers: a worker with frames for it polls the ring. Behind an IOMMU
        // the session thread waits for kicks, to prefetch translations.
        if vring.iommu.is_none() {
            self.notifier.disarm(&mut vring.view(ring, &mut self.device, &self.counters));
        }
    }

    #[cold]
    fn fail(&mut self, vring: &Vring, error: QueueError, burst: &Burst<'_>, which: &[u16]) -> Lost {
        if error.is_breach() {
            Lost::count(&self.counters, vring.fail(error, &self.counters), burst, which)
        } else {
            Lost::default()
        }
    }

    /// Puts `count` of the reserved frames, from number `at` on; frames that can't be put are counted as dropped.
    #[inline]
    fn put_some<'t>(
        &mut self,
        turn: &'t Turn<'_>,
        (vring, ring): (&'t Vring, &Ring<'t>),
        (at, count): (usize, usize),
        filler: &mut Filler<'_, '_>,
    ) {
        let log = vring.log();
        #[cfg(test)]
        let log = log.filter(|_| !super::plants::strikes(super::plants::Plant::UnmarkedFrame));
        let (put, result) = match log {
            None => through!(self, vring, turn, translate => self.device.put(ring, translate, count, filler)),
            Some(log) => self.put_logged(turn, (vring, ring), log, (count, filler)),
        };
        if let Err(error) = result {
            let rest = filler.which.get(at + put..at + count).unwrap_or(&[]);
            filler.lost += match error {
                // Invalidated since the buffer was reserved, and evicted from the queue's translation cache.
                QueueError::Miss => Lost::count(&self.counters, Reason::BadAddress, filler.burst, rest),
                error => self.fail(vring, error, filler.burst, rest),
            };
        }
    }

    #[cold]
    #[inline(never)]
    fn put_logged<'t>(
        &mut self,
        turn: &'t Turn<'_>,
        (vring, ring): (&'t Vring, &Ring<'t>),
        log: &DirtyLog,
        (count, filler): (usize, &mut Filler<'_, '_>),
    ) -> (usize, Result<(), QueueError>) {
        let trail = &mut self.trail;
        through!(self, vring, turn, translate => {
            let mut logged = Logged::new(translate, vring.memory(), log, trail);
            self.device.put(ring, &mut logged, count, filler)
        })
    }

    #[inline]
    fn show(&mut self, turn: &Turn<'_>, vring: &Vring, ring: &Ring<'_>) {
        if self.device.holds() {
            vring.record(self.device.progress());
            self.device.publish(ring);
            vring.wrote();
            self.notifier.expect_answer(turn.now);
            self.notifier.published(turn.now, &mut vring.view(ring, &mut self.device, &self.counters));
        } else {
            self.notifier.due(turn.now, &mut vring.view(ring, &mut self.device, &self.counters));
        }
    }
}

impl RxQueue for VringRx {
    fn caps(&mut self, turn: &Turn<'_>) -> Option<Caps> {
        if let Some((vring, _)) = self.vring(turn) {
            self.mergeable = vring.rx_header.mergeable;
            return Some(vring.caps);
        }
        // A ring with an outstanding IOTLB miss is full, not down.
        let vring = self.published.read_pinned(turn, &mut self.pinned).as_ref()?;
        (vring.enabled && !vring.is_broken() && !vring.is_placed()).then_some(vring.caps)
    }

    fn framing(&self) -> u32 {
        LINK
    }

    fn wants_joined(&self) -> bool {
        self.mergeable
    }

    fn reserve(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> usize {
        let Some((vring, ring)) = self.vring(turn) else { return 0 };
        if self.seeker.is_blocked(vring.iommu.as_ref()) {
            return 0;
        }
        self.seeker.restart();
        let lens = which.iter().map(|&frame| burst.meta(usize::from(frame)).len);
        let (count, result) = through!(self, vring, turn, translate => {
            self.device.reserve(&ring, translate, vring.rx_header, lens)
        });
        match result {
            // Frames before the broken buffer are still delivered.
            Err(error) if count == 0 => {
                self.fail(vring, error, burst, &[]);
                0
            }
            _ => count,
        }
    }

    fn put(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost {
        let known = self.generation;
        let Some((vring, ring)) = self.vring(turn).filter(|(vring, _)| vring.generation == known) else {
            return Lost::count(&self.counters, Reason::Down, burst, which);
        };
        let mut filler = Filler::new(burst, which, vring);
        if self.notifier.batches() {
            self.put_some(turn, (vring, &ring), (0, which.len()), &mut filler);
        } else {
            for at in 0..which.len() {
                self.put_some(turn, (vring, &ring), (at, 1), &mut filler);
                self.show(turn, vring, &ring);
            }
        }
        filler.count_long(&self.counters)
    }

    fn publish(&mut self, turn: &Turn<'_>) {
        // Publishes also on a ring that broke just now: frames put before are complete.
        let vring = self.published.read_pinned(turn, &mut self.pinned).as_ref();
        let known = vring.filter(|vring| vring.generation == self.generation);
        match known.and_then(|vring| Some((vring, vring.ring()?))) {
            Some((vring, ring)) => self.show(turn, vring, &ring),
            // Attack: an interrupt held back for a guest that is gone would be due forever, so that the
            // worker never sleeps.
            None => self.notifier = Notifier::new(self.notifier.policy()),
        }
    }

    fn awaits_translation(&self) -> bool {
        self.seeker.awaits_translation()
    }

    fn defers_signal(&self) -> bool {
        self.notifier.waits_for_answer()
    }

    fn end_turn(&mut self, turn: &Turn<'_>) {
        let vring = self.published.read_pinned(turn, &mut self.pinned).as_ref();
        let known = vring.filter(|vring| vring.generation == self.generation);
        if let Some((vring, ring)) = known.and_then(|vring| Some((vring, vring.ring()?))) {
            self.notifier.answered(turn.now, &mut vring.view(&ring, &mut self.device, &self.counters));
        }
    }

    fn next_due(&self) -> Option<u64> {
        self.notifier.next_due()
    }
}

/// Writes headers and frames into the guest's buffers.
struct Filler<'a, 't> {
    burst: &'a Burst<'t>,
    which: &'a [u16],
    header: usize,
    /// Mask that clears the flags if the driver did not accept validated checksums.
    mask: u64,
    /// Frames that were not delivered.
    lost: Lost,
    /// Frames that were too long, by number.
    long: [u64; FRAMES / 64],
    /// The rest of the current frame's header, and the position in the frame.
    front: [u8; 12],
    written: usize,
    reader: Option<FrameReader<'a, 't>>,
}

impl<'a, 't> Filler<'a, 't> {
    #[inline]
    fn new(burst: &'a Burst<'t>, which: &'a [u16], vring: &Vring) -> Self {
        let header = (vring.rx_header.header as usize).min(12);
        let mask = if vring.caps.offloads.covers(Needs::CSUM) { u64::MAX } else { !0xff };
        Filler {
            burst,
            which,
            header,
            mask,
            lost: Lost::default(),
            long: [0; FRAMES / 64],
            front: [0; 12],
            written: 0,
            reader: None,
        }
    }

    /// Frames that were not delivered, including those too long, which are counted here.
    #[inline]
    fn count_long(self, counters: &Counters) -> Lost {
        let mut lost = self.lost;
        for (word, &bits) in self.long.iter().enumerate() {
            let mut left = bits;
            while left != 0 {
                let frame = word * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                let it = self.which.get(frame..=frame).unwrap_or(&[]);
                lost += Lost::count(counters, Reason::Long, self.burst, it);
            }
        }
        lost
    }

    #[inline]
    fn index(&self, frame: usize) -> usize {
        // Only frames that were named are put.
        self.which.get(frame).map_or(usize::MAX, |&index| usize::from(index))
    }

    /// `virtio_net_hdr` of a frame in `buffers` buffers, as its first eight bytes and its last four; in its legacy
    /// form the last two bytes are not used.
    #[inline]
    fn front(&self, index: usize, buffers: u16) -> (u64, u32) {
        let (front, csum_offset) = self.burst.meta(index).offload.to_words();
        (front & self.mask, u32::from(csum_offset) | u32::from(buffers) << 16)
    }
}

impl Fill for Filler<'_, '_> {
    #[inline(always)]
    fn whole(&mut self, frame: usize, to: SpanMut<'_>) {
        let index = self.index(frame);
        let (front, back) = self.front(index, 1);
        to.write_at(0, front.to_le_bytes());
        if self.header == 12 {
            to.write_at(8, back.to_le_bytes());
        } else {
            to.write_at(8, (back as u16).to_le_bytes());
        }
        self.burst.copy_to(index, to.split(self.header).1);
    }

    fn begin(&mut self, frame: usize, buffers: u16) {
        let index = self.index(frame);
        let (front, back) = self.front(index, buffers);
        self.front[..8].copy_from_slice(&front.to_le_bytes());
        self.front[8..].copy_from_slice(&back.to_le_bytes());
        self.written = 0;
        self.reader = Some(self.burst.reader(index));
    }

    fn part(&mut self, to: SpanMut<'_>) {
        let front = &self.front[self.written..self.header];
        let count = copy(Span::of(front), to);
        self.written += count;
        if let Some(reader) = &mut self.reader {
            reader.copy(to.split(count).1);
        }
    }

    fn lost(&mut self, frame: usize) {
        // No more than `FRAMES` are reserved.
        if let Some(word) = self.long.get_mut(frame / 64) {
            *word |= 1 << (frame % 64);
        }
    }
}
