//! vhost-user messages and session state, front-end and back-end (vhost-user protocol, QEMU's
//! `docs/interop/vhost-user.rst`). The crate does no I/O: callers send and receive the bytes and descriptors.
//!
//! [`Session`] is the back-end: it decodes messages, keeps the session state, and calls a [`Device`].
//! [`Frontend`] is the front-end, for tests and load generators. [`Inbox`] splits the byte stream into
//! messages. Read `session.rs` first.
//!
//! The other end is not trusted: sizes are checked before anything is stored, and the number of descriptors
//! per message is limited; unexpected descriptors are closed.

mod backend_request;
mod codec;
pub mod feature;
mod frontend;
mod header;
mod inbox;
mod journal;
mod payload;
mod reply;
mod request;
mod ring_state;
mod session;

pub use backend_request::BackendRequest;
pub use codec::CodecError;
pub use frontend::{Frontend, FrontendError, Transport, Vring};
pub use header::{DESCRIPTORS, HEADER, Header, PAYLOAD, Packet, name};
pub use inbox::{Inbox, Message};
pub use journal::{RECORD_KEYS, Record, UNRESTORABLE};
pub use payload::{
    BASELINE_REGIONS, CONFIG, Config, Inflight, Iotlb, Log, MemoryRegion, SharedRegion, VringAddr, VringFd,
    VringState,
};
pub use reply::Reply;
pub use request::Request;
pub use ring_state::{Kick, Ring};
pub use session::{Device, Offer, Outcome, Refused, Session, SessionError};
