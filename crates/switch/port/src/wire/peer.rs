//! The other end of the wire as the peer of a port.

use super::receive::WireTx;
use super::send::WireRx;
use super::stream::{StreamRx, StreamTx};
use super::{Datagrams, Encapsulation, Limits, Open, Settings, Shared};
use crate::Queue;
use crate::peer::{Alarm, Context, Gone, Opened, Peer, PeerError, PortKind, State, exactly};
use ringway_frame::{CountersRef, LARGEST};
use ringway_mem::Published;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// One peer over UDP or TCP.
pub const KIND: PortKind = PortKind { name: "wire", open };

struct WirePeer {
    shared: Arc<Shared>,
    settings: Settings,
    is_attached: bool,
    /// Number of streams so far.
    streams: u64,
}

fn open(context: Context<'_>) -> Opened {
    let settings: Settings = context.port.kind.settings()?;
    let doorbell = context.doorbells.first().cloned().ok_or(PeerError::NoPeer(KIND.name))?;
    let shared = Arc::new(Shared {
        open: Published::new(Arc::default()),
        doorbell,
        counters: context.counters.first().cloned().unwrap_or_else(CountersRef::private),
        alarm: Alarm::new(context.check),
        largest: Default::default(),
        answers: Default::default(),
    });
    let queue = match settings.encapsulation {
        Encapsulation::Tcp => Queue {
            tx: Box::new(StreamTx::new(shared.clone())?),
            rx: Box::new(StreamRx::new(shared.clone(), &settings)),
        },
        _ => Queue {
            tx: Box::new(WireTx::new(shared.clone(), &settings)?),
            rx: Box::new(WireRx::new(shared.clone(), &settings, ringway_host::random()?)),
        },
    };
    Ok((Box::new(WirePeer { shared, settings, is_attached: false, streams: 0 }), vec![queue]))
}

impl Peer for WirePeer {
    fn attach(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), PeerError> {
        let open = if self.settings.encapsulation == Encapsulation::Tcp {
            let [stream] = exactly(KIND.name, descriptors)?;
            self.streams += 1;
            Open { stream: Some(Arc::new(stream)), number: self.streams, ..Open::default() }
        } else {
            let source_ports = usize::from(self.settings.source_ports);
            let given = descriptors.len();
            let datagrams = Datagrams::new(descriptors, source_ports)?;
            let wanted = super::RECEIVERS + source_ports;
            let wrong = PeerError::Descriptors { kind: KIND.name, wanted, given };
            let datagrams = datagrams.ok_or(wrong)?;
            let largest = datagrams.largest(Limits::of(&self.settings)).unwrap_or(LARGEST);
            self.shared.largest.store(largest, Relaxed);
            Open { datagrams: Some(datagrams), ..Open::default() }
        };
        self.shared.replace(open);
        self.is_attached = true;
        Ok(())
    }

    fn detach(&mut self) {
        self.shared.replace(Open::default());
        self.is_attached = false;
    }

    fn check(&mut self) -> Result<(), Gone> {
        let Some(gone) = self.shared.alarm.take() else { return Ok(()) };
        self.detach();
        Err(gone)
    }

    fn gauges(&self) -> BTreeMap<String, u64> {
        let largest = u64::from(self.shared.largest.load(Relaxed));
        let mtu = largest.saturating_sub(ringway_wire::ethernet::HEADER_LEN as u64);
        let known = [("mtu", mtu), ("source-ports", self.settings.source_ports.into())];
        known.into_iter().filter(|(_, value)| *value > 0).map(|(name, value)| (name.into(), value)).collect()
    }

    fn state(&self) -> (State, String) {
        if !self.is_attached {
            return (State::Waiting, String::new());
        }
        let mtu = self.gauges().get("mtu").map(|mtu| format!("mtu {mtu}")).unwrap_or_default();
        (State::Up, mtu)
    }
}
