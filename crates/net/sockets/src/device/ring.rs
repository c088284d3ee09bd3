//! A ring port, or one end of a pipe.

use super::lending::{LEAST, Lending};
use super::{Device, DeviceError, HEADERS, LentRing, Received, StoredBytes};
use ringway_frame::{LARGEST, Needs, Offload};
use ringway_host::listener::connect_now;
use ringway_host::{Clock, Mapping};
use ringway_mem::Span;
use ringway_netstack::Transmit;
use ringway_ring_client::attachment::{Attachment, State};
use ringway_ring_client::{FRAGMENTS, PendingRing, Ring, RingError, RingKind, RingOptions, Wait};
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Longest frame that is copied as a whole.
const SHORT: usize = 1024;
/// Buffers for bytes to send, if the program does not choose their number.
const EXTRA: u32 = 256;
/// The number of the socket among the descriptors.
const SOCKET: usize = 1;

/// A ring whose frames may lack checksums and segmentation.
///
/// If the ring is closed, since its fabric went down, a device that was made by [`RingDevice::connect`] connects again,
/// after delays that grow to a second; meanwhile frames to send are lost.
#[derive(Debug)]
pub struct RingDevice {
    attachment: Attachment,
    /// The socket of the port; none: the ring was received otherwise, and can't be requested again.
    path: Option<PathBuf>,
    clock: Clock,
    /// The first bytes of the last received frame.
    head: Box<[u8]>,
    /// Buffers for bytes to send.
    lending: Lending,
    /// Bytes of streams that were copied.
    copied: u64,
    /// What [`Device::flush`] must handle.
    error: Option<RingError>,
    /// The request for a ring was answered, or its socket hung up.
    is_answered: bool,
    /// The file of the first ring's memory, until it is lent or lost.
    file: Option<OwnedFd>,
}

/// A ring that was asked for: its descriptor is readable once [`RingRequest::device`] does not wait.
#[derive(Debug)]
pub struct RingRequest {
    pending: PendingRing,
    options: RingOptions,
    path: PathBuf,
    /// Whether the device lends its ring.
    lends: bool,
}

impl RingRequest {
    /// Asks for the ring of [`RingDevice::connect`].
    ///
    /// # Errors
    /// Nobody listens at `path`.
    pub fn new(path: &Path) -> Result<RingRequest, DeviceError> {
        RingRequest::of(path, RingOptions::default())
    }

    /// Asks for the ring of [`RingDevice::connect_whole`].
    ///
    /// # Errors
    /// Nobody listens at `path`.
    pub fn whole(path: &Path) -> Result<RingRequest, DeviceError> {
        let options = RingOptions { offloads: false, extra: EXTRA, ..RingOptions::default() };
        let pending = PendingRing::connect(path, options)?;
        Ok(RingRequest { pending, options, path: path.into(), lends: false })
    }

    fn of(path: &Path, options: RingOptions) -> Result<RingRequest, DeviceError> {
        // Without a size, the port's is used, which is not known yet.
        let is_small = options.slot_size != 0 && options.slot_size < LEAST;
        let extra = if options.extra == 0 && !is_small { EXTRA } else { options.extra };
        let options = RingOptions { offloads: true, largest: LARGEST, extra, ..options };
        let pending = PendingRing::connect(path, options)?;
        Ok(RingRequest { pending, options, path: path.into(), lends: true })
    }

    /// Waits for the ring.
    ///
    /// # Errors
    /// It is refused.
    pub fn device(self) -> Result<RingDevice, DeviceError> {
        let memory = Cell::new(None);
        let ring = self.pending.ring_by(None, &|file| {
            memory.set(file.try_clone().ok());
            Ok(Mapping::sealed(file)?.region())
        })?;
        let mut device = RingDevice::of(ring, self.options);
        (device.path, device.file) = (Some(self.path), memory.into_inner().filter(|_| self.lends));
        device.prepare();
        Ok(device)
    }
}

impl AsFd for RingRequest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pending.as_fd()
    }
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
        RingRequest::of(path, options)?.device()
    }

    /// As [`RingDevice::connect`]; received frames lack no checksums and segmentation, which the port's worker does
    /// first.
    ///
    /// # Errors
    /// As [`RingDevice::connect`].
    pub fn connect_whole(path: &Path) -> Result<RingDevice, DeviceError> {
        RingRequest::whole(path)?.device()
    }

    fn of(ring: Ring, options: RingOptions) -> RingDevice {
        let clock = Clock::new();
        // A program may have exchanged buffers of a pipe before.
        let lending = if ring.kind() == RingKind::Pipe { Lending::default() } else { Lending::new(&ring) };
        RingDevice {
            attachment: Attachment::of(ring, options, clock.now()),
            path: None,
            clock,
            head: vec![0; SHORT].into(),
            lending,
            copied: 0,
            error: None,
            is_answered: false,
            file: None,
        }
    }

    /// Uses the buffers of a ring that nobody used before.
    fn prepare(&mut self) {
        if let Some(ring) = self.attachment.ring() {
            ring.rx.fix_buffers();
            self.lending = Lending::new(ring);
        }
    }

    /// The ring failed: it is requested again, if that is possible.
    fn lose(&mut self, error: RingError) -> Result<(), DeviceError> {
        if self.path.is_none() {
            return Err(error.into());
        }
        // The piece is of this ring, not of the next.
        (self.error, self.file) = (None, None);
        self.lending = Lending::default();
        self.attachment.lose(&error, self.clock.now());
        self.is_answered = false;
        Ok(())
    }

    /// Calls the ring, if it is here.
    fn with<T>(
        &mut self,
        call: impl FnOnce(&mut Ring) -> Result<T, RingError>,
    ) -> Result<Option<T>, DeviceError> {
        match self.attachment.ring().map(call) {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(error)) => self.lose(error).map(|()| None),
        }
    }
}

/// A ring that was requested with `offloads`; when it is closed, the device is gone.
impl From<Ring> for RingDevice {
    fn from(ring: Ring) -> RingDevice {
        RingDevice::of(ring, RingOptions::default())
    }
}

impl Transmit for RingDevice {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        let pieces = std::iter::once(Span::of(headers)).chain(payload.iter().copied());
        // As on a cable that is unplugged.
        let Some(ring) = self.attachment.ring() else { return true };
        match ring.tx.push_lent(pieces, offload.to_bytes()) {
            Ok(true) => {
                let lent = self.lending.pushed(&ring.tx, payload, ring.tx.head());
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
        let RingDevice { attachment, head, error, copied, .. } = self;
        let Some(ring) = attachment.ring() else { return Ok(None) };
        let taken = match ring.rx.take() {
            Ok(Some(taken)) => taken,
            Ok(None) => return Ok(None),
            Err(wrong) => {
                *error = Some(wrong);
                return Ok(None);
            }
        };
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
        let ring = self.attachment.ring()?;
        let stored = self.lending.store(&mut ring.tx, bytes).unwrap_or_else(|error| {
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
            return self.lose(error);
        }
        self.with(Ring::sync).map(drop)
    }

    fn arm(&mut self, room: bool) -> Result<bool, DeviceError> {
        let armed = self.with(|ring| {
            let slots = (FRAGMENTS as u32).min(ring.tx.slots() / 2);
            ring.arm(Wait { rx: 1, tx: if room { slots } else { 0 } })
        })?;
        Ok(armed.unwrap_or(true))
    }

    fn disarm(&mut self) {
        if let Some(ring) = self.attachment.ring() {
            ring.disarm(Wait { rx: 1, tx: 1 });
        }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.attachment.descriptors()
    }

    fn notified(&mut self, descriptor: usize) -> Result<(), DeviceError> {
        match self.attachment.state() {
            State::Away => Ok(()),
            State::Requested(_) => {
                self.is_answered = true;
                Ok(())
            }
            // The socket is readable only when the ring is closed or replaced. The event may be of a former ring, whose
            // thread slept meanwhile.
            State::Up(ring) if descriptor == SOCKET && ring.is_hung_up() => self.lose(RingError::Closed),
            State::Up(_) => Ok(()),
        }
    }

    fn epoch(&self) -> u64 {
        self.attachment.epoch()
    }

    fn away(&self) -> Option<&str> {
        let is_up = matches!(self.attachment.state(), State::Up(_));
        (!is_up).then(|| self.attachment.reason())
    }

    fn next_attempt(&self) -> Option<u64> {
        match self.attachment.state() {
            State::Away => Some(self.attachment.next()),
            State::Requested(_) if self.is_answered => Some(0),
            State::Requested(_) | State::Up(_) => None,
        }
    }

    fn lend(&mut self) -> Option<LentRing> {
        // A pipe's ring ends with each peer.
        let ring = self.attachment.ring().filter(|ring| ring.kind() != RingKind::Pipe)?;
        let own = |descriptor: BorrowedFd<'_>| descriptor.try_clone_to_owned().ok();
        let (kick, call, socket) = (own(ring.kick_fd()?)?, own(ring.as_fd())?, own(ring.socket()?)?);
        let region = ring.region().clone();
        // The processes send nothing from buffers of no slot.
        self.lending = Lending::default();
        Some(LentRing { file: self.file.take()?, region, kick, call, socket })
    }

    fn take_back(&mut self) -> Result<(), DeviceError> {
        let is_closed = matches!(self.attachment.state(), State::Up(ring) if ring.is_hung_up());
        self.lose(match is_closed {
            true => RingError::Closed,
            false => RingError::Refused("its programs left it in an unknown state".into()),
        })
    }

    fn come_back(&mut self, now: u64) {
        let Some(path) = &self.path else { return };
        self.is_answered = false;
        self.attachment.advance(now, || connect_now(path).map(UnixStream::from));
        self.prepare();
    }
}
