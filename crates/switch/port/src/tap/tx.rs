//! Frames that the host's stack transmits.

use super::Shared;
use ringway_frame::{BURST, BURST_BYTES, Burst, LARGEST, Needs, Offload, Reason, TxQueue};
use ringway_host::{HostError, Mapping, TAP_HEADER, TapFault, tap_read};
use ringway_mem::{Hint, Memory, Published, Turn};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Frames begin on a cache line, directly after their header.
const LINE: usize = 64;
/// Room for a read: the longest frame from the kernel.
const ROOM: usize = LINE + (LARGEST as usize).next_multiple_of(LINE);
/// A burst's consecutive frames, and room for one more. Frames are packed, so that the memory in use stays in the
/// cache.
const ARENA: usize = BURST_BYTES + BURST * 2 * LINE + ROOM;
/// Largest number of reads in one turn that yield no frame.
const BROKEN: usize = 16;

/// A frame that was read and not yet released.
struct Held {
    at: usize,
    len: u32,
    offload: Offload,
}

pub(super) struct TapTx {
    shared: Shared,
    /// Never replaced; published, so that frames in it may be borrowed for a turn.
    arena: Published<Memory>,
    held: VecDeque<Held>,
    /// The end of the used memory, where the next frame is read to.
    end: usize,
    granted: Needs,
}

impl TapTx {
    pub fn new(shared: Shared) -> Result<TapTx, HostError> {
        let arena = Memory::new(vec![Mapping::private(ARENA)?.region()]).unwrap_or_default();
        let granted = if shared.config.offloads { Needs::ALL } else { Needs::NONE };
        let held = VecDeque::with_capacity(BURST);
        Ok(TapTx { shared, arena: Published::new(Arc::new(arena)), held, end: 0, granted })
    }

    /// Reads one frame into the memory after those not released yet.
    #[inline]
    fn read<'t>(&mut self, turn: &'t Turn<'_>, arena: &'t Memory) -> Result<(), TapFault> {
        let fd = self.shared.fd(turn).ok_or(TapFault::Again)?;
        let at = self.end + LINE;
        let room = (ROOM - LINE + TAP_HEADER) as u32;
        let space = arena.span_mut((at - TAP_HEADER) as u64, room, &mut Hint::default());
        let space = space.ok_or(TapFault::Again)?;
        let count = tap_read(fd.as_fd(), space)?;
        let mut header = [0; Offload::LEN];
        space.as_span().read(&mut header);
        let Some(len) = count.checked_sub(TAP_HEADER).filter(|len| *len >= 14) else {
            self.shared.counters.drop_tx(Reason::Short, 1);
            return Err(TapFault::Refused);
        };
        let Ok(offload) = Offload::from_bytes(&header).check(len as u32, self.granted) else {
            self.shared.counters.drop_tx(Reason::BadOffload, 1);
            return Err(TapFault::Refused);
        };
        self.held.push_back(Held { at, len: len as u32, offload });
        self.end = at + len.next_multiple_of(LINE);
        Ok(())
    }
}

#[inline]
fn push<'t>(arena: &'t Memory, held: &Held, burst: &mut Burst<'t>) -> bool {
    let frame = arena.span(held.at as u64, held.len, &mut Hint::default());
    frame.is_some_and(|frame| burst.push(held.offload, frame).is_ok())
}

impl TxQueue for TapTx {
    fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>) {
        let arena: &'t Memory = self.arena.read(turn);
        for held in &self.held {
            if !push(arena, held, burst) {
                return;
            }
        }
        let mut broken = 0;
        while burst.room() > 0 && self.held.len() < BURST && self.end + ROOM <= ARENA && broken < BROKEN {
            match self.read(turn, arena) {
                // The burst may have other queues' frames already; frames that don't fit are in the next burst.
                Ok(()) => match self.held.back() {
                    Some(held) if push(arena, held, burst) => {}
                    _ => return,
                },
                Err(TapFault::Refused) => broken += 1,
                Err(TapFault::Gone) => return self.shared.lose(turn),
                Err(TapFault::Again | TapFault::Down | TapFault::NoMemory) => return,
            }
        }
    }

    fn release(&mut self, _turn: &Turn<'_>, frames: usize) {
        self.held.drain(..frames.min(self.held.len()));
        if self.held.is_empty() {
            self.end = 0;
        }
    }

    fn arm(&mut self, turn: &Turn<'_>) -> bool {
        if !self.held.is_empty() {
            return false;
        }
        // The descriptor is reported at once if there is a frame already.
        if let Some(fd) = self.shared.fd(turn) {
            self.shared.doorbell.watch(fd.clone());
        }
        true
    }

    fn disarm(&mut self, _turn: &Turn<'_>) {
        // While the queue is polled, the worker must not be woken for each frame.
        self.shared.doorbell.unwatch();
    }
}
