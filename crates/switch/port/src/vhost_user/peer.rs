//! Front-ends as peers of a port.

use super::{Backend, Config, Settings, Without, offer};
use crate::Queue;
use crate::peer::{Context, Gone, Peer, PeerError, PeerRecord, PortKind, State, exactly};
use ringway_ring::Policy;
use ringway_spec::Port;
use ringway_vhost_user::{Inbox, Request};
use std::os::fd::{BorrowedFd, OwnedFd};

/// A guest, by virtio-net over vhost-user.
pub const KIND: PortKind = PortKind { name: "vhost-user", open };

/// The device that a port describes.
fn config(port: &Port, policy: Policy) -> Result<Config, PeerError> {
    let settings: Settings = port.kind.settings()?;
    let without = Without::named(settings.without.iter().map(String::as_str));
    Ok(Config {
        mac: settings.mac.map(|mac| mac.0),
        mtu: settings.mtu,
        queues: port.queues,
        without: without
            .map_err(|name| PeerError::kind(format!("there is no feature `{name}` to leave out")))?,
        policy,
        memory: settings.memory,
        carrier: settings.carrier,
    })
}

fn open(context: Context<'_>) -> Result<(Box<dyn Peer>, Vec<Queue>), PeerError> {
    let config = config(context.port, context.policy())?;
    let (mut backend, queues) = super::new(config, context.doorbells, context.counters.to_vec());
    if let Some(keeper) = context.keeper {
        backend.keep_in(&context.port.name, keeper.clone());
    }
    Ok((Box::new(backend), queues))
}

/// Checks that a front-end whose session another program began can go on with this one: every feature that it
/// acknowledged is offered. `records` are what was kept of it.
///
/// # Errors
/// The reason why it can't, for people.
pub fn continues<'r>(port: &Port, records: impl IntoIterator<Item = &'r [u8]>) -> Result<(), String> {
    let config = config(port, Policy::default()).map_err(|error| error.to_string())?;
    let offer = offer::offer(&config);
    for bytes in records {
        // What the program could not record has no bytes.
        if bytes.is_empty() {
            continue;
        }
        let message = Inbox::whole(bytes, Vec::new()).map_err(|error| error.to_string())?;
        // Only these two count; others may lack their descriptors here.
        let (lacks, kind) = match Request::decode(message.header.request, &message.payload, message.fds) {
            Ok(Request::SetFeatures(features)) => (features & !offer.features, "features"),
            Ok(Request::SetProtocolFeatures(features)) => (features & !offer.protocol, "protocol features"),
            _ => continue,
        };
        if lacks != 0 {
            let names = offer::names(lacks, kind == "protocol features");
            return Err(format!("its front-end uses {kind} that are not offered: {names}"));
        }
    }
    Ok(())
}

impl Peer for Backend {
    fn attach(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), PeerError> {
        let [socket] = exactly(KIND.name, descriptors)?;
        self.connect(socket).map_err(PeerError::kind)
    }

    fn resume(&mut self, kept: Vec<PeerRecord>, descriptors: Vec<OwnedFd>) -> Result<(), PeerError> {
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
        Backend::check(self)
    }

    fn refused(&mut self) -> Option<String> {
        Backend::refused(self)
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

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_spec::Kind;
    use ringway_vhost_user::feature::{protocol, virtio};

    #[test]
    fn a_front_end_goes_on_if_all_its_features_are_offered() {
        let settings = |without: &[&str]| Settings {
            without: without.iter().map(ToString::to_string).collect(),
            ..Settings::default()
        };
        let port = |without: &[&str]| Port::new("a", Kind::new(KIND.name, &settings(without)), None);
        let messages = [
            Request::SetFeatures(virtio::VERSION_1 | virtio::RING_PACKED | virtio::PROTOCOL_FEATURES),
            Request::SetProtocolFeatures(protocol::REPLY_ACK),
        ];
        let records = messages.map(|message| message.encode(false).bytes);
        let check = |without: &[&str]| continues(&port(without), records.iter().map(|bytes| &**bytes));
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&["event-idx"]), Ok(()));
        assert!(check(&["packed"]).unwrap_err().ends_with("not offered: packed"));
        assert!(
            check(&["reply-ack"]).unwrap_err().ends_with("protocol features that are not offered: reply-ack")
        );
        assert!(check(&["paked"]).unwrap_err().contains("no feature `paked`"));
        assert!(continues(&port(&[]), [&[1_u8, 2][..]]).is_err(), "no message");
        assert_eq!(continues(&port(&[]), [&[][..]]), Ok(()));
    }
}
