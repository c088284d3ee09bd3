//! Software completion: what a sender left undone and a destination can't do, done here.
//!
//! A [`Completer`] makes of some frames of a burst another burst, in its own memory, that the destination can
//! take: checksums filled (virtio 1.3, 5.1.6.2), large TCP and UDP frames cut into segments. Only headers are
//! copied; a segment's payload stays where the sender has it, and is borrowed as long as the first burst is.

mod pieces;
mod segment;
#[cfg(test)]
mod tests;

use pieces::{Chunk, PIECES, Pieces};
use ringway_frame::{Burst, Caps, Gso, HEAD, HEADERS, Needs, Offload, Reason, Storage};
use ringway_mem::Span;
use ringway_wire::Sum;

/// Frames that one completion yields at most.
pub const FRAMES: usize = 512;

/// Names of all frames that a completion can yield.
const NAMES: [u16; FRAMES] = {
    let mut names = [0; FRAMES];
    let mut at = 0;
    while at < FRAMES {
        names[at] = at as u16;
        at += 1;
    }
    names
};

/// What became of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So many frames, at least one.
    Frames(u16),
    /// None: it can't be done.
    Dropped(Reason),
}

/// Frames as the destination can take them.
#[derive(Debug)]
pub struct Completed<'a> {
    /// The frames.
    pub burst: Burst<'a>,
    /// What became of each frame that was named, in that order. There are fewer than were named when no more
    /// fitted; then the others are for a further completion. One there is always.
    pub outcomes: &'a [Outcome],
}

/// How much of a completion a destination took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Frames that were named and are dealt with, dropped ones included.
    pub inputs: usize,
    /// Frames of [`Completed::burst`] that they became.
    pub outputs: usize,
}

impl Completed<'_> {
    /// The numbers of all frames of the burst, as a receiving queue wants them.
    pub fn names(&self) -> &'static [u16] {
        &NAMES[..self.burst.len().min(FRAMES)]
    }

    /// With room for the first `room` frames of the burst, which frames can be delivered whole: a frame whose
    /// last segments don't fit stays with its sender.
    pub fn whole(&self, room: usize) -> Whole {
        let mut whole = Whole { inputs: 0, outputs: 0 };
        for outcome in self.outcomes {
            let frames = match outcome {
                Outcome::Frames(frames) => usize::from(*frames),
                Outcome::Dropped(_) => 0,
            };
            if whole.outputs + frames > room {
                break;
            }
            whole.inputs += 1;
            whole.outputs += frames;
        }
        whole
    }
}

/// The memory of completions, kept by a worker from turn to turn.
#[derive(Debug)]
pub struct Completer {
    storage: Storage,
    headers: Box<[[u8; HEADERS]]>,
    outcomes: Vec<Outcome>,
    chunk: Box<Chunk>,
}

impl Default for Completer {
    fn default() -> Completer {
        Completer {
            storage: Storage::new(FRAMES),
            headers: vec![[0; HEADERS]; FRAMES].into_boxed_slice(),
            outcomes: Vec::with_capacity(ringway_frame::BURST),
            chunk: Box::default(),
        }
    }
}

/// Why a frame yields nothing, or not now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Drop(Reason),
    Full,
}

impl From<Reason> for Stop {
    fn from(reason: Reason) -> Stop {
        Stop::Drop(reason)
    }
}

impl From<ringway_frame::Full> for Stop {
    fn from(_: ringway_frame::Full) -> Stop {
        Stop::Full
    }
}

/// A completion under way.
struct Work<'a, 'w> {
    from: &'a Burst<'a>,
    out: Burst<'a>,
    headers: std::slice::IterMut<'a, [u8; HEADERS]>,
    chunk: &'w mut Chunk,
    pieces: [Span<'a>; PIECES],
    caps: Caps,
}

impl Completer {
    /// Makes of the frames of `burst` that `which` names (at most 64 of them) frames that a destination of
    /// `caps` can take. Frames that need nothing are among the result as they are.
    pub fn complete<'a>(&'a mut self, burst: &'a Burst<'_>, which: &[u16], caps: Caps) -> Completed<'a> {
        let Completer { storage, headers, outcomes, chunk } = self;
        outcomes.clear();
        let mut work = Work {
            from: burst,
            out: Burst::begin(storage),
            headers: headers.iter_mut(),
            chunk,
            pieces: [Span::empty(); PIECES],
            caps,
        };
        for &frame in &which[..which.len().min(ringway_frame::BURST)] {
            let before = work.out.len();
            let outcome = match work.frame(usize::from(frame)) {
                Ok(()) => Outcome::Frames((work.out.len() - before) as u16),
                Err(Stop::Drop(reason)) => Outcome::Dropped(reason),
                // Alone it would fit no better.
                Err(Stop::Full) if before == 0 => Outcome::Dropped(Reason::NoOffload),
                Err(Stop::Full) => {
                    work.out.truncate(before);
                    break;
                }
            };
            if let Outcome::Dropped(_) = outcome {
                work.out.truncate(before);
            }
            outcomes.push(outcome);
        }
        Completed { burst: work.out, outcomes }
    }
}

impl<'a> Work<'a, '_> {
    fn frame(&mut self, frame: usize) -> Result<(), Stop> {
        let meta = self.from.meta(frame);
        let gso = meta.offload.gso().map_err(|_| Stop::Drop(Reason::BadOffload))?;
        if let Some(gso) = gso {
            if self.caps.offloads.covers(meta.offload.needs()) {
                return self.pass(frame, meta.offload);
            }
            return self.segment(frame, gso);
        }
        if meta.len > self.caps.largest {
            return Err(Stop::Drop(Reason::Long));
        }
        let offload = Offload { gso_type: 0, gso_size: 0, ..meta.offload };
        if self.caps.offloads.covers(offload.needs()) {
            return self.pass(frame, offload);
        }
        self.checksum(frame, offload)
    }

    /// The frame as it is.
    fn pass(&mut self, frame: usize, offload: Offload) -> Result<(), Stop> {
        let len = self.from.meta(frame).len as usize;
        self.pieces[0] = Span::of(&self.from.head(frame)[..len.min(HEAD)]);
        let tail = self.from.tail(frame);
        self.pieces.get_mut(1..=tail.len()).ok_or(Stop::Full)?.copy_from_slice(tail);
        Ok(self.out.push_pieces(offload, &self.pieces[..=tail.len()])?)
    }

    /// The frame with its checksum filled: the field holds the sum of the pseudo header, the rest is summed
    /// here.
    fn checksum(&mut self, frame: usize, offload: Offload) -> Result<(), Stop> {
        let len = self.from.meta(frame).len as usize;
        let start = usize::from(offload.csum_start);
        let field = start + usize::from(offload.csum_offset);
        if field + 2 > len {
            return Err(Stop::Drop(Reason::BadOffload));
        }
        let own = (field + 2).max(HEAD).min(len);
        if own > HEADERS {
            return Err(Stop::Drop(Reason::NoOffload));
        }
        let header = self.headers.next().ok_or(Stop::Full)?;
        let header = &mut header[..own];
        self.from.read(frame, 0, header);
        let mut rest = Pieces::behind(self.from, frame, own);
        let count = rest.cut(len - own, &mut self.pieces[1..])?;
        let mut sum = Sum::new();
        sum.add(&header[start..]);
        self.chunk.add(&self.pieces[1..=count], &mut sum);
        header[field..field + 2].copy_from_slice(&sum.finish_nonzero().to_be_bytes());
        self.pieces[0] = Span::of(header);
        Ok(self.out.push_pieces(Offload::default(), &self.pieces[..=count])?)
    }

    /// Whether the destination fills checksums itself.
    fn leaves_checksum(&self) -> bool {
        self.caps.offloads.covers(Needs::CSUM)
    }

    /// The frame in segments.
    fn segment(&mut self, frame: usize, gso: Gso) -> Result<(), Stop> {
        segment::segment(self, frame, gso)
    }
}
