//! Ports on interfaces that the host has already.

use crate::Failure;
use crate::harness::fabric::Harness;
use ringway_port::interface_open::OpenedInterface;
use ringway_port::{packet, xdp};
use ringway_spec::{Kind, Port, To};
use std::any::Any;

/// How a port takes an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Card {
    /// By a packet socket with rings.
    Packet,
    /// By AF_XDP.
    Xdp,
}

/// What must not be dropped while a port has its interface.
pub type Held = Option<Box<dyn Any + Send>>;

impl Card {
    /// Adds a port to the interface of the same name in this process's network namespace. The interface must be up.
    pub fn add(self, harness: &mut Harness, name: &str, to: To) -> Result<Held, Failure> {
        let (interface, namespace) = (name.to_string(), None);
        let (kind, opened) = match self {
            Card::Packet => {
                let settings = packet::Settings { interface, namespace, promiscuous: true };
                (Kind::new(packet::KIND.name, &settings), packet::open::open(&settings, 1)?)
            }
            Card::Xdp => {
                let (generic, keep) = (false, Vec::new());
                let settings = xdp::Settings { interface, namespace, promiscuous: true, generic, keep };
                (Kind::new(xdp::KIND.name, &settings), xdp::open::open(&settings, 1)?)
            }
        };
        let OpenedInterface { finish, descriptors, page, .. } = opened;
        harness.add_port(Port::new(name, kind, Some(to)))?;
        harness.attach(name, descriptors)?;
        Ok(finish.map(|finish| finish(&page)).transpose()?)
    }

    /// DPDK's device of that kind on an interface.
    pub fn device(self, number: usize, interface: &str) -> String {
        match self {
            Card::Packet => format!("net_af_packet{number},iface={interface}"),
            Card::Xdp => format!("net_af_xdp{number},iface={interface},start_queue=0,queue_count=1"),
        }
    }
}
