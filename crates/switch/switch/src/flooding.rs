//! A lookup that floods frames to some addresses, wherever they are known: those of guests that arrive from elsewhere.

use crate::{Entry, FLOOD, FrameVlans, Learned, Lookup, Mac, PORTS, PortId, Station, Verdicts};
use ringway_frame::Burst;
use std::sync::Arc;

/// Another lookup, and the addresses.
pub struct Flooding {
    inner: Arc<dyn Lookup>,
    macs: Vec<Mac>,
}

impl Flooding {
    /// Frames to `macs` are flooded; others are forwarded as by `inner`, which learns as before.
    pub fn new(inner: Arc<dyn Lookup>, macs: Vec<Mac>) -> Flooding {
        Flooding { inner, macs }
    }

    /// As [`Flooding::new`]. Flows of a switch with tables decide as before; only frames that they forward as `normal`
    /// are flooded.
    pub fn over(inner: Arc<dyn Lookup>, macs: Vec<Mac>) -> Arc<dyn Lookup> {
        match inner.flows() {
            Some(flows) => Arc::new(flows.with_normal(|normal| Arc::new(Flooding::new(normal, macs)))),
            None => Arc::new(Flooding::new(inner, macs)),
        }
    }

    fn flood(&self, burst: &Burst<'_>, verdicts: &mut Verdicts) {
        for (frame, verdict) in verdicts.iter_mut().enumerate().take(burst.len()) {
            // What is dropped stays dropped.
            let is_sent = usize::from(*verdict) < PORTS;
            if is_sent && self.macs.contains(&Mac::destination(burst.head(frame))) {
                *verdict = FLOOD;
            }
        }
    }
}

impl Lookup for Flooding {
    fn lookup(&self, burst: &Burst<'_>, from: PortId, now: u64, verdicts: &mut Verdicts) -> u32 {
        let moved = self.inner.lookup(burst, from, now, verdicts);
        self.flood(burst, verdicts);
        moved
    }

    fn lookup_in(
        &self,
        burst: &Burst<'_>,
        at: (PortId, u64),
        vlans: &FrameVlans<'_>,
        verdicts: &mut Verdicts,
    ) -> u32 {
        let moved = self.inner.lookup_in(burst, at, vlans, verdicts);
        self.flood(burst, verdicts);
        moved
    }

    fn preview_in(
        &self,
        burst: &Burst<'_>,
        at: (PortId, u64),
        vlans: &FrameVlans<'_>,
        verdicts: &mut Verdicts,
    ) -> Option<Learned> {
        let learned = self.inner.preview_in(burst, at, vlans, verdicts);
        self.flood(burst, verdicts);
        learned
    }

    fn knows(&self, station: Station, port: PortId) -> bool {
        self.inner.knows(station, port)
    }

    fn remove_port(&self, port: PortId) {
        self.inner.remove_port(port);
    }

    fn forget_port(&self, port: PortId) {
        self.inner.forget_port(port);
    }

    fn forget(&self, mac: Mac) {
        self.inner.forget(mac);
    }

    fn changes(&self) -> u64 {
        self.inner.changes()
    }

    fn restore(&self, mac: Mac, vlan: u16, port: PortId, now: u64) {
        self.inner.restore(mac, vlan, port, now);
    }

    fn entries(&self, now: u64) -> Vec<Entry> {
        self.inner.entries(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{INVALID, Learning, NOWHERE, Table};
    use ringway_frame::{BURST, Offload, Storage};
    use ringway_mem::Span;

    fn sent(lookup: &dyn Lookup, to: u8, from: u8, port: PortId) -> PortId {
        let mut frame = [0; 60];
        frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, to, from & 1 | 2, 0, 0, 0, 0, from]);
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        burst.push(Offload::default(), Span::of(&frame)).unwrap();
        let (mut verdicts, mut previewed) = ([NOWHERE; BURST], [NOWHERE; BURST]);
        lookup.preview(&burst, port, 0, &mut previewed);
        lookup.lookup(&burst, port, 0, &mut verdicts);
        assert_eq!(verdicts[0], previewed[0]);
        verdicts[0]
    }

    #[test]
    fn frames_to_the_addresses_are_flooded_and_their_place_is_forgotten() {
        let inner: Arc<dyn Lookup> = Arc::new(Learning::new(Table::new(64, 4, 10, 64, 1), false));
        let flooding = Flooding::new(inner.clone(), vec![Mac::new([2, 0, 0, 0, 0, 8])]);
        assert_eq!(sent(&flooding, 4, 8, 1), FLOOD);
        assert_eq!(sent(&flooding, 8, 4, 2), FLOOD, "although it is known");
        assert_eq!(sent(&flooding, 4, 8, 1), 2);
        assert_eq!(sent(&flooding, 8, 5, 2), INVALID, "its source is a group");
        assert_eq!(sent(&*inner, 8, 4, 2), 1);
        flooding.forget(Mac::new([2, 0, 0, 0, 0, 8]));
        assert_eq!((sent(&*inner, 8, 4, 2), sent(&*inner, 4, 6, 3)), (FLOOD, 2));
    }
}
