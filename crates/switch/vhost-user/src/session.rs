//! The back-end side of a connection.

use crate::codec::CodecError;
use crate::feature::{protocol, virtio};
use crate::header::{Packet, name};
use crate::inbox::Message;
use crate::journal::{Journal, Note, Record};
use crate::payload::{CONFIG, Config, Iotlb, Log, MemoryRegion, SharedRegion, VringFd, VringState};
use crate::reply::Reply;
use crate::request::Request;
use crate::ring_state::{Kick, LARGEST, Ring};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The features that a back-end offers. They must be the same when a front-end reconnects.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Feature bits of [`virtio`].
    pub features: u64,
    /// Protocol feature bits of [`protocol`].
    pub protocol: u64,
    /// Number of rings: two per queue pair, and possibly a control queue.
    pub rings: u16,
    /// The reported number of queues: queue pairs for a network device.
    pub queues: u16,
    /// Number of memory slots.
    pub slots: u16,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// The device that a session controls. When a method returns, no worker uses the previous state.
pub trait Device {
    /// Sets the negotiated features. Running rings are updated one by one afterwards.
    fn set_features(&mut self, features: u64) -> Result<(), Refused>;
    /// Sets the guest's memory, replacing all regions.
    fn set_memory(&mut self, table: Vec<SharedRegion>) -> Result<(), Refused>;
    /// Adds a region.
    fn add_region(&mut self, region: SharedRegion) -> Result<(), Refused>;
    /// Removes a region.
    fn remove_region(&mut self, region: MemoryRegion) -> Result<(), Refused>;
    /// Starts a ring at its position.
    fn start(&mut self, index: usize, ring: &Ring) -> Result<(), Refused>;
    /// Changes settings of a running ring, which keeps its position.
    fn update(&mut self, index: usize, ring: &Ring) -> Result<(), Refused>;
    /// Stops a ring. Returns the ring's position, as in [`Ring::base`].
    fn stop(&mut self, index: usize) -> u16;
    /// Reads the configuration space; bytes beyond its end are zero.
    fn read_config(&self, offset: u32, bytes: &mut [u8]);
    /// Sets the front-end's MTU.
    fn set_mtu(&mut self, mtu: u16) -> Result<(), Refused>;
    /// Sets the channel for requests of the back-end.
    fn set_channel(&mut self, channel: OwnedFd);
    /// Sets the log of writes to guest memory, a part of a file. Features and rings enable logging.
    fn set_log(&mut self, log: Log, file: OwnedFd) -> Result<(), Refused>;
    /// Sets the descriptor that notifies the front-end of new log entries.
    fn set_log_call(&mut self, call: OwnedFd) -> Result<(), Refused>;
    /// The guest was migrated to this host: its address must be announced.
    fn announce(&mut self, address: [u8; 6]);
    /// Adds ([`Iotlb::UPDATE`]) or removes ([`Iotlb::INVALIDATE`]) a translation. Returns whether any was
    /// removed: the caller then waits until every worker has ended its turn before it sends the reply.
    fn translate(&mut self, change: Iotlb) -> Result<bool, Refused>;
    /// Whether a ring is broken, so that the driver must reset the device.
    fn needs_reset(&self) -> bool;
}

/// Why a session can't continue, or why it refused a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The bytes are not a valid message.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A reply without a request.
    #[error("message {} is a reply without a request", name(*request))]
    Unasked {
        /// Number of the message.
        request: u32,
    },
    /// Features that were not offered.
    #[error("the front-end sets features {got:#x}, but only {offered:#x} are offered")]
    Features {
        /// The features set.
        got: u64,
        /// The features offered.
        offered: u64,
    },
    /// A ring that doesn't exist.
    #[error("message {} is for ring {index}, but there are {rings} rings", name(*request))]
    Ring {
        /// Number of the message.
        request: u32,
        /// The ring's index.
        index: u32,
        /// Number of rings.
        rings: usize,
    },
    /// An invalid value for a ring.
    #[error("message {} gives ring {index} a {what}", name(*request))]
    Value {
        /// Number of the message.
        request: u32,
        /// The ring's index.
        index: usize,
        /// The invalid value.
        what: &'static str,
    },
    /// A message of a protocol feature that was not negotiated.
    #[error("message {} needs a feature that was not negotiated", name(*request))]
    NotNegotiated {
        /// Number of the message.
        request: u32,
    },
    /// The device refused the request.
    #[error("message {}: {reason}", name(*request))]
    Refused {
        /// Number of the message.
        request: u32,
        /// The reason.
        reason: Refused,
    },
}

/// Result of a message.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The reply to send.
    pub answer: Option<Packet>,
    /// The error of a refused request, if a reply reports it and the session continues.
    pub refused: Option<SessionError>,
    /// Whether the replies from this one on must wait until every worker has ended its current turn.
    pub revoked: bool,
}

/// State of one connection.
#[derive(Debug)]
pub struct Session {
    offer: Offer,
    features: u64,
    protocol: u64,
    status: u8,
    rings: Vec<Ring>,
    /// Whether the current message removed translations.
    revoked: bool,
    /// Present if what is needed to restore the session is recorded.
    journal: Option<Journal>,
}

const STATUS_NEEDS_RESET: u8 = 0x40;
/// Smallest MTU of IPv4 links (RFC 791), and the largest that a virtio device can report.
const MTU: core::ops::RangeInclusive<u64> = 68..=65_535;

impl Session {
    /// A new connection.
    pub fn new(offer: Offer) -> Session {
        let rings = vec![Ring::default(); usize::from(offer.rings)];
        Session { offer, features: 0, protocol: 0, status: 0, rings, revoked: false, journal: None }
    }

    /// Records what is needed to restore the session in another process.
    pub fn record(&mut self) {
        self.journal = Some(Journal::default());
    }

    /// The message that is handled next was recorded under `key`.
    pub fn recorded(&mut self, key: u32) {
        self.journal.iter_mut().for_each(|journal| journal.former = Some(key));
    }

    /// The records that are new or changed since the last call, in this order.
    pub fn take_records(&mut self) -> Vec<Record> {
        let Some(journal) = &mut self.journal else { return Vec::new() };
        journal.former = None;
        std::mem::take(&mut journal.records)
    }

    /// The descriptors of the rings.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().flat_map(Ring::descriptors)
    }

    /// The negotiated features.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// The negotiated protocol features.
    pub fn protocol(&self) -> u64 {
        self.protocol
    }

    /// Handles one message. After an error the connection is unusable, and [`Session::end`] must be called.
    pub fn handle(&mut self, message: Message, device: &mut impl Device) -> Result<Outcome, SessionError> {
        let Message { header, payload, fds } = message;
        let request = header.request;
        if header.reply {
            return Err(SessionError::Unasked { request });
        }
        let note = self.journal.as_ref().map(|_| Note::of(request, &payload, &fds));
        let result = Request::decode(request, &payload, fds)
            .map_err(SessionError::from)
            .map(|message| (message.has_reply(), message))
            .and_then(|(has_reply, message)| Ok((has_reply, self.dispatch(message, device)?)));
        // Evaluated after handling: the message that negotiates acknowledgements can request one itself.
        let acknowledge = header.need_reply && self.protocol & protocol::REPLY_ACK != 0;
        let number = |value| Some(Reply::Number(value).encode(request));
        let revoked = std::mem::take(&mut self.revoked);
        if result.is_ok()
            && let (Some(journal), Some(note)) = (&mut self.journal, note)
        {
            journal.write(note, &self.rings);
        }
        match result {
            Ok((_, Some(reply))) => {
                Ok(Outcome { answer: Some(reply.encode(request)), refused: None, revoked })
            }
            Ok((false, None)) if acknowledge => Ok(Outcome { answer: number(0), refused: None, revoked }),
            Ok((_, None)) => Ok(Outcome { revoked, ..Outcome::default() }),
            Err(error) if acknowledge && error.is_refusal() => {
                Ok(Outcome { answer: number(1), refused: Some(error), revoked })
            }
            Err(error) => Err(error),
        }
    }

    /// Ends the connection: stops every ring.
    pub fn end(&mut self, device: &mut impl Device) {
        for index in 0..self.rings.len() {
            self.stop(index, device);
        }
    }

    fn dispatch(
        &mut self,
        message: Request,
        device: &mut impl Device,
    ) -> Result<Option<Reply>, SessionError> {
        let request = message.number();
        self.check_negotiated(&message)?;
        let refused = |reason| SessionError::Refused { request, reason };
        match message {
            Request::GetFeatures => return Ok(Some(Reply::Number(self.offered()))),
            Request::GetProtocolFeatures => return Ok(Some(Reply::Number(self.offer.protocol))),
            Request::GetQueueNum => return Ok(Some(Reply::Number(self.offer.queues.into()))),
            Request::GetMaxMemSlots => return Ok(Some(Reply::Number(self.offer.slots.into()))),
            Request::GetStatus => return Ok(Some(Reply::Number(self.status(device).into()))),
            Request::GetConfig(config) => return Ok(Some(Reply::Config(read_config(config, device)))),
            Request::GetVringBase(state) => {
                return self.vring_base(request, state, device).map(|state| Some(Reply::Vring(state)));
            }
            Request::SetFeatures(features) => self.set_features(request, features, device)?,
            Request::SetProtocolFeatures(features) => {
                let offered = self.offer.protocol;
                if features & !offered != 0 {
                    return Err(SessionError::Features { got: features, offered });
                }
                self.protocol = features;
            }
            Request::SetMemTable(table) => device.set_memory(table).map_err(refused)?,
            Request::AddMemReg(region) => device.add_region(region).map_err(refused)?,
            Request::RemMemReg(region) => device.remove_region(region).map_err(refused)?,
            Request::SetBackendReqFd(channel) => device.set_channel(channel),
            Request::IotlbMsg(change) => self.revoked = translate(change, device).map_err(refused)?,
            Request::SetLogBase(log, file) => {
                let file = file.ok_or(refused(Refused("the message has no log descriptor".into())))?;
                device.set_log(log, file).map_err(refused)?;
                // Always acknowledged: from the reply on, no thread writes to the previous log.
                return Ok(Some(Reply::Number(0)));
            }
            Request::SetLogFd(call) => device.set_log_call(call).map_err(refused)?,
            Request::SendRarp(address) => device.announce(address),
            Request::NetSetMtu(mtu) => {
                let mtu = Some(mtu).filter(|mtu| MTU.contains(mtu)).and_then(|mtu| mtu.try_into().ok());
                let mtu = mtu.ok_or(refused(Refused("the MTU is not from 68 to 65535".into())))?;
                device.set_mtu(mtu).map_err(refused)?;
            }
            Request::SetStatus(status) => self.set_status(status as u8, device),
            Request::ResetDevice => self.reset(device),
            Request::ResetOwner => self.disable_all(request, device)?,
            message => self.vring(request, message, device)?,
        }
        Ok(None)
    }

    /// The offered features. An IOMMU is offered only with acknowledgements and a channel for IOTLB misses:
    /// without them, as in User-Mode Linux, the driver would negotiate it although there are no translations.
    fn offered(&self) -> u64 {
        let needed = protocol::BACKEND_REQ | protocol::REPLY_ACK;
        let has_iommu = self.protocol & needed == needed;
        self.offer.features & if has_iommu { u64::MAX } else { !virtio::ACCESS_PLATFORM }
    }

    /// Refuses a message whose feature was not negotiated.
    fn check_negotiated(&self, message: &Request) -> Result<(), SessionError> {
        let (protocol, features) = match message {
            Request::GetQueueNum => (protocol::MQ, 0),
            Request::SetLogBase(..) | Request::SetLogFd(_) => (protocol::LOG_SHMFD, 0),
            Request::SendRarp(_) => (protocol::RARP, 0),
            Request::NetSetMtu(_) => (protocol::MTU, 0),
            Request::SetBackendReqFd(_) => (protocol::BACKEND_REQ, 0),
            Request::SetVringEndian(_) => (protocol::CROSS_ENDIAN, 0),
            Request::GetConfig(_) | Request::SetConfig(_) => (protocol::CONFIG, 0),
            Request::GetInflightFd(_) | Request::SetInflightFd(..) => (protocol::INFLIGHT_SHMFD, 0),
            Request::ResetDevice => (protocol::RESET_DEVICE, 0),
            Request::VringKick(_) => (protocol::INBAND_NOTIFICATIONS, 0),
            Request::GetMaxMemSlots | Request::AddMemReg(_) | Request::RemMemReg(_) => {
                (protocol::CONFIGURE_MEM_SLOTS, 0)
            }
            Request::SetStatus(_) | Request::GetStatus => (protocol::STATUS, 0),
            Request::IotlbMsg(_) => (0, virtio::ACCESS_PLATFORM),
            _ => (0, 0),
        };
        if self.protocol & protocol == protocol && self.features & features == features {
            return Ok(());
        }
        Err(SessionError::NotNegotiated { request: message.number() })
    }

    /// Handles messages about one ring.
    fn vring(
        &mut self,
        request: u32,
        message: Request,
        device: &mut impl Device,
    ) -> Result<(), SessionError> {
        let index = match message {
            Request::SetVringNum(state) => {
                let index = self.index(request, state.index)?;
                let size = Some(state.num).filter(|size| (1..=LARGEST).contains(size));
                let what = "size that is not from 1 to 32768";
                let size = size.ok_or(SessionError::Value { request, index, what })?;
                // User-Mode Linux removes rings without a message, so this may be a new ring.
                self.stop(index, device);
                self.rings[index].size = size as u16;
                index
            }
            Request::SetVringBase(state) => {
                let index = self.index(request, state.index)?;
                self.stop(index, device);
                self.rings[index].base = Some(self.base_from(request, index, state.num)?);
                index
            }
            Request::SetVringAddr(addr) => {
                let index = self.index(request, addr.index)?;
                self.rings[index].addresses = Some(addr);
                index
            }
            Request::SetVringKick(VringFd { index, fd }) => {
                let index = self.index(request, index)?;
                self.rings[index].kick = fd.map_or(Kick::Poll, |fd| Kick::Fd(Arc::new(fd)));
                index
            }
            Request::SetVringCall(VringFd { index, fd }) => {
                let index = self.index(request, index)?;
                self.rings[index].call = fd.map(Arc::new);
                index
            }
            Request::SetVringErr(VringFd { index, fd }) => {
                let index = self.index(request, index)?;
                self.rings[index].err = fd.map(Arc::new);
                index
            }
            Request::SetVringEnable(state) => {
                let index = self.index(request, state.index)?;
                if state.num > 1 {
                    let what = "state other than 0 or 1";
                    return Err(SessionError::Value { request, index, what });
                }
                self.rings[index].enabled = state.num == 1;
                index
            }
            // `SET_OWNER` has no effect beyond the connection itself.
            _ => return Ok(()),
        };
        self.update_device(request, index, device)
    }

    fn index(&self, request: u32, index: u32) -> Result<usize, SessionError> {
        let rings = self.rings.len();
        // Attack: an index that is truncated before it is compared (CVE-2020-10723).
        let found = usize::try_from(index).ok().filter(|&index| index < rings);
        found.ok_or(SessionError::Ring { request, index, rings })
    }

    fn base_from(&self, request: u32, index: usize, num: u32) -> Result<u16, SessionError> {
        if self.features & virtio::RING_PACKED != 0 {
            // The upper half is the used position, which some front-ends omit. It equals the available
            // position, since a stopped ring has no buffers in flight.
            return Ok((num & 0xffff) as u16);
        }
        let what = "index of more than 16 bits";
        u16::try_from(num).map_err(|_| SessionError::Value { request, index, what })
    }

    fn vring_base(
        &mut self,
        request: u32,
        state: VringState,
        device: &mut impl Device,
    ) -> Result<VringState, SessionError> {
        let index = self.index(request, state.index)?;
        self.stop(index, device);
        // The ring starts again when its kick descriptor is set.
        self.rings[index].kick = Kick::Unset;
        let base = u32::from(self.rings[index].position(self.features));
        let packed = self.features & virtio::RING_PACKED != 0;
        Ok(VringState { index: state.index, num: if packed { base | base << 16 } else { base } })
    }

    fn set_features(
        &mut self,
        request: u32,
        features: u64,
        device: &mut impl Device,
    ) -> Result<(), SessionError> {
        let offered = self.offered();
        if features & !offered != 0 {
            return Err(SessionError::Features { got: features, offered });
        }
        let changes = features ^ self.features;
        if changes & (virtio::RING_PACKED | virtio::ACCESS_PLATFORM) != 0 {
            // Attack: changing the format, or the address space, of a running ring. If the new addresses were
            // invalid, the ring would keep running at the previous ones, which can't be unmapped any more.
            self.end(device);
        }
        if changes & virtio::RING_PACKED != 0 {
            self.rings.iter_mut().for_each(|ring| (ring.base, ring.stopped) = (None, None));
        }
        device.set_features(features).map_err(|reason| SessionError::Refused { request, reason })?;
        self.features = features;
        // Negotiating `VHOST_USER_F_PROTOCOL_FEATURES` changes whether rings are enabled.
        (0..self.rings.len()).try_for_each(|index| self.update_device(request, index, device))
    }

    fn status(&self, device: &impl Device) -> u8 {
        if device.needs_reset() { self.status | STATUS_NEEDS_RESET } else { self.status }
    }

    fn set_status(&mut self, status: u8, device: &mut impl Device) {
        // Zero resets the device (virtio 1.3, 2.1). Positions are kept: the front-end may still request them.
        if status == 0 && self.status != 0 {
            self.end(device);
        }
        self.status = status;
    }

    /// Resets the device's state, but not the connection's: memory, protocol features, call and error
    /// descriptors.
    fn reset(&mut self, device: &mut impl Device) {
        self.end(device);
        self.status = 0;
        for ring in &mut self.rings {
            *ring = Ring { call: ring.call.take(), err: ring.err.take(), ..Ring::default() };
        }
    }

    fn disable_all(&mut self, request: u32, device: &mut impl Device) -> Result<(), SessionError> {
        self.rings.iter_mut().for_each(|ring| ring.enabled = false);
        (0..self.rings.len()).try_for_each(|index| self.update_device(request, index, device))
    }

    fn stop(&mut self, index: usize, device: &mut impl Device) {
        let ring = &mut self.rings[index];
        if std::mem::take(&mut ring.running) {
            ring.stopped = Some(device.stop(index));
            (ring.kick, ring.base) = (Kick::Unset, None);
        }
    }

    /// Updates the device with a ring's settings. The ring starts as soon as it has a size, addresses and a
    /// kick descriptor.
    fn update_device(
        &mut self,
        request: u32,
        index: usize,
        device: &mut impl Device,
    ) -> Result<(), SessionError> {
        let ring = &mut self.rings[index];
        if !ring.is_ready() {
            return Ok(());
        }
        if let Some(what) = ring.fault(self.features) {
            return Err(SessionError::Value { request, index, what });
        }
        let mut settings = ring.clone();
        // Without protocol features, rings are enabled when they start.
        settings.enabled |= self.features & virtio::PROTOCOL_FEATURES == 0;
        let result =
            if ring.running { device.update(index, &settings) } else { device.start(index, &settings) };
        ring.running = ring.running || result.is_ok();
        result.map_err(|reason| SessionError::Refused { request, reason })
    }
}

fn translate(change: Iotlb, device: &mut impl Device) -> Result<bool, Refused> {
    match change.kind {
        Iotlb::UPDATE | Iotlb::INVALIDATE => device.translate(change),
        _ => Err(Refused("a front-end sends only updates and invalidations".into())),
    }
}

fn read_config(mut config: Config, device: &impl Device) -> Config {
    debug_assert!(config.bytes.len() <= CONFIG);
    device.read_config(config.offset, &mut config.bytes);
    config
}

impl SessionError {
    /// Whether the session can continue after a reply that reports the error.
    fn is_refusal(&self) -> bool {
        matches!(
            self,
            SessionError::NotNegotiated { .. }
                | SessionError::Refused { .. }
                | SessionError::Codec(CodecError::Unknown { .. })
        )
    }
}
