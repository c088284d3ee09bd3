//! Software completion of offloads that a sender requested and a destination lacks.
//!
//! A [`Completer`] converts frames of a burst to another burst, in its own memory, that the destination can take:
//! checksums are filled (virtio 1.3, 5.1.6.2), large TCP and UDP frames are segmented. Only headers are copied; a
//! segment's payload stays in the sender's memory, and is borrowed as long as the first burst is. The reverse is
//! [`reassembly`].

mod pieces;
pub mod reassembly;
mod segment;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod unfinished;

use pieces::{Chunk, PIECES, Pieces};
use ringway_frame::{Burst, Caps, Gso, HEAD, HEADERS, Needs, Offload, Reason, Storage};
use ringway_mem::Span;
use ringway_wire::Sum;

/// Maximum number of frames that one completion yields.
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

/// The outcome for one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This many frames, at least one.
    Frames(u16),
    /// No frame: the completion is impossible.
    Dropped(Reason),
}

/// Frames as the destination can take them.
#[derive(Debug)]
pub struct Completed<'a> {
    /// The frames.
    pub burst: Burst<'a>,
    /// The outcome for each named frame, in that order; at least one. There are fewer if no more fitted; the others
    /// need a further completion.
    pub outcomes: &'a [Outcome],
}

/// The part of a completion that a destination accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Number of named frames that are done, including dropped ones.
    pub inputs: usize,
    /// Number of frames of [`Completed::burst`] that resulted.
    pub outputs: usize,
}

impl Completed<'_> {
    /// The numbers of all frames of the burst, for a receiving queue.
    pub fn names(&self) -> &'static [u16] {
        &NAMES[..self.burst.len().min(FRAMES)]
    }

    /// The frames that can be delivered completely with room for the first `room` frames of the burst: a frame whose
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

/// The memory of completions, reused by a worker in each turn.
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

/// Why a frame yields no frames, or not now.
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

/// A completion in progress.
struct Work<'a, 'w> {
    from: &'a Burst<'a>,
    out: Burst<'a>,
    headers: std::slice::IterMut<'a, [u8; HEADERS]>,
    chunk: &'w mut Chunk,
    pieces: [Span<'a>; PIECES],
    caps: Caps,
}

impl Completer {
    /// Converts the frames of `burst` named by `which` (at most 64) to frames that a destination with `caps` can
    /// take. Frames that need no completion are passed unmodified.
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
                // The frame doesn't fit even alone.
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

    /// Passes the frame unmodified.
    fn pass(&mut self, frame: usize, offload: Offload) -> Result<(), Stop> {
        let len = self.from.meta(frame).len as usize;
        self.pieces[0] = Span::of(&self.from.head(frame)[..len.min(HEAD)]);
        let tail = self.from.tail(frame);
        self.pieces.get_mut(1..=tail.len()).ok_or(Stop::Full)?.copy_from_slice(tail);
        Ok(self.out.push_pieces(offload, &self.pieces[..=tail.len()])?)
    }

    /// Fills the frame's checksum: the field holds the sum of the pseudo header, to which the rest is added.
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

    /// Segments the frame.
    fn segment(&mut self, frame: usize, gso: Gso) -> Result<(), Stop> {
        segment::segment(self, frame, gso)
    }
}
