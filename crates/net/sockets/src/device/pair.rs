//! Two devices in memory, each of which receives what the other sends.

use super::{Device, DeviceError, Received};
use ringway_frame::{Needs, Offload};
use ringway_host::EventFd;
use ringway_mem::Span;
use ringway_netstack::Transmit;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Frames on their way in one direction.
const FRAMES: usize = 256;

/// One direction of a pair.
#[derive(Debug, Default)]
struct Line {
    frames: VecDeque<(Offload, Vec<u8>)>,
    /// Buffers to use again.
    spare: Vec<Vec<u8>>,
    /// Whether the receiver, or the sender, is to be notified.
    wake: [bool; 2],
    closed: bool,
}

/// A direction, and the eventfds of its receiver and sender.
#[derive(Debug)]
struct Shared {
    line: Mutex<Line>,
    events: [Arc<EventFd>; 2],
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, line: &mut Line, whom: usize) {
        if std::mem::take(&mut line.wake[whom]) {
            self.events[whom].signal();
        }
    }
}

const RECEIVER: usize = 0;
const SENDER: usize = 1;

/// One end of a pair.
#[derive(Debug)]
pub struct Pair {
    from: Arc<Shared>,
    to: Arc<Shared>,
    /// The last received frame.
    frame: Vec<u8>,
    copied: u64,
}

/// Two connected devices.
///
/// # Errors
/// If the process has no descriptors left.
pub fn pair() -> Result<(Pair, Pair), DeviceError> {
    let (one, two) = (Arc::new(EventFd::new()?), Arc::new(EventFd::new()?));
    let line = |receiver: &Arc<EventFd>, sender: &Arc<EventFd>| {
        Arc::new(Shared { line: Mutex::default(), events: [receiver.clone(), sender.clone()] })
    };
    let (there, back) = (line(&two, &one), line(&one, &two));
    let end = |from: &Arc<Shared>, to: &Arc<Shared>| Pair {
        from: from.clone(),
        to: to.clone(),
        frame: Vec::new(),
        copied: 0,
    };
    Ok((end(&back, &there), end(&there, &back)))
}

impl Transmit for Pair {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        let mut line = self.to.lock();
        if line.frames.len() >= FRAMES {
            return false;
        }
        let mut frame = line.spare.pop().unwrap_or_default();
        frame.clear();
        frame.extend_from_slice(headers);
        for piece in payload {
            let at = frame.len();
            frame.resize(at + piece.len(), 0);
            piece.read(&mut frame[at..]);
            self.copied += piece.len() as u64;
        }
        line.frames.push_back((offload, frame));
        true
    }
}

impl Device for Pair {
    fn offloads(&self) -> Needs {
        Needs::ALL
    }

    fn receive(&mut self) -> Result<Option<Received<'_>>, DeviceError> {
        let mut line = self.from.lock();
        let Some((offload, bytes)) = line.frames.pop_front() else {
            return if line.closed { Err(DeviceError::Closed) } else { Ok(None) };
        };
        line.spare.push(std::mem::replace(&mut self.frame, bytes));
        drop(line);
        Ok(Some(Received::whole(&self.frame, offload)))
    }

    fn copied(&self) -> u64 {
        self.copied
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        let mut line = self.to.lock();
        if !line.frames.is_empty() {
            self.to.wake(&mut line, RECEIVER);
        }
        drop(line);
        let mut line = self.from.lock();
        if line.frames.len() < FRAMES / 2 {
            self.from.wake(&mut line, SENDER);
        }
        Ok(())
    }

    fn arm(&mut self, room: bool) -> Result<bool, DeviceError> {
        let mut line = self.from.lock();
        if !line.frames.is_empty() || line.closed {
            return Ok(false);
        }
        line.wake[RECEIVER] = true;
        drop(line);
        let mut line = self.to.lock();
        line.wake[SENDER] = room;
        Ok(!room || line.frames.len() >= FRAMES / 2)
    }

    fn disarm(&mut self) {
        self.from.lock().wake[RECEIVER] = false;
        self.to.lock().wake[SENDER] = false;
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.from.events[RECEIVER].as_fd()]
    }

    fn notified(&mut self, _descriptor: usize) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let mut line = self.to.lock();
        line.closed = true;
        line.wake[RECEIVER] = true;
        self.to.wake(&mut line, RECEIVER);
    }
}
