//! A single guest on a port: it receives, sends, sends to itself, or returns received frames.

use crate::Failure;
use crate::harness::bare::Work;
use crate::harness::front;
use crate::harness::guest::{Addresses, Busy, Iommu, Shape, Wires};
use crate::harness::memory::{GuestMemory, at};
use crate::harness::monitor::{Monitor, Peer, Table};
use ringway_host::EventFd;
use ringway_mem::{Hint, Memory};
use ringway_virtq::{Buffer, Driver};
use std::time::{Duration, Instant};

/// Bytes of `virtio_net_hdr` with the number of buffers.
const HEADER: u32 = 12;
/// Bytes of a buffer.
const BUFFER: u32 = 2048;
const BURST: usize = 64;
/// Frames in flight of a guest that sends to itself.
const AHEAD: usize = 512;
/// Time after which a frame that has not returned counts as dropped.
const LOSS_TIMEOUT: Duration = Duration::from_millis(20);
/// Rounds between two checks for IOTLB misses.
const ROUNDS: usize = 256;

/// A guest and its front-end.
pub struct Passing<'m, T: Peer> {
    work: Work,
    memory: &'m Memory,
    buffers: [u64; 2],
    ring: u16,
    iommu: Iommu,
    /// Receive and transmit ring, each with the buffer of each id.
    lanes: [(Driver<'m>, Vec<u16>); 2],
    /// Buffers to be sent.
    free: Vec<u16>,
    /// The front-end.
    pub monitor: Monitor<T>,
    wires: Wires,
    frame: u32,
    ahead: usize,
    /// Busy time of the guest.
    pub busy: Busy,
    /// How long it works for each received frame.
    pub toil: Duration,
}

impl<'m, T: Peer> Passing<'m, T> {
    /// A guest with address `02:00:00:00:00:02`, whose back-end does `work`. Its rings start.
    pub fn new(
        transport: T,
        (memory, addresses): &'m (GuestMemory, Addresses),
        shape: &Shape,
        work: Work,
    ) -> Result<Passing<'m, T>, Failure> {
        let front = front::negotiate(transport, memory, shape)?;
        let wires = Wires { kicks: [EventFd::new()?, EventFd::new()?], call: EventFd::new()? };
        let size = memory.size();
        let lane = |index: usize| -> Result<(Driver<'m>, Vec<u16>), Failure> {
            let areas = addresses.areas(memory.memory(), index, shape)?;
            let mut driver = Driver::new(&shape.layout(), areas)?;
            driver.set_flag(false);
            Ok((driver, vec![0; usize::from(shape.ring)]))
        };
        let lanes = [lane(0)?, lane(1)?];
        let mut monitor = Monitor::new(front, size, Table::of(shape, size))?;
        front::start(&mut monitor.front, addresses, &wires, shape)?;
        let (memory, buffers) = (&**memory.memory(), addresses.buffers);
        let mut guest = Passing {
            work,
            memory,
            buffers,
            ring: shape.ring,
            iommu: shape.iommu,
            lanes,
            free: Vec::new(),
            monitor,
            wires,
            frame: shape.frame,
            ahead: 0,
            busy: Busy::default(),
            toil: Duration::ZERO,
        };
        guest.fill()?;
        Ok(guest)
    }

    /// Guest-physical address of a buffer.
    fn place(&self, buffer: u16) -> u64 {
        let (lane, number) = (usize::from(buffer / self.ring), buffer % self.ring);
        self.buffers[lane] + u64::from(number) * u64::from(BUFFER)
    }

    /// Writes the frames to be sent, and posts the buffers to receive.
    fn fill(&mut self) -> Result<(), Failure> {
        let mut frame = vec![0; (HEADER + self.frame) as usize];
        frame[12..18].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        frame[18..24].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
        frame[24..26].copy_from_slice(&[0x88, 0xb5]);
        for buffer in 0..self.ring {
            self.add(0, buffer, BUFFER)?;
        }
        self.lanes[0].0.publish();
        if self.work != Work::Through {
            for buffer in self.ring..2 * self.ring {
                at(self.memory, self.place(buffer), frame.len() as u32)?.write(&frame);
                self.free.push(buffer);
            }
        }
        Ok(())
    }

    #[inline]
    fn add(&mut self, lane: usize, buffer: u16, len: u32) -> Result<(), Failure> {
        let address = self.iommu.address(self.place(buffer));
        let (driver, of) = &mut self.lanes[lane];
        let id = driver.add(&[Buffer { address, len, write: lane == 0 }], None);
        of[usize::from(id.ok_or("the ring has no room for its own buffers")?)] = buffer;
        Ok(())
    }

    #[inline]
    fn publish(&mut self, lane: usize) {
        self.lanes[lane].0.publish();
        if self.lanes[lane].0.wants_kick() {
            self.wires.kicks[lane].signal();
        }
    }

    /// The next used buffer of a ring, and the bytes written to it.
    #[inline]
    fn used(&mut self, lane: usize) -> Result<Option<(u16, u32)>, Failure> {
        let (driver, of) = &mut self.lanes[lane];
        Ok(driver.take_used()?.map(|(id, len)| (of[usize::from(id)], len)))
    }

    /// Takes back sent buffers; returns the number of frames.
    fn sent(&mut self) -> Result<usize, Failure> {
        let mut count = 0;
        while let Some((buffer, _)) = self.used(1)? {
            count += 1;
            match self.work {
                Work::Through => self.add(0, buffer, BUFFER)?,
                _ => self.free.push(buffer),
            }
        }
        if count > 0 && self.work == Work::Through {
            self.publish(0);
        }
        Ok(count)
    }

    /// Sends as many frames as there are free buffers.
    fn send(&mut self) -> Result<(), Failure> {
        let most = if self.work == Work::Loop { AHEAD - self.ahead } else { usize::MAX };
        let count = BURST.min(most).min(self.free.len());
        for _ in 0..count {
            let Some(buffer) = self.free.pop() else { break };
            self.add(1, buffer, HEADER + self.frame)?;
        }
        if count > 0 {
            self.ahead += count;
            self.publish(1);
        }
        Ok(())
    }

    /// Receives; returns the number of frames. Each buffer is posted again, or sent with exchanged addresses.
    fn receive(&mut self) -> Result<usize, Failure> {
        let mut count = 0;
        while count < BURST
            && let Some((buffer, len)) = self.used(0)?
        {
            if len != HEADER + self.frame {
                return Err(format!("a frame of {len} bytes came, not {}", HEADER + self.frame).into());
            }
            count += 1;
            if !self.toil.is_zero() {
                work_for(self.toil);
            }
            if self.work == Work::Through {
                self.exchange(buffer)?;
                self.add(1, buffer, len)?;
            } else {
                self.add(0, buffer, BUFFER)?;
            }
        }
        if count > 0 {
            self.publish(usize::from(self.work == Work::Through));
            self.ahead = self.ahead.saturating_sub(count);
        }
        Ok(count)
    }

    /// Exchanges the Ethernet addresses of the frame in a buffer.
    #[inline]
    fn exchange(&self, buffer: u16) -> Result<(), Failure> {
        let span = self.memory.span_mut(self.place(buffer), HEADER + 12, &mut Hint::default());
        let span = span.ok_or("an address outside the guest")?.split(HEADER as usize).1;
        let front: [u8; 12] = span.as_span().read_array().ok_or("a short frame")?;
        let mut back = [0; 12];
        let (to, from) = front.split_at(6);
        back[..6].copy_from_slice(from);
        back[6..].copy_from_slice(to);
        span.write_at(0, back);
        Ok(())
    }

    /// One round; returns the number of frames that passed.
    #[inline]
    pub fn round(&mut self) -> Result<usize, Failure> {
        Ok(match self.work {
            Work::In => self.receive()?,
            Work::Out => {
                let sent = self.sent()?;
                self.send()?;
                sent
            }
            Work::Loop => {
                self.sent()?;
                self.send()?;
                self.receive()?
            }
            Work::Through => {
                let sent = self.sent()?;
                self.receive()?;
                sent
            }
        })
    }

    /// Millions of frames a second, over `time`.
    pub fn rate(&mut self, time: Duration) -> Result<f64, Failure> {
        self.run(time / 10)?;
        let (frames, seconds) = self.run(time)?;
        if frames == 0 {
            return Err("no frame came".into());
        }
        Ok(frames as f64 / seconds / 1e6)
    }

    /// Runs for `time`; returns the frames that passed, and the actual seconds.
    pub fn run(&mut self, time: Duration) -> Result<(usize, f64), Failure> {
        let begin = Instant::now();
        let (mut total, mut ticked) = (0, ringway_host::ticks());
        let (mut last, mut before) = (begin, 0);
        while begin.elapsed() < time {
            self.monitor.answer()?;
            if total > before {
                (last, before) = (Instant::now(), total);
            } else if last.elapsed() > LOSS_TIMEOUT {
                // The back-end was not ready, and has dropped the frames in flight.
                (self.ahead, last) = (0, Instant::now());
            }
            for _ in 0..ROUNDS {
                let moved = self.round()?;
                total += moved;
                let ticks = ringway_host::ticks();
                self.busy.add(ticks.wrapping_sub(ticked), moved > 0);
                ticked = ticks;
            }
        }
        Ok((total, begin.elapsed().as_secs_f64()))
    }
}

/// Keeps this thread's core busy.
pub fn work_for(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}
