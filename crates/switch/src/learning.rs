//! Learns source addresses and floods frames to unknown addresses (IEEE 802.1Q, 8.7 and 8.8).

use crate::{
    Entry, FLOOD, INVALID, Lookup, LookupContext, LookupFactory, LookupKind, Mac, NOWHERE, PortId, Table,
    Verdicts,
};
use ringway_frame::Burst;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Maximum number of addresses per port. Attack: a guest that sends from many addresses would prevent
/// learning others.
const QUOTA: u32 = 4096;

/// `lookup = "learning"`.
pub const LOOKUP: LookupKind = LookupKind {
    name: "learning",
    open: |kind| Ok(Box::new(Learner { settings: kind.settings()?, learning: None })),
};

/// Settings in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Seconds after which an address that sends no frame is removed.
    pub ageing: u32,
    /// Number of addresses that the table can hold.
    pub entries: u32,
}

struct Learner {
    settings: Settings,
    learning: Option<Arc<Learning>>,
}

impl LookupFactory for Learner {
    /// Returns the same lookup each time, which keeps the learned addresses of other ports.
    fn make(&mut self, context: &LookupContext<'_>) -> Arc<dyn Lookup> {
        let Learner { settings: Settings { ageing, entries }, learning } = self;
        let table = || Table::new(*entries, context.ports, *ageing, QUOTA.min(*entries), context.seed);
        learning.get_or_insert_with(|| Arc::new(Learning::new(table()))).clone()
    }
}

/// A learning bridge.
#[derive(Debug)]
pub struct Learning {
    table: Table,
}

/// Converts nanoseconds to seconds of the table's clock.
pub(crate) fn second(now: u64) -> u32 {
    // Less than `STATIC`; reached after 136 years.
    (now / 1_000_000_000).min(u64::from(u32::MAX - 1)) as u32
}

impl Learning {
    /// A bridge that keeps its addresses in `table`.
    pub fn new(table: Table) -> Learning {
        Learning { table }
    }
}

impl Lookup for Learning {
    #[inline]
    fn lookup(&self, burst: &Burst<'_>, from: PortId, now: u64, verdicts: &mut Verdicts) {
        let second = second(now);
        // Frames of a burst mostly have the same addresses, so the last results are reused.
        let (mut last_source, mut source_ok) = (Mac(u64::MAX), true);
        let (mut last_destination, mut port) = (Mac(u64::MAX), NOWHERE);
        for (index, verdict) in verdicts.iter_mut().enumerate().take(burst.len()) {
            let head = burst.head(index);
            let (source, destination) = (Mac::source(head), Mac::destination(head));
            if source != last_source {
                last_source = source;
                source_ok = !source.is_group();
                if source_ok && source.0 != 0 {
                    self.table.learn(source, from, second);
                }
            }
            if destination != last_destination {
                last_destination = destination;
                port = if destination.is_group() {
                    FLOOD
                } else {
                    self.table.find(destination, second).unwrap_or(FLOOD)
                };
            }
            *verdict = if source_ok { port } else { INVALID };
        }
    }

    fn remove_port(&self, port: PortId) {
        self.table.remove_port(port);
    }

    fn entries(&self, now: u64) -> Vec<Entry> {
        self.table.entries(second(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_frame::{BURST, Offload, Storage};
    use ringway_mem::Span;

    fn frame(to: u8, from: u8) -> [u8; 60] {
        let mut frame = [0; 60];
        frame[0] = if to == 0xff { 0xff } else { 2 };
        frame[5] = to;
        frame[6] = 2;
        frame[11] = from;
        frame
    }

    fn verdicts(lookup: &Learning, from: PortId, frames: &[[u8; 60]]) -> Vec<PortId> {
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        for bytes in frames {
            burst.push(Offload::default(), Span::of(bytes)).unwrap();
        }
        let mut verdicts = [0; BURST];
        lookup.lookup(&burst, from, 1_000_000_000, &mut verdicts);
        verdicts[..frames.len()].to_vec()
    }

    #[test]
    fn unknown_addresses_are_flooded_until_learned() {
        let lookup = Learning::new(Table::new(64, 8, 300, 64, 3));
        assert_eq!(verdicts(&lookup, 1, &[frame(2, 1), frame(2, 1)]), [FLOOD, FLOOD]);
        assert_eq!(verdicts(&lookup, 2, &[frame(1, 2), frame(0xff, 2), frame(1, 2)]), [1, FLOOD, 1]);
        assert_eq!(verdicts(&lookup, 1, &[frame(2, 1)]), [2]);
        lookup.remove_port(2);
        assert_eq!(verdicts(&lookup, 1, &[frame(2, 1)]), [FLOOD]);
    }

    #[test]
    fn a_group_source_is_invalid_and_not_learned() {
        let lookup = Learning::new(Table::new(64, 8, 300, 64, 3));
        let mut bad = frame(1, 9);
        bad[6] = 3;
        assert_eq!(verdicts(&lookup, 1, &[bad, frame(0xff, 1)]), [INVALID, FLOOD]);
        assert_eq!(lookup.entries(0).len(), 1);
    }
}
