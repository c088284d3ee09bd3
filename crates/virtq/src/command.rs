//! The device's side of a queue of commands: each chain has bytes to be read, and room for the answer behind
//! them.

use crate::chain::{CHAIN, Chain, Piece, Sink};
use crate::error::QueueError;
use crate::format::{Cursor, Format, Used};
use crate::layout::Ring;
use crate::signals::Signals;
use crate::tx::with;
use alloc::boxed::Box;
use alloc::vec::Vec;
use ringway_mem::Translate;

/// Bytes of an answer at most: one, in every command that the network device has.
const ANSWER: usize = 8;

/// A device's state of a queue of commands.
#[derive(Debug)]
pub struct CommandDevice {
    at: Cursor,
    used: Used,
    signalled: Cursor,
    taken: Option<Chain>,
    /// Where the answer to the command that was taken goes.
    room: Vec<Piece>,
    pieces: Box<[Piece; CHAIN]>,
}

impl CommandDevice {
    /// A device that goes on at `at`, the first chain it has not used; `used` is where the next used one is
    /// written.
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

    /// The first chain that was not answered, and where the next used one is written.
    pub fn position(&self) -> (Cursor, Cursor) {
        (self.at, self.used.place())
    }

    /// Copies the next command into `command`, and as much of it as there is room. Returns its whole length,
    /// or `None` where none is available. [`CommandDevice::answer`] follows; until then the same command is
    /// found again.
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
        // Attack: a command of countless descriptors; no driver needs so many.
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
        // None of them has no bytes.
        self.room.extend(writable.iter().take(ANSWER));
        self.taken = Some(chain);
        Ok(Some(len))
    }

    /// Answers the command that was taken, with as much of `answer` as the driver left room for, and shows
    /// that to the driver.
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
