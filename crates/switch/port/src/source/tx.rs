//! The source's TX queue.

use super::frames::Frames;
use ringway_frame::{BURST, Burst, Offload, TxQueue};
use ringway_mem::{Published, Span, Turn};

const SECOND: u64 = 1_000_000_000;
/// Maximum time in nanoseconds for which a source that was not served catches up.
const ARREARS: u64 = 1_000_000;

/// A rate in frames per second.
#[derive(Debug)]
struct Pace {
    rate: u64,
    /// Frames that may be sent, times [`SECOND`], as of `at`.
    credit: u64,
    at: u64,
}

impl Pace {
    /// Number of frames that may be sent now.
    fn room(&mut self, now: u64) -> usize {
        let most = (ARREARS.saturating_mul(self.rate)).max(BURST as u64 * SECOND);
        if self.at == 0 {
            self.credit = SECOND;
        } else {
            let earned = now.saturating_sub(self.at).saturating_mul(self.rate);
            self.credit = self.credit.saturating_add(earned).min(most);
        }
        self.at = now;
        (self.credit / SECOND) as usize
    }

    /// When the next frame may be sent.
    fn next(&self) -> u64 {
        self.at + SECOND.saturating_sub(self.credit).div_ceil(self.rate)
    }
}

/// A queue that always has frames, or has frames at a rate.
#[derive(Debug)]
pub struct SourceTx {
    // Published because of its lifetime: bursts borrow the bytes for their turn, not from the queue.
    frames: Published<Frames>,
    next: usize,
    pace: Option<Pace>,
}

impl SourceTx {
    pub(super) fn new(frames: Published<Frames>, rate: Option<u64>) -> SourceTx {
        let pace = rate.map(|rate| Pace { rate: rate.clamp(1, SECOND), credit: 0, at: 0 });
        SourceTx { frames, next: 0, pace }
    }
}

impl TxQueue for SourceTx {
    fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>) {
        let most = self.pace.as_mut().map_or(usize::MAX, |pace| pace.room(turn.now));
        let frames = self.frames.read(turn);
        let (mut next, before) = (self.next, burst.len());
        while let Some(frame) = frames.get(next).filter(|_| burst.len() - before < most) {
            if burst.push(Offload::default(), Span::of(frame)).is_err() {
                break;
            }
            next = frames.after(next, 1);
        }
    }

    fn release(&mut self, turn: &Turn<'_>, frames: usize) {
        self.next = self.frames.read(turn).after(self.next, frames);
        if let Some(pace) = &mut self.pace {
            pace.credit = pace.credit.saturating_sub(frames as u64 * SECOND);
        }
    }

    fn arm(&mut self, turn: &Turn<'_>) -> bool {
        self.pace.as_mut().is_some_and(|pace| pace.room(turn.now) == 0)
    }

    fn disarm(&mut self, _turn: &Turn<'_>) {}

    fn next_due(&self) -> Option<u64> {
        self.pace.as_ref().map(Pace::next)
    }
}
