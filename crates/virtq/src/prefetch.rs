//! Address lookups of buffers ahead of their use.

use crate::chain::{CHAIN, Chain, Piece, Sink, reached};
use crate::error::QueueError;
use crate::format::{Cursor, Format};
use crate::layout::Ring;
use crate::tx::with;
use ringway_mem::Translate;

/// Number of descriptors after which no further chain is examined. Attack: many chains of the maximum length.
const LOOKED: usize = 256;

/// Looks up the addresses of up to `most` available chains from `at` on; `write`: for writing. At most a
/// frame's bytes are looked up per chain, and fewer chains if they have many descriptors. Returns the
/// position after the last examined chain. Nothing is taken off the ring; an invalid chain is skipped here,
/// and refused when it is taken.
pub fn prefetch_translations<'t, T: Translate<'t>>(
    ring: &Ring<'t>,
    at: Cursor,
    write: bool,
    most: usize,
    translate: &mut T,
) -> Cursor {
    with!(*ring, ring => prefetch_in(ring, at, write, most, translate))
}

fn prefetch_in<'t, F: Format<'t>, T: Translate<'t>>(
    ring: F,
    mut at: Cursor,
    write: bool,
    most: usize,
    translate: &mut T,
) -> Cursor {
    let mut pieces = [Piece::default(); CHAIN];
    let mut looked = 0;
    for _ in 0..most {
        if looked >= LOOKED {
            break;
        }
        let mut sink = Sink::new(&mut pieces);
        let found = ring.chain(&mut at, write, translate, &mut sink);
        let count = sink.count;
        match found {
            Ok(Some(_)) => {
                looked += count;
                reached(&pieces[..count]).for_each(|piece| translate.record_misses(piece.address, piece.len, write));
            }
            // An indirect table, which is the chain's only descriptor; its contents are looked up when the
            // table's own translation is known.
            Err(QueueError::Miss) => ring.pass(&mut at, Chain { id: 0, slots: 1 }),
            Ok(None) | Err(_) => break,
        }
    }
    at
}

/// Whether a buffer is available at `at`.
pub fn is_available(ring: &Ring<'_>, at: Cursor) -> bool {
    with!(ring, ring => ring.pending(at))
}

/// Asks the driver to kick for buffers from `at` on. The caller must execute a full barrier and then call
/// [`is_available`].
pub fn ask_kick(ring: &Ring<'_>, at: Cursor) {
    with!(ring, ring => ring.set_flag(at, true));
}

/// Tells the driver that no kick is needed for buffers from `at` on.
pub fn decline_kick(ring: &Ring<'_>, at: Cursor) {
    with!(ring, ring => ring.set_flag(at, false));
}
