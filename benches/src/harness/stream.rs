//! A stream of frames from one program through the fabric to others, all in one thread.

use crate::Failure;
use crate::harness::guest::LOSS_TIMEOUT;
use crate::harness::program::OnPort;
use crate::harness::sequence::{self, Payload, Sequence};
use ringway_ring_client::{Ring, Slot, Wait};
use std::time::{Duration, Instant};

const BURST: u32 = 64;
/// Number of slices without a frame that is a failure.
const TRIES: usize = 5;

/// A frame to `02:00:00:00:00:<to>` from `02:00:00:00:00:<from>`; `to` 255 is broadcast.
fn frame(size: usize, to: u8, from: u8) -> Vec<u8> {
    let mut frame = vec![0; size];
    let to = if to == 255 { [255; 6] } else { [2, 0, 0, 0, 0, to] };
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, from]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// Stations at both ends, which take turns.
#[derive(Clone, Copy, Debug)]
pub struct Stations {
    /// How many there are at each end.
    pub count: u16,
    /// Whether frames go to everybody instead of to stations.
    pub broadcast: bool,
}

impl Stations {
    /// The address of a station at end `end`.
    pub fn address(end: u8, number: u16) -> [u8; 6] {
        let [high, low] = number.to_be_bytes();
        [2, 0, end, 0, high, low]
    }

    /// Writes frames of `size` bytes into the buffers of all slots to send, each from the next station to the next one
    /// of end 1.
    pub fn prefill(self, ring: &Ring, size: usize) {
        let mut frame = frame(size, 255, 0);
        for ahead in 0..ring.tx.slots() {
            let number = ahead as u16 % self.count;
            if !self.broadcast {
                frame[..6].copy_from_slice(&Stations::address(1, number));
            }
            frame[6..12].copy_from_slice(&Stations::address(0, number));
            if let Some(buffer) = ring.tx.buffer(ring.tx.slot(ahead).buf_idx, size as u32) {
                buffer.write(&frame);
            }
        }
    }
}

/// A sender and its receivers.
pub struct Stream<'p> {
    from: &'p mut Ring,
    to: Vec<&'p mut Ring>,
    frame: Vec<u8>,
    out: Vec<u8>,
    /// The number of the next frame sent.
    next: u64,
    /// Frames received, or given up.
    came: u64,
    /// The numbers of frames received by the first receiver.
    sequence: Sequence,
}

impl<'p> Stream<'p> {
    /// From program `from` to all of `to`; the switch has learnt a single receiver before this returns. `number` is
    /// unique among the streams of a switch.
    pub fn new(
        from: &'p mut OnPort,
        to: Vec<&'p mut OnPort>,
        size: usize,
        number: u8,
    ) -> Result<Stream<'p>, Failure> {
        let to: Vec<&mut Ring> = to.into_iter().map(|program| &mut program.ring).collect();
        let sender = 2 * number + 1;
        let address = if to.len() == 1 { sender + 1 } else { 255 };
        let (frame, out, sequence) = (frame(size, address, sender), vec![0; size], Sequence::default());
        let mut stream = Stream { from: &mut from.ring, to, frame, out, next: 0, came: 0, sequence };
        if address != 255 {
            stream.learn()?;
        }
        stream.prefill();
        Ok(stream)
    }

    /// The receiver sends until the sender receives.
    fn learn(&mut self) -> Result<(), Failure> {
        let hello = frame(self.frame.len(), self.frame[11], self.frame[5]);
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            if Instant::now() > end {
                return Err("no frame comes through the switch".into());
            }
            // One at a time: until the switch knows the destination, it floods frames.
            self.to[0].tx.push(&hello)?;
            self.to[0].tx.sync()?;
            if self.from.wait(Wait::RX, Some(Duration::from_millis(100)))? {
                break;
            }
        }
        while self.from.rx.pop(&mut self.out)?.is_some() {}
        self.from.rx.sync()?;
        Ok(())
    }

    /// Numbered frames that were not received.
    pub fn missing(&self) -> u64 {
        self.sequence.missing
    }

    /// Makes the frames UDP datagrams from an IPv4 address; they can't be numbered then.
    pub fn send_ipv4(&mut self, from: [u8; 4]) {
        let total = self.frame.len().saturating_sub(14) as u16;
        let [[a, b], [c, d]] = [total, total.saturating_sub(20)].map(u16::to_be_bytes);
        let [e, f, g, h] = from;
        let headers = [
            // The type; IPv4's header; UDP's.
            &[8, 0][..],
            &[0x45, 0, a, b, 0, 0, 0, 0, 64, 17, 0, 0, e, f, g, h, 10, 0, 0, 9],
            &[0x10, 0, 0x10, 1, c, d, 0, 0],
        ];
        self.frame.iter_mut().skip(12).zip(headers.concat()).for_each(|(old, new)| *old = new);
        self.prefill();
    }

    fn prefill(&mut self) {
        let tx = &self.from.tx;
        for ahead in 0..tx.slots() {
            if let Some(buffer) = tx.buffer(tx.slot(ahead).buf_idx, self.frame.len() as u32) {
                buffer.write(&self.frame);
            }
        }
    }

    /// Received frames a second.
    pub fn rate(&mut self, payload: Payload, time: Duration) -> Result<f64, Failure> {
        self.run(payload, time / 10)?;
        // On a loaded machine a worker may not be scheduled for as long as a slice.
        for _ in 0..TRIES {
            let (frames, seconds) = self.run(payload, time)?;
            if frames > 0 {
                self.drain(payload)?;
                return Ok(frames as f64 / seconds);
            }
        }
        Err("no frame came".into())
    }

    fn run(&mut self, payload: Payload, time: Duration) -> Result<(u64, f64), Failure> {
        let begin = Instant::now();
        let mut received = 0;
        loop {
            for _ in 0..16 {
                received += self.round(payload)?;
            }
            let elapsed = begin.elapsed();
            if elapsed >= time {
                return Ok((received, elapsed.as_secs_f64()));
            }
        }
    }

    /// Receives the frames in flight: a single receiver gets every frame that was not dropped.
    fn drain(&mut self, payload: Payload) -> Result<(), Failure> {
        let mut last = Instant::now();
        let timeout = if self.to.len() == 1 { LOSS_TIMEOUT } else { Duration::from_millis(1) };
        while last.elapsed() < timeout && (self.to.len() > 1 || self.came < self.next) {
            for index in 0..self.to.len() {
                if self.receive(index, payload)? > 0 {
                    last = Instant::now();
                }
            }
        }
        self.came = self.next;
        Ok(())
    }

    #[inline]
    fn round(&mut self, payload: Payload) -> Result<u64, Failure> {
        self.send(payload)?;
        let mut received = 0;
        for index in 0..self.to.len() {
            received += self.receive(index, payload)?;
        }
        Ok(received)
    }

    #[inline]
    fn send(&mut self, payload: Payload) -> Result<(), Failure> {
        let sent = send(self.from, self.frame.len(), payload, self.next)?;
        self.next += u64::from(sent);
        Ok(())
    }

    #[inline]
    fn receive(&mut self, index: usize, payload: Payload) -> Result<u64, Failure> {
        let count = receive(self.to[index], self.frame.len(), payload, &mut self.sequence)?;
        self.came += count;
        Ok(count)
    }

    /// Copies a second from the sender's buffers to the first receiver's, by this thread alone.
    pub fn copies(&mut self, time: Duration) -> Result<f64, Failure> {
        let (tx, rx) = (&self.from.tx, &self.to[0].rx);
        let (begin, size) = (Instant::now(), self.frame.len() as u32);
        let (mut done, mut at) = (0u64, 0);
        while begin.elapsed() < time {
            for _ in 0..256 {
                let from = tx.buffer(tx.slot(at).buf_idx, size).ok_or("no such buffer")?;
                let to = rx.buffer(rx.slot(at).buf_idx, size).ok_or("no such buffer")?;
                ringway_mem::copy(from.as_span(), to);
                at = if at + 1 == tx.slots() { 0 } else { at + 1 };
            }
            done += 256;
        }
        Ok(done as f64 / begin.elapsed().as_secs_f64())
    }
}

/// Fills free slots, at most a burst, with prefilled frames of `size` bytes, the first with number `next`; returns
/// their number.
#[inline]
pub fn send(ring: &mut Ring, size: usize, payload: Payload, next: u64) -> Result<u32, Failure> {
    let tx = &mut ring.tx;
    let room = tx.room(BURST)?.min(BURST);
    if payload == Payload::Numbered {
        for ahead in 0..room {
            let buffer = tx.buffer(tx.slot(ahead).buf_idx, size as u32).ok_or("no such buffer")?;
            sequence::prefetch_write(buffer);
        }
    }
    for ahead in 0..room {
        let slot = Slot { len: size as u16, ..tx.slot(ahead) };
        if payload == Payload::Numbered {
            let buffer = tx.buffer(slot.buf_idx, size as u32).ok_or("no such buffer")?;
            sequence::write(buffer, next + u64::from(ahead));
        }
        tx.set_slot(ahead, slot);
    }
    tx.advance(room);
    tx.sync()?;
    Ok(room)
}

/// Takes a burst of frames of `size` bytes; returns their number.
#[inline]
pub fn receive(
    ring: &mut Ring,
    size: usize,
    payload: Payload,
    sequence: &mut Sequence,
) -> Result<u64, Failure> {
    let rx = &mut ring.rx;
    let filled = rx.available(BURST)?.min(BURST);
    let mut bytes = 0;
    for ahead in 0..filled {
        let slot = rx.slot(ahead);
        bytes += usize::from(slot.len);
        if payload == Payload::Numbered {
            let buffer = rx.buffer(slot.buf_idx, size as u32).ok_or("no such buffer")?;
            sequence::prefetch(buffer.as_span());
        }
    }
    if bytes != filled as usize * size {
        return Err("a frame of another length was received".into());
    }
    if payload == Payload::Numbered {
        for ahead in 0..filled {
            let buffer = rx.buffer(rx.slot(ahead).buf_idx, size as u32).ok_or("no such buffer")?;
            sequence.verify(buffer.as_span())?;
        }
    }
    rx.advance(filled);
    rx.sync()?;
    Ok(u64::from(filled))
}
