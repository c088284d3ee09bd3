//! vfio-user messages and session state, both ends, without sockets: bytes and descriptors in, bytes and
//! descriptors out (vfio-user protocol, QEMU's `docs/interop/vfio-user.rst`).
//!
//! [`Session`] is the server: it decodes messages, keeps the session state, and calls a [`Device`].
//! [`Client`] is the other end, for tests and monitors. [`Inbox`] splits the byte stream into messages. Read
//! `session.rs` first.
//!
//! The other end is not trusted. Sizes are limited before anything is stored, descriptors are counted per
//! message, and unexpected descriptors are closed by being dropped.

mod client;
mod codec;
pub mod errno;
mod header;
mod inbox;
mod irq;
mod payload;
pub mod pci;
mod region;
mod request;
mod session;
mod version;

pub use client::{Client, ClientError, Transport};
pub use codec::CodecError;
pub use header::{DESCRIPTORS, HEADER, Header, Kind, PAYLOAD, Packet, TRANSFER, command, name};
pub use inbox::{Inbox, Message};
pub use irq::{Irq, IrqAction, IrqData, IrqType, SetIrqs};
pub use payload::{Access, Area, DeviceInfo, DmaMap, DmaUnmap, IrqInfo, RegionInfo, RegionIoFds, Write};
pub use region::{Mapping, Region, RegionDoorbell, SharedRegion};
pub use request::Request;
pub use session::{Device, DmaRange, Offer, Outcome, Refused, Session, SessionError};
pub use version::Capabilities;
