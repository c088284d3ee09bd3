//! TAP: the host's own stack as a peer.
//!
//! Frames that the stack transmits are read into our own memory, with one system call per frame of up to 64 KB. Frames
//! that it receives are written directly from their source's memory: the kernel copies them once.

mod open;
mod peer;
mod rx;
mod tx;

pub use open::open;
pub use peer::KIND;

use crate::{Doorbell, Queue};
use ringway_frame::CountersRef;
use ringway_host::HostError;
use ringway_mem::{Published, Turn};
use ringway_spec::{IpNet, MacAddress};
use rx::TapRx;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tx::TapTx;

/// Settings of a port of this kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Name of the interface.
    pub interface: String,
    /// Its Ethernet address; one of the kernel's choice if none.
    pub mac: Option<MacAddress>,
    /// Its MTU.
    pub mtu: u16,
    /// Whether the host's stack may leave checksums and segmentation to us.
    pub offloads: bool,
    /// Name or path of the network namespace that the interface lives in; ours if none.
    pub namespace: Option<String>,
    /// The fabric's host whose namespace that is; the path follows from it.
    pub host: Option<String>,
    /// Addresses of the interface.
    pub addresses: Vec<IpNet>,
    /// Gateways of default routes, at most one of each version of IP.
    pub gateways: Vec<IpAddr>,
}

/// Properties of a port's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// MTU of the interface.
    pub mtu: u16,
    /// Whether it was opened with offloads.
    pub offloads: bool,
}

/// Why an interface can't be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// A queue has no descriptor, or a descriptor no queue.
    #[error("the port has {queues} queues, the interface {descriptors}; open it with as many")]
    Queues {
        /// Queue pairs of the port.
        queues: usize,
        /// Descriptors received.
        descriptors: usize,
    },
}

/// One queue's descriptor, while there is an interface.
#[derive(Debug, Default)]
struct Open {
    fd: Option<Arc<OwnedFd>>,
    /// The kernel reported that the interface is gone.
    gone: AtomicBool,
}

/// State shared by both directions of a queue.
#[derive(Clone)]
struct Shared {
    open: Arc<Published<Open>>,
    doorbell: Arc<dyn Doorbell>,
    counters: CountersRef,
    config: Config,
    lost: Lost,
}

/// Called by a worker when the kernel reports that the interface is gone.
pub type Lost = Arc<dyn Fn() + Send + Sync>;

impl Shared {
    #[inline]
    fn fd<'t>(&self, turn: &'t Turn<'_>) -> Option<&'t Arc<OwnedFd>> {
        let open = self.open.read(turn);
        open.fd.as_ref().filter(|_| !open.gone.load(Ordering::Relaxed))
    }

    #[cold]
    fn lose(&self, turn: &Turn<'_>) {
        if !self.open.read(turn).gone.swap(true, Ordering::Relaxed) {
            (self.lost)();
        }
    }
}

/// The handle that attaches an interface to a port and detaches it.
pub struct TapPort {
    queues: Vec<Shared>,
    attached: bool,
}

impl TapPort {
    /// A port without an interface, and its queues: one for each of `counters`. Fails if there is no memory for its
    /// frames.
    pub fn new(
        config: Config,
        doorbells: Vec<Arc<dyn Doorbell>>,
        counters: &[CountersRef],
        lost: &Lost,
    ) -> Result<(TapPort, Vec<Queue>), HostError> {
        let mut port = TapPort { queues: Vec::new(), attached: false };
        let mut queues = Vec::new();
        for (counters, doorbell) in counters.iter().zip(doorbells) {
            let open = Arc::new(Published::new(Arc::new(Open::default())));
            let shared = Shared { open, doorbell, counters: counters.clone(), config, lost: lost.clone() };
            let tx = Box::new(TapTx::new(shared.clone())?);
            queues.push(Queue { tx, rx: Box::new(TapRx::new(shared.clone())) });
            port.queues.push(shared);
        }
        Ok((port, queues))
    }

    /// Attaches an interface: one descriptor per queue. Replaces the former interface.
    pub fn attach(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), AttachError> {
        if descriptors.len() != self.queues.len() {
            let (queues, descriptors) = (self.queues.len(), descriptors.len());
            return Err(AttachError::Queues { queues, descriptors });
        }
        for (shared, fd) in self.queues.iter().zip(descriptors) {
            replace(shared, Some(Arc::new(fd)));
        }
        self.attached = true;
        Ok(())
    }

    /// Detaches the interface, which is gone or must go. Its descriptors are closed when this returns.
    pub fn detach(&mut self) {
        for shared in &self.queues {
            replace(shared, None);
        }
        self.attached = false;
    }

    /// Whether there is an interface.
    pub fn is_attached(&self) -> bool {
        self.attached
    }
}

fn replace(shared: &Shared, fd: Option<Arc<OwnedFd>>) {
    let open = Arc::new(Open { fd, gone: AtomicBool::new(false) });
    drop(ringway_host::reclaim(shared.open.replace(open)));
    // Only now, since until then a worker may have armed the queue and watched the old descriptor. If it already
    // watches the new descriptor, it does so again when it is awake.
    shared.doorbell.unwatch();
    shared.doorbell.wake();
}
