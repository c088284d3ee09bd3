//! Sequence numbers in frames: the sender writes each at the head and tail of a frame's payload, and the receiver
//! verifies both, so that both sides touch the payload like real programs.

use crate::Failure;
use ringway_mem::{Span, SpanMut};

/// Treatment of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Written once, and not read.
    Untouched,
    /// Each frame is numbered, and the receiver verifies it.
    Numbered,
}

/// Bytes before the payload: the Ethernet header.
const HEAD: usize = 14;
const NUMBER: usize = size_of::<u64>();

/// Writes a frame's number.
#[inline]
pub fn write(frame: SpanMut<'_>, number: u64) -> bool {
    let bytes = number.to_le_bytes();
    frame.write_at(HEAD, bytes) && frame.write_at(frame.len() - NUMBER, bytes)
}

/// Prefetches what [`Sequence::verify`] reads.
#[inline]
pub fn prefetch(frame: Span<'_>) {
    frame.prefetch();
    frame.split(frame.len().saturating_sub(NUMBER)).1.prefetch();
}

/// Prefetches what [`write()`] writes.
#[inline]
pub fn prefetch_write(frame: SpanMut<'_>) {
    frame.prefetch_write();
    frame.split(frame.len().saturating_sub(NUMBER)).1.prefetch_write();
}

/// The receiver's side of a sequence.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequence {
    /// The number of the next frame.
    next: u64,
    /// Numbers that were not received.
    pub missing: u64,
}

impl Sequence {
    /// Verifies a frame; fails if it is damaged, or if it or a later one has already been received.
    #[inline]
    pub fn verify(&mut self, frame: Span<'_>) -> Result<(), Failure> {
        let number = |at: usize| frame.split(at).1.read_array().map(u64::from_le_bytes);
        let (head, tail) = (number(HEAD), number(frame.len().saturating_sub(NUMBER)));
        match head {
            Some(head) if head >= self.next && Some(head) == tail => {
                self.missing += head - self.next;
                self.next = head + 1;
                Ok(())
            }
            _ => Err(format!("frame {head:?} came, with {tail:?} at its tail, not {}", self.next).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u64) -> Vec<u8> {
        let mut frame = vec![0; 64];
        assert!(write(SpanMut::of(&mut frame), number));
        frame
    }

    #[test]
    fn damaged_and_late_frames_fail() {
        let mut sequence = Sequence::default();
        for number in [0, 1, 4] {
            sequence.verify(Span::of(&frame(number))).unwrap();
        }
        assert_eq!(sequence.missing, 2);
        // Late, repeated, damaged, too short.
        for wrong in [&frame(3), &frame(4), &frame(5)[..63].to_vec(), &frame(5)[..20].to_vec()] {
            sequence.verify(Span::of(wrong)).unwrap_err();
        }
        sequence.verify(Span::of(&frame(5))).unwrap();
    }

    #[test]
    fn short_frames_have_no_number() {
        assert!(!write(SpanMut::of(&mut [0; 20]), 1));
    }
}
