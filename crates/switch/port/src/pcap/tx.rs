//! The TX queue, which sends the file's frames at their times.

use super::Shared;
use super::image::Frames;
use ringway_frame::{Burst, Offload, TxQueue};
use ringway_mem::{Span, Turn};
use std::sync::Arc;

/// A position in the replay.
#[derive(Clone, Copy, Debug, Default)]
struct At {
    index: usize,
    /// When the first frame of this round was, or would have been, sent.
    base: u64,
}

/// A queue that has frames when they are due.
pub(super) struct ReplayTx {
    shared: Arc<Shared>,
    speed: u64,
    repeat: bool,
    /// The image that `at` is a position in.
    number: u64,
    at: At,
    /// When the next frame is due, as of the last call.
    next: Option<u64>,
}

impl ReplayTx {
    pub fn new(shared: Arc<Shared>, speed: u32, repeat: bool) -> ReplayTx {
        ReplayTx { shared, speed: speed.into(), repeat, number: 0, at: At::default(), next: None }
    }

    /// Begins again with another image.
    fn follow(&mut self, frames: &Frames, now: u64) {
        if self.number != frames.number {
            (self.number, self.at) = (frames.number, At { index: 0, base: now });
        }
    }

    /// Nanoseconds at this speed.
    fn scaled(&self, time: u64) -> u64 {
        let scaled = (u128::from(time) * 1000).checked_div(u128::from(self.speed)).unwrap_or(0);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// The position `count` frames later.
    fn after(&self, frames: &Frames, mut at: At, count: usize) -> At {
        at.index += count;
        while self.repeat && frames.len() > 0 && at.index >= frames.len() {
            at.index -= frames.len();
            at.base = at.base.saturating_add(self.scaled(frames.period()));
        }
        at
    }

    /// When the frame at this position is due.
    fn due(&self, frames: &Frames, at: At) -> Option<u64> {
        frames.time(at.index).map(|time| at.base.saturating_add(self.scaled(time)))
    }

    /// Notes when the next frame is due.
    fn look(&mut self, turn: &Turn<'_>) {
        let shared = self.shared.clone();
        let frames = shared.frames.read(turn);
        self.follow(frames, turn.now);
        self.next = self.due(frames, self.at);
    }
}

impl TxQueue for ReplayTx {
    fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>) {
        let shared = self.shared.clone();
        let frames = shared.frames.read(turn);
        self.follow(frames, turn.now);
        let mut at = self.at;
        while self.due(frames, at).is_some_and(|due| due <= turn.now) {
            let Some(frame) = frames.get(at.index) else { break };
            if burst.push(Offload::default(), Span::of(frame)).is_err() {
                break;
            }
            at = self.after(frames, at, 1);
        }
    }

    fn release(&mut self, turn: &Turn<'_>, count: usize) {
        let frames = self.shared.frames.read(turn);
        if self.number == frames.number {
            self.at = self.after(frames, self.at, count);
        }
    }

    fn arm(&mut self, turn: &Turn<'_>) -> bool {
        self.look(turn);
        self.next.is_none_or(|due| due > turn.now)
    }

    fn disarm(&mut self, _turn: &Turn<'_>) {}

    fn next_due(&self) -> Option<u64> {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;
    use crate::pcap::image::Image;
    use ringway_frame::{BURST, CountersRef, Storage};
    use ringway_mem::{Published, Reader};
    use ringway_wire::pcap::Header;
    use std::sync::atomic::AtomicU64;

    /// A queue that replays frames with these times, each with its number as length.
    fn queue(times: &[u64], speed: u32, repeat: bool) -> ReplayTx {
        let header = Header::ethernet();
        let mut file = header.to_bytes().to_vec();
        for (number, time) in times.iter().enumerate() {
            let len = 60 + number as u32;
            file.extend_from_slice(&header.record_header(*time, len, len));
            file.resize(file.len() + len as usize, 0);
        }
        let bytes = Image::of(&file).unwrap().bytes;
        let chunks = bytes.as_chunks().0.iter().map(|chunk| u64::from_ne_bytes(*chunk));
        let words: Vec<_> = chunks.map(AtomicU64::new).collect();
        let shared = Shared {
            frames: Published::new(Arc::new(Frames::of(&words, 1).unwrap())),
            recording: Published::new(Arc::new(None)),
            counters: CountersRef::private(),
            doorbell: Arc::new(Silent),
        };
        ReplayTx::new(Arc::new(shared), speed, repeat)
    }

    /// Lengths, less 60, of the frames that leave at a time; each `take` but the last releases `count`.
    fn sent(tx: &mut ReplayTx, now: u64, count: usize) -> Vec<u32> {
        let mut reader = Reader::register().unwrap();
        let turn = reader.turn(now);
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        tx.take(&turn, &mut burst);
        let count = count.min(burst.len());
        let lengths = (0..count).map(|frame| burst.meta(frame).len - 60).collect();
        tx.release(&turn, count);
        lengths
    }

    fn due(tx: &mut ReplayTx, now: u64) -> Option<u64> {
        let mut reader = Reader::register().unwrap();
        let turn = reader.turn(now);
        let armed = tx.arm(&turn);
        let next = tx.next_due();
        assert_eq!(armed, next.is_none_or(|next| next > now));
        next
    }

    #[test]
    fn frames_leave_at_their_times() {
        let mut tx = queue(&[5000, 5100, 5300], 1000, false);
        assert_eq!(sent(&mut tx, 10_000, BURST), [0]);
        assert_eq!(due(&mut tx, 10_000), Some(10_100));
        assert!(sent(&mut tx, 10_099, BURST).is_empty());
        // A frame that was not released comes again.
        assert_eq!((sent(&mut tx, 10_100, 0), sent(&mut tx, 10_300, 1)), (vec![], vec![1]));
        assert_eq!(sent(&mut tx, 10_300, BURST), [2]);
        assert_eq!(due(&mut tx, 1 << 60), None);
        assert!(sent(&mut tx, 1 << 60, BURST).is_empty());
    }

    #[test]
    fn the_speed_scales_times_and_a_loop_repeats_them() {
        let mut tx = queue(&[0, 100, 300], 2000, true);
        assert_eq!((sent(&mut tx, 1000, 9), due(&mut tx, 1000)), (vec![0], Some(1050)));
        assert_eq!((sent(&mut tx, 1150, 9), due(&mut tx, 1150)), (vec![1, 2], Some(1225)));
        // The average pause, 150 recorded nanoseconds, follows the last frame.
        assert_eq!(sent(&mut tx, 1225 + 50, 9), [0, 1]);
        let mut tx = queue(&[0, 100, 300], 500, true);
        assert_eq!((sent(&mut tx, 1000, 9), due(&mut tx, 1000)), (vec![0], Some(1200)));
        let mut tx = queue(&[0, 1 << 50], 0, true);
        assert_eq!(sent(&mut tx, 1, BURST).len(), BURST, "as fast as possible");
        let mut tx = queue(&[7], 1000, true);
        assert_eq!(sent(&mut tx, 1, 3), [0, 0, 0], "a single frame has no pause");
    }

    #[test]
    fn an_image_with_another_number_is_replayed_from_its_begin() {
        let mut tx = queue(&[0, 100], 1000, false);
        assert_eq!(sent(&mut tx, 1000, 9), [0]);
        tx.number = 7;
        assert_eq!(sent(&mut tx, 5000, 9), [0]);
        assert_eq!(due(&mut tx, 5000), Some(5100));
    }
}
