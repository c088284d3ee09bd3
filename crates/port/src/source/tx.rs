//! Where its frames enter.

use super::frames::Frames;
use ringway_frame::{Burst, Offload, TxQueue};
use ringway_mem::{Published, Span, Turn};

/// A queue that never runs dry.
#[derive(Debug)]
pub struct SourceTx {
    // Published for the sake of its lifetime: bursts borrow the bytes for their turn, not from the queue.
    frames: Published<Frames>,
    next: usize,
}

impl SourceTx {
    pub(super) fn new(frames: Published<Frames>) -> SourceTx {
        SourceTx { frames, next: 0 }
    }
}

impl TxQueue for SourceTx {
    fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>) {
        let frames = self.frames.read(turn);
        let mut next = self.next;
        while let Some(frame) = frames.get(next) {
            if burst.push(Offload::default(), Span::of(frame)).is_err() {
                break;
            }
            next = frames.after(next, 1);
        }
    }

    fn release(&mut self, turn: &Turn<'_>, frames: usize) {
        self.next = self.frames.read(turn).after(self.next, frames);
    }

    fn arm(&mut self, _turn: &Turn<'_>) -> bool {
        false
    }

    fn disarm(&mut self, _turn: &Turn<'_>) {}
}
