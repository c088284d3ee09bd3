//! The device side of a receive queue.

use crate::chain::{CHAIN, Chain, MAX_LOOKUP, Piece, Sink, bounded};
use crate::error::QueueError;
use crate::format::{Cursor, End, Format, Head, Progress, Used};
use crate::layout::Ring;
use crate::prefetch::prefetch_translations;
use crate::signals::Signals;
use crate::tx::{BATCH, with};
use alloc::boxed::Box;
use ringway_mem::{KEPT, SpanMut, Translate};

/// Largest number of frames reserved together: the segments of one frame of 64 KB.
pub const FRAMES: usize = 256;
/// Largest number of buffers reserved together: more than 256 KB in buffers of 1.5 KB.
const BUFFERS: usize = KEPT;
/// Largest number of descriptors, of buffers with several, reserved together.
const PIECES: usize = 1024;

/// Writes frames into reserved buffers.
pub trait Fill {
    /// Writes frame number `frame` of the reservation to `to`, which has exactly the frame's length.
    fn whole(&mut self, frame: usize, to: SpanMut<'_>);

    /// Begins frame `frame`, which is written to several ranges, of `buffers` buffers.
    fn begin(&mut self, frame: usize, buffers: u16);

    /// Writes the next part of the current frame, filling `to`.
    fn part(&mut self, to: SpanMut<'_>);

    /// Frame `frame` is too long for the driver's buffers and is dropped.
    fn lost(&mut self, frame: usize);
}

/// The header of received frames, as negotiated.
#[derive(Clone, Copy, Debug)]
pub struct RxHeader {
    /// Whether a frame may span several buffers (`VIRTIO_NET_F_MRG_RXBUF`).
    pub mergeable: bool,
    /// Size of the header before each frame in bytes.
    pub header: u32,
}

/// An available buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Buffer {
    /// The address, if the buffer has one descriptor.
    address: u64,
    /// The buffer's length, at most [`MAX_LOOKUP`].
    room: u32,
    chain: Chain,
    /// Index in `RxDevice::piece` of the first descriptor, if there are several.
    first: u16,
    /// Number of descriptors, or 0 if there is one.
    pieces: u16,
}

/// The buffers of one frame.
#[derive(Clone, Copy, Debug, Default)]
struct Reserved {
    /// Length with the header; 0 if the frame is too long.
    len: u32,
    /// Index in `RxDevice::buffer`.
    first: u16,
    buffers: u16,
}

/// State of the search for buffers.
struct Search {
    /// Position of the first unexamined buffer.
    at: Cursor,
    /// Index of the first stored buffer that is not assigned to a frame.
    next: usize,
    /// Number of frames that have no buffers yet.
    left: usize,
}

/// Device state of a receive queue.
#[derive(Debug)]
pub struct RxDevice {
    /// Position of the first unfilled buffer.
    at: Cursor,
    used: Used,
    signalled: Cursor,
    /// Number of reserved frames.
    frames: usize,
    /// Number of reserved frames already written.
    put: usize,
    /// Numbers of entries used in `buffer` and `piece`.
    buffers: usize,
    pieces: usize,
    reserved: [Reserved; FRAMES],
    heads: [Head; BATCH],
    buffer: Box<[Buffer]>,
    piece: Box<[Piece]>,
}

impl RxDevice {
    /// A device that starts at `at`, the first unused buffer; the next used entry is written at `used`. The
    /// two differ only on a split ring.
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

    /// Positions of the first unfilled buffer and of the next used entry.
    #[inline]
    pub fn position(&self) -> (Cursor, Cursor) {
        (self.at, self.used.at)
    }

    /// How far the device is.
    #[inline]
    pub fn progress(&self) -> Progress {
        self.used.progress(self.at)
    }

    /// Whether there are written frames that are not published yet.
    #[inline]
    pub fn holds(&self) -> bool {
        !self.used.is_published()
    }

    /// Reserves buffers for frames of these lengths (without header), at most [`FRAMES`]. Returns the number
    /// of leading frames that have buffers, including frames that are too long for any. Cancels earlier
    /// reservations that were not written.
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

    /// Reserves one stored buffer per frame, as long as each frame fits into the next buffer. Returns the
    /// length of the first frame that doesn't fit.
    #[inline(always)]
    fn reserve_run(
        &mut self,
        mut need: Option<u32>,
        needs: &mut impl Iterator<Item = u32>,
        search: &mut Search,
    ) -> Option<u32> {
        let from = search.next;
        let slots = self.reserved[self.frames..].iter_mut();
        let mut run = 0;
        for (buffer, slot) in self.buffer[..self.buffers].iter().skip(from).zip(slots) {
            let Some(len) = need.filter(|&len| len <= buffer.room) else { break };
            *slot = Reserved { len, first: (from + run) as u16, buffers: 1 };
            need = needs.next();
            run += 1;
        }
        search.next += run;
        search.left -= run;
        self.frames += run;
        need
    }

    /// Reserves buffers for a frame of `need` bytes that doesn't fit into the next stored buffer. Returns
    /// `false` if there are too few.
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
                // Attack: buffers of one byte each. A frame that doesn't fit into the largest reservation
                // would wait forever.
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

    /// Whether no further buffer can be stored.
    fn is_exhausted(&self) -> bool {
        self.buffers == BUFFERS || self.pieces + CHAIN > PIECES
    }

    /// Reads up to `wanted` more buffers. Returns `false` if there are none, or no more can be stored.
    fn fetch<'t, F: Format<'t>, T: Translate<'t>>(
        &mut self,
        ring: F,
        at: &mut Cursor,
        translate: &mut T,
        wanted: usize,
    ) -> Result<bool, QueueError> {
        let max = wanted.clamp(1, BATCH).min(BUFFERS - self.buffers);
        let (count, end) = ring.gather(at, true, &mut self.heads[..max]);
        let indices = self.buffers..BUFFERS;
        let slots = indices.clone().zip(&mut self.buffer[indices]);
        for (head, (index, slot)) in self.heads[..count].iter().zip(slots) {
            let room = head.len.min(MAX_LOOKUP);
            let span = translate.keep(index, head.address, room)?;
            if span.len() < room as usize {
                translate.check(head.address, room, true)?;
            }
            span.prefetch_write();
            span.split(64).1.prefetch_write();
            let chain = Chain { id: head.id, slots: 1 };
            *slot = Buffer { address: head.address, room, chain, first: 0, pieces: 0 };
        }
        self.buffers += count;
        if count > 0 {
            return Ok(true);
        }
        match end {
            End::Limit | End::Empty => Ok(false),
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
        let room = u32::try_from(sink.bytes).unwrap_or(MAX_LOOKUP).min(MAX_LOOKUP);
        let pieces = sink.count;
        for piece in bounded(&self.piece[first..first + pieces]) {
            translate.check(piece.address, piece.len, true)?;
        }
        self.buffer[self.buffers] =
            Buffer { address: 0, room, chain, first: first as u16, pieces: pieces as u16 };
        self.buffers += 1;
        self.pieces += pieces;
        Ok(true)
    }

    /// Writes the next `count` reserved frames. Returns the number written, including dropped ones; it is
    /// less than `count` only on an error. The driver sees them after [`RxDevice::publish`].
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

    /// Writes frames up to the first one that has several ranges. Returns their number.
    #[inline(always)]
    fn fill_run<'t, T: Translate<'t>>(
        &self,
        translate: &mut T,
        frames: core::ops::Range<usize>,
        fill: &mut impl Fill,
    ) -> (usize, Result<(), QueueError>) {
        let (first, mut run) = (frames.start, 0);
        for reserved in &self.reserved[frames] {
            let index = usize::from(reserved.first);
            let buffer = self.buffer[index];
            if reserved.buffers != 1 || buffer.pieces != 0 {
                break;
            }
            let to = match translate.write_kept(index, buffer.address, reserved.len) {
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

    /// Writes a frame that has several ranges, or drops one that is too long.
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
            let single = [Piece { address: buffer.address, len: buffer.room }];
            let pieces = match buffer.pieces {
                0 => &single[..],
                count => &self.piece[usize::from(buffer.first)..][..usize::from(count)],
            };
            for piece in bounded(pieces) {
                let count = piece.len.min(left);
                left -= count;
                parts(translate, Piece { address: piece.address, len: count }, fill)?;
            }
        }
        // Only after all addresses were translated: a later one may be invalid.
        let mut left = len;
        for buffer in &self.buffer[range] {
            let count = buffer.room.min(left);
            left -= count;
            ring.write_used(&mut self.used, buffer.chain, count);
            ring.pass(&mut self.at, buffer.chain);
        }
        Ok(())
    }

    /// Publishes the written frames. Returns whether there were any.
    #[inline]
    pub fn publish(&mut self, ring: &Ring<'_>) -> bool {
        let any = self.holds();
        if any {
            with!(ring, ring => ring.publish(&mut self.used));
        }
        any
    }
}

impl Signals for RxDevice {
    fn wants_interrupt(&mut self, ring: &Ring<'_>) -> bool {
        let since = core::mem::replace(&mut self.signalled, self.used.published);
        let wanted = with!(ring, ring => ring.wants_interrupt(since, &self.used));
        self.used.unsignalled = 0;
        wanted
    }

    fn pending(&self, ring: &Ring<'_>) -> bool {
        with!(ring, ring => ring.pending(self.at))
    }

    fn set_flag(&mut self, ring: &Ring<'_>, wanted: bool) {
        with!(ring, ring => ring.set_flag(self.at, wanted));
    }
}

/// Translates a piece and fills the resulting ranges.
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
