//! The device's side of a queue that the driver receives on.

use crate::chain::{CHAIN, Chain, Piece, REACH, Sink, reached};
use crate::error::QueueError;
use crate::format::{Cursor, End, Format, Head, Used};
use crate::layout::Ring;
use crate::prefetch::prefetch_translations;
use crate::signals::Signals;
use crate::tx::{BATCH, with};
use alloc::boxed::Box;
use ringway_mem::{KEPT, SpanMut, Translate};

/// Frames that can be reserved together: the segments that one frame of 64 KB may become.
pub const FRAMES: usize = 256;
/// Buffers that can be reserved together: 256 KB in buffers of 1.5 KB, and some.
const BUFFERS: usize = KEPT;
/// Descriptors of chains that can be reserved together.
const PIECES: usize = 1024;

/// What writes frames into the buffers that were reserved for them.
pub trait Fill {
    /// Frame `frame`, counted from the first reserved, goes into `to`, which holds it exactly.
    fn whole(&mut self, frame: usize, to: SpanMut<'_>);

    /// Frame `frame` goes into several ranges, which lie in `buffers` buffers.
    fn begin(&mut self, frame: usize, buffers: u16);

    /// The next range of the frame that was begun; it is to be filled.
    fn part(&mut self, to: SpanMut<'_>);

    /// Frame `frame` is too long for the buffers that the driver offers, and is lost.
    fn lost(&mut self, frame: usize);
}

/// The header in front of received frames, as negotiated.
#[derive(Clone, Copy, Debug)]
pub struct RxHeader {
    /// Whether a frame may lie in several buffers (`VIRTIO_NET_F_MRG_RXBUF`).
    pub mergeable: bool,
    /// Bytes of the header that each frame has in front.
    pub header: u32,
}

/// A buffer made available by the driver.
#[derive(Clone, Copy, Debug, Default)]
struct Buffer {
    /// Where it lies, if in one descriptor.
    address: u64,
    room: u32,
    chain: Chain,
    /// Its descriptors among the pieces, if there are several.
    first: u16,
    pieces: u16,
}

/// The buffers of one frame.
#[derive(Clone, Copy, Debug, Default)]
struct Reserved {
    /// Header included; 0: the frame is too long.
    len: u32,
    first: u16,
    buffers: u16,
}

/// How far buffers were looked for.
struct Search {
    /// The first that was not looked at.
    at: Cursor,
    /// The first of those known that no frame has.
    next: usize,
    /// Frames that have none yet.
    left: usize,
}

/// A device's state of a receive queue.
#[derive(Debug)]
pub struct RxDevice {
    /// The first buffer that nothing was put into.
    at: Cursor,
    used: Used,
    signalled: Cursor,
    /// Frames reserved, and how many of them were put.
    frames: usize,
    put: usize,
    buffers: usize,
    pieces: usize,
    reserved: [Reserved; FRAMES],
    heads: [Head; BATCH],
    buffer: Box<[Buffer]>,
    piece: Box<[Piece]>,
}

impl RxDevice {
    /// A device that goes on at `at`, the first buffer it has not used; `used` is where the next used one is written.
    /// They differ only on a split ring.
    pub fn new(at: Cursor, used: Cursor) -> RxDevice {
        RxDevice {
            at,
            used: Used::new(used),
            signalled: used,
            frames: 0,
            put: 0,
            buffers: 0,
            pieces: 0,
            reserved: [Reserved::default(); FRAMES],
            heads: [Head::default(); BATCH],
            buffer: alloc::vec![Buffer::default(); BUFFERS].into_boxed_slice(),
            piece: alloc::vec![Piece::default(); PIECES].into_boxed_slice(),
        }
    }

    /// The first buffer that nothing was put into, and where the next used one is written.
    #[inline]
    pub fn position(&self) -> (Cursor, Cursor) {
        (self.at, self.used.at)
    }

    /// Reserves buffers for frames of these lengths (without header), at most [`FRAMES`]. Returns for how many of them,
    /// from the first, there are some; a frame that no buffers can hold counts among them. What an earlier call
    /// reserved and was not put is given up.
    #[inline]
    pub fn reserve<'t, T: Translate<'t>>(
        &mut self,
        ring: &Ring<'t>,
        translate: &mut T,
        rx_header: RxHeader,
        lens: impl ExactSizeIterator<Item = u32>,
    ) -> (usize, Result<(), QueueError>) {
        (self.frames, self.put, self.buffers, self.pieces) = (0, 0, 0, 0);
        let result = with!(*ring, ring => self.reserve_in(ring, translate, rx_header, lens));
        if result == Err(QueueError::Miss) {
            prefetch_translations(ring, self.at, true, BATCH, translate);
        }
        (self.frames, result)
    }

    #[inline]
    fn reserve_in<'t, F: Format<'t>, T: Translate<'t>>(
        &mut self,
        ring: F,
        translate: &mut T,
        rx_header: RxHeader,
        lens: impl ExactSizeIterator<Item = u32>,
    ) -> Result<(), QueueError> {
        let mut search = Search { at: self.at, next: 0, left: lens.len().min(FRAMES) };
        ring.prefetch_used(&self.used);
        let mut needs = lens.take(FRAMES).map(|len| len.saturating_add(rx_header.header));
        let mut need = needs.next();
        loop {
            need = self.reserve_run(need, &mut needs, &mut search);
            let Some(large) = need else { return Ok(()) };
            if !self.reserve_several(ring, translate, rx_header.mergeable, large, &mut search)? {
                return Ok(());
            }
            search.left -= 1;
            self.frames += 1;
            need = needs.next();
        }
    }

    /// Reserves a buffer at hand each, as long as the next frame fits into the next buffer. Returns what the frame
    /// needs that doesn't.
    #[inline(always)]
    fn reserve_run(
        &mut self,
        mut need: Option<u32>,
        needs: &mut impl Iterator<Item = u32>,
        search: &mut Search,
    ) -> Option<u32> {
        let from = search.next;
        let places = self.reserved[self.frames..].iter_mut();
        let mut run = 0;
        for (buffer, place) in self.buffer[..self.buffers].iter().skip(from).zip(places) {
            let Some(len) = need.filter(|&len| len <= buffer.room) else { break };
            *place = Reserved { len, first: (from + run) as u16, buffers: 1 };
            need = needs.next();
            run += 1;
        }
        search.next += run;
        search.left -= run;
        self.frames += run;
        need
    }

    /// Reserves for a frame of `need` bytes what is not at hand in one buffer. `false`: there is not enough.
    fn reserve_several<'t, F: Format<'t>, T: Translate<'t>>(
        &mut self,
        ring: F,
        translate: &mut T,
        mergeable: bool,
        need: u32,
        search: &mut Search,
    ) -> Result<bool, QueueError> {
        let first = search.next;
        let mut room = 0u32;
        let mut fits = true;
        while room < need {
            let wanted = search.left;
            if search.next == self.buffers && !self.fetch(ring, &mut search.at, translate, wanted)? {
                // Attack: buffers of a byte each. A frame that all we can keep don't hold is not waited for.
                if self.frames > 0 || !self.is_exhausted() {
                    return Ok(false);
                }
                fits = false;
                break;
            }
            room = room.saturating_add(self.buffer[search.next].room);
            search.next += 1;
            if !mergeable {
                fits = room >= need;
                break;
            }
        }
        self.reserved[self.frames] = if fits {
            Reserved { len: need, first: first as u16, buffers: (search.next - first) as u16 }
        } else {
            search.next = first;
            Reserved { len: 0, first: first as u16, buffers: 0 }
        };
        Ok(true)
    }

    /// Whether no further buffer could be kept.
    fn is_exhausted(&self) -> bool {
        self.buffers == BUFFERS || self.pieces + CHAIN > PIECES
    }

    /// Finds more buffers, about as many as `wanted`. `false`: there are none, or no more can be kept.
    fn fetch<'t, F: Format<'t>, T: Translate<'t>>(
        &mut self,
        ring: F,
        at: &mut Cursor,
        translate: &mut T,
        wanted: usize,
    ) -> Result<bool, QueueError> {
        let most = wanted.clamp(1, BATCH).min(BUFFERS - self.buffers);
        let (count, end) = ring.gather(at, true, &mut self.heads[..most]);
        let numbers = self.buffers..BUFFERS;
        let places = numbers.clone().zip(&mut self.buffer[numbers]);
        for (head, (number, place)) in self.heads[..count].iter().zip(places) {
            let room = head.len.min(REACH);
            let span = translate.keep(number, head.address, room)?;
            if span.len() < room as usize {
                translate.knows(head.address, room, true)?;
            }
            span.prefetch_write();
            span.split(64).1.prefetch_write();
            let chain = Chain { id: head.id, slots: 1 };
            *place = Buffer { address: head.address, room, chain, first: 0, pieces: 0 };
        }
        self.buffers += count;
        if count > 0 {
            return Ok(true);
        }
        match end {
            End::Asked | End::Empty => Ok(false),
            End::Error(error) => Err(error),
            End::Chain => self.fetch_chain(ring, at, translate),
        }
    }

    fn fetch_chain<'t, F: Format<'t>, T: Translate<'t>>(
        &mut self,
        ring: F,
        at: &mut Cursor,
        translate: &mut T,
    ) -> Result<bool, QueueError> {
        if self.is_exhausted() {
            return Ok(false);
        }
        let first = self.pieces;
        let mut sink = Sink::new(&mut self.piece[first..first + CHAIN]);
        let Some(chain) = ring.chain(at, true, translate, &mut sink)? else { return Ok(false) };
        let room = u32::try_from(sink.bytes).unwrap_or(REACH).min(REACH);
        let pieces = sink.count;
        for piece in reached(&self.piece[first..first + pieces]) {
            translate.knows(piece.address, piece.len, true)?;
        }
        self.buffer[self.buffers] =
            Buffer { address: 0, room, chain, first: first as u16, pieces: pieces as u16 };
        self.buffers += 1;
        self.pieces += pieces;
        Ok(true)
    }

    /// Puts the next `count` of the reserved frames. Returns how many were put, those lost included; fewer only with
    /// an error. The driver sees them after [`RxDevice::publish`].
    #[inline]
    pub fn put<'t, T: Translate<'t>>(
        &mut self,
        ring: &Ring<'t>,
        translate: &mut T,
        count: usize,
        fill: &mut impl Fill,
    ) -> (usize, Result<(), QueueError>) {
        let before = self.put;
        let result = with!(*ring, ring => self.put_in(ring, translate, count, fill));
        (self.put - before, result)
    }

    #[inline]
    fn put_in<'t, F: Format<'t>, T: Translate<'t>>(
        &mut self,
        ring: F,
        translate: &mut T,
        count: usize,
        fill: &mut impl Fill,
    ) -> Result<(), QueueError> {
        let end = self.put.saturating_add(count).min(self.frames);
        while self.put < end {
            let first = self.put;
            let (run, result) = self.fill_run(translate, first..end, fill);
            let done = &self.reserved[first..first + run];
            let buffer = &self.buffer;
            let id = |reserved: &Reserved| buffer[usize::from(reserved.first)].chain.id;
            ring.write_used_run(&mut self.used, done.iter().map(|reserved| (id(reserved), reserved.len)));
            ring.pass_run(&mut self.at, run);
            self.put += run;
            result?;
            if self.put < end {
                self.put_parts(ring, translate, self.put, fill)?;
                self.put += 1;
            }
        }
        Ok(())
    }

    /// Fills the first of `frames` that lie in one range each. Returns how many did.
    #[inline(always)]
    fn fill_run<'t, T: Translate<'t>>(
        &self,
        translate: &mut T,
        frames: core::ops::Range<usize>,
        fill: &mut impl Fill,
    ) -> (usize, Result<(), QueueError>) {
        let (first, mut run) = (frames.start, 0);
        for reserved in &self.reserved[frames] {
            let number = usize::from(reserved.first);
            let buffer = self.buffer[number];
            if reserved.buffers != 1 || buffer.pieces != 0 {
                break;
            }
            let to = match translate.write_kept(number, buffer.address, reserved.len) {
                Ok(to) => to,
                Err(fault) => return (run, Err(fault.into())),
            };
            if to.len() != reserved.len as usize {
                break;
            }
            fill.whole(first + run, to);
            run += 1;
        }
        (run, Ok(()))
    }

    /// Puts a frame that lies in several ranges, or that is too long.
    #[inline(never)]
    fn put_parts<'t, F: Format<'t>, T: Translate<'t>>(
        &mut self,
        ring: F,
        translate: &mut T,
        frame: usize,
        fill: &mut impl Fill,
    ) -> Result<(), QueueError> {
        let Reserved { len, first, buffers } = self.reserved[frame];
        if len == 0 {
            fill.lost(frame);
            return Ok(());
        }
        let range = usize::from(first)..usize::from(first) + usize::from(buffers);
        let mut left = len;
        fill.begin(frame, buffers);
        for buffer in &self.buffer[range.clone()] {
            let whole = [Piece { address: buffer.address, len: buffer.room }];
            let pieces = match buffer.pieces {
                0 => &whole[..],
                count => &self.piece[usize::from(buffer.first)..][..usize::from(count)],
            };
            for piece in reached(pieces) {
                let count = piece.len.min(left);
                left -= count;
                parts(translate, Piece { address: piece.address, len: count }, fill)?;
            }
        }
        // Only now, since an address behind may have turned out not to be granted.
        let mut left = len;
        for buffer in &self.buffer[range] {
            let count = buffer.room.min(left);
            left -= count;
            ring.write_used(&mut self.used, buffer.chain, count);
            ring.pass(&mut self.at, buffer.chain);
        }
        Ok(())
    }

    /// Makes what was put visible to the driver. Returns whether there was something.
    #[inline]
    pub fn publish(&mut self, ring: &Ring<'_>) -> bool {
        let some = !self.used.is_published();
        if some {
            with!(ring, ring => ring.publish(&mut self.used));
        }
        some
    }
}

impl Signals for RxDevice {
    fn wants_interrupt(&mut self, ring: &Ring<'_>) -> bool {
        let since = core::mem::replace(&mut self.signalled, self.used.published);
        let wanted = with!(ring, ring => ring.wants_interrupt(since, &self.used));
        self.used.untold = 0;
        wanted
    }

    fn pending(&self, ring: &Ring<'_>) -> bool {
        with!(ring, ring => ring.pending(self.at))
    }

    fn set_flag(&mut self, ring: &Ring<'_>, wanted: bool) {
        with!(ring, ring => ring.set_flag(self.at, wanted));
    }
}

/// Fills the ranges that a piece consists of once translated.
fn parts<'t, T: Translate<'t>>(
    translate: &mut T,
    piece: Piece,
    fill: &mut impl Fill,
) -> Result<(), QueueError> {
    let Piece { mut address, mut len } = piece;
    while len > 0 {
        let to = translate.write(address, len)?;
        if to.is_empty() {
            return Err(QueueError::Address);
        }
        fill.part(to);
        address = address.wrapping_add(to.len() as u64);
        len = len.saturating_sub(to.len() as u32);
    }
    Ok(())
}
