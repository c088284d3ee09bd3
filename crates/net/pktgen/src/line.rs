//! Where frames are sent and received.

use ringway_ring_client::{Ring, RingError, Wait};
use std::time::Duration;

/// Why frames can't be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// An error of a program's ring.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// An error of an interface.
    #[error("the interface: {0}")]
    Interface(std::io::Error),
}

/// For what a sender or receiver rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// For a moment.
    Moment,
    /// For frames to receive.
    Frames,
    /// For room to send.
    Room,
}

/// A device with a side to send and a side to receive, and its clock.
pub trait Line {
    /// Nanoseconds of a clock that never goes back.
    fn now(&mut self) -> u64;

    /// Sends a frame; `false`: there is no room now.
    fn send(&mut self, frame: &[u8]) -> Result<bool, LineError>;

    /// Shows the device what was sent.
    fn flush(&mut self) -> Result<(), LineError>;

    /// Copies the next frame to the begin of `out`; its length, `None` if there is none. What is longer is cut.
    fn receive(&mut self, out: &mut [u8]) -> Result<Option<usize>, LineError>;

    /// Gives what was received back to the device.
    fn release(&mut self) -> Result<(), LineError>;

    /// Sends a frame from the receiving side, so that switches learn where its sender is (RFC 2544, 23), and forgets
    /// what came to the sending side.
    fn announce(&mut self, frame: &[u8]) -> Result<(), LineError>;

    /// Rests until `until`, or until there is what it rests for.
    fn rest(&mut self, what: Rest, until: u64) -> Result<(), LineError>;
}

/// Nanoseconds of CLOCK_MONOTONIC, which is the same for all programs of a host.
#[inline]
pub fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A ring, or two: frames are sent to one and received from the other.
#[derive(Debug)]
pub struct RingLine {
    tx: Ring,
    /// Where frames are received, if that is another ring.
    rx: Option<Ring>,
    /// Whether it never sleeps.
    polls: bool,
}

/// How long before the due time a sleep ends: what a wake-up takes.
const WAKE: u64 = 80_000;

impl RingLine {
    /// A line that sends to `tx`, and receives from `rx`, or from `tx` too.
    pub fn new(tx: Ring, rx: Option<Ring>) -> RingLine {
        RingLine { tx, rx, polls: false }
    }

    /// Makes it poll instead of sleep: no wake-up delays a frame, and a core is busy.
    pub fn polling(mut self) -> RingLine {
        self.polls = true;
        self
    }

    fn rx(&mut self) -> &mut Ring {
        self.rx.as_mut().unwrap_or(&mut self.tx)
    }

    /// The rings.
    pub fn into_rings(self) -> (Ring, Option<Ring>) {
        (self.tx, self.rx)
    }
}

impl Line for RingLine {
    #[inline]
    fn now(&mut self) -> u64 {
        monotonic()
    }

    #[inline]
    fn send(&mut self, frame: &[u8]) -> Result<bool, LineError> {
        Ok(self.tx.tx.push(frame)?)
    }

    #[inline]
    fn flush(&mut self) -> Result<(), LineError> {
        Ok(self.tx.tx.sync()?)
    }

    #[inline]
    fn receive(&mut self, out: &mut [u8]) -> Result<Option<usize>, LineError> {
        let received = self.rx().rx.pop(out)?;
        Ok(received.map(|received| received.len.min(out.len())))
    }

    #[inline]
    fn release(&mut self) -> Result<(), LineError> {
        Ok(self.rx().rx.sync()?)
    }

    fn announce(&mut self, frame: &[u8]) -> Result<(), LineError> {
        let Some(rx) = &mut self.rx else { return Ok(()) };
        while !rx.tx.push(frame)? {
            rx.wait(Wait::TX, Some(Duration::from_millis(100)))?;
        }
        rx.tx.sync()?;
        while self.tx.rx.pop(&mut [0; 64])?.is_some() {}
        Ok(self.tx.rx.sync()?)
    }

    fn rest(&mut self, what: Rest, until: u64) -> Result<(), LineError> {
        let left = until.saturating_sub(monotonic());
        if self.polls || left <= WAKE {
            std::hint::spin_loop();
            if what != Rest::Moment {
                // Notices that the ring is closed.
                self.tx.sync()?;
                self.rx.as_mut().map_or(Ok(()), Ring::sync)?;
            }
            return Ok(());
        }
        let time = Duration::from_nanos(left - WAKE);
        match what {
            Rest::Moment => std::thread::sleep(time),
            Rest::Frames => drop(self.rx().wait(Wait::RX, Some(time))?),
            // Half of the ring, so that a wake-up is worth it.
            Rest::Room => drop(self.tx.wait(Wait { rx: 0, tx: self.tx.tx.slots() / 2 }, Some(time))?),
        }
        Ok(())
    }
}
