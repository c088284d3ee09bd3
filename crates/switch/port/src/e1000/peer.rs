//! Clients as peers of a port.

use super::device::{CardDevice, Config};
use super::{Backend, Model, Settings};
use crate::pci_session::{PciDevice, budget};
use crate::peer::{Context, Gone, Opened, Peer, PeerError, PortKind, State, exactly};
use crate::{Doorbell, Exits, Silent};
use ringway_frame::CountersRef;
use ringway_nic::Chip;
use ringway_spec::Port;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A guest, by an emulated network card over vfio-user.
pub const KIND: PortKind = PortKind { name: "e1000", open };

fn open(context: Context<'_>) -> Opened {
    let settings: Settings = context.port.kind.settings()?;
    let model = Model::of(&settings.model);
    let model = model.ok_or_else(|| PeerError::kind(format!("there is no model `{}`", settings.model)))?;
    (model.open)(settings, context)
}

pub(super) fn open_as<N: Chip>(model: N::Model, settings: Settings, context: Context<'_>) -> Opened {
    let Settings { mac, mtu, memory, carrier, techniques, .. } = settings;
    let mac = mac.ok_or_else(|| PeerError::kind("the card has no address"))?;
    let counters = context.counters.first().cloned().unwrap_or_else(CountersRef::private);
    let doorbell = context.doorbells.into_iter().next();
    let doorbell = doorbell.unwrap_or_else(|| Arc::new(Silent) as Arc<dyn Doorbell>);
    let config = Config { model, mac: mac.0, mtu, memory, carrier, techniques };
    let (device, queue) = CardDevice::<N>::new(&config, doorbell, counters.clone(), budget(context.check))
        .map_err(PeerError::kind)?;
    Ok((Box::new(Backend::<N>::new(device, counters)), vec![queue]))
}

impl<N: Chip> Peer for Backend<N> {
    fn attach(&mut self, mut descriptors: Vec<OwnedFd>) -> Result<(), PeerError> {
        let pages = if descriptors.len() > 1 { descriptors.pop() } else { None };
        let [socket] = exactly(KIND.name, descriptors)?;
        self.connect(socket, pages).map_err(PeerError::kind)
    }

    fn detach(&mut self) {
        self.disconnect();
    }

    fn session(&self) -> Option<BorrowedFd<'_>> {
        self.fd()
    }

    fn received(&self) -> u64 {
        Backend::<N>::received(self)
    }

    fn check(&mut self) -> Result<(), Gone> {
        Backend::<N>::check(self)
    }

    fn refused(&mut self) -> Option<String> {
        Backend::<N>::refused(self)
    }

    fn shares_memory(&self) -> bool {
        true
    }

    fn change(&mut self, port: &Port) -> Result<(), PeerError> {
        let Settings { carrier, techniques, .. } = port.kind.settings()?;
        self.device.set_carrier(carrier);
        self.device.set_techniques(techniques);
        Ok(())
    }

    fn exits(&self) -> Option<Exits> {
        Some(self.device.exits())
    }

    fn state(&self) -> (State, String) {
        (Backend::<N>::state(self), self.device.detail())
    }
}
