//! A ring port, or one end of a pipe.

use super::lending::{LEAST, Lending};
use super::{Device, DeviceError, HEADERS, Received, StoredBytes};
use ringway_client::{FRAGMENTS, Ring, RingError, RingOptions, Wait};
use ringway_frame::{LARGEST, Needs, Offload};
use ringway_mem::Span;
use ringway_tcp::Transmit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Longest frame that is copied as a whole.
const SHORT: usize = 1024;
/// Buffers for bytes to send, if the program does not choose their number.
const EXTRA: u32 = 256;
/// The number of the socket among the descriptors.
const SOCKET: usize = 1;

/// A ring whose frames may lack checksums and segmentation.
#[derive(Debug)]
pub struct RingDevice {
    ring: Ring,
    /// The first bytes of the last received frame.
    head: Box<[u8]>,
    /// Buffers for bytes to send.
    lending: Lending,
    /// Bytes of streams that were copied.
    copied: u64,
    error: Option<RingError>,
}

impl RingDevice {
    /// Connects to the ring port or the pipe at `path`. On a pipe this waits for the other end.
    ///
    /// # Errors
    /// If nobody listens there, or the ring is refused.
    pub fn connect(path: &Path) -> Result<RingDevice, DeviceError> {
        RingDevice::connect_with(path, RingOptions::default())
    }

    /// As [`RingDevice::connect`], with other parameters. Frames are received unsegmented in any case. `extra` buffers
    /// hold bytes to send until they are acknowledged; what finds none there is copied once more. If `extra` is 0, 256
    /// are requested, and none if `slot_size` is too small for them to be used, less than 8 KB.
    ///
    /// # Errors
    /// As [`RingDevice::connect`].
    pub fn connect_with(path: &Path, options: RingOptions) -> Result<RingDevice, DeviceError> {
        // Without a size, the port's is used, which is not known yet.
        let is_small = options.slot_size != 0 && options.slot_size < LEAST;
        let extra = if options.extra == 0 && !is_small { EXTRA } else { options.extra };
        let options = RingOptions { offloads: true, largest: LARGEST, extra, ..options };
        Ok(Ring::connect_with(path, options, None)?.into())
    }
}

/// A ring that was requested with `offloads`.
impl From<Ring> for RingDevice {
    fn from(ring: Ring) -> RingDevice {
        let lending = Lending::new(&ring);
        RingDevice { ring, head: vec![0; SHORT].into(), lending, copied: 0, error: None }
    }
}

impl Transmit for RingDevice {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        let pieces = std::iter::once(Span::of(headers)).chain(payload.iter().copied());
        match self.ring.tx.push_lent(pieces, offload.to_bytes()) {
            Ok(true) => {
                let lent = self.lending.pushed(&self.ring.tx, payload, self.ring.tx.head());
                let len: usize = payload.iter().map(|span| span.len()).sum();
                self.copied += (len - lent) as u64;
                true
            }
            Ok(false) => false,
            Err(error) => {
                self.error = Some(error);
                false
            }
        }
    }
}

impl Device for RingDevice {
    fn offloads(&self) -> Needs {
        Needs::ALL
    }

    fn receive(&mut self) -> Result<Option<Received<'_>>, DeviceError> {
        let RingDevice { ring, head, copied, .. } = self;
        let Some(taken) = ring.rx.take()? else { return Ok(None) };
        let mut pieces = taken.pieces;
        let first = pieces.first().copied().unwrap_or(Span::empty());
        // A short frame is copied as a whole, since that is faster than to treat its parts one by one.
        let whole = pieces.len() == 1 && first.len() <= head.len();
        let len = if whole { first.len() } else { first.len().min(HEADERS) };
        let (front, back) = first.split(len);
        front.read(&mut head[..len]);
        *copied += len.saturating_sub(HEADERS) as u64;
        if let Some(first) = pieces.first_mut() {
            *first = back;
        }
        pieces.retain(|piece| !piece.is_empty());
        Ok(Some(Received { head: &head[..len], rest: pieces, offload: Offload::from_bytes(&taken.offload) }))
    }

    fn store(&mut self, bytes: &[u8]) -> Option<StoredBytes> {
        let stored = self.lending.store(&mut self.ring.tx, bytes).unwrap_or_else(|error| {
            self.error = Some(error);
            None
        });
        self.copied += stored.as_ref().map_or(0, |(_, len)| *len as u64);
        stored
    }

    fn copied(&self) -> u64 {
        self.copied
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        if let Some(error) = self.error.take() {
            return Err(error.into());
        }
        Ok(self.ring.sync()?)
    }

    fn arm(&mut self, room: bool) -> Result<bool, DeviceError> {
        let slots = (FRAGMENTS as u32).min(self.ring.tx.slots() / 2);
        Ok(self.ring.arm(Wait { rx: 1, tx: if room { slots } else { 0 } })?)
    }

    fn disarm(&mut self) {
        self.ring.disarm(Wait { rx: 1, tx: 1 });
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        [self.ring.as_fd()].into_iter().chain(self.ring.socket()).collect()
    }

    fn notified(&mut self, descriptor: usize) -> Result<(), DeviceError> {
        // The socket is readable only when the ring is closed or replaced.
        if descriptor == SOCKET { Err(RingError::Closed.into()) } else { Ok(()) }
    }
}
