//! Parts of frames: gathered from a guest's buffers, with rewritten headers, and copied to a guest without a tag.

use alloc::sync::Arc;
use ringway_frame::{BURST, FrameReader, HEADERS, Offload, Reason};
use ringway_mem::{Direct, Memory, MemoryError, OwnedSpan, Region, Span, SpanMut, Translate};
use ringway_wire::MacAddress;

/// Most parts of a frame. Attack: a frame of thousands of descriptors of a byte each.
pub(crate) const PIECES: usize = 64;
/// Shortest frame without its CRC; shorter ones are padded.
pub(crate) const SHORTEST: u32 = 60;
/// Length of the CRC.
pub(crate) const CRC: u32 = 4;
/// Bytes of a VLAN tag with its EtherType, inserted after both addresses.
pub(crate) const TAG: usize = 4;
pub(crate) const ADDRESSES: usize = 12;

/// Whom a frame is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cast {
    #[default]
    Uni,
    Multi,
    Broad,
}

impl Cast {
    /// The kind of the destination address of the frame with this head.
    #[inline]
    pub fn of(head: &[u8; 64]) -> Cast {
        let [a, b, c, d, e, f, ..] = *head;
        match MacAddress([a, b, c, d, e, f]) {
            to if to.is_broadcast() => Cast::Broad,
            to if to.is_group() => Cast::Multi,
            _ => Cast::Uni,
        }
    }
}

/// Adds a descriptor's bytes to a frame's parts.
#[inline]
pub(crate) fn gather<'t>(
    translate: &mut Direct<'t, '_>,
    (mut address, mut len): (u64, u32),
    pieces: &mut [Span<'t>],
    count: &mut usize,
) -> Result<(), Reason> {
    while len > 0 {
        let piece = translate.read(address, len).map_err(|_| Reason::BadAddress)?;
        piece.prefetch();
        *pieces.get_mut(*count).ok_or(Reason::BadDescriptor)? = piece;
        *count += 1;
        address = address.wrapping_add(piece.len() as u64);
        len = len.saturating_sub(piece.len() as u32);
    }
    Ok(())
}

/// Moves the first bytes of a frame to `headers`, as many as it takes. Its parts follow the first place of `pieces`,
/// which is free; returns the place before the parts that are left, which is free for the headers.
pub(crate) fn split_headers(pieces: &mut [Span<'_>], headers: &mut [u8]) -> usize {
    let (mut filled, mut first) = (0, 1);
    while filled < headers.len() && first < pieces.len() {
        let (head, rest) = pieces[first].split(headers.len() - filled);
        filled += head.read(&mut headers[filled..]);
        pieces[first] = rest;
        first += usize::from(rest.is_empty());
    }
    first - 1
}

/// Inserts a VLAN tag into the first `len` bytes of a frame, which grow by [`TAG`].
pub(crate) fn insert_tag(
    headers: &mut [u8; HEADERS],
    len: usize,
    (ethertype, content): (u16, u16),
    offload: &mut Offload,
) {
    headers.copy_within(ADDRESSES..len, ADDRESSES + TAG);
    headers[ADDRESSES..ADDRESSES + 2].copy_from_slice(&ethertype.to_be_bytes());
    headers[ADDRESSES + 2..ADDRESSES + TAG].copy_from_slice(&content.to_be_bytes());
    if offload.needs_checksum() {
        offload.csum_start += TAG as u16;
        offload.hdr_len = offload.hdr_len.saturating_add(TAG as u16);
    }
}

/// Asks for segments of at most `mss` bytes of a frame of `total` bytes with a checksum to fill, if it is longer.
/// `reduced`: TCP's flag CWR is set.
pub(crate) fn segments(offload: Offload, gso_type: u8, total: usize, (mss, reduced): (u16, bool)) -> Offload {
    if total - usize::from(offload.hdr_len) <= usize::from(mss) {
        return offload;
    }
    // The window was reduced: the stream uses ECN.
    let ecn = if reduced { 0x80 } else { 0 };
    Offload { gso_type: gso_type | ecn, gso_size: mss, ..offload }
}

/// A region of memory that is kept mapped.
pub(crate) fn keep(region: Region, len: u32) -> Result<OwnedSpan, MemoryError> {
    let user = region.user;
    Arc::new(Memory::new(alloc::vec![region])?).keep_user(user, len).ok_or(MemoryError::Empty)
}

/// Rewritten headers of the frames of a burst.
#[derive(Debug)]
pub struct Headers(OwnedSpan);

impl Headers {
    pub fn new() -> Result<Headers, MemoryError> {
        let len = BURST * HEADERS;
        Ok(Headers(keep(Region::private(0, 0, len), len as u32)?))
    }

    /// `bytes`, at most [`HEADERS`], stored at the place for the headers of frame `number`.
    pub fn keep(&self, number: usize, bytes: &[u8]) -> Span<'_> {
        let place: SpanMut<'_> = self.0.span().split(number * HEADERS).1.split(HEADERS).0;
        place.as_span().split(place.write(bytes)).0
    }
}

/// A frame without its tag, followed by zeros.
pub(crate) struct Source<'a, 't> {
    reader: FrameReader<'a, 't>,
    /// Bytes to copy before the tag is skipped.
    skip_at: Option<usize>,
}

impl<'a, 't> Source<'a, 't> {
    /// The frame of `reader`; `skips`: without its tag.
    pub fn new(reader: FrameReader<'a, 't>, skips: bool) -> Source<'a, 't> {
        Source { reader, skip_at: skips.then_some(ADDRESSES) }
    }

    /// Copies what comes next.
    pub fn copy(&mut self, to: SpanMut<'_>) {
        let mut done = 0;
        if let Some(before) = self.skip_at {
            done = self.reader.copy(to.split(before).0);
            self.skip_at = Some(before - done).filter(|&left| left > 0);
            if self.skip_at.is_some() {
                return;
            }
            self.reader.skip(TAG);
        }
        done += self.reader.copy(to.split(done).1);
        // Only padding is left, which is shorter than this.
        to.split(done).1.write(&[0; SHORTEST as usize]);
    }
}
