//! Frames of a port whose ring has its buffers in netmap's memory: slots name them, and no frame is copied.
//!
//! A slot to send names its buffer in a slot of the port's ring, and is netmap's until the port has taken the frame. A
//! received frame's buffer goes to a slot of netmap's ring, and the buffer there to the slot of the port's ring.

use crate::rings::{INDIRECT, MOREFRAG, Rings, Slot};
use crate::side::Side;
use crate::transfer::{RX, Sent, TX};
use ringway_mem::copy;
use ringway_ring_client::{self as client, Broken, FRAGMENTS, Ring, RingError};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::compiler_fence;

/// How many slots from `side.next` on the program may have, of those that the port has taken.
pub fn free_slots(ring: &mut Ring, side: &Side) -> Result<u32, RingError> {
    let pending = ring.tx.head().wrapping_sub(ring.tx.consumed()?);
    // A process that was killed may have sent some twice.
    let free = side.slots - 1 - pending.min(side.slots - 1);
    // Never fewer than it has.
    Ok(free.max(side.distance(side.next, side.tail)))
}

/// How many slots of the port's ring are free when a program that waits for its `cur` has a slot there: half of
/// netmap's, so that it is not woken for each frame, or more. 0: the program has all of them, and nothing more comes.
/// What the port has taken since the last sync is not the program's yet.
pub fn awaited_room(ring: &Ring, side: &Side) -> u32 {
    if side.distance(side.next, side.tail) == side.slots - 1 {
        return 0;
    }
    let asked = side.distance(side.next, side.cur);
    let pending = (side.slots / 2).min((side.slots - 2).saturating_sub(asked));
    ring.tx.slots() - pending
}

/// Names the next frame's buffers in the port's ring.
#[inline]
pub fn send_frame(rings: &Rings, ring: &mut Ring, side: &mut Side) -> Result<Sent, RingError> {
    let header = rings.state.header_len();
    let (mut at, mut count, mut is_wrong) = (side.next, 0, false);
    loop {
        if at == side.head {
            if !is_wrong {
                return Ok(Sent::Incomplete);
            }
            // One that can't be sent any more is not waited for.
            break;
        }
        if ring.tx.room(count + 1)? <= count {
            return Ok(Sent::NoRoom);
        }
        let slot = rings.slot(TX, at);
        let is_there = rings.region.has_buffer(slot.buf_idx, slot.len.into());
        if !is_there || slot.flags & INDIRECT != 0 || count >= FRAGMENTS as u32 {
            is_wrong = true;
            if !is_there || slot.flags & INDIRECT != 0 {
                // As netmap does, it keeps its buffer if it has one.
                let buf_idx = match rings.region.has_buffer(slot.buf_idx, 0) {
                    true => slot.buf_idx,
                    false => missing(rings, ring, TX, at),
                };
                // If there is no room yet, the frame is found again as long as it was.
                rings.set_slot(TX, at, Slot { buf_idx, len: 0, flags: slot.flags & MOREFRAG });
            }
        } else {
            rings.note_buffer(slot.buf_idx);
            rings.clear_report(TX, at, slot);
            let flags = slot.flags & MOREFRAG;
            let named = client::Slot { buf_idx: slot.buf_idx as u16, len: slot.len, flags, offload: [0; 10] };
            match (count, header) {
                (0, 1..) => match behind_header(rings, ring, named, header) {
                    Some(behind) => ring.tx.set_slot(0, behind),
                    None => is_wrong = true,
                },
                _ => ring.tx.set_slot(count, named),
            }
        }
        (at, count) = (side.after(at, 1), count + 1);
        if slot.flags & MOREFRAG == 0 {
            break;
        }
    }
    if is_wrong {
        // As many slots as netmap's ring has, so that the port takes both together; it drops a frame without bytes, and
        // counts it once. One that is longer than a frame may be is several.
        let buf_idx = rings.place.ring_buffer() as u16;
        for ahead in 0..count {
            let is_last = ahead + 1 == count || (ahead + 1).is_multiple_of(FRAGMENTS as u32);
            let flags = if is_last { 0 } else { MOREFRAG };
            ring.tx.set_slot(ahead, client::Slot { buf_idx, flags, ..client::Slot::default() });
        }
    }
    ring.tx.advance(count);
    side.next = at;
    Ok(if is_wrong { Sent::Wrong } else { Sent::Yes })
}

/// The slot of a frame behind a header, which is copied to a buffer of the ring: a slot names a buffer's first byte.
#[cold]
fn behind_header(rings: &Rings, ring: &Ring, named: client::Slot, header: u32) -> Option<client::Slot> {
    let span = rings.region.buffer(named.buf_idx.into(), named.len.into())?;
    let len = u32::from(named.len).checked_sub(header)?;
    let offload = span.as_span().read_array()?;
    let own = rings.place.ring_buffer() + (ring.tx.head() & (ring.tx.slots() - 1));
    copy(span.as_span().split(header as usize).1, rings.region.buffer(own, len)?);
    Some(client::Slot { buf_idx: own as u16, len: len as u16, offload, ..named })
}

/// What became of the next frame.
pub enum Arrived {
    /// netmap's ring has it; `false`: one of its slots named no buffer.
    Yes(bool),
    /// netmap's ring has no room for it.
    NoRoom,
    /// There is none.
    Nothing,
}

/// Exchanges the buffers of the next frame for those of netmap's next slots.
#[inline]
pub fn receive_frame(rings: &Rings, ring: &mut Ring, side: &mut Side) -> Result<Arrived, RingError> {
    let Some(needed) = ring.rx.frame_slots()? else { return Ok(Arrived::Nothing) };
    let free = side.slots - 1 - side.distance(side.head, side.tail);
    let mut is_right = true;
    if needed >= side.slots {
        // One that no ring of this size can have is dropped.
        ring.rx.advance(needed);
        return Ok(Arrived::Yes(true));
    }
    if needed > free {
        return Ok(Arrived::NoRoom);
    }
    // A frame of several slots has their number in the upper half.
    let several = if needed > 1 { (needed as u16) << 8 } else { 0 };
    for ahead in 0..needed {
        let flags = several | if ahead + 1 < needed { MOREFRAG } else { 0 };
        is_right &= exchange(rings, ring, side.tail, ahead, flags)?;
        side.tail = side.after(side.tail, 1);
    }
    ring.rx.advance(needed);
    Ok(Arrived::Yes(is_right))
}

/// Exchanges the buffers of a slot of the port's ring and of netmap's slot `at`. A process that is killed at any point
/// leaves what the next one needs to go on. `false`: netmap's slot named no buffer.
#[inline]
fn exchange(rings: &Rings, ring: &mut Ring, at: u32, ahead: u32, flags: u16) -> Result<bool, RingError> {
    let arrived = ring.rx.slot(ahead);
    if arrived.len == 0 {
        // A process that was killed has exchanged them already.
        return Ok(true);
    }
    let found = u32::from(arrived.buf_idx);
    if !rings.region.has_buffer(found, arrived.len.into()) {
        return Err(Broken::Buffer.into());
    }
    let mut given = rings.slot(RX, at).buf_idx;
    let mut is_right = true;
    if given == found {
        // A process was killed between the two halves.
        given = rings.state.moving();
    }
    if !rings.region.has_buffer(given, 0) || given == found {
        (given, is_right) = (missing(rings, ring, RX, at), false);
    }
    rings.note_buffer(given);
    rings.state.set_moving(given);
    compiler_fence(SeqCst);
    rings.set_slot(RX, at, Slot { buf_idx: found, len: arrived.len, flags });
    compiler_fence(SeqCst);
    // Whoever goes on finds as many slots of the frame as there were.
    let flags = arrived.flags & MOREFRAG;
    ring.rx.set_slot(ahead, client::Slot { buf_idx: given as u16, flags, ..client::Slot::default() });
    Ok(is_right)
}

/// A buffer for slot `at` that no slot has: the one whose number the program has overwritten.
#[cold]
fn missing(rings: &Rings, ring: &Ring, dir: usize, at: u32) -> u32 {
    let place = rings.place;
    let [tx, rx] = place.sizes.slots;
    let [ring_tx, ring_rx] = place.sizes.ring_slots();
    let mut is_used = vec![false; place.sizes.buffers() as usize];
    let mut note = |buf_idx: u32| {
        if let Some(used) = is_used.get_mut(buf_idx.wrapping_sub(place.first) as usize) {
            *used = true;
        }
    };
    (0..2).for_each(|dir| (0..rings.slots(dir)).for_each(|slot| note(rings.slot(dir, slot).buf_idx)));
    (0..ring_rx).for_each(|slot| note(ring.rx.slot(slot).buf_idx.into()));
    let own = place.first..place.first + tx + rx;
    let first = Some(rings.own_buffer(dir, at));
    let of_ring = place.ring_buffer() + ring_tx..place.ring_buffer() + ring_tx + ring_rx;
    let free = first
        .into_iter()
        .chain(own)
        .chain(of_ring)
        .find(|buf_idx| !is_used[(buf_idx - place.first) as usize]);
    free.unwrap_or_else(|| rings.own_buffer(dir, at))
}
