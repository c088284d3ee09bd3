//! Looking up the addresses of buffers before the buffers are used.

use crate::chain::{CHAIN, Chain, Piece, Sink, reached};
use crate::error::QueueError;
use crate::format::{Cursor, Format};
use crate::layout::Ring;
use crate::tx::with;
use ringway_mem::Translate;

/// Descriptors after which no further chain is looked at. Attack: chains without number of as many descriptors as they
/// may have.
const LOOKED: usize = 256;

/// Looks up, by `translate`, the addresses of up to `most` chains that are available from `at` on; `write`: for
/// writing. Of each chain no more than a frame's bytes are looked up, and fewer chains if they have many descriptors.
/// Returns the place behind the last chain that was looked up. Nothing is taken off the ring; a chain that breaks the
/// ring's rules is skipped, and refused when it is taken.
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
                reached(&pieces[..count]).for_each(|piece| translate.want(piece.address, piece.len, write));
            }
            // A table, which is alone in its descriptor; what it holds is wanted when it is known itself.
            Err(QueueError::Miss) => ring.pass(&mut at, Chain { id: 0, slots: 1 }),
            Ok(None) | Err(_) => break,
        }
    }
    at
}

/// Whether something is available from `at` on.
pub fn is_available(ring: &Ring<'_>, at: Cursor) -> bool {
    with!(ring, ring => ring.pending(at))
}

/// Asks the driver to kick for what it makes available from `at` on. [`is_available`] is to be asked after a full
/// barrier that follows.
pub fn ask_kick(ring: &Ring<'_>, at: Cursor) {
    with!(ring, ring => ring.set_flag(at, true));
}

/// Tells the driver that nobody waits for what it makes available from `at` on.
pub fn decline_kick(ring: &Ring<'_>, at: Cursor) {
    with!(ring, ring => ring.set_flag(at, false));
}
