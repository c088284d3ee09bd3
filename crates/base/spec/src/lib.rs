//! The parts of a fabric, described once: the fabric file is read into these types, and the API and the
//! messages between `control` and `data` contain them.
//!
//! Plain data with serde, no I/O. Durations are in nanoseconds and sizes in bytes, unless a field says
//! otherwise; [`file::units`] parses and formats them. [`names`] and [`addresses`] check what people write. Read
//! `port.rs` first.
#![forbid(unsafe_code)]

pub mod addresses;
mod chain;
mod exec_program;
pub mod file;
mod function;
mod guest;
mod host;
mod instances;
mod line_limit;
pub mod names;
mod notify;
mod policy;
mod port;
mod printable;
pub mod svg;
mod switch;
mod worker;

pub use chain::Chain;
pub use exec_program::{ExecProgram, ProgramStack, Restart};
pub use function::{Configuration, Function, Image, Isolation, Program};
pub use guest::{Guest, GuestKind};
pub use host::Host;
pub use instances::{Instance, InstanceEnd, Instances, MOST_INSTANCES};
pub use ipnet::IpNet;
pub use line_limit::LineLimit;
pub use notify::Notify;
pub use policy::{Mirror, Mirrored, Policy, Rate, Vlans};
pub use port::{Kind, Port, Socket, To};
pub use printable::{printable, printable_json, printable_lines, printable_xml};
pub use ringway_wire::MacAddress;
/// Why settings are not those of a kind ([`Kind::settings`]).
pub use serde_json::Error as SettingsError;
pub use switch::{Snooping, Switch};
pub use worker::{Poll, Worker};

use serde::{Deserialize, Serialize};

/// Page size of memory that Ringway allocates: rings of programs, memory of guests.
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
