//! A ring port, or one end of a pipe.

use super::{Device, DeviceError};
use ringway_client::{FRAGMENTS, Ring, RingError, RingOptions, Wait};
use ringway_frame::{LARGEST, Needs, Offload};
use ringway_tcp::Transmit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// The number of the socket among the descriptors.
const SOCKET: usize = 1;

/// A ring whose frames may lack checksums and segmentation.
#[derive(Debug)]
pub struct RingDevice {
    ring: Ring,
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

    /// As [`RingDevice::connect`], with other parameters. Frames are received unsegmented in any case.
    ///
    /// # Errors
    /// As [`RingDevice::connect`].
    pub fn connect_with(path: &Path, options: RingOptions) -> Result<RingDevice, DeviceError> {
        let options = RingOptions { offloads: true, largest: LARGEST, ..options };
        Ok(Ring::connect_with(path, options, None)?.into())
    }
}

/// A ring that was requested with `offloads`.
impl From<Ring> for RingDevice {
    fn from(ring: Ring) -> RingDevice {
        RingDevice { ring, error: None }
    }
}

impl Transmit for RingDevice {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: [&[u8]; 2]) -> bool {
        let sent = self.ring.tx.push_gathered(&[headers, payload[0], payload[1]], offload.to_bytes());
        sent.unwrap_or_else(|error| {
            self.error = Some(error);
            false
        })
    }
}

impl Device for RingDevice {
    fn offloads(&self) -> Needs {
        Needs::ALL
    }

    fn receive(&mut self, frame: &mut [u8]) -> Result<Option<(usize, Offload)>, DeviceError> {
        let received = self.ring.rx.pop(frame)?;
        Ok(received.map(|received| (received.len, Offload::from_bytes(&received.offload))))
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
        vec![self.ring.as_fd(), self.ring.socket()]
    }

    fn notified(&mut self, descriptor: usize) -> Result<(), DeviceError> {
        // The socket is readable only when the ring is closed or replaced.
        if descriptor == SOCKET { Err(RingError::Closed.into()) } else { Ok(()) }
    }
}
