//! A device in virtual time: it forwards so many frames a second, and does to some of them what a test says.

use ringway_pktgen::{Line, LineError, Rest};
use std::collections::VecDeque;

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Arrives,
    /// It is lost.
    Lost,
    /// It arrives twice.
    Twice,
    /// It arrives after the next one.
    Late,
    /// A bit of this number is changed.
    Damaged(usize),
}

/// The device with its clock.
pub struct VirtualLine {
    pub clock: u64,
    /// Frames a second.
    pub rate: f64,
    /// Frames that wait in the device at most.
    pub queue: usize,
    /// Whether it takes no more frames than have room, instead of dropping them.
    pub refuses: bool,
    /// Nanoseconds that the generator needs to send a frame.
    pub cost: u64,
    /// The delay of a frame in nanoseconds.
    pub delay: u64,
    /// The fate of frame number N.
    pub fate: Box<dyn FnMut(u64) -> Fate>,
    /// Frames sent, and announcements.
    pub sent: u64,
    pub announced: u64,
    pub free_at: f64,
    /// Frames with their times of arrival.
    pub arriving: VecDeque<(u64, Vec<u8>)>,
    pub late: Option<Vec<u8>>,
}

impl VirtualLine {
    pub fn new(rate: f64) -> VirtualLine {
        VirtualLine {
            clock: 1_000_000_000,
            rate,
            queue: 64,
            refuses: false,
            cost: 20,
            delay: 5_000,
            fate: Box::new(|_| Fate::Arrives),
            sent: 0,
            announced: 0,
            free_at: 0.0,
            arriving: VecDeque::new(),
            late: None,
        }
    }

    fn arrive(&mut self, at: u64, frame: Vec<u8>) {
        let fate = (self.fate)(self.sent);
        match fate {
            Fate::Lost => {}
            Fate::Late => self.late = Some(frame),
            Fate::Arrives | Fate::Twice | Fate::Damaged(_) => {
                let mut frame = frame;
                if let Fate::Damaged(bit) = fate {
                    frame[bit / 8] ^= 1 << (bit % 8);
                }
                if fate == Fate::Twice {
                    self.arriving.push_back((at, frame.clone()));
                }
                self.arriving.push_back((at, frame));
                if let Some(late) = self.late.take() {
                    self.arriving.push_back((at, late));
                }
            }
        }
    }
}

impl Line for VirtualLine {
    fn now(&mut self) -> u64 {
        self.clock
    }

    fn send(&mut self, frame: &[u8]) -> Result<bool, LineError> {
        self.clock += self.cost;
        let now = self.clock as f64;
        let service = 1e9 / self.rate;
        let waiting = (self.free_at - now).max(0.0) / service;
        let is_full = waiting >= self.queue as f64;
        if is_full && self.refuses {
            return Ok(false);
        }
        if !is_full {
            self.free_at = self.free_at.max(now) + service;
            self.arrive(self.free_at as u64 + self.delay, frame.to_vec());
        }
        self.sent += 1;
        Ok(true)
    }

    fn flush(&mut self) -> Result<(), LineError> {
        Ok(())
    }

    fn receive(&mut self, out: &mut [u8]) -> Result<Option<usize>, LineError> {
        let is_there = self.arriving.front().is_some_and(|(at, _)| *at <= self.clock);
        let Some((_, frame)) = self.arriving.pop_front_if(|_| is_there) else { return Ok(None) };
        out[..frame.len()].copy_from_slice(&frame);
        Ok(Some(frame.len()))
    }

    fn release(&mut self) -> Result<(), LineError> {
        Ok(())
    }

    fn announce(&mut self, frame: &[u8]) -> Result<(), LineError> {
        assert_eq!(frame.len(), 60);
        self.announced += 1;
        Ok(())
    }

    fn rest(&mut self, what: Rest, until: u64) -> Result<(), LineError> {
        let wake = match what {
            Rest::Moment => until,
            Rest::Frames => self.arriving.front().map_or(until, |(at, _)| until.min(*at)),
            Rest::Room => until.min(self.clock + 1_000),
        };
        self.clock = wake.max(self.clock + 1);
        Ok(())
    }
}
