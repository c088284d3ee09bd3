//! What a fabric is made of, described once: the fabric file is read into these types, the API and the link between
//! `control` and `data` carry them.
//!
//! Plain data with serde, no I/O. Durations are nanoseconds and sizes are bytes, unless a field says otherwise;
//! [`file::units`] reads and shows them as people write them. Start with [`Port`].
#![forbid(unsafe_code)]

pub mod file;
mod function;
mod guest;
mod notify;
mod port;
mod switch;
mod worker;

pub use function::{Configuration, Function};
pub use guest::{Guest, GuestKind};
pub use ipnet::IpNet;
pub use notify::Notify;
pub use port::{Kind, Port, Socket, To};
pub use ringway_wire::MacAddress;
pub use switch::Switch;
pub use worker::{Poll, Worker};

use serde::{Deserialize, Serialize};

/// Pages for memory that Ringway allocates itself: rings of programs, memory of guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HugePages {
    /// Huge pages if there are free ones.
    #[default]
    Auto,
    /// 2 MB pages.
    Mb2,
    /// 1 GB pages.
    Gb1,
    /// Ordinary pages.
    Off,
}
