//! Maps the stack that processes share (see [`ringway_direct_stack`]) into this process, and calls it.
//!
//! One process [creates](Files::create) the two files, and [begins](Image::begin); it and all others, which receive the
//! files, [map](Image::map) them at the same addresses, and take turns by [`Image::lock`]. If a process ends within
//! its turn, however it ends, the stack is [lost](LockError::Lost) for all: nobody waits for it, and nobody uses what
//! it left half done. Any of these processes can corrupt the memory of all: they must trust each other, and no
//! process on which others depend, such as the agent, may map the files.
//!
//! ```
//! use ringway_direct::{Files, Image};
//! use ringway_netstack::{Settings, Stack};
//!
//! let files = Files::create(64 << 20)?;
//! let image = Image::map(&files)?;
//! let agent = Stack::new(Settings::default(), [1, 2]);
//! image.begin(&agent.configuration(), [3, 4])?;
//! let turn = image.lock()?.run(0);
//! assert!(!turn.kick_port && turn.deadline.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod image;
mod join;
mod waiting;

pub use image::{DirectError, Files, Image, Locked, Ready, RingPeer, Turn, bounded_settings};
pub use join::{Entry, enter, leave};
pub use ringway_direct_stack::abi::{
    ADDRESS, ADDRESSES, address_bytes, address_of, addresses_bytes, addresses_of, requests,
};
pub use ringway_direct_stack::bit;
pub use ringway_host::LockError;
pub use waiting::{Member, Notifiers, Watch};
