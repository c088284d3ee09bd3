//! Models of network cards: register files and descriptor rings, without sockets or system calls.
//!
//! A model has three parts that different threads use, each behind a trait. [`Chip`] is the session's: configuration
//! space and registers, accessed as the guest does. [`Transmit`] and [`Receive`] are the workers': bursts of borrowed
//! frames from the transmit ring and into the receive ring, in the order take, reserve, put, release, publish. They
//! share a structure with atomics. Time is an argument everywhere. Interrupts are returned as [`Raise`], for the caller
//! to send. [`Techniques`] are what makes a model fast, each with its own switch.
//!
//! Absent in [`e1000`]: the second queues and the precision clock of the 82574L, the split of headers from the rest
//! (descriptors for it are filled in order), wakeup, flow control, offloads in loopback, and writes to the EEPROM. A
//! segmented frame counts once in the statistics; missed frames (MPC) are counted by the worker instead.
//!
//! A model of that family is a folder as [`i82540em`]; another family is a folder beside [`e1000`], as [`rtl8139`] is:
//! its registers, and what `engine/` asks of a family, since the engines of descriptor rings are the same for all.
//! [`shared_ring`] is no card: a device whose memory is a program's ring. Read `e1000/nic.rs` first, then
//! `engine/mod.rs`.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod chip;
pub mod csb;
mod descriptor_ring;
mod device;
pub mod e1000;
mod engine;
pub mod i82540em;
pub mod i82574l;
mod microwire;
pub mod pci;
pub mod pcnet;
mod pieces;
pub mod rtl8139;
pub mod shared_ring;
mod techniques;

pub use chip::{Chip, Model, Receive, Settings, Transmit};
pub use device::{Access, Accesses, Area, Bus, Effects, Host, Raise};
pub use techniques::{Doorbells, Techniques};
