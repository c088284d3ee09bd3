//! Clients as peers of a port.

use super::Settings;
use super::device::{Faults, RingDevice};
use crate::pci_session::PciDevice;
use crate::peer::{Alarm, Context, Gone, Opened, Peer, PeerError, PortKind, State, exactly};
use crate::ring::{Config, Fault};
use crate::{Doorbell, Exits, Silent, pci_session};
use ringway_frame::CountersRef;
use ringway_host::Clock;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A guest's program, by a PCI device over vfio-user.
pub const KIND: PortKind = PortKind { name: "ring-pci", open };

type Backend = pci_session::Backend<RingDevice>;

/// A port, its client and its program.
pub(super) struct Client {
    pub backend: Backend,
    alarm: Arc<Alarm>,
}

fn open(context: Context<'_>) -> Opened {
    let (client, queues) = Client::new(context)?;
    Ok((Box::new(client), queues))
}

impl Client {
    pub fn new(context: Context<'_>) -> Result<(Client, Vec<crate::Queue>), PeerError> {
        let settings: Settings = context.port.kind.settings()?;
        let (faults, alarm) = (Arc::new(Faults::default()), Alarm::new(context.check));
        let (noted, raised, check) = (faults.clone(), alarm.clone(), context.check.clone());
        // A program that breaks its ring loses it, but the guest keeps the device.
        let broken = move |fault: Fault| match fault {
            Fault::Broken(_) => {
                noted.record(fault);
                check.signal();
            }
            Fault::Slow => raised.raise(Gone { reason: fault.to_string(), fault: true, rest: 0 }),
        };
        let policy = context.policy();
        let silent: Arc<dyn Doorbell> = Arc::new(Silent);
        let counters = context.counters.first().cloned().unwrap_or_else(CountersRef::private);
        let config = Config {
            counters: counters.clone(),
            doorbell: context.doorbells.into_iter().next().unwrap_or(silent),
            policy,
            broken: Arc::new(broken),
        };
        let (device, queues) = RingDevice::new(settings, config, faults).map_err(PeerError::kind)?;
        Ok((Client { backend: Backend::new(device, counters), alarm }, queues))
    }
}

impl Peer for Client {
    fn attach(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), PeerError> {
        let [socket, memory] = exactly(KIND.name, descriptors)?;
        // Clears the alarm of a former client.
        self.alarm.take();
        self.backend.connect(socket, Some(memory)).map_err(PeerError::kind)
    }

    fn detach(&mut self) {
        self.backend.disconnect();
    }

    fn session(&self) -> Option<BorrowedFd<'_>> {
        self.backend.fd()
    }

    fn received(&self) -> u64 {
        self.backend.received()
    }

    fn is_quiet(&self) -> bool {
        self.backend.device.port().is_quiet()
    }

    fn check(&mut self) -> Result<(), Gone> {
        if let Some(gone) = self.alarm.take() {
            self.backend.disconnect();
            return Err(Gone { rest: self.backend.rest(Clock::new().now()), ..gone });
        }
        self.backend.device.collect_fault();
        self.backend.check()
    }

    fn refused(&mut self) -> Option<String> {
        let ended = self.backend.device.take_ended().map(|fault| fault.to_string());
        ended.or_else(|| self.backend.refused())
    }

    fn shares_memory(&self) -> bool {
        true
    }

    fn exits(&self) -> Option<Exits> {
        Some(self.backend.device.exits())
    }

    fn state(&self) -> (State, String) {
        (self.backend.state(), self.backend.device.detail())
    }
}
