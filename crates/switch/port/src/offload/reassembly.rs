//! Segments of one flow in a burst, joined into large frames for a destination that takes these.
//!
//! A joined frame is what segmentation in a [`Completer`](super::Completer) turns into the same frames again. Frames of
//! one flow stay in their order, and none is kept beyond its burst. Only headers are copied: payload stays in the
//! sender's memory.

use super::pieces::{Chunk, PIECES, Pieces};
use ringway_frame::{BURST, Burst, Caps, Coalesced, HEAD, HEADERS, Needs, Segment, Storage};
use ringway_mem::Span;
use ringway_wire::Sum;

/// Flows to which segments are joined at a time, as many as in one of Linux's buckets (MAX_GRO_SKBS). Attack: a burst
/// of as many flows as frames, each frame of which would be compared with all others.
const FLOWS: usize = 8;
/// Most pieces of a joined frame. Some remain for a queue that adds pieces of its own.
const MOST_PIECES: usize = 60;
/// No frame follows.
const LAST: u8 = u8::MAX;

const _: () = assert!(BURST < LAST as usize && MOST_PIECES < PIECES);

/// Whether a destination takes large frames of any kind.
#[inline]
pub fn takes_large(caps: &Caps) -> bool {
    let large = [Needs::TSO4, Needs::TSO6, Needs::USO];
    caps.offloads.covers(Needs::CSUM) && large.into_iter().any(|one| caps.offloads.covers(one))
}

/// A frame of the list, in the order of the list.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// The next segment of the same frame.
    next: u8,
    /// Offset of its payload.
    payload_at: u8,
}

/// A frame that results.
#[derive(Debug)]
struct Output {
    /// Its first and its last frame of the list.
    first: u8,
    last: u8,
    /// Pieces of memory that it consists of.
    pieces: usize,
    /// Its headers, if others may be joined with its first frame.
    joined: Option<Coalesced>,
    /// Whether its first frame's checksum was looked at.
    is_intact: bool,
}

/// Frames of which some were joined.
#[derive(Debug)]
pub struct Joined<'a> {
    /// The frames, in the order of their first segments.
    pub burst: Burst<'a>,
    /// The place of each frame's first segment in the list of frames.
    pub firsts: &'a [u16],
}

impl Joined<'_> {
    /// The numbers of all frames of the burst, for a receiving queue.
    pub fn names(&self) -> &'static [u16] {
        &super::NAMES[..self.burst.len().min(BURST)]
    }
}

/// The memory of joined frames, reused by a worker in each turn.
#[derive(Debug)]
pub struct Reassembler {
    storage: Storage,
    headers: Box<[[u8; HEADERS]]>,
    members: [Member; BURST],
    outputs: Vec<Output>,
    firsts: Vec<u16>,
    /// Numbers of the outputs that may go on.
    open: Vec<u8>,
    chunk: Box<Chunk>,
}

impl Default for Reassembler {
    fn default() -> Reassembler {
        Reassembler {
            storage: Storage::default(),
            headers: vec![[0; HEADERS]; BURST / 2].into_boxed_slice(),
            members: [Member::default(); BURST],
            outputs: Vec::with_capacity(BURST),
            firsts: Vec::with_capacity(BURST),
            open: Vec::with_capacity(FLOWS),
            chunk: Box::default(),
        }
    }
}

/// Whether a frame may be TCP's or UDP's, as far as that is known without its tags.
#[inline]
fn is_candidate(head: &[u8; HEAD]) -> bool {
    let is_upper = |protocol: u8| protocol == 6 || protocol == 17;
    match [head[12], head[13]] {
        [8, 0] => is_upper(head[23]),
        [0x86, 0xdd] => is_upper(head[20]),
        [0x81, 0] | [0x88, 0xa8] => true,
        _ => false,
    }
}

/// Whether the frames of a list may be such of which some are joined.
#[inline]
pub fn may_join(burst: &Burst<'_>, which: &[u16]) -> bool {
    which.len() > 1 && which.iter().filter(|frame| is_candidate(burst.head(usize::from(**frame)))).count() > 1
}

/// Whether a frame may be joined with others of its flow for a destination with `caps`.
pub fn is_segment(burst: &Burst<'_>, frame: usize, caps: &Caps) -> bool {
    let mut head = [0; Segment::LONGEST];
    let total = burst.meta(frame).len as usize;
    let read = burst.read(frame, 0, &mut head[..total.min(Segment::LONGEST)]);
    let is_whole = burst.meta(frame).offload.gso() == Ok(None);
    Segment::parse(&head[..read], total)
        .is_some_and(|segment| is_whole && segment.may_be_joined() && caps.offloads.covers(segment.needs()))
}

impl Reassembler {
    /// Joins frames of `burst` named by `which` (at most 64) for a destination with `caps`; `None` if there are none to
    /// join, or no memory.
    pub fn join<'a>(&'a mut self, burst: &'a Burst<'_>, which: &[u16], caps: Caps) -> Option<Joined<'a>> {
        let which = &which[..which.len().min(BURST)];
        self.outputs.clear();
        self.open.clear();
        for (place, &frame) in which.iter().enumerate() {
            self.sort(burst, which, (place, usize::from(frame)), caps);
        }
        if self.outputs.len() == which.len() {
            return None;
        }
        self.build(burst, which)
    }

    /// Adds a frame to the output that it continues, or makes it an output of its own.
    fn sort(&mut self, burst: &Burst<'_>, which: &[u16], (place, frame): (usize, usize), caps: Caps) {
        let mut head = [0; Segment::LONGEST];
        let meta = burst.meta(frame);
        let total = meta.len as usize;
        let read = match is_candidate(burst.head(frame)) {
            true => burst.read(frame, 0, &mut head[..total.min(Segment::LONGEST)]),
            false => 0,
        };
        let head = &head[..read];
        let segment = Segment::parse(head, total);
        let Some(segment) = segment.filter(|_| meta.offload.gso() == Ok(None)) else {
            // A frame whose flow is not known is not overtaken.
            self.open.clear();
            return self.begin(place, 0, None);
        };
        let of_flow = |output: &u8| {
            let joined = self.outputs.get(usize::from(*output)).and_then(|output| output.joined.as_ref());
            joined.is_some_and(|joined| {
                let (first, own) = joined.first();
                first.is_of_flow(&segment, (own, head))
            })
        };
        let found = self.open.iter().position(of_flow);
        if let Some(at) = found {
            let number = usize::from(self.open[at]);
            if self.append(burst, which, (number, place), (&segment, head)) {
                if self.outputs[number].joined.as_ref().is_none_or(Coalesced::has_ended) {
                    self.open.remove(at);
                }
                return;
            }
            // Frames of a flow stay in their order.
            self.open.remove(at);
        }
        let may_go_on = segment.may_be_joined() && caps.offloads.covers(segment.needs());
        let joined = may_go_on.then(|| Coalesced::of(&segment, head)).filter(|joined| !joined.has_ended());
        let is_open = joined.is_some();
        self.members[place].payload_at = segment.len() as u8;
        self.begin(place, pieces_of(burst, frame, &segment), joined);
        if is_open {
            if self.open.len() == FLOWS {
                self.open.remove(0);
            }
            self.open.push((self.outputs.len() - 1) as u8);
        }
    }

    /// Makes a frame an output of its own.
    fn begin(&mut self, place: usize, pieces: usize, joined: Option<Coalesced>) {
        self.members[place].next = LAST;
        let place = place as u8;
        // The headers are a piece of their own.
        self.outputs.push(Output { first: place, last: place, pieces: pieces + 1, joined, is_intact: false });
    }

    /// Joins a frame with an output, if it is the next segment and both are intact.
    fn append(
        &mut self,
        burst: &Burst<'_>,
        which: &[u16],
        (number, place): (usize, usize),
        (segment, head): (&Segment, &[u8]),
    ) -> bool {
        let Reassembler { outputs, members, chunk, .. } = self;
        let Some(Output { first, last, pieces, joined: Some(joined), is_intact }) = outputs.get_mut(number)
        else {
            return false;
        };
        let more = pieces_of(burst, usize::from(which[place]), segment);
        if *pieces + more > MOST_PIECES || !joined.is_followed_by(segment, head) {
            return false;
        }
        let mut sum_of = |place: usize, segment: &Segment, head: &[u8]| {
            let frame = usize::from(which[place]);
            let offload = burst.meta(frame).offload;
            segment.is_intact(head, offload, |at, sum| add_rest(chunk, burst, frame, at, sum))
        };
        if !*is_intact {
            let (own, head) = joined.first();
            *is_intact = sum_of(usize::from(*first), own, head);
        }
        if !*is_intact || !sum_of(place, segment, head) {
            return false;
        }
        joined.add(segment);
        members[usize::from(*last)].next = place as u8;
        members[place] = Member { next: LAST, payload_at: segment.len() as u8 };
        (*last, *pieces) = (place as u8, *pieces + more);
        true
    }

    /// The frames that result.
    fn build<'a>(&'a mut self, burst: &'a Burst<'_>, which: &[u16]) -> Option<Joined<'a>> {
        let Reassembler { storage, headers, members, outputs, firsts, .. } = self;
        firsts.clear();
        let mut out = Burst::begin(storage);
        let mut headers = headers.iter_mut();
        for Output { first, joined, .. } in outputs.iter() {
            firsts.push(u16::from(*first));
            let joined = joined.as_ref().filter(|joined| joined.segments() > 1);
            let Some(joined) = joined else {
                out.push_from(burst, usize::from(which[usize::from(*first)])).ok()?;
                continue;
            };
            let header = headers.next()?;
            let (len, offload) = joined.write(header);
            let mut pieces = [Span::empty(); PIECES];
            pieces[0] = Span::of(&header[..len]);
            let (mut count, mut place) = (1, *first);
            while let Some(Member { next, payload_at }) = members.get(usize::from(place)) {
                let frame = usize::from(which[usize::from(place)]);
                let at = usize::from(*payload_at);
                let payload = burst.meta(frame).len as usize - at;
                let cut = Pieces::behind(burst, frame, at).cut(payload, &mut pieces[count..]);
                count += cut.ok()?;
                place = *next;
            }
            out.push_pieces(offload, &pieces[..count]).ok()?;
        }
        Some(Joined { burst: out, firsts })
    }
}

/// Most pieces of a segment's payload.
fn pieces_of(burst: &Burst<'_>, frame: usize, segment: &Segment) -> usize {
    burst.tail(frame).len() + usize::from(segment.len() < HEAD)
}

/// Adds the bytes of a frame from `at` on to a sum.
fn add_rest(chunk: &mut Chunk, burst: &Burst<'_>, frame: usize, at: usize, sum: &mut Sum) {
    let len = burst.meta(frame).len as usize;
    let mut pieces = [Span::empty(); PIECES];
    let mut rest = Pieces::behind(burst, frame, at);
    rest.prefetch(len.saturating_sub(at));
    // A frame of more pieces is not joined: its sum is wrong.
    let count = rest.cut(len.saturating_sub(at), &mut pieces).unwrap_or(0);
    chunk.add(&pieces[..count], sum);
}

#[cfg(test)]
mod tests;
