//! A TAP interface of the host.

use super::{Device, DeviceError, HEADERS, Received};
use arrayvec::ArrayVec;
use ringway_frame::{LARGEST, Needs, Offload};
use ringway_host::{TAP_HEAD, TAP_HEADER, TAP_PIECES, TapFault, TapSettings, open_tap, tap_read, tap_write};
use ringway_mem::{Span, SpanMut};
use ringway_netstack::{PIECES, Transmit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The pieces of a frame after its head: the rest of its headers, and its payload.
const TAIL: usize = 1 + PIECES;
const _: () = assert!(TAIL <= TAP_PIECES);

/// One queue of a TAP interface. The kernel takes frames without checksums and segmentation; it leaves them
/// out of its own if the interface has offloads.
#[derive(Debug)]
pub struct TapDevice {
    queue: OwnedFd,
    buffer: Vec<u8>,
    /// A frame arrived after the last [`Device::arm`], or none was tried to be read since.
    pending: bool,
    copied: u64,
    error: Option<DeviceError>,
}

impl TapDevice {
    /// Creates the interface, or opens the existing one, and brings it up. Requires CAP_NET_ADMIN.
    ///
    /// # Errors
    /// If the interface can't be created so.
    pub fn open(settings: &TapSettings) -> Result<TapDevice, DeviceError> {
        let queue = open_tap(settings)?.into_iter().next().ok_or(DeviceError::Removed)?;
        Ok(TapDevice::of(queue))
    }

    /// A queue that is open, or a datagram socket in its place.
    pub fn of(queue: OwnedFd) -> TapDevice {
        TapDevice {
            queue,
            buffer: vec![0; TAP_HEADER + LARGEST as usize],
            pending: true,
            copied: 0,
            error: None,
        }
    }
}

impl Transmit for TapDevice {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        let (head, rest) = headers.split_at(headers.len().min(TAP_HEAD));
        let mut tail = ArrayVec::<Span<'_>, TAIL>::from_iter([Span::of(rest)]);
        if tail.try_extend_from_slice(payload).is_err() {
            // More pieces than the stack makes. Without some of them it would be another frame.
            return true;
        }
        self.copied += payload.iter().map(|span| span.len() as u64).sum::<u64>();
        // Other faults lose the frame, as a wire would: the interface is down, or the kernel has no memory.
        if tap_write(self.queue.as_fd(), &offload.to_bytes(), head, &tail) == Err(TapFault::Gone) {
            self.error = Some(DeviceError::Removed);
        }
        true
    }
}

impl Device for TapDevice {
    fn offloads(&self) -> Needs {
        Needs::ALL
    }

    fn receive(&mut self) -> Result<Option<Received<'_>>, DeviceError> {
        match tap_read(self.queue.as_fd(), SpanMut::of(&mut self.buffer)) {
            Ok(len) => {
                let (header, bytes) = self.buffer[..len].split_at(TAP_HEADER.min(len));
                let Ok(header) = header.try_into() else { return Ok(None) };
                self.pending = true;
                self.copied += bytes.len().saturating_sub(HEADERS) as u64;
                Ok(Some(Received::whole(bytes, Offload::from_bytes(header))))
            }
            Err(TapFault::Gone) => Err(DeviceError::Removed),
            Err(_) => {
                self.pending = false;
                Ok(None)
            }
        }
    }

    fn copied(&self) -> u64 {
        self.copied
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// The kernel always notifies: an edge follows each frame that arrives after the queue was found empty.
    fn arm(&mut self, _room: bool) -> Result<bool, DeviceError> {
        Ok(!self.pending)
    }

    fn disarm(&mut self) {}

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.queue.as_fd()]
    }

    fn notified(&mut self, _descriptor: usize) -> Result<(), DeviceError> {
        self.pending = true;
        Ok(())
    }
}
