//! An interface of the host as the peer of a port.

use super::rx::XdpRx;
use super::tx::XdpTx;
use super::{Open, Shared, Socket, mode};
use crate::Queue;
use crate::interface_page::InterfacePage;
use crate::peer::{Context, Opened, Peer, PeerError, PortKind, State};
use ringway_mem::Published;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// An interface of the host, by AF_XDP.
pub const KIND: PortKind = PortKind { name: "xdp", open };

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
        queues.push(Queue { tx: Box::new(XdpTx::new(one.clone())), rx: Box::new(XdpRx::new(one.clone())) });
        shared.push(one);
    }
    let peer = Interface { queues: shared, page: None, number: 0 };
    Ok((Box::new(peer), queues))
}

impl Peer for Interface {
    /// The first descriptor is the page about the interface, then there are two for each queue: the socket, which
    /// control binds as soon as its rings are mapped here, and its memory.
    fn attach(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), PeerError> {
        let (wanted, given) = (1 + 2 * self.queues.len(), descriptors.len());
        let mut descriptors = descriptors.into_iter();
        let page = descriptors.next().filter(|_| wanted == given);
        let page = page.ok_or(PeerError::Descriptors { kind: KIND.name, wanted, given })?;
        let page = InterfacePage::open(&page)?;
        let mut sockets = Vec::new();
        while let (Some(socket), Some(memory)) = (descriptors.next(), descriptors.next()) {
            sockets.push(Socket::new(socket, &memory)?);
        }
        self.number += 1;
        for (shared, socket) in self.queues.iter().zip(sockets) {
            shared.replace(Open { socket: Some((socket, page.clone())), number: self.number });
        }
        page.set_mapped();
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
        let Some(page) = &self.page else { return (State::Waiting, String::new()) };
        let state = page.get();
        if state.mode & mode::BOUND == 0 {
            return (State::Attached, "the program is not attached yet".into());
        }
        let how = if state.mode & mode::GENERIC != 0 { "generic" } else { "native" };
        let copies = if state.mode & mode::ZERO_COPY != 0 { "zero copy" } else { "copies" };
        let queues = match (self.queues.len(), state.queues as usize) {
            (ours, all) if ours < all => format!(", {ours} of {all} queues"),
            _ => String::new(),
        };
        let text = format!("mtu {}, {how} XDP, {copies}{queues}", state.mtu);
        match state.has_carrier {
            true => (State::Up, text),
            false => (State::Attached, format!("no carrier, {text}")),
        }
    }
}
