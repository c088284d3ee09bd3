//! Runs unmodified programs with a network of their own: `ringway exec`.
//!
//! A program runs in new network and mount namespaces. Its network is a [`Device`]: a ring port of a fabric, or an
//! interface of the host behind an emulated link. There are three ways to it:
//!
//! | [`Mode`] | the program's sockets |
//! |---|---|
//! | `Kernel` | are the kernel's; the frames of an interface in the namespace go to the device, and back (`bridge`) |
//! | `Linux` | are those of User-Mode Linux, in which the program runs over the host's files (`linux`) |
//! | `Native` | are served by an [`agent`], with the TCP/IP stack of `ringway-netstack` on the device |
//!
//! Read `run.rs` first, then `agent/mod.rs`.

pub mod agent;
mod bridge;
mod direct;
mod emulated;
mod kernel_sockets;
mod limits;
mod linux;
mod run;
mod standby;
pub mod sysctl;
mod user_network;

pub use agent::algorithm;
pub use emulated::Emulated;
pub use limits::Limit;
pub use linux::{Linux, LinuxError, be_first_process};
pub use ringway_host::LaunchError;
pub use ringway_link::Profile;
pub use ringway_netstack::{Cidr, Settings};
pub use ringway_sockets::query;
pub use ringway_sockets::{Device, RingDevice, RingRequest, TapDevice, TapSettings};
pub use run::{Direct, Ended, ExecError, Mode, Options, Prepared, prepare};
pub use standby::{Attachment, Link};
pub use user_network::{UserNetwork, UserNetworkConfig, name_server};
