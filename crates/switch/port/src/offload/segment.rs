//! Segmentation of TCP (RFC 9293) and UDP (Linux's UDP_SEGMENT) frames.

use super::pieces::Pieces;
use super::{Stop, Work};
use ringway_frame::{Gso, HEADERS, Headers, Offload, Reason};
use ringway_mem::Span;

/// Segments `frame`.
pub(super) fn segment(work: &mut Work<'_, '_>, frame: usize, gso: Gso) -> Result<(), Stop> {
    let meta = work.from.meta(frame);
    let (offload, total) = (meta.offload, meta.len as usize);
    let mut first = [0; HEADERS];
    let read = work.from.read(frame, 0, &mut first[..total.min(HEADERS)]);
    let headers = Headers::parse(&first[..read], total, offload, gso)?;
    let payload = total - headers.len();
    let size = usize::from(offload.gso_size);
    let parts = headers.parts(payload, size)?;
    if headers.len() + size.min(payload) > work.caps.largest as usize {
        return Err(Stop::Drop(Reason::Long));
    }
    let leaves_checksum = work.leaves_checksum();
    let left = if leaves_checksum {
        Offload::checksum(offload.csum_start, offload.csum_offset)
    } else {
        Offload::default()
    };
    let mut behind = Pieces::behind(work.from, frame, headers.len());
    for part in parts {
        let out = work.headers.next().ok_or(Stop::Full)?;
        let (pseudo, mut sum) = headers.emit(&part, out);
        let count = behind.cut(part.len, &mut work.pieces[1..])?;
        let field = if leaves_checksum {
            pseudo.value()
        } else {
            behind.prefetch(size);
            work.chunk.add(&work.pieces[1..=count], &mut sum);
            sum.finish_nonzero()
        };
        headers.put_checksum(field, out);
        work.pieces[0] = Span::of(&out[..headers.len()]);
        work.out.push_pieces(left, &work.pieces[..=count])?;
    }
    Ok(())
}
