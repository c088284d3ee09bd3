//! Frames between netmap's rings and the port's ring. Copied here are those of pipes and of a fabric of a former
//! version, and received ones of a port with a header before each frame; where the ring has its buffers in netmap's
//! memory, the others are exchanged or named (`in_place.rs`).

use crate::in_place::{self, Arrived};
use crate::monitor::{Monitors, RECEIVED, RETURNED, SENT};
use crate::region::{BUFFER, Region};
use crate::rings::{INDIRECT, MOREFRAG, Rings, Slot};
use crate::side::Side;
use arrayvec::ArrayVec;
use ringway_mem::copy;
use ringway_ring_client::{FRAGMENTS, Ring, RingError, Span, Taken};

pub const TX: usize = 0;
pub const RX: usize = 1;

/// Largest header before a frame.
pub const HEADER_MOST: usize = 12;

/// Lengths of a header before each frame: none, `virtio_net_hdr`, and that of mergeable buffers.
pub const HEADERS: [u32; 3] = [0, 10, 12];

/// Puts a ring back to the last positions that were accepted.
fn reset(rings: &Rings, dir: usize, side: &mut Side) {
    side.cur = side.head;
    rings.set_position(dir, (side.head, side.head));
    rings.set_tail(dir, side.tail);
    // Where buffers are exchanged, the one that a slot had first may be in another one: a wrong slot is put right when
    // its frame is sent, or received (`in_place.rs`).
    let is_fixed = !rings.place.sizes.is_in_place;
    for at in (0..side.slots).filter(|_| is_fixed) {
        let slot = rings.slot(dir, at);
        if rings.region.buffer(slot.buf_idx, slot.len.into()).is_none() {
            rings.repair(dir, at);
        }
    }
}

/// As [`accept_positions`], of a port's ring: monitors get what was received in slots that the program gives back.
pub fn accept(rings: &Rings, dir: usize, side: &mut Side, monitors: &mut Monitors) -> bool {
    let first = side.head;
    let is_right = accept_positions(rings, dir, side);
    if dir == RX {
        monitors.copy(RECEIVED | RETURNED, rings, (first, side.head));
    }
    is_right
}

/// Takes the program's positions; `false`: impossible ones, and the ring was put right.
pub fn accept_positions(rings: &Rings, dir: usize, side: &mut Side) -> bool {
    let is_right = side.accept(rings.position(dir));
    if !is_right {
        reset(rings, dir, side);
    }
    is_right
}

/// Sends what the program gave. `false`: a slot or a position was impossible.
pub fn send(
    rings: &Rings,
    ring: &mut Ring,
    side: &mut Side,
    monitors: &mut Monitors,
) -> Result<bool, RingError> {
    let mut is_right = accept(rings, TX, side, monitors);
    let first = side.next;
    side.is_full = false;
    let is_in_place = ring.has_pool();
    while side.next != side.head {
        let begin = side.next;
        let sent = if is_in_place {
            in_place::send_frame(rings, ring, side)?
        } else {
            send_frame(rings, ring, side)?
        };
        match sent {
            Sent::Yes => monitors.copy(SENT, rings, (begin, side.next)),
            Sent::Wrong => is_right = false,
            Sent::NoRoom => {
                side.is_full = true;
                break;
            }
            Sent::Incomplete => break,
        }
    }
    ring.tx.sync()?;
    let is_taken = ring.tx.consumed()? == ring.tx.head();
    let free = match is_in_place {
        true => in_place::free_slots(ring, side)?,
        // While the port has not taken everything, one more slot stays netmap's, so that the program sees that
        // something is pending.
        false => side.slots - if is_taken { 1 } else { 2 },
    };
    if is_in_place || side.next != first || is_taken {
        side.tail = side.after(side.next, free);
        rings.set_tail(TX, side.tail);
    }
    Ok(is_right)
}

/// What became of a frame to send.
pub enum Sent {
    Yes,
    /// A slot is impossible; the frame was left out.
    Wrong,
    NoRoom,
    /// Its last slot is not given yet.
    Incomplete,
}

/// Copies the next frame to the ring.
fn send_frame(rings: &Rings, ring: &mut Ring, side: &mut Side) -> Result<Sent, RingError> {
    let mut parts: ArrayVec<Span<'_>, FRAGMENTS> = ArrayVec::new();
    let (mut at, mut is_wrong) = (side.next, false);
    loop {
        if at == side.head && is_wrong {
            // One that can't be sent any more is not waited for.
            side.next = at;
            return Ok(Sent::Wrong);
        }
        if at == side.head {
            return Ok(Sent::Incomplete);
        }
        let slot = rings.slot(TX, at);
        match rings.region.buffer(slot.buf_idx, slot.len.into()) {
            Some(span) if slot.flags & INDIRECT == 0 => {
                is_wrong |= parts.try_push(span.as_span()).is_err();
                rings.clear_report(TX, at, slot);
            }
            _ => {
                is_wrong = true;
                rings.repair(TX, at);
            }
        }
        at = side.after(at, 1);
        if slot.flags & MOREFRAG == 0 {
            break;
        }
    }
    let header = rings.state.header_len();
    let mut offload = [0; 10];
    if header > 0 && !is_wrong {
        match parts.first_mut() {
            Some(first) if first.len() >= header as usize => {
                offload = first.read_array().unwrap_or_default();
                *first = first.split(header as usize).1;
            }
            _ => is_wrong = true,
        }
    }
    let sent = match is_wrong {
        true => Sent::Wrong,
        false => match ring.tx.push_gathered(parts.iter().copied(), offload) {
            Ok(true) => Sent::Yes,
            Ok(false) => return Ok(Sent::NoRoom),
            Err(RingError::TooLong { .. }) => Sent::Wrong,
            Err(error) => return Err(error),
        },
    };
    side.next = at;
    Ok(sent)
}

/// Receives as many frames as there is room for. `false`: a slot or a position was impossible.
pub fn receive(
    rings: &Rings,
    ring: &mut Ring,
    side: &mut Side,
    monitors: &mut Monitors,
) -> Result<bool, RingError> {
    let is_right = accept(rings, RX, side, monitors);
    Ok(arrive(rings, ring, side, monitors)? & is_right)
}

/// As [`receive`], without the program's positions.
pub fn arrive(
    rings: &Rings,
    ring: &mut Ring,
    side: &mut Side,
    monitors: &mut Monitors,
) -> Result<bool, RingError> {
    let is_in_place = ring.has_pool() && rings.state.header_len() == 0;
    let mut is_right = true;
    side.is_full = false;
    loop {
        let first = side.tail;
        let arrived = match is_in_place {
            true => in_place::receive_frame(rings, ring, side)?,
            false => receive_frame(rings, ring, side)?,
        };
        match arrived {
            Arrived::Yes(is_whole) => is_right &= is_whole,
            Arrived::NoRoom => side.is_full = true,
            Arrived::Nothing => {}
        }
        if !matches!(arrived, Arrived::Yes(_)) {
            break;
        }
        monitors.copy(RECEIVED, rings, (first, side.tail));
    }
    ring.rx.sync()?;
    rings.set_tail(RX, side.tail);
    Ok(is_right)
}

/// Copies the next frame from the ring.
fn receive_frame(rings: &Rings, ring: &mut Ring, side: &mut Side) -> Result<Arrived, RingError> {
    let header = rings.state.header_len() as usize;
    let Some(len) = ring.rx.frame_len()? else { return Ok(Arrived::Nothing) };
    let needed = ((len + header) as u32).div_ceil(BUFFER).max(1);
    let free = side.slots - 1 - side.distance(side.head, side.tail);
    if needed > free && needed < side.slots {
        return Ok(Arrived::NoRoom);
    }
    let Some(frame) = ring.rx.take()? else { return Ok(Arrived::Nothing) };
    // One that no ring of this size can have is dropped.
    let is_right = needed >= side.slots || fill(rings, side, &frame, needed, header);
    Ok(Arrived::Yes(is_right))
}

/// Copies a frame, behind its header, to the next `needed` slots. `false`: one of them named no buffer, and was given
/// its own.
fn fill(rings: &Rings, side: &mut Side, frame: &Taken<'_>, needed: u32, header: usize) -> bool {
    let region: &Region = &rings.region;
    let mut is_right = true;
    let mut start = [0; HEADER_MOST];
    start[..10].copy_from_slice(&frame.offload);
    let mut pieces = frame.pieces.iter().copied();
    let mut piece = Span::of(&start[..header.min(HEADER_MOST)]);
    for left in (0..needed).rev() {
        let mut buf_idx = rings.slot(RX, side.tail).buf_idx;
        if region.buffer(buf_idx, BUFFER).is_none() {
            (buf_idx, is_right) = (rings.own_buffer(RX, side.tail), false);
        }
        let Some(mut room) = region.buffer(buf_idx, BUFFER) else { return false };
        while !room.is_empty() {
            if piece.is_empty() {
                let Some(next) = pieces.next() else { break };
                piece = next;
            }
            let count = copy(piece, room);
            (piece, room) = (piece.split(count).1, room.split(count).1);
        }
        // A frame of several slots has their number in the upper half.
        let flags = if needed > 1 { (needed as u16) << 8 } else { 0 } | if left > 0 { MOREFRAG } else { 0 };
        let len = (BUFFER as usize - room.len()) as u16;
        rings.set_slot(RX, side.tail, Slot { buf_idx, len, flags });
        side.tail = side.after(side.tail, 1);
    }
    is_right
}
