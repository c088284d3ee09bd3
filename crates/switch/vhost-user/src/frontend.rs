//! The front-end side of a connection, for tests and load generators.

use crate::codec::CodecError;
use crate::feature::{protocol, virtio};
use crate::header::{Packet, name};
use crate::inbox::{Inbox, Message};
use crate::payload::{Config, SharedRegion, VringAddr, VringFd, VringState};
use crate::reply::Reply;
use crate::request::Request;
use std::io;
use std::os::fd::OwnedFd;

/// A blocking transport to the back-end.
pub trait Transport {
    /// Sends a whole message.
    fn send(&mut self, packet: Packet) -> io::Result<()>;
    /// Receives at least one byte, or none if the back-end closed the connection, and descriptors sent with
    /// them.
    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)>;
}

/// Why a front-end's request failed.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    /// The connection failed.
    #[error("the connection to the back-end failed: {0}")]
    Io(#[from] io::Error),
    /// The back-end closed the connection.
    #[error("the back-end closed the connection")]
    Closed,
    /// The reply is not a valid message.
    #[error("invalid reply of the back-end: {0}")]
    Codec(#[from] CodecError),
    /// The reply does not match the request.
    #[error("the back-end's reply to {} does not match", name(*request))]
    Mismatch {
        /// Number of the request.
        request: u32,
    },
    /// The back-end refused the request.
    #[error("the back-end refused {} with code {code}", name(*request))]
    Refused {
        /// Number of the request.
        request: u32,
        /// The value of the reply.
        code: u64,
    },
}

/// Parameters of a ring.
#[derive(Debug)]
pub struct Vring {
    /// Descriptors.
    pub size: u16,
    /// Addresses of the ring's areas, and the ring's index.
    pub addresses: VringAddr,
    /// Start position, as in the protocol's `SET_VRING_BASE`.
    pub base: u32,
    /// Kick descriptor; `None` if the back-end polls.
    pub kick: Option<OwnedFd>,
    /// Call descriptor; `None` if the front-end polls.
    pub call: Option<OwnedFd>,
}

/// A connection to a back-end.
#[derive(Debug)]
pub struct Frontend<T> {
    transport: T,
    inbox: Inbox,
    features: u64,
    protocol: u64,
}

impl<T: Transport> Frontend<T> {
    /// Negotiates the features among `features` and `protocol` that the back-end offers.
    pub fn negotiate(transport: T, features: u64, protocol: u64) -> Result<Frontend<T>, FrontendError> {
        let mut front = Frontend { transport, inbox: Inbox::default(), features: 0, protocol: 0 };
        let mut offered = front.number(Request::GetFeatures)?;
        if offered & virtio::PROTOCOL_FEATURES != 0 {
            front.protocol = front.number(Request::GetProtocolFeatures)? & protocol;
            front.set(Request::SetProtocolFeatures(front.protocol))?;
            // Some features are offered only after their prerequisites are negotiated.
            offered = front.number(Request::GetFeatures)?;
        }
        front.set(Request::SetOwner)?;
        front.features = offered & (features | virtio::PROTOCOL_FEATURES);
        front.set(Request::SetFeatures(front.features))?;
        Ok(front)
    }

    /// The negotiated features.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// The negotiated protocol features.
    pub fn protocol(&self) -> u64 {
        self.protocol
    }

    /// The transport to the back-end.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Shares memory with the back-end.
    pub fn set_memory(&mut self, table: Vec<SharedRegion>) -> Result<(), FrontendError> {
        self.set(Request::SetMemTable(table))
    }

    /// Sets up, starts and enables a ring.
    pub fn start(&mut self, ring: Vring) -> Result<(), FrontendError> {
        let index = ring.addresses.index;
        self.set(Request::SetVringNum(VringState { index, num: ring.size.into() }))?;
        self.set(Request::SetVringBase(VringState { index, num: ring.base }))?;
        self.set(Request::SetVringAddr(ring.addresses))?;
        self.set(Request::SetVringCall(VringFd { index, fd: ring.call }))?;
        self.set(Request::SetVringKick(VringFd { index, fd: ring.kick }))?;
        if self.features & virtio::PROTOCOL_FEATURES != 0 {
            self.enable(index, true)?;
        }
        Ok(())
    }

    /// Enables or disables a ring.
    pub fn enable(&mut self, index: u32, enabled: bool) -> Result<(), FrontendError> {
        self.set(Request::SetVringEnable(VringState { index, num: enabled.into() }))
    }

    /// Stops a ring; returns the ring's position.
    pub fn stop(&mut self, index: u32) -> Result<u32, FrontendError> {
        let request = Request::GetVringBase(VringState { index, num: 0 });
        let number = request.number();
        match self.query(request)? {
            Reply::Vring(state) if state.index == index => Ok(state.num),
            _ => Err(FrontendError::Mismatch { request: number }),
        }
    }

    /// Reads the configuration space.
    pub fn config(&mut self, offset: u32, len: usize) -> Result<Vec<u8>, FrontendError> {
        let request = Request::GetConfig(Config { offset, flags: 0, bytes: vec![0; len] });
        let number = request.number();
        match self.query(request)? {
            Reply::Config(config) => Ok(config.bytes),
            _ => Err(FrontendError::Mismatch { request: number }),
        }
    }

    /// Sends a request whose reply is a number.
    pub fn number(&mut self, request: Request) -> Result<u64, FrontendError> {
        let number = request.number();
        match self.query(request)? {
            Reply::Number(value) => Ok(value),
            _ => Err(FrontendError::Mismatch { request: number }),
        }
    }

    /// Sends a request; waits for its acknowledgement if that was negotiated.
    pub fn set(&mut self, request: Request) -> Result<(), FrontendError> {
        let number = request.number();
        let acknowledged = self.protocol & protocol::REPLY_ACK != 0;
        let has_reply = acknowledged || request.has_reply();
        self.transport.send(request.encode(acknowledged))?;
        if !has_reply {
            return Ok(());
        }
        match self.receive_reply(number)? {
            Reply::Number(0) => Ok(()),
            Reply::Number(code) => Err(FrontendError::Refused { request: number, code }),
            _ => Err(FrontendError::Mismatch { request: number }),
        }
    }

    /// Sends several requests, then waits for all acknowledgements.
    pub fn set_all(&mut self, requests: Vec<Request>) -> Result<(), FrontendError> {
        let numbers: Vec<u32> = requests.iter().map(Request::number).collect();
        let acknowledged = self.protocol & protocol::REPLY_ACK != 0;
        for request in requests {
            self.transport.send(request.encode(acknowledged))?;
        }
        for request in numbers.into_iter().filter(|_| acknowledged) {
            match self.receive_reply(request)? {
                Reply::Number(0) => {}
                Reply::Number(code) => return Err(FrontendError::Refused { request, code }),
                _ => return Err(FrontendError::Mismatch { request }),
            }
        }
        Ok(())
    }

    fn query(&mut self, request: Request) -> Result<Reply, FrontendError> {
        let number = request.number();
        self.transport.send(request.encode(false))?;
        self.receive_reply(number)
    }

    fn receive_reply(&mut self, request: u32) -> Result<Reply, FrontendError> {
        loop {
            let (count, fds) = self.transport.receive(self.inbox.space())?;
            if count == 0 {
                return Err(FrontendError::Closed);
            }
            let Some(Message { header, payload, fds }) = self.inbox.filled(count, fds)? else {
                continue;
            };
            if !header.reply || header.request != request {
                return Err(FrontendError::Mismatch { request });
            }
            return Ok(Reply::decode(request, &payload, fds)?);
        }
    }
}
