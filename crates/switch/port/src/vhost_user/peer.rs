//! Front-ends as peers of a port.

use super::{Backend, Config, Settings, Without};
use crate::Queue;
use crate::peer::{Context, Gone, Kept, Peer, PeerError, PortKind, State, exactly};
use ringway_host::Clock;
use ringway_spec::Port;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A guest, by virtio-net over vhost-user.
pub const KIND: PortKind = PortKind { name: "vhost-user", open };

fn open(context: Context<'_>) -> Result<(Box<dyn Peer>, Vec<Queue>), PeerError> {
    let settings: Settings = context.port.kind.settings()?;
    let without = Without::named(settings.without.iter().map(String::as_str));
    let config = Config {
        mac: settings.mac.map(|mac| mac.0),
        mtu: settings.mtu,
        queues: context.port.queues,
        without: without
            .map_err(|name| PeerError::kind(format!("there is no feature `{name}` to leave out")))?,
        policy: context.policy(),
        memory: settings.memory,
        carrier: settings.carrier,
    };
    let (mut backend, queues) = super::new(config, context.doorbells, context.counters.to_vec());
    if let Some(keeper) = context.keeper {
        backend.keep_in(&context.port.name, keeper.clone());
    }
    Ok((Box::new(backend), queues))
}

impl Peer for Backend {
    fn attach(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), PeerError> {
        let [socket] = exactly(KIND.name, descriptors)?;
        self.connect(socket).map_err(PeerError::kind)
    }

    fn resume(&mut self, kept: Vec<Kept>, descriptors: Vec<OwnedFd>) -> Result<(), PeerError> {
        let [socket] = exactly(KIND.name, descriptors)?;
        Backend::resume(self, socket, kept).map_err(PeerError::kind)
    }

    fn detach(&mut self) {
        self.disconnect();
    }

    fn session(&self) -> Option<BorrowedFd<'_>> {
        self.fd()
    }

    fn received(&self) -> u64 {
        Backend::received(self)
    }

    fn check(&mut self) -> Result<(), Gone> {
        if self.fd().is_none() {
            return Ok(());
        }
        self.readable().map_err(|error| Gone {
            reason: error.to_string(),
            fault: error.is_fault(),
            rest: Backend::rest(self, Clock::new().now()),
        })
    }

    fn refused(&mut self) -> Option<String> {
        Backend::refused(self).map(|refused| refused.to_string())
    }

    fn change(&mut self, port: &Port) -> Result<(), PeerError> {
        let Settings { carrier, .. } = port.kind.settings()?;
        self.set_carrier(carrier);
        Ok(())
    }

    fn shares_memory(&self) -> bool {
        true
    }

    fn state(&self) -> (State, String) {
        (Backend::state(self), self.detail())
    }

    fn receiving(&self) -> u32 {
        Backend::receiving(self).into()
    }
}
