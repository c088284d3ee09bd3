//! `ToPort(PORT)`: sends packets as frames to a ring port of a fabric.
//!
//! Ports: one input, push or pull. While the ring is full or away, pushed packets are dropped and counted;
//! packets to pull wait upstream.
//!
//! Arguments:
//! - `PORT`: in a function, the name of one of its ports; elsewhere the path of a ring port's socket. A
//!   FromPort of the same port shares its ring.
//!
//! Offload metadata from FromPort is passed on with the packets. If the port disappears, the element
//! reconnects, at intervals of up to a second.
//!
//! Handlers: `count`, `byte_count`, `drops`, `drop_counts` (reasons and counts, one per line: `full`, `away`,
//! `too-long`), `state` (`up`, `requested`, or `away` with the reason), `losses` (number of lost rings) (read);
//! `reset_counts` (write).
use crate::attachment::PortAccess;
use ringway_click::Class;
use ringway_elements::platform::{ToPort, devices};

pub static CLASS: Class = devices::sink(Class::new("ToPort", || Box::<ToPort<PortAccess>>::default()));
