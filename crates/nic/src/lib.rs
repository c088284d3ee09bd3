//! Models of network cards: register files and descriptor rings, without sockets or system calls.
//!
//! A model has three parts that different threads use. [`e1000::Nic`] is the session's: configuration space and
//! registers, accessed as the guest does. [`e1000::TxEngine`] and [`e1000::RxEngine`] are the workers': bursts of
//! borrowed frames from the transmit ring and into the receive ring, in the order take, reserve, put, release,
//! publish. They share [`e1000::Shared`], through atomics. Time is an argument everywhere. Interrupts are returned
//! as [`e1000::Raise`], for the caller to send. [`Techniques`] are what makes a model fast, each with its own switch.
//!
//! Absent: the second queues and the precision clock of the 82574L, the split of headers from the rest (descriptors for
//! it are filled in order), wakeup, flow control, offloads in loopback, and writes to the EEPROM. A segmented frame
//! counts once in the statistics; missed frames (MPC) are counted by the worker instead.
//!
//! A model of the family is a folder as [`i82540em`]; another family would stand beside [`e1000`], on [`pci`] and
//! [`Techniques`]. Read `e1000/nic.rs` first.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod e1000;
pub mod i82540em;
pub mod i82574l;
pub mod pci;
mod techniques;

pub use techniques::{Doorbells, Techniques};
