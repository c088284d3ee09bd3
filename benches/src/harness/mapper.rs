//! Two guests whose drivers map each buffer separately, for one frame, as Linux does with `iommu.strict=1`.

use crate::Failure;
use crate::harness::front::{self, Stream};
use crate::harness::guest::{Addresses, Busy, Shape, Wires};
use crate::harness::memory::{GuestMemory, at};
use crate::harness::monitor::{Monitor, Table};
use ringway_host::EventFd;
use ringway_virtq::{Buffer, Driver};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Bytes of `virtio_net_hdr` with the number of buffers.
const HEADER: u32 = 12;
const PAGE: u64 = 4096;
/// Frames in flight of a guest, each in a separate page.
const SENT: u16 = 64;
const READ: u8 = 1;
/// Linux maps receive buffers as `DMA_FROM_DEVICE`, write-only; DPDK (22.11) requires read access to them as well,
/// and would never start.
const BOTH: u8 = 3;

/// A guest's ring and its buffers, one page each.
struct Lane<'m> {
    driver: Driver<'m>,
    buffers: u64,
    len: u32,
    write: bool,
    /// Buffer of each id.
    of: Vec<u16>,
    /// Buffers owned by the driver.
    free: Vec<u16>,
}

/// A guest and its front-end.
pub struct Mapper<'m> {
    lanes: [Lane<'m>; 2],
    monitor: Monitor<Stream>,
    kicks: Wires,
    /// Bytes of a frame and its header.
    frame: u32,
    /// Whether mappings are sent to the back-end without a request.
    announce: bool,
}

impl<'m> Mapper<'m> {
    /// A guest of address `02:00:00:00:00:<own>` that sends to `02:00:00:00:00:<other>`, on the back-end
    /// behind `socket`. Its rings start; [`Mapper::answer`] maps them.
    pub fn new(
        socket: UnixStream,
        (memory, addresses): &'m (GuestMemory, Addresses),
        shape: &Shape,
        (own, other): (u8, u8),
        announce: bool,
    ) -> Result<Mapper<'m>, Failure> {
        let connection = front::negotiate(Stream::from(socket), memory, shape)?;
        let table = Table::Live(vec![0; (memory.size() / PAGE) as usize]);
        let mut monitor = Monitor::new(connection, memory.size(), table)?;
        let mut frame = vec![0; (HEADER + shape.frame) as usize];
        frame[12..18].copy_from_slice(&[2, 0, 0, 0, 0, other]);
        frame[18..24].copy_from_slice(&[2, 0, 0, 0, 0, own]);
        frame[24..26].copy_from_slice(&[0x88, 0xb5]);
        let lane = |index: usize, len: u32, count: u16| -> Result<Lane<'m>, Failure> {
            let areas = addresses.areas(memory.memory(), index, shape)?;
            let mut driver = Driver::new(&shape.layout(), areas)?;
            driver.set_flag(false);
            let (buffers, write) = (addresses.buffers[index], index == 0);
            let of = vec![0; usize::from(shape.ring)];
            Ok(Lane { driver, buffers, len, write, of, free: (0..count).collect() })
        };
        let lanes = [lane(0, 2048, shape.ring)?, lane(1, HEADER + shape.frame, SENT)?];
        for buffer in 0..u64::from(SENT) {
            at(memory.memory(), lanes[1].buffers + buffer * PAGE, lanes[1].len)?.write(&frame);
        }
        let kicks = Wires { kicks: [EventFd::new()?, EventFd::new()?], call: EventFd::new()? };
        front::start(&mut monitor.front, addresses, &kicks, shape)?;
        Ok(Mapper { lanes, monitor, kicks, frame: HEADER + shape.frame, announce })
    }

    /// Answers the back-end's IOTLB misses; returns their number.
    pub fn answer(&mut self) -> Result<usize, Failure> {
        self.monitor.answer()
    }

    /// Takes back the used buffers of ring `index` and unmaps them; returns their number.
    fn take_back(&mut self, index: usize) -> Result<usize, Failure> {
        let Mapper { lanes, monitor, frame, .. } = self;
        let lane = &mut lanes[index];
        let mut count = 0;
        while count < usize::from(SENT)
            && let Some((id, len)) = lane.driver.take_used()?
        {
            if lane.write && len != *frame {
                return Err(format!("a frame of {len} bytes came, not {frame}").into());
            }
            let buffer = lane.of[usize::from(id)];
            monitor.unmap(lane.buffers + u64::from(buffer) * PAGE)?;
            lane.free.push(buffer);
            count += 1;
        }
        Ok(count)
    }

    /// Maps every free buffer of ring `index` and makes it available.
    fn post(&mut self, index: usize) -> Result<(), Failure> {
        let Mapper { lanes, monitor, kicks, announce, .. } = self;
        let lane = &mut lanes[index];
        if lane.free.is_empty() {
            return Ok(());
        }
        let access = if lane.write { BOTH } else { READ };
        while let Some(buffer) = lane.free.pop() {
            let address = monitor.map(lane.buffers + u64::from(buffer) * PAGE, access, *announce)?;
            let id = lane.driver.add(&[Buffer { address, len: lane.len, write: lane.write }], None);
            lane.of[usize::from(id.ok_or("the ring has no room for its own buffers")?)] = buffer;
        }
        lane.driver.publish();
        if lane.driver.wants_kick() {
            kicks.kicks[index].signal();
        }
        Ok(())
    }

    /// One round: answers, sends, receives. Returns the frames sent and received.
    fn round(&mut self) -> Result<(usize, usize), Failure> {
        self.answer()?;
        let sent = self.take_back(1)?;
        self.post(1)?;
        let came = self.take_back(0)?;
        self.post(0)?;
        Ok((sent, came))
    }
}

/// Two guests that send to each other.
pub struct Mappers<'m> {
    /// The two guests.
    pub guests: [Mapper<'m>; 2],
    /// Frames taken and delivered by the back-end.
    pub frames: (u64, u64),
    /// Busy time of the guests.
    pub busy: Busy,
}

impl<'m> Mappers<'m> {
    /// Joins two guests.
    pub fn new(guests: [Mapper<'m>; 2]) -> Mappers<'m> {
        Mappers { guests, frames: (0, 0), busy: Busy::default() }
    }

    /// Answers and sends until frames have arrived in both directions, or fails after `bound`.
    pub fn begin(&mut self, bound: Duration) -> Result<(), Failure> {
        let begin = Instant::now();
        while self.frames.1 < 2 * u64::from(SENT) {
            self.run(Duration::from_millis(10))?;
            if begin.elapsed() > bound {
                return Err("no frame arrives through a back-end with IOTLB misses".into());
            }
        }
        Ok(())
    }

    /// Resets the counters.
    pub fn forget(&mut self) {
        (self.frames, self.busy) = ((0, 0), Busy::default());
        self.guests.iter_mut().for_each(|guest| guest.monitor.answers = 0);
    }

    /// Thousands of received frames a second, over `time`.
    pub fn rate(&mut self, time: Duration) -> Result<f64, Failure> {
        self.run(time / 10)?;
        let (frames, seconds) = self.run(time)?;
        Ok(frames as f64 / seconds / 1e3)
    }

    /// Sends and receives for `time`; returns frames received, and the actual seconds.
    pub fn run(&mut self, time: Duration) -> Result<(u64, f64), Failure> {
        let (begin, before) = (Instant::now(), self.frames.1);
        let mut ticked = ringway_host::ticks();
        while begin.elapsed() < time {
            let mut moved = 0;
            for guest in &mut self.guests {
                let (sent, came) = guest.round()?;
                self.frames = (self.frames.0 + sent as u64, self.frames.1 + came as u64);
                moved += sent + came;
            }
            if moved == 0 {
                // The back-end's thread may run on this core.
                std::thread::yield_now();
            }
            let ticks = ringway_host::ticks();
            self.busy.add(ticks.wrapping_sub(ticked), moved > 0);
            ticked = ticks;
        }
        Ok((self.frames.1 - before, begin.elapsed().as_secs_f64()))
    }

    /// IOTLB misses answered so far.
    pub fn answers(&self) -> u64 {
        self.guests.iter().map(|guest| guest.monitor.answers).sum()
    }
}
