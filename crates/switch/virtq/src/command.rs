//! The device side of a command queue: each chain has readable bytes with the command, followed by writable
//! bytes for the reply.

use crate::chain::{CHAIN, Chain, Piece, Sink};
use crate::error::QueueError;
use crate::format::{Cursor, Format, Progress, Used};
use crate::layout::Ring;
use crate::signals::Signals;
use crate::tx::with;
use alloc::boxed::Box;
use alloc::vec::Vec;
use ringway_mem::Translate;

/// Largest reply in bytes; all commands of the network device have a reply of one byte.
const MAX_REPLY: usize = 8;

/// Device state of a command queue.
#[derive(Debug)]
pub struct CommandDevice {
    at: Cursor,
    used: Used,
    signalled: Cursor,
    taken: Option<Chain>,
    /// The writable bytes for the reply to the current command.
    reply: Vec<Piece>,
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
            reply: Vec::new(),
            pieces: Box::new([Piece::default(); CHAIN]),
        }
    }

    /// Positions of the first unanswered chain and of the next used entry.
    pub fn position(&self) -> (Cursor, Cursor) {
        (self.at, self.used.position())
    }

    /// How far the device is.
    pub fn progress(&self) -> Progress {
        self.used.progress(self.at)
    }

    /// Copies the next command into `command`, truncated to the slice's length. Returns the command's full
    /// length, or `None` if there is no command. Until [`CommandDevice::answer`], the same command is
    /// returned again.
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
        // Attack: a command with a huge number of descriptors, which no driver needs.
        if sink.truncated {
            return Err(QueueError::Chain);
        }
        let (readable, writable) = sink.halves();
        let len = readable.iter().map(|piece| u64::from(piece.len)).sum();
        let mut left = command;
        for piece in readable {
            let (part, rest) = left.split_at_mut(left.len().min(piece.len as usize));
            read(piece.address, part, translate)?;
            left = rest;
        }
        self.reply.clear();
        // Each piece has at least one byte, so this many hold the largest reply.
        self.reply.extend(writable.iter().take(MAX_REPLY));
        self.taken = Some(chain);
        Ok(Some(len))
    }

    /// Writes `answer`, truncated to the driver's buffer, as the reply to the current command and publishes
    /// it.
    pub fn answer<'t, T: Translate<'t>>(
        &mut self,
        ring: &Ring<'t>,
        translate: &mut T,
        answer: &[u8],
    ) -> Result<(), QueueError> {
        let Some(chain) = self.taken.take() else { return Ok(()) };
        let mut left = answer;
        for piece in &self.reply {
            let (mut part, rest) = left.split_at(left.len().min(piece.len as usize));
            let mut address = piece.address;
            while !part.is_empty() {
                let count = translate.write(address, part.len() as u32)?.write(part);
                if count == 0 {
                    return Err(QueueError::Address);
                }
                address = address.wrapping_add(count as u64);
                part = &part[count..];
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
