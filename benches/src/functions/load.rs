//! The load of a function: one program sends frames, the other counts what the function sends.

use super::fabric_function::FabricFunction;
use crate::Failure;
use crate::click::frames::{Frames, HEADERS, KEPT};
use ringway_ring_client::{Ring, Rx, Slot, Tx};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const BURST: u32 = 64;
/// Longest frame, in bytes.
const MOST: usize = 2048;
/// Where a segment's sequence number is, behind Ethernet's and IPv4's headers and two ports.
const SEQUENCE: usize = 14 + 20 + 4;
/// Time limit for a frame that must come.
const FRAME_TIMEOUT: Duration = Duration::from_secs(10);
/// Frames under way while a configuration changes: fewer than any ring and lane holds.
const UNDER_WAY: u64 = 256;

/// Frames from the first program to the second.
pub struct Load<'s> {
    from: &'s mut Tx,
    to: &'s mut Rx,
    frames: Frames,
    next: usize,
    /// How often all frames have been sent; for [`Load::with_sequence_numbers`].
    rounds: Option<u32>,
    /// Frames sent and received by [`Load::rate`].
    passed: [u64; 2],
}

impl<'s> Load<'s> {
    /// These frames, over and over.
    pub fn new(function: &'s mut FabricFunction, frames: Frames) -> Load<'s> {
        Load::between(&mut function.from.ring, &mut function.to.ring, frames)
    }

    /// Sends `frames` over and over on the ring `from`, and receives them on `to`.
    pub fn between(from: &'s mut Ring, to: &'s mut Ring, frames: Frames) -> Load<'s> {
        Load::on(&mut from.tx, &mut to.rx, frames)
    }

    /// Sends `frames` over and over on a ring, and receives them on the same ring.
    pub fn back(ring: &'s mut Ring, frames: Frames) -> Load<'s> {
        Load::on(&mut ring.tx, &mut ring.rx, frames)
    }

    fn on(from: &'s mut Tx, to: &'s mut Rx, frames: Frames) -> Load<'s> {
        Load { from, to, frames, next: 0, rounds: None, passed: [0; 2] }
    }

    /// Each frame is the next segment of its TCP connection over IPv4; TCP's checksum is not updated.
    pub fn with_sequence_numbers(self) -> Load<'s> {
        Load { rounds: Some(0), ..self }
    }

    /// Frames, for another load.
    pub fn into_frames(self) -> Frames {
        self.frames
    }

    /// Frames that the function took in a second; it sends none.
    pub fn sent(&mut self, time: Duration) -> Result<f64, Failure> {
        let (begin, mut sent) = (Instant::now(), 0);
        loop {
            for _ in 0..16 {
                sent += self.send()?;
            }
            let passed = begin.elapsed();
            if passed >= time {
                return Ok(sent as f64 / passed.as_secs_f64());
            }
        }
    }

    /// Frames that the function sent by itself in a second.
    pub fn received(&mut self, time: Duration) -> Result<f64, Failure> {
        let (begin, mut came) = (Instant::now(), 0);
        loop {
            for _ in 0..16 {
                came += take_from(self.to)?;
            }
            let passed = begin.elapsed();
            if passed >= time {
                return Ok(came as f64 / passed.as_secs_f64());
            }
        }
    }

    /// Sends every frame once, so that tables know all flows.
    pub fn send_each_once(&mut self) -> Result<(), Failure> {
        let (mut sent, mut came, end) = (0, 0, Instant::now() + 6 * FRAME_TIMEOUT);
        while sent < self.frames.len() || came == 0 {
            sent += self.send()?;
            came += take_from(self.to)?;
            if Instant::now() > end {
                return Err(format!("of {sent} frames {came} came through the function").into());
            }
        }
        Ok(())
    }

    /// Received frames a second.
    pub fn rate(&mut self, time: Duration) -> Result<f64, Failure> {
        let (begin, mut sent, mut came) = (Instant::now(), 0, 0);
        loop {
            for _ in 0..16 {
                sent += self.send()? as u64;
                came += take_from(self.to)?;
            }
            let passed = begin.elapsed();
            if passed >= time {
                self.passed = [self.passed[0] + sent, self.passed[1] + came];
                return Ok(came as f64 / passed.as_secs_f64());
            }
        }
    }

    /// Sends frames until `count` have come, and shows each of those to `look`.
    pub fn inspect(
        &mut self,
        count: usize,
        look: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (mut frame, mut came, end) = ([0; MOST], 0, Instant::now() + FRAME_TIMEOUT);
        while came < count {
            self.send()?;
            while let Some(received) = self.to.pop(&mut frame)? {
                look(&frame[..received.len])?;
                came += 1;
            }
            self.to.sync()?;
            if Instant::now() > end {
                return Err(format!("{came} frames came, not {count}").into());
            }
        }
        Ok(())
    }

    /// Percentage of the frames of [`Load::rate`] that did not come; those under way count, too.
    pub fn lost(&self) -> f64 {
        let [sent, came] = self.passed.map(|frames| frames as f64);
        100.0 * (1.0 - came / sent).max(0.0)
    }

    /// Sends up to a burst of frames, as many as the ring has room for.
    #[inline]
    fn send(&mut self) -> Result<usize, Failure> {
        let tx = &mut *self.from;
        let room = tx.room(BURST)?.min(BURST);
        for ahead in 0..room {
            let (head, length) = self.frames.get(self.next);
            let numbered = self.rounds.map(|rounds| numbered(*head, length, rounds));
            let head = numbered.as_ref().unwrap_or(head);
            let slot = tx.slot(ahead);
            let buffer = tx.buffer(slot.buf_idx, length as u32).ok_or("no such buffer")?;
            buffer.write(&head[..length.min(KEPT)]);
            if length > KEPT {
                buffer.split(KEPT).1.write(self.frames.rest(self.next));
            }
            tx.set_slot(ahead, Slot { len: length as u16, ..slot });
            self.next += 1;
            if self.next == self.frames.len() {
                self.next = self.frames.once();
                self.rounds = self.rounds.map(|rounds| rounds.wrapping_add(1));
            }
        }
        tx.advance(room);
        tx.sync()?;
        Ok(room as usize)
    }
}

/// The first bytes of a segment with the sequence number that it has after this many equal ones.
#[inline]
fn numbered(mut head: [u8; KEPT], length: usize, rounds: u32) -> [u8; KEPT] {
    let number = rounds.wrapping_mul((length - HEADERS) as u32);
    head[SEQUENCE..SEQUENCE + 4].copy_from_slice(&number.to_be_bytes());
    head
}

/// Takes a burst of frames; returns their number.
#[inline]
pub fn take(ring: &mut Ring) -> Result<u64, Failure> {
    take_from(&mut ring.rx)
}

#[inline]
fn take_from(rx: &mut Rx) -> Result<u64, Failure> {
    let count = rx.available(BURST)?.min(BURST);
    rx.advance(count);
    rx.sync()?;
    Ok(u64::from(count))
}

/// Sends a frame, and waits until it has passed the function.
pub fn first(function: &mut FabricFunction) -> Result<(), Failure> {
    send_one(&mut function.from.ring)?;
    let end = Instant::now() + FRAME_TIMEOUT;
    while take(&mut function.to.ring)? == 0 {
        if Instant::now() > end {
            return Err("no frame comes through the function".into());
        }
        std::hint::spin_loop();
    }
    Ok(())
}

/// Sends a frame; whether there was room.
pub fn send_one(ring: &mut Ring) -> Result<bool, Failure> {
    let mut frame = [0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    let sent = ring.tx.push(&frame)?;
    ring.sync()?;
    Ok(sent)
}

/// Frames lost within `time`, while the function carries out a change, which it must have answered at the end.
pub fn lost(function: &mut FabricFunction, time: Duration, change: UnixStream) -> Result<u64, Failure> {
    lost_between(&mut function.from.ring, &mut function.to.ring, time, change)
}

/// Frames that are lost between two rings within `time`, while the function carries out a change, which it must have
/// answered at the end.
pub fn lost_between(
    from: &mut Ring,
    to: &mut Ring,
    time: Duration,
    mut change: UnixStream,
) -> Result<u64, Failure> {
    let (begin, mut sent, mut came) = (Instant::now(), 0, 0);
    while begin.elapsed() < time {
        while sent < came + UNDER_WAY && send_one(from)? {
            sent += 1;
        }
        came += take(to)?;
    }
    let end = Instant::now() + Duration::from_secs(1);
    while came < sent && Instant::now() < end {
        came += take(to)?;
    }
    change.set_read_timeout(Some(FRAME_TIMEOUT))?;
    let (mut answer, mut some) = (Vec::new(), [0; 256]);
    while !answer.windows(5).any(|five| five == b"\r\n200") {
        match change.read(&mut some)? {
            0 => return Err(String::from_utf8_lossy(&answer).into_owned().into()),
            count => answer.extend_from_slice(&some[..count]),
        }
    }
    Ok(sent - came)
}
