//! The load of a function: one program sends frames, the other counts what the function sends.

use super::seat::Seat;
use crate::Failure;
use crate::click::frames::{Frames, KEPT};
use ringway_client::{Ring, Slot};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const BURST: u32 = 64;
/// Time limit for a frame that must come.
const PATIENCE: Duration = Duration::from_secs(10);
/// Frames under way while a configuration changes: fewer than any ring and lane holds.
const UNDER_WAY: u64 = 256;

/// Frames from the first program to the second.
pub struct Load<'s> {
    from: &'s mut Ring,
    to: &'s mut Ring,
    frames: Frames,
    next: usize,
    /// Frames sent and received by [`Load::rate`].
    passed: [u64; 2],
}

impl<'s> Load<'s> {
    /// These frames, over and over.
    pub fn new(seat: &'s mut Seat, frames: Frames) -> Load<'s> {
        Load::between(&mut seat.from.ring, &mut seat.to.ring, frames)
    }

    /// The same, by any two rings.
    pub fn between(from: &'s mut Ring, to: &'s mut Ring, frames: Frames) -> Load<'s> {
        Load { from, to, frames, next: 0, passed: [0; 2] }
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
                came += take(self.to)?;
            }
            let passed = begin.elapsed();
            if passed >= time {
                return Ok(came as f64 / passed.as_secs_f64());
            }
        }
    }

    /// Sends every frame once, so that tables know all flows.
    pub fn send_each_once(&mut self) -> Result<(), Failure> {
        let (mut sent, mut came, end) = (0, 0, Instant::now() + 6 * PATIENCE);
        while sent < self.frames.len() || came == 0 {
            sent += self.send()?;
            came += take(self.to)?;
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
                came += take(self.to)?;
            }
            let passed = begin.elapsed();
            if passed >= time {
                self.passed = [self.passed[0] + sent, self.passed[1] + came];
                return Ok(came as f64 / passed.as_secs_f64());
            }
        }
    }

    /// Percentage of the frames of [`Load::rate`] that did not come; those under way count, too.
    pub fn lost(&self) -> f64 {
        let [sent, came] = self.passed.map(|frames| frames as f64);
        100.0 * (1.0 - came / sent).max(0.0)
    }

    /// Sends up to a burst of frames, as many as the ring has room for.
    #[inline]
    fn send(&mut self) -> Result<usize, Failure> {
        let tx = &mut self.from.tx;
        let room = tx.room(BURST)?.min(BURST);
        for ahead in 0..room {
            let (head, length) = self.frames.get(self.next);
            let slot = tx.slot(ahead);
            let buffer = tx.buffer(slot.buf_idx, length as u32).ok_or("no such buffer")?;
            buffer.write(&head[..length.min(KEPT)]);
            if length > KEPT {
                buffer.split(KEPT).1.write(self.frames.rest(self.next));
            }
            tx.set_slot(ahead, Slot { len: length as u16, ..slot });
            self.next = if self.next + 1 == self.frames.len() { self.frames.once() } else { self.next + 1 };
        }
        tx.advance(room);
        tx.sync()?;
        Ok(room as usize)
    }
}

/// Takes a burst of frames; returns their number.
#[inline]
pub fn take(ring: &mut Ring) -> Result<u64, Failure> {
    let count = ring.rx.available(BURST)?.min(BURST);
    ring.rx.advance(count);
    ring.rx.sync()?;
    Ok(u64::from(count))
}

/// Sends a frame, and waits until it has passed the function.
pub fn first(seat: &mut Seat) -> Result<(), Failure> {
    send_one(&mut seat.from.ring)?;
    let end = Instant::now() + PATIENCE;
    while take(&mut seat.to.ring)? == 0 {
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
pub fn lost(seat: &mut Seat, time: Duration, change: UnixStream) -> Result<u64, Failure> {
    lost_between(&mut seat.from.ring, &mut seat.to.ring, time, change)
}

/// The same, by any two rings.
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
    change.set_read_timeout(Some(PATIENCE))?;
    let (mut answer, mut some) = (Vec::new(), [0; 256]);
    while !answer.windows(5).any(|five| five == b"\r\n200") {
        match change.read(&mut some)? {
            0 => return Err(String::from_utf8_lossy(&answer).into_owned().into()),
            count => answer.extend_from_slice(&some[..count]),
        }
    }
    Ok(sent - came)
}
