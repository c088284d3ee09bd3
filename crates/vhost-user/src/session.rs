//! The back-end's side of a connection.

use crate::codec::CodecError;
use crate::feature::{protocol, virtio};
use crate::header::{Packet, name};
use crate::inbox::Message;
use crate::payload::{CONFIG, Config, Iotlb, Log, MemoryRegion, SharedRegion, VringFd, VringState};
use crate::reply::Reply;
use crate::request::Request;
use crate::ring::{Kick, LARGEST, Ring};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What a back-end offers. It must be the same when a front-end connects again.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Feature bits of [`virtio`].
    pub features: u64,
    /// Protocol feature bits of [`protocol`].
    pub protocol: u64,
    /// Rings; two a queue pair, and maybe one for control.
    pub rings: u16,
    /// What is told as number of queues: for network devices, pairs.
    pub queues: u16,
    /// Memory regions that can be added one by one.
    pub slots: u16,
}

/// A request that can't be met, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// What a session has done to the device. Calls that return have taken effect: no worker uses what was there
/// before.
pub trait Device {
    /// These features were agreed. Rings that run are told one by one afterwards.
    fn set_features(&mut self, features: u64) -> Result<(), Refused>;
    /// The guest's whole memory is this.
    fn set_memory(&mut self, table: Vec<SharedRegion>) -> Result<(), Refused>;
    /// One more region.
    fn add_region(&mut self, region: SharedRegion) -> Result<(), Refused>;
    /// One region less.
    fn remove_region(&mut self, region: MemoryRegion) -> Result<(), Refused>;
    /// A ring begins to run at its position.
    fn start(&mut self, index: usize, ring: &Ring) -> Result<(), Refused>;
    /// Something about a running ring changed; it goes on where it is.
    fn update(&mut self, index: usize, ring: &Ring) -> Result<(), Refused>;
    /// A ring stops. Returns its position, as in [`Ring::base`].
    fn stop(&mut self, index: usize) -> u16;
    /// Reads the configuration space; what lies behind its end reads as zero.
    fn read_config(&self, offset: u32, bytes: &mut [u8]);
    /// The front-end's limit for frames.
    fn set_mtu(&mut self, mtu: u16) -> Result<(), Refused>;
    /// The front-end listens to requests of ours here.
    fn set_channel(&mut self, channel: OwnedFd);
    /// What is written into the guest's memory is logged in this part of a file from now on, as far as features and
    /// rings ask for it.
    fn set_log(&mut self, log: Log, file: OwnedFd) -> Result<(), Refused>;
    /// The front-end hears here that there is something new in the log.
    fn set_log_call(&mut self, call: OwnedFd) -> Result<(), Refused>;
    /// The guest moved here: its address is to be made known.
    fn announce(&mut self, address: [u8; 6]);
    /// A translation of the device's addresses is granted ([`Iotlb::UPDATE`]) or taken back ([`Iotlb::INVALIDATE`]).
    /// `true`: something was taken back, which takes effect only when every worker has ended its turn; whoever sends
    /// the answer waits for that.
    fn translate(&mut self, change: Iotlb) -> Result<bool, Refused>;
    /// Whether a ring broke, so that the driver must reset the device.
    fn needs_reset(&self) -> bool;
}

/// Why a session can't go on, or what it refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The bytes aren't a message.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// An answer to nothing.
    #[error("message {} is an answer, but nothing was asked", name(*request))]
    Unasked {
        /// Its number.
        request: u32,
    },
    /// Features that were never offered.
    #[error("the front-end sets features {got:#x}, of which {offered:#x} are offered")]
    Features {
        /// What it set.
        got: u64,
        /// What it may set.
        offered: u64,
    },
    /// A ring that doesn't exist.
    #[error("message {} is about ring {index}, but there are {rings}", name(*request))]
    Ring {
        /// Number of the message.
        request: u32,
        /// The ring it names.
        index: u32,
        /// How many there are.
        rings: usize,
    },
    /// A value that a ring can't have.
    #[error("message {} gives ring {index} a {what}", name(*request))]
    Value {
        /// Number of the message.
        request: u32,
        /// The ring it names.
        index: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A message that belongs to a protocol feature that was not agreed.
    #[error("message {} needs a feature that was not agreed", name(*request))]
    NotAgreed {
        /// Number of the message.
        request: u32,
    },
    /// The device can't do it.
    #[error("message {}: {reason}", name(*request))]
    Refused {
        /// Number of the message.
        request: u32,
        /// Why not.
        reason: Refused,
    },
}

/// What came of a message.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What to send.
    pub answer: Option<Packet>,
    /// What was refused, where the front-end asked to be told and so may go on.
    pub refused: Option<SessionError>,
    /// The answer, and those after it, may be sent only when every worker has ended the turn it is in.
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
    /// The message in hand took translations back.
    revoked: bool,
}

const STATUS_NEEDS_RESET: u8 = 0x40;
/// MTU that IPv4 asks of every link (RFC 791), and the largest a virtio device can tell.
const MTU: core::ops::RangeInclusive<u64> = 68..=65_535;

impl Session {
    /// A connection on which nothing was said.
    pub fn new(offer: Offer) -> Session {
        let rings = vec![Ring::default(); usize::from(offer.rings)];
        Session { offer, features: 0, protocol: 0, status: 0, rings, revoked: false }
    }

    /// Features that were agreed.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Protocol features that were agreed.
    pub fn protocol(&self) -> u64 {
        self.protocol
    }

    /// Handles one message. After an error the connection is of no use; [`Session::end`] follows.
    pub fn handle(&mut self, message: Message, device: &mut impl Device) -> Result<Outcome, SessionError> {
        let Message { header, payload, fds } = message;
        let request = header.request;
        if header.reply {
            return Err(SessionError::Unasked { request });
        }
        let result = Request::decode(request, &payload, fds)
            .map_err(SessionError::from)
            .map(|message| (message.is_question(), message))
            .and_then(|(question, message)| Ok((question, self.dispatch(message, device)?)));
        // Looked at afterwards, since the message that agrees on acknowledgements can ask for one itself.
        let acknowledge = header.need_reply && self.protocol & protocol::REPLY_ACK != 0;
        let number = |value| Some(Reply::Number(value).encode(request));
        let revoked = std::mem::take(&mut self.revoked);
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

    /// The connection is over: every ring stops.
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
        self.agreed(&message)?;
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
                let file = file.ok_or(refused(Refused("the log has no descriptor".into())))?;
                device.set_log(log, file).map_err(refused)?;
                // Always answered: when the front-end has read that, nobody writes into the former log.
                return Ok(Some(Reply::Number(0)));
            }
            Request::SetLogFd(call) => device.set_log_call(call).map_err(refused)?,
            Request::SendRarp(address) => device.announce(address),
            Request::NetSetMtu(mtu) => {
                let mtu = Some(mtu).filter(|mtu| MTU.contains(mtu)).and_then(|mtu| mtu.try_into().ok());
                let mtu = mtu.ok_or(refused(Refused("no link has such an MTU".into())))?;
                device.set_mtu(mtu).map_err(refused)?;
            }
            Request::SetStatus(status) => self.set_status(status as u8, device),
            Request::ResetDevice => self.reset(device),
            Request::ResetOwner => self.disable_all(request, device)?,
            message => self.vring(request, message, device)?,
        }
        Ok(None)
    }

    /// What is offered. An IOMMU needs a channel on which translations are asked for, and acknowledgements; and a
    /// front-end that has neither, such as User-Mode Linux's, would have its guest's driver agree to one though nobody
    /// translates.
    fn offered(&self) -> u64 {
        let needs = protocol::BACKEND_REQ | protocol::REPLY_ACK;
        let agreed = self.protocol & needs == needs;
        self.offer.features & if agreed { u64::MAX } else { !virtio::ACCESS_PLATFORM }
    }

    /// Refuses a message whose feature was not agreed.
    fn agreed(&self, message: &Request) -> Result<(), SessionError> {
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
        Err(SessionError::NotAgreed { request: message.number() })
    }

    /// Messages about one ring.
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
                let what = "size that no ring has";
                let size = size.ok_or(SessionError::Value { request, index, what })?;
                // User-Mode Linux tears rings down without a word; this is where the next life of one begins.
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
                    let what = "state that is neither enabled nor disabled";
                    return Err(SessionError::Value { request, index, what });
                }
                self.rings[index].enabled = state.num == 1;
                index
            }
            // `SET_OWNER` says nothing that the connection itself doesn't.
            _ => return Ok(()),
        };
        self.settle(request, index, device)
    }

    fn index(&self, request: u32, index: u32) -> Result<usize, SessionError> {
        let rings = self.rings.len();
        // Attack: an index is compared whole, before it is made any narrower (CVE-2020-10723).
        let found = usize::try_from(index).ok().filter(|&index| index < rings);
        found.ok_or(SessionError::Ring { request, index, rings })
    }

    fn base_from(&self, request: u32, index: usize, num: u32) -> Result<u16, SessionError> {
        if self.features & virtio::RING_PACKED != 0 {
            // The upper half is where the used index stood. Everything is used when a ring stops, and
            // front-ends leave the half out, so the two are the same.
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
        // It starts again when it gets a kick descriptor again.
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
            // Attack: a ring that changes its layout while it runs, or what its addresses mean. Where the new ones lead
            // nowhere it would go on by those before, though nothing of them can be taken back any more.
            self.end(device);
        }
        if changes & virtio::RING_PACKED != 0 {
            self.rings.iter_mut().for_each(|ring| (ring.base, ring.stopped) = (None, None));
        }
        device.set_features(features).map_err(|reason| SessionError::Refused { request, reason })?;
        self.features = features;
        // Rings are enabled or not by whether protocol features were agreed, so each is looked at again.
        (0..self.rings.len()).try_for_each(|index| self.settle(request, index, device))
    }

    fn status(&self, device: &impl Device) -> u8 {
        if device.needs_reset() { self.status | STATUS_NEEDS_RESET } else { self.status }
    }

    fn set_status(&mut self, status: u8, device: &mut impl Device) {
        // Zero resets the device (virtio 1.3, 2.1). Positions stay, since the front-end may still ask for
        // them.
        if status == 0 && self.status != 0 {
            self.end(device);
        }
        self.status = status;
    }

    /// Back to the beginning, but for what belongs to the connection: memory, protocol features, call
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
        (0..self.rings.len()).try_for_each(|index| self.settle(request, index, device))
    }

    fn stop(&mut self, index: usize, device: &mut impl Device) {
        let ring = &mut self.rings[index];
        if std::mem::take(&mut ring.running) {
            ring.stopped = Some(device.stop(index));
            (ring.kick, ring.base) = (Kick::Unset, None);
        }
    }

    /// Brings the device up to what is now known of a ring: it starts once it has a size, addresses and a
    /// kick.
    fn settle(&mut self, request: u32, index: usize, device: &mut impl Device) -> Result<(), SessionError> {
        let ring = &mut self.rings[index];
        if !ring.is_ready() {
            return Ok(());
        }
        if let Some(what) = ring.fault(self.features) {
            return Err(SessionError::Value { request, index, what });
        }
        let mut view = ring.clone();
        // Without protocol features there is no message that enables a ring.
        view.enabled |= self.features & virtio::PROTOCOL_FEATURES == 0;
        let result = if ring.running { device.update(index, &view) } else { device.start(index, &view) };
        ring.running = ring.running || result.is_ok();
        result.map_err(|reason| SessionError::Refused { request, reason })
    }
}

fn translate(change: Iotlb, device: &mut impl Device) -> Result<bool, Refused> {
    match change.kind {
        Iotlb::UPDATE | Iotlb::INVALIDATE => device.translate(change),
        _ => Err(Refused("only a back-end misses translations".into())),
    }
}

fn read_config(mut config: Config, device: &impl Device) -> Config {
    debug_assert!(config.bytes.len() <= CONFIG);
    device.read_config(config.offset, &mut config.bytes);
    config
}

impl SessionError {
    /// Whether the stream is still understood, so that "no" is an answer.
    fn is_refusal(&self) -> bool {
        matches!(
            self,
            SessionError::NotAgreed { .. }
                | SessionError::Refused { .. }
                | SessionError::Codec(CodecError::Unknown { .. })
        )
    }
}
