//! Click's runtime: builds a router from a flat configuration and runs it.
//!
//! The element classes are in `ringway-elements` and other crates; a [`Registry`] collects them. [`Router`]
//! is the main type; read `router/mod.rs` first. The crate needs no operating system: the caller provides
//! time, console and descriptors ([`Clock`], [`Console`], [`Router::selected`]). The module [`element`]
//! explains how to write an element.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod arg;
mod class;
mod clock;
mod console;
mod context;
mod division;
mod drive;
pub mod element;
mod handler;
mod notifier;
mod ordered;
mod pieces;
pub mod prelude;
mod random;
mod registry;
mod router;
pub mod sort;
mod task;
mod timer;

pub use class::{Class, Metadata};
pub use clock::{
    BEHIND, Clock, Interval, LOOK, RunTime, SECOND, SIMULATION_START, STILL, Time, Timestamp, Warped,
};
pub use console::{ChatterLines, Console, Device, Recorder};
pub use context::Context;
pub use division::{Division, Reach};
pub use drive::{Driver, drive};
pub use element::{Element, ElementId, Failed};
pub use handler::{Handler, HandlerCall, HandlerError, HandlerInfo};
pub use notifier::{Note, NoteKind, Search, Signal};
pub use ordered::{Key, OrderedMap, OrderedSet};
pub use pieces::{LINES, Pieces, Progress};
pub use registry::{Documentation, Registry};
pub use ringway_frame::packet::{Annotations, HEADROOM, PACKETS, Packet, PacketBurst, PacketType, Pool};
pub use router::{
    Breath, BuildError, Interest, Job, Options, Rebuild, Replacement, Router, Succession, Threads, Turn,
};
pub use task::Task;
pub use timer::Timer;
