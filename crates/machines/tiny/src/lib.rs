//! The tiny guest's roles, drivers and functions, which need no operating system; the images are `main.rs` and
//! `click.rs`.
//!
//! A role: the guest's command line names a [`Role`] and its settings; [`run`] plays the role on a [`NetDevice`] and
//! reports with one line of text. Read `role.rs` first. A function: [`FunctionStart`] has a Click configuration, which
//! `function` runs between ring ports; [`channel`] is how it and the monitor talk. Read `function/mod.rs` first.
//! [`stock`] is its machine under another monitor.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod card_memory;
pub mod channel;
mod clock;
#[cfg(feature = "stock")]
mod device;
mod e1000;
mod frame;
// Elsewhere there is no thread that owns a guest's state; only the image and tests run functions.
#[cfg(all(feature = "click", any(test, feature = "image")))]
pub mod function;
#[cfg(all(feature = "image", target_arch = "x86_64"))]
pub mod image;
mod monitor;
mod net_device;
mod owned_rings;
mod pcnet;
mod program;
mod role;
mod rtl8139;
mod settings;
mod slot_ring;
mod start;
#[cfg(feature = "stock")]
pub mod stock;

pub use clock::GuestTime;
#[cfg(feature = "stock")]
pub use device::{Device, Pushed};
pub use e1000::{E1000, Mapped, Registers};
pub use monitor::Monitor;
pub use net_device::{NetDevice, NetDeviceError};
pub use owned_rings::OwnedRings;
pub use pcnet::Pcnet;
pub use program::ProgramRing;
pub use role::{Machine, Resumed, run};
pub use rtl8139::Rtl8139;
pub use settings::{Role, Settings, SettingsError};
pub use slot_ring::{Doorbell, SlotRing};
pub use start::{FunctionStart, NOTE, VERSION};
