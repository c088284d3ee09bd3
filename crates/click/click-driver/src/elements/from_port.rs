//! `FromPort(PORT, [keywords])`: receives the frames that a ring port of a fabric sends to this program.
//!
//! Ports: one push output.
//!
//! Arguments:
//! - `PORT`: in a function, the name of one of its ports; elsewhere the path of a ring port's socket. A
//!   ToPort of the same port shares its ring.
//! - `OFFLOADS`: whether packets may have checksums to fill and segmentation to do; false by default. If
//!   true, elements that can't handle this (`ringway click --elements NAME` says so of a class) get packets
//!   completed in software, and ToPort passes remaining offloads on.
//! - `SPIN`: how long it polls after the last frame before it sleeps until notified; 50us by default.
//! - `TIMESTAMP`: whether packets are timestamped; true by default.
//!
//! If the port disappears, the element reconnects, at intervals of up to a second. Frames wait in the ring
//! while the configuration is busy; frames that don't fit are dropped and counted by the port.
//!
//! Handlers: `count`, `byte_count`, `drops` (frames too long for a packet, or with invalid metadata), `state`
//! (`up`, `requested`, or `away` with the reason), `losses` (number of lost rings) (read); `reset_counts`
//! (write).
use crate::attachment::PortAccess;
use ringway_click::Class;
use ringway_elements::platform::{FromPort, devices};

pub static CLASS: Class = devices::source(Class::new("FromPort", || Box::<FromPort<PortAccess>>::default()));
