//! The device side of a command queue: each chain has readable bytes with the command, followed by writable
//! bytes for the reply.

use crate::chain::{CHAIN, Chain, Piece, Sink};
use crate::error::QueueError;
use crate::format::{Cursor, Format, Used};
use crate::layout::Ring;
use crate::signals::Signals;
use crate::tx::with;
use alloc::boxed::Box;
use alloc::vec::Vec;
use ringway_mem::Translate;

/// Largest reply in bytes; all commands of the network device have a reply of one byte.
const ANSWER: usize = 8;

/// Device state of a command queue.
#[derive(Debug)]
pub struct CommandDevice {
    at: Cursor,
    used: Used,
    signalled: Cursor,
    taken: Option<Chain>,
    /// The writable bytes for the reply to the current command.
    room: Vec<Piece>,
    pieces: Box<[Piece; CHAIN]>,
}

impl CommandDevice {
    /// A device that starts at `at`, the first unused chain; the next used entry is written at `used`.
    pub fn new(at: Cursor, used: Cursor) -> CommandDevice {
        CommandDevice {
            at,
            used: Used::new(used),
            signalled: used,
            taken: None,
            room: Vec::new(),
            pieces: Box::new([Piece::default(); CHAIN]),
        }
    }

    /// The first unanswered chain, and the position of the next used entry.
    pub fn position(&self) -> (Cursor, Cursor) {
        (self.at, self.used.place())
    }

    /// Copies the next command into `command`, truncated to its length. Returns the command's full length, or
    /// `None` if there is no command. Must be followed by [`CommandDevice::answer`]; until then the same
    /// command is returned again.
    pub fn take<'t, T: Translate<'t>>(
        &mut self,
        ring: &Ring<'t>,
        translate: &mut T,
        command: &mut [u8],
    ) -> Result<Option<u64>, QueueError> {
        let mut at = self.at;
        let mut sink = Sink::of_both(&mut self.pieces[..]);
        let chain = with!(*ring, ring => ring.chain(&mut at, false, translate, &mut sink))?;
        let Some(chain) = chain else { return Ok(None) };
        // Attack: a command with a huge number of descriptors; no driver needs so many.
        if sink.cut {
            return Err(QueueError::Chain);
        }
        let (readable, writable) = sink.halves();
        let len = readable.iter().map(|piece| u64::from(piece.len)).sum();
        let mut left = command;
        for piece in readable {
            let want = left.len().min(piece.len as usize);
            let (here, rest) = left.split_at_mut(want);
            read(piece.address, here, translate)?;
            left = rest;
        }
        self.room.clear();
        // Zero-length descriptors were refused.
        self.room.extend(writable.iter().take(ANSWER));
        self.taken = Some(chain);
        Ok(Some(len))
    }

    /// Answers the current command with `answer`, truncated to the driver's room, and publishes it.
    pub fn answer<'t, T: Translate<'t>>(
        &mut self,
        ring: &Ring<'t>,
        translate: &mut T,
        answer: &[u8],
    ) -> Result<(), QueueError> {
        let Some(chain) = self.taken.take() else { return Ok(()) };
        let mut left = answer;
        for piece in &self.room {
            let (mut here, rest) = left.split_at(left.len().min(piece.len as usize));
            let mut address = piece.address;
            while !here.is_empty() {
                let part = translate.write(address, here.len() as u32)?;
                let count = part.write(here);
                if count == 0 {
                    return Err(QueueError::Address);
                }
                address = address.wrapping_add(count as u64);
                here = &here[count..];
            }
            left = rest;
        }
        let written = (answer.len() - left.len()) as u32;
        with!(*ring, ring => {
            ring.write_used(&mut self.used, chain, written);
            ring.pass(&mut self.at, chain);
            ring.publish(&mut self.used);
        });
        Ok(())
    }
}

fn read<'t, T: Translate<'t>>(
    mut address: u64,
    mut to: &mut [u8],
    translate: &mut T,
) -> Result<(), QueueError> {
    while !to.is_empty() {
        let count = translate.read(address, to.len() as u32)?.read(to);
        if count == 0 {
            return Err(QueueError::Address);
        }
        address = address.wrapping_add(count as u64);
        to = &mut to[count..];
    }
    Ok(())
}

impl Signals for CommandDevice {
    fn wants_interrupt(&mut self, ring: &Ring<'_>) -> bool {
        let since = core::mem::replace(&mut self.signalled, self.used.published);
        with!(ring, ring => ring.wants_interrupt(since, &self.used))
    }

    fn pending(&self, ring: &Ring<'_>) -> bool {
        with!(ring, ring => ring.pending(self.at))
    }

    fn set_flag(&mut self, ring: &Ring<'_>, wanted: bool) {
        with!(ring, ring => ring.set_flag(self.at, wanted));
    }
}
