//! vhost-user messages and session state, both ends, without sockets: bytes and descriptors in, bytes and
//! descriptors out (vhost-user protocol, QEMU's `docs/interop/vhost-user.rst`).
//!
//! [`Session`] is the back-end's end: it reads messages, keeps what they say, and tells a [`Device`] what to
//! do. [`Frontend`] is the other end, for tests and load generators. [`Inbox`] cuts the byte stream into
//! messages.
//!
//! The other end is not trusted. Sizes are bounded before anything is stored, descriptors are counted per
//! message, and a descriptor that nobody asked for is closed by being dropped.

mod backend_request;
mod codec;
pub mod feature;
mod frontend;
mod header;
mod inbox;
mod payload;
mod reply;
mod request;
mod ring;
mod session;

pub use backend_request::BackendRequest;
pub use codec::CodecError;
pub use frontend::{Frontend, FrontendError, Transport, Vring};
pub use header::{DESCRIPTORS, HEADER, Header, PAYLOAD, Packet, name};
pub use inbox::{Inbox, Message};
pub use payload::{
    BASELINE_REGIONS, CONFIG, Config, Inflight, Iotlb, Log, MemoryRegion, SharedRegion, VringAddr, VringFd,
    VringState,
};
pub use reply::Reply;
pub use request::Request;
pub use ring::{Kick, Ring};
pub use session::{Device, Offer, Outcome, Refused, Session, SessionError};
