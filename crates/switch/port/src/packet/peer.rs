//! An interface of the host as the peer of a port.

use super::rx::PacketRx;
use super::tx::PacketTx;
use super::{Open, Ring, Shared};
use crate::Queue;
use crate::interface_page::InterfacePage;
use crate::peer::{Context, Opened, Peer, PeerError, PortKind, State};
use ringway_mem::Published;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// An interface of the host, by packet sockets.
pub const KIND: PortKind = PortKind { name: "packet", open };

struct Interface {
    queues: Vec<Shared>,
    page: Option<InterfacePage>,
    /// Number of interfaces so far.
    number: u64,
}

fn open(context: Context<'_>) -> Opened {
    let mut queues = Vec::new();
    let mut shared = Vec::new();
    for (counters, doorbell) in context.counters.iter().zip(context.doorbells) {
        let open = Arc::new(Published::new(Arc::new(Open::default())));
        let one = Shared { open, doorbell, counters: counters.clone() };
        queues.push(Queue {
            tx: Box::new(PacketTx::new(one.clone())?),
            rx: Box::new(PacketRx::new(one.clone())),
        });
        shared.push(one);
    }
    let peer = Interface { queues: shared, page: None, number: 0 };
    Ok((Box::new(peer), queues))
}

impl Peer for Interface {
    /// The first descriptor is the page about the interface, then there is a socket for each queue.
    fn attach(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), PeerError> {
        let (wanted, given) = (1 + self.queues.len(), descriptors.len());
        let mut descriptors = descriptors.into_iter();
        let page = descriptors.next().filter(|_| wanted == given);
        let page = page.ok_or(PeerError::Descriptors { kind: KIND.name, wanted, given })?;
        let page = InterfacePage::open(&page)?;
        let rings = descriptors.map(Ring::new).collect::<Result<Vec<_>, _>>()?;
        self.number += 1;
        for (shared, ring) in self.queues.iter().zip(rings) {
            shared.replace(Open { ring: Some((ring, page.clone())), number: self.number });
        }
        self.page = Some(page);
        Ok(())
    }

    fn detach(&mut self) {
        for shared in &self.queues {
            shared.replace(Open::default());
        }
        self.page = None;
    }

    fn gauges(&self) -> BTreeMap<String, u64> {
        self.page.iter().map(|page| ("mtu".into(), page.mtu().into())).collect()
    }

    fn state(&self) -> (State, String) {
        match &self.page {
            None => (State::Waiting, String::new()),
            Some(page) if !page.has_carrier() => (State::Attached, "no carrier".into()),
            Some(page) => (State::Up, format!("mtu {}", page.mtu())),
        }
    }
}
