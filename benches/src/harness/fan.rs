//! A minimal guest that broadcasts to others, all driven by one thread.

use crate::Failure;
use crate::harness::front::{self, Connection};
use crate::harness::guest::{Addresses, BROADCAST, Guest, Iommu, LOSS_TIMEOUT, Shape, Wires};
use crate::harness::memory::GuestMemory;
use crate::harness::sequence::Payload;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rings large enough for the sender's window, so that no back-end has to drop frames.
const SHAPE: Shape = Shape { packed: false, ring: 256, frame: 64, iommu: Iommu::Off };
const WINDOW: u64 = 192;
/// Time limit for the first frame at every guest.
const START: Duration = Duration::from_secs(10);

/// The guests' memory.
pub type GuestMemories = Vec<(GuestMemory, Addresses)>;

/// Memory for a sender and `count` receivers.
pub fn guest_memories(count: usize) -> Result<GuestMemories, Failure> {
    (0..=count).map(|_| Addresses::new(&SHAPE)).collect()
}

/// Connects each guest to its back-end.
pub fn connect(
    homes: &GuestMemories,
    wires: &[Arc<Wires>],
    sockets: Vec<UnixStream>,
) -> Result<Vec<Connection>, Failure> {
    let all = sockets.into_iter().zip(homes).zip(wires);
    let connected = all.map(|((socket, (memory, addresses)), wires)| {
        front::connect(socket, memory, addresses, wires, &SHAPE)
    });
    connected.collect()
}

/// A sender and its receivers.
pub struct Fan<'m> {
    /// The sender first.
    guests: Vec<Guest<'m>>,
    sent: u64,
    /// Frames that each receiver received, or that were given up.
    came: Vec<u64>,
    /// Frames that were given up.
    pub lost: u64,
}

impl<'m> Fan<'m> {
    /// Guests in that memory.
    pub fn new(homes: &'m GuestMemories) -> Result<Fan<'m>, Failure> {
        let guests = homes.iter().zip(1..).map(|((memory, addresses), own)| {
            let mut guest = Guest::new(memory.memory(), addresses, &SHAPE, own, BROADCAST)?;
            guest.payload = Payload::Numbered;
            Ok(guest)
        });
        let guests: Vec<Guest<'m>> = guests.collect::<Result<_, Failure>>()?;
        Ok(Fan { came: vec![0; guests.len() - 1], guests, sent: 0, lost: 0 })
    }

    /// The guests' eventfds.
    pub fn wires(&self) -> Vec<Arc<Wires>> {
        self.guests.iter().map(|guest| guest.wires.clone()).collect()
    }

    /// Frames delivered within `time`, and the actual seconds.
    pub fn run(&mut self, time: Duration) -> Result<(u64, f64), Failure> {
        let begin = Instant::now();
        let (mut total, mut last) = (0, begin);
        loop {
            let slowest = self.came.iter().copied().min().unwrap_or(self.sent);
            let came = self.round(WINDOW.saturating_sub(self.sent - slowest))?;
            total += came;
            let now = Instant::now();
            if came > 0 {
                last = now;
            } else if now - last > LOSS_TIMEOUT {
                self.forget();
                last = now;
            }
            if now - begin >= time {
                return Ok((total, (now - begin).as_secs_f64()));
            }
        }
    }

    /// Sends until every receiver has received a frame.
    pub fn begin(&mut self) -> Result<(), Failure> {
        let (end, mut all) = (Instant::now() + START, false);
        while !all {
            if Instant::now() > end {
                return Err("not every guest receives frames".into());
            }
            let before = self.lost;
            self.run(LOSS_TIMEOUT / 2)?;
            self.drain()?;
            all = self.lost == before;
        }
        (self.sent, self.lost) = (0, 0);
        self.came.fill(0);
        Ok(())
    }

    /// Nanoseconds per delivered frame.
    pub fn cost(&mut self, time: Duration) -> Result<f64, Failure> {
        self.run(time / 10)?;
        let (frames, seconds) = self.run(time)?;
        self.drain()?;
        if frames == 0 { Err("no frame came".into()) } else { Ok(seconds * 1e9 / frames as f64) }
    }

    /// Gives up the frames in flight.
    fn forget(&mut self) {
        self.lost += self.came.iter().map(|came| self.sent - came).sum::<u64>();
        self.came.fill(self.sent);
    }

    /// Receives until nothing is in flight.
    pub fn drain(&mut self) -> Result<(), Failure> {
        let mut last = Instant::now();
        while self.came.iter().any(|came| *came < self.sent) && last.elapsed() < LOSS_TIMEOUT {
            if self.round(0)? > 0 {
                last = Instant::now();
            }
        }
        self.forget();
        Ok(())
    }

    /// Sends at most `room` frames, and receives; returns the number received.
    #[inline]
    fn round(&mut self, room: u64) -> Result<u64, Failure> {
        let Some((sender, receivers)) = self.guests.split_first_mut() else { return Ok(0) };
        self.sent += sender.send_most(room as usize)? as u64;
        let mut total = 0;
        for (receiver, came) in receivers.iter_mut().zip(&mut self.came) {
            let count = receiver.receive()? as u64;
            // A frame may arrive after it was given up.
            let late = (*came + count).saturating_sub(self.sent);
            *came += count - late;
            self.lost = self.lost.saturating_sub(late);
            total += count;
        }
        Ok(total)
    }
}
