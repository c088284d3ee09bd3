//! A burst: up to 64 frames or 256 KB, processed together.

use crate::offload::Offload;
use alloc::boxed::Box;
use alloc::vec::Vec;
use ringway_mem::{Span, SpanMut, copy};

/// Maximum number of frames of a burst.
pub const BURST: usize = 64;
/// Number of bytes after which a burst accepts no further frame.
pub const BURST_BYTES: usize = 256 << 10;
/// Leading bytes of a frame that are copied into the worker's memory when it is taken.
pub const HEAD: usize = 64;
/// Maximum number of pieces of a burst. [`FRAME_PIECES`] prevents a single frame from using them all.
const PIECES: usize = 1024;
/// Maximum number of pieces of one frame: 64 KB in 4 KB pages, unaligned at both ends, with some reserve.
const FRAME_PIECES: usize = 64;
/// Length of a VLAN tag.
const TAG: usize = 4;
/// Offset of a frame's first VLAN tag.
const TAG_AT: usize = 12;

/// A frame's length and offload metadata.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meta {
    /// Length of the frame in bytes, without any offload header.
    pub len: u32,
    first: u16,
    pieces: u16,
    /// Offload metadata, already checked.
    pub offload: Offload,
}

/// The head of a frame, on a separate cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u8; HEAD]);

/// The memory of a burst, reused by its worker in every turn.
#[derive(Debug)]
pub struct Storage {
    heads: Box<[Line]>,
    metas: Box<[Meta]>,
    // Only pieces of the current burst are ever read; see `Burst::begin`.
    pieces: Vec<Span<'static>>,
    /// For each frame, what an inserted tag moves out of its head.
    moved: Box<[[u8; TAG]]>,
}

impl Default for Storage {
    fn default() -> Storage {
        Storage::new(BURST)
    }
}

impl Storage {
    /// Space for `frames` frames, at most 65,535.
    pub fn new(frames: usize) -> Storage {
        let frames = frames.min(usize::from(u16::MAX));
        Storage {
            heads: alloc::vec![Line([0; HEAD]); frames].into_boxed_slice(),
            metas: alloc::vec![Meta::default(); frames].into_boxed_slice(),
            // A frame has all its pieces again, and one more, with an inserted tag, and once more if it was pulled.
            pieces: Vec::with_capacity(3 * (PIECES.max(frames) + frames)),
            moved: alloc::vec![[0; TAG]; frames].into_boxed_slice(),
        }
    }
}

/// The burst can't accept the frame: it is full, or the frame would exceed its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Frames taken in one turn. Their bytes after the head are borrowed for `'t`, so no frame outlives the turn.
#[derive(Debug)]
pub struct Burst<'t> {
    heads: &'t mut [Line],
    metas: &'t mut [Meta],
    pieces: &'t mut Vec<Span<'static>>,
    moved: core::slice::IterMut<'t, [u8; TAG]>,
    count: usize,
    bytes: usize,
    bounds: Bounds,
}

/// Shortest and longest frame, and any pending offload, of a burst.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Length of the shortest frame in bytes.
    pub shortest: u32,
    /// Length of the longest frame in bytes.
    pub longest: u32,
    /// Whether any frame may have pending offloads.
    pub has_offload: bool,
}

impl Bounds {
    const NONE: Bounds = Bounds { shortest: u32::MAX, longest: 0, has_offload: false };

    #[inline]
    fn widen(&mut self, len: usize, offload: Offload) {
        self.shortest = self.shortest.min(len as u32);
        self.longest = self.longest.max(len as u32);
        self.has_offload |= !offload.is_done();
    }
}

impl<'t> Burst<'t> {
    /// An empty burst in `storage`.
    #[inline]
    pub fn begin(storage: &'t mut Storage) -> Burst<'t> {
        storage.pieces.clear();
        let Storage { heads, metas, pieces, moved } = storage;
        Burst { heads, metas, pieces, moved: moved.iter_mut(), count: 0, bytes: 0, bounds: Bounds::NONE }
    }

    /// Number of frames.
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has no frames.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of frames that can still be added, if they are small.
    #[inline]
    pub fn room(&self) -> usize {
        if self.bytes >= BURST_BYTES { 0 } else { self.metas.len() - self.count }
    }

    /// Total bytes of all frames.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bounds of all frames, including truncated ones.
    #[inline]
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Adds a frame in one piece; copies its head.
    #[inline]
    pub fn push(&mut self, offload: Offload, frame: Span<'t>) -> Result<(), Full> {
        let at = self.count;
        if self.room() == 0 {
            return Err(Full);
        }
        let (Some(line), Some(meta)) = (self.heads.get_mut(at), self.metas.get_mut(at)) else {
            return Err(Full);
        };
        let first = self.pieces.len();
        let mut pieces = 0;
        if frame.read_64(&mut line.0) {
            if frame.len() > HEAD {
                if first >= PIECES {
                    return Err(Full);
                }
                self.pieces.push(extend_lifetime(frame.split(HEAD).1));
                pieces = 1;
            }
        } else {
            // Attack: the rest of the cache line has bytes of an earlier frame, possibly of another guest.
            line.0 = [0; HEAD];
            frame.read(&mut line.0);
        }
        *meta = Meta { len: frame.len() as u32, first: first as u16, pieces, offload };
        self.count += 1;
        self.bytes += frame.len();
        self.bounds.widen(frame.len(), offload);
        Ok(())
    }

    /// Removes the frames from index `count` on.
    pub fn truncate(&mut self, count: usize) {
        let Some(first) = self.metas[..self.count].get(count) else { return };
        self.pieces.truncate(usize::from(first.first));
        self.bytes -= self.metas[count..self.count].iter().map(|meta| meta.len as usize).sum::<usize>();
        self.count = count;
    }

    /// Removes the frames from index `count` on. Unlike [`Burst::truncate`], it may follow [`Burst::pull`]; the room of
    /// their pieces is not free again.
    pub fn leave(&mut self, count: usize) {
        let Some(left) = self.metas[..self.count].get(count..) else { return };
        self.bytes -= left.iter().map(|meta| meta.len as usize).sum::<usize>();
        self.count = self.count.min(count);
    }

    /// Adds a frame in several pieces, in order; copies its head. A frame with more than 64 pieces never
    /// fits; three more are allowed for rewritten headers before the pieces of a frame from another burst.
    pub fn push_pieces(&mut self, offload: Offload, frame: &[Span<'t>]) -> Result<(), Full> {
        if let [whole] = frame {
            return self.push(offload, *whole);
        }
        let (at, first) = (self.count, self.pieces.len());
        if self.room() == 0 || frame.len() > FRAME_PIECES + 3 || first + frame.len() > PIECES {
            return Err(Full);
        }
        let (Some(line), Some(meta)) = (self.heads.get_mut(at), self.metas.get_mut(at)) else {
            return Err(Full);
        };
        line.0 = [0; HEAD];
        let (mut filled, mut len) = (0, 0);
        for piece in frame {
            len += piece.len();
            let (head, tail) = piece.split(HEAD - filled);
            filled += head.read(&mut line.0[filled..]);
            if !tail.is_empty() {
                self.pieces.push(extend_lifetime(tail));
            }
        }
        let pieces = (self.pieces.len() - first) as u16;
        *meta = Meta { len: len as u32, first: first as u16, pieces, offload };
        self.count += 1;
        self.bytes += len;
        self.bounds.widen(len, offload);
        Ok(())
    }

    /// Length and offload metadata of frame `index`; an empty frame if it doesn't exist.
    #[inline]
    pub fn meta(&self, index: usize) -> Meta {
        self.metas[..self.count].get(index).copied().unwrap_or_default()
    }

    /// Sets the offload metadata of frame `index`.
    pub fn set_offload(&mut self, index: usize, offload: Offload) {
        if let Some(meta) = self.metas.get_mut(index) {
            meta.offload = offload;
            self.bounds.has_offload |= !offload.is_done();
        }
    }

    /// The head of frame `index`; bytes after the end of a shorter frame are zero.
    #[inline]
    pub fn head(&self, index: usize) -> &[u8; HEAD] {
        const NONE: &[u8; HEAD] = &[0; HEAD];
        self.heads.get(index).map_or(NONE, |line| &line.0)
    }

    /// The head of frame `index`, mutable: the rewritten head is delivered, not the source's bytes.
    #[inline]
    pub fn head_mut(&mut self, index: usize) -> Option<&mut [u8; HEAD]> {
        self.heads.get_mut(index).map(|line| &mut line.0)
    }

    /// The pieces of frame `index` after its head, in order.
    #[inline]
    pub fn tail(&self, index: usize) -> &[Span<'t>] {
        let meta = self.meta(index);
        let first = usize::from(meta.first);
        self.pieces.get(first..first + usize::from(meta.pieces)).unwrap_or(&[])
    }

    /// Adds frame `index` of another burst, of which only the head is copied.
    pub fn push_from<'f: 't>(&mut self, from: &Burst<'f>, index: usize) -> Result<(), Full> {
        let meta = from.meta(index);
        let (at, first, tail) = (self.count, self.pieces.len(), from.tail(index));
        if first + tail.len() > self.pieces.capacity() {
            return Err(Full);
        }
        let (Some(line), Some(own)) = (self.heads.get_mut(at), self.metas.get_mut(at)) else {
            return Err(Full);
        };
        line.0 = *from.head(index);
        self.pieces.extend(tail.iter().map(|piece| extend_lifetime(*piece)));
        *own = Meta { first: first as u16, pieces: tail.len() as u16, ..meta };
        self.count += 1;
        self.bytes += meta.len as usize;
        self.bounds.widen(meta.len as usize, meta.offload);
        Ok(())
    }

    /// Inserts a VLAN tag behind the addresses of frame `index`, once for each frame. The burst must not be truncated
    /// afterwards.
    ///
    /// # Errors
    /// The frame has no Ethernet header, or got a tag before.
    pub fn insert_tag(&mut self, index: usize, tag: [u8; TAG]) -> Result<(), Full> {
        let meta = self.metas.get_mut(..self.count).and_then(|metas| metas.get_mut(index)).ok_or(Full)?;
        let line = self.heads.get_mut(index).ok_or(Full)?;
        let len = meta.len as usize;
        if len < TAG_AT + 2 {
            return Err(Full);
        }
        if len + TAG > HEAD {
            let moved = self.moved.next().ok_or(Full)?;
            moved.copy_from_slice(&line.0[HEAD - TAG..]);
            // Bytes after the end of a frame that was shorter than its head are not moved.
            let count = (len + TAG - HEAD).min(TAG);
            let (first, pieces) = (usize::from(meta.first), usize::from(meta.pieces));
            let start = self.pieces.len();
            if start + 1 + pieces > self.pieces.capacity() {
                return Err(Full);
            }
            self.pieces.push(extend_lifetime(Span::of(&moved[..count])));
            self.pieces.extend_from_within(first..first + pieces);
            (meta.first, meta.pieces) = (start as u16, meta.pieces + 1);
        }
        line.0.copy_within(TAG_AT..HEAD - TAG, TAG_AT + TAG);
        line.0[TAG_AT..TAG_AT + TAG].copy_from_slice(&tag);
        meta.offload = meta.offload.moved(TAG as i16);
        meta.len += TAG as u32;
        self.bytes += TAG;
        self.bounds.widen(len + TAG, meta.offload);
        Ok(())
    }

    /// Moves bytes of frame `index` that follow its head into our own memory, as many as fit, and returns them: they
    /// are what its destination gets. The burst must not be truncated afterwards.
    ///
    /// Attack: a peer that changes bytes after it was decided by them what becomes of the frame.
    pub fn pull(&mut self, index: usize, into: &'t mut [u8]) -> &'t [u8] {
        let meta = self.metas.get_mut(..self.count).and_then(|metas| metas.get_mut(index));
        let Some(meta) = meta else { return &[] };
        let (start, count) = (self.pieces.len(), usize::from(meta.pieces));
        if start + 1 + count > self.pieces.capacity() {
            return &[];
        }
        self.pieces.push(Span::empty());
        let first = usize::from(meta.first);
        let mut filled = 0;
        for at in first..first + count {
            let Some(piece) = self.pieces.get(at).copied() else { break };
            let (own, behind) = piece.split(into.len() - filled);
            filled += own.read(&mut into[filled..]);
            if !behind.is_empty() {
                self.pieces.push(behind);
            }
        }
        let own: &'t [u8] = &into[..filled];
        if let Some(piece) = self.pieces.get_mut(start) {
            *piece = extend_lifetime(Span::of(own));
        }
        (meta.first, meta.pieces) = (start as u16, (self.pieces.len() - start) as u16);
        own
    }

    /// Removes the VLAN tag behind the addresses of frame `index`.
    ///
    /// # Errors
    /// The frame ends within the tag or right behind it.
    pub fn remove_tag(&mut self, index: usize) -> Result<(), Full> {
        let meta = self.metas.get_mut(..self.count).and_then(|metas| metas.get_mut(index)).ok_or(Full)?;
        let line = self.heads.get_mut(index).ok_or(Full)?;
        let len = meta.len as usize;
        if len < TAG_AT + TAG + 2 {
            return Err(Full);
        }
        line.0.copy_within(TAG_AT + TAG.., TAG_AT);
        let (rest, mut filled) = (&mut line.0[HEAD - TAG..], 0);
        rest.fill(0);
        while filled < TAG && meta.pieces > 0 {
            let Some(piece) = self.pieces.get_mut(usize::from(meta.first)) else { break };
            let (start, behind) = piece.split(TAG - filled);
            // Read once: the destination gets this copy, and not the piece's bytes.
            filled += start.read(&mut rest[filled..]);
            *piece = behind;
            if behind.is_empty() {
                (meta.first, meta.pieces) = (meta.first + 1, meta.pieces - 1);
            }
        }
        meta.offload = meta.offload.moved(-(TAG as i16));
        meta.len -= TAG as u32;
        self.bytes -= TAG;
        self.bounds.widen(len - TAG, meta.offload);
        Ok(())
    }

    /// Copies frame `index`, as much as fits; returns the number of bytes.
    #[inline]
    pub fn copy_to(&self, index: usize, to: SpanMut<'_>) -> usize {
        let Some(meta) = self.metas[..self.count].get(index) else { return 0 };
        let len = meta.len as usize;
        let head = self.head(index);
        if len < HEAD || !to.write_64(head) {
            return to.write(&head[..len.min(HEAD)]);
        }
        if meta.pieces > 0 {
            let mut rest = to.split(HEAD).1;
            for piece in self.tail(index) {
                rest = rest.split(copy(*piece, rest)).1;
            }
        }
        len.min(to.len())
    }

    /// Reads frame `index` sequentially.
    #[inline]
    pub fn reader(&self, index: usize) -> FrameReader<'_, 't> {
        let len = self.meta(index).len as usize;
        FrameReader { head: &self.head(index)[..len.min(HEAD)], piece: Span::empty(), tail: self.tail(index) }
    }

    /// Copies frame `index` from `offset` on into our own memory; returns the number of bytes.
    pub fn read(&self, index: usize, offset: usize, out: &mut [u8]) -> usize {
        let mut reader = self.reader(index);
        reader.skip(offset);
        reader.copy(SpanMut::of(out))
    }
}

/// A read position within a frame.
#[derive(Debug)]
pub struct FrameReader<'b, 't> {
    head: &'b [u8],
    piece: Span<'t>,
    tail: &'b [Span<'t>],
}

impl FrameReader<'_, '_> {
    /// Copies the next bytes; returns fewer than `to` has only at the frame's end.
    #[inline]
    pub fn copy(&mut self, to: SpanMut<'_>) -> usize {
        let mut done = to.write(self.head);
        self.head = &self.head[done..];
        while done < to.len() {
            if self.piece.is_empty() {
                let Some((next, rest)) = self.tail.split_first() else { break };
                (self.piece, self.tail) = (*next, rest);
            }
            let count = copy(self.piece, to.split(done).1);
            self.piece = self.piece.split(count).1;
            done += count;
        }
        done
    }

    /// Skips the next `count` bytes.
    pub fn skip(&mut self, mut count: usize) {
        let from_head = count.min(self.head.len());
        self.head = &self.head[from_head..];
        count -= from_head;
        while count > 0 {
            if self.piece.is_empty() {
                let Some((next, rest)) = self.tail.split_first() else { return };
                (self.piece, self.tail) = (*next, rest);
            }
            let skipped = count.min(self.piece.len());
            self.piece = self.piece.split(skipped).1;
            count -= skipped;
        }
    }
}

/// Extends a piece's lifetime, for storage. `Burst::begin` drops all pieces, and a burst returns them only
/// with its own lifetime.
#[inline]
fn extend_lifetime(piece: Span<'_>) -> Span<'static> {
    // SAFETY: only the lifetime changes. `Burst<'t>` accepts pieces that live for `'t` and returns them as
    // `Span<'t>`; it alone borrows the storage, which is cleared before the next burst.
    unsafe { core::mem::transmute::<Span<'_>, Span<'static>>(piece) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_are_read_back_unchanged(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..10),
            cuts in prop::collection::vec(1usize..300, 1..40),
        ) {
            let whole: Vec<u8> = pieces.concat();
            let spans: Vec<Span<'_>> = pieces.iter().map(|piece| Span::of(piece)).collect();
            let mut storage = Storage::default();
            let mut burst = Burst::begin(&mut storage);
            burst.push_pieces(Offload::default(), &spans).unwrap();
            prop_assert_eq!(burst.meta(0).len as usize, whole.len());
            let mut copied = alloc::vec![0u8; whole.len()];
            prop_assert_eq!(burst.copy_to(0, SpanMut::of(&mut copied)), whole.len());
            prop_assert_eq!(&copied, &whole);
            let mut reader = burst.reader(0);
            let mut parts = Vec::new();
            for cut in cuts {
                let mut part = alloc::vec![0u8; cut];
                let got = reader.copy(SpanMut::of(&mut part));
                parts.extend_from_slice(&part[..got]);
            }
            prop_assert_eq!(&parts[..], &whole[..parts.len()]);
            let middle = whole.len() / 2;
            let mut rest = alloc::vec![0u8; whole.len() + 1];
            let got = burst.read(0, middle, &mut rest);
            prop_assert_eq!(&rest[..got], &whole[middle..]);
        }
    }

    proptest! {
        #[test]
        fn a_tag_is_inserted_and_removed_and_nothing_else_changes(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..70), 1..6),
            others in 0usize..3,
        ) {
            let whole: Vec<u8> = pieces.concat();
            let spans: Vec<Span<'_>> = pieces.iter().map(|piece| Span::of(piece)).collect();
            let offload = Offload::checksum(14, 16);
            let (mut storage, mut second) = (Storage::default(), Storage::default());
            let mut burst = Burst::begin(&mut storage);
            for _ in 0..=others {
                burst.push_pieces(offload, &spans).unwrap();
            }
            let bytes = burst.bytes();
            let read = |burst: &Burst<'_>, index: usize| {
                let mut out = alloc::vec![0; burst.meta(index).len as usize];
                assert_eq!(burst.read(index, 0, &mut out), out.len());
                out
            };
            let tagged = burst.insert_tag(others, [0x81, 0, 0, 10]);
            prop_assert_eq!(tagged.is_ok(), whole.len() >= 14);
            if tagged.is_ok() {
                let expected = [&whole[..12], &[0x81, 0, 0, 10], &whole[12..]].concat();
                prop_assert_eq!(read(&burst, others), expected.clone());
                let meta = burst.meta(others);
                prop_assert_eq!((meta.offload.csum_start, burst.bytes()), (18, bytes + 4));
                prop_assert!(burst.bounds().longest >= meta.len);
                let mut copy = Burst::begin(&mut second);
                copy.push_from(&burst, others).unwrap();
                prop_assert_eq!(read(&copy, 0), expected);
                prop_assert_eq!(copy.remove_tag(0), Ok(()));
                prop_assert_eq!(read(&copy, 0), whole.clone());
                prop_assert_eq!((copy.meta(0).offload, copy.bytes()), (offload, whole.len()));
            }
            for other in 0..others {
                prop_assert_eq!(read(&burst, other), whole.clone());
            }
            let removed = burst.remove_tag(0);
            prop_assert_eq!(removed.is_ok(), burst.meta(0).len >= 14 && (others == 0 || whole.len() >= 18));
            if removed.is_ok() && others > 0 {
                prop_assert_eq!(read(&burst, 0), [&whole[..12], &whole[16..]].concat());
            }
        }
    }

    proptest! {
        #[test]
        fn a_pulled_frame_is_the_same_and_no_longer_the_peers(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..70), 1..6),
            room in 0usize..300,
            has_tag: bool,
        ) {
            let whole: Vec<u8> = pieces.concat();
            let spans: Vec<Span<'_>> = pieces.iter().map(|piece| Span::of(piece)).collect();
            let (mut storage, mut second) = (Storage::default(), Storage::default());
            let mut own = [alloc::vec![0; room], alloc::vec![0; room]];
            let mut burst = Burst::begin(&mut storage);
            burst.push_pieces(Offload::default(), &spans).unwrap();
            burst.push_pieces(Offload::default(), &spans).unwrap();
            let [one, two] = &mut own;
            let behind = whole.len().saturating_sub(HEAD).min(room);
            prop_assert_eq!(burst.pull(0, one).len(), behind);
            let pulled = burst.pull(1, two);
            prop_assert_eq!(pulled, &whole[whole.len().min(HEAD)..][..behind]);
            prop_assert_eq!(burst.pull(2, &mut []), &[][..]);
            let is_ours = burst.tail(1).first().is_none_or(|piece| piece.len() == behind);
            prop_assert!(is_ours, "the pulled bytes are the first piece");
            let has_tag = has_tag && burst.insert_tag(1, [0x81, 0, 0, 10]).is_ok();
            let mut copy = Burst::begin(&mut second);
            copy.push_from(&burst, 1).unwrap();
            for (burst, index, has_tag) in [(&burst, 0, false), (&burst, 1, has_tag), (&copy, 0, has_tag)] {
                let mut out = alloc::vec![0; burst.meta(index).len as usize];
                prop_assert_eq!(burst.read(index, 0, &mut out), out.len());
                if has_tag {
                    out.drain(12..16);
                }
                prop_assert_eq!(&out, &whole);
            }
        }
    }

    #[test]
    fn a_short_head_contains_no_bytes_of_an_earlier_frame() {
        let mut storage = Storage::default();
        let long = [0xffu8; 64];
        Burst::begin(&mut storage).push(Offload::default(), Span::of(&long)).unwrap();
        let short = [1u8; 14];
        let mut burst = Burst::begin(&mut storage);
        burst.push(Offload::default(), Span::of(&short)).unwrap();
        assert!(burst.head(0)[14..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn bounds_hold_for_every_frame() {
        let (short, long) = ([1u8; 20], [2u8; 200]);
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        burst.push(Offload::default(), Span::of(&long)).unwrap();
        let Bounds { shortest, longest, has_offload } = burst.bounds();
        assert_eq!((shortest, longest, has_offload), (200, 200, false));
        burst.push_pieces(Offload::default(), &[Span::of(&long), Span::of(&short)]).unwrap();
        burst.push(Offload::default(), Span::of(&short)).unwrap();
        assert_eq!((burst.bounds().shortest, burst.bounds().longest), (20, 220));
        burst.set_offload(0, Offload::checksum(34, 16));
        assert!(burst.bounds().has_offload);
        let mut burst = Burst::begin(&mut storage);
        burst.push(Offload::checksum(34, 16), Span::of(&long)).unwrap();
        assert!(burst.bounds().has_offload);
    }

    #[test]
    fn a_truncated_burst_accepts_further_frames() {
        let (first, second) = ([1u8; 100], [2u8; 200]);
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        burst.push(Offload::default(), Span::of(&first)).unwrap();
        burst.push(Offload::default(), Span::of(&second)).unwrap();
        burst.truncate(2);
        assert_eq!((burst.len(), burst.bytes()), (2, 300));
        burst.truncate(1);
        assert_eq!((burst.len(), burst.bytes()), (1, 100));
        burst.push_pieces(Offload::default(), &[Span::of(&second), Span::of(&first)]).unwrap();
        let mut read = [0; 400];
        assert_eq!((burst.read(0, 0, &mut read), read[99]), (100, 1));
        assert_eq!((burst.read(1, 0, &mut read), read[199], read[299]), (300, 2, 1));
        burst.truncate(0);
        assert_eq!((burst.len(), burst.bytes(), burst.meta(0).len), (0, 0, 0));
    }

    #[test]
    fn a_burst_is_limited_by_frames_and_by_bytes() {
        let mut storage = Storage::default();
        let small = [0u8; 60];
        let mut burst = Burst::begin(&mut storage);
        for _ in 0..BURST {
            burst.push(Offload::default(), Span::of(&small)).unwrap();
        }
        assert_eq!(burst.push(Offload::default(), Span::of(&small)), Err(Full));
        let large = alloc::vec![0u8; 65_536];
        let mut burst = Burst::begin(&mut storage);
        let taken =
            (0..BURST).take_while(|_| burst.push(Offload::default(), Span::of(&large)).is_ok()).count();
        assert_eq!(taken, 4);
    }
}
