//! Prefetching of translations: address lookups of buffers before their use.

use crate::chain::{CHAIN, Chain, Piece, Sink, bounded};
use crate::error::QueueError;
use crate::format::{Cursor, Format};
use crate::layout::Ring;
use crate::tx::with;
use ringway_mem::Translate;

/// No further chain is examined after this many descriptors. Attack: many chains of the maximum length.
const MAX_DESCRIPTORS: usize = 256;

/// Looks up the addresses of up to `max_chains` available chains from `at` on, for writing if `write`; of
/// fewer chains if they have many descriptors. Returns the position after the last examined chain. The ring
/// is not changed. Stops at an invalid chain, which the device refuses when it takes the chain.
pub fn prefetch_translations<'t, T: Translate<'t>>(
    ring: &Ring<'t>,
    at: Cursor,
    write: bool,
    max_chains: usize,
    translate: &mut T,
) -> Cursor {
    with!(*ring, ring => prefetch_in(ring, at, write, max_chains, translate))
}

fn prefetch_in<'t, F: Format<'t>, T: Translate<'t>>(
    ring: F,
    mut at: Cursor,
    write: bool,
    max_chains: usize,
    translate: &mut T,
) -> Cursor {
    let mut pieces = [Piece::default(); CHAIN];
    let mut examined = 0;
    for _ in 0..max_chains {
        if examined >= MAX_DESCRIPTORS {
            break;
        }
        let mut sink = Sink::new(&mut pieces);
        let found = ring.chain(&mut at, write, translate, &mut sink);
        let count = sink.count;
        match found {
            Ok(Some(_)) => {
                examined += count;
                bounded(&pieces[..count])
                    .for_each(|piece| translate.record_misses(piece.address, piece.len, write));
            }
            // The indirect table's own translation is missing; a later call looks up its contents. It is the
            // chain's only descriptor.
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

/// Enables the driver's kicks for buffers from `at` on. The caller must execute a full barrier and then call
/// [`is_available`].
pub fn enable_kicks(ring: &Ring<'_>, at: Cursor) {
    with!(ring, ring => ring.set_flag(at, true));
}

/// Disables the driver's kicks for buffers from `at` on.
pub fn disable_kicks(ring: &Ring<'_>, at: Cursor) {
    with!(ring, ring => ring.set_flag(at, false));
}
