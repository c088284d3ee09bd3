//! A static table of addresses, from the file.

use crate::{
    Entry, FLOOD, Lookup, LookupContext, LookupFactory, LookupKind, Mac, NOWHERE, PortId, RESERVED, Table,
    Verdicts,
};
use ringway_frame::Burst;
use ringway_spec::MacAddress;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `lookup = "static"`.
pub const LOOKUP: LookupKind =
    LookupKind { name: "static", open: |kind| Ok(Box::new(kind.settings::<Settings>()?)) };

/// Settings in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Addresses, each with the name of its port.
    pub entries: Vec<(MacAddress, String)>,
}

impl LookupFactory for Settings {
    fn make(&mut self, context: &LookupContext<'_>) -> Arc<dyn Lookup> {
        let entries =
            self.entries.iter().filter_map(|(mac, port)| Some((Mac::new(mac.0), (context.port)(port)?)));
        let (table, rejected) = Static::new(&entries.collect::<Vec<_>>(), context.ports, context.seed);
        rejected.into_iter().for_each(context.rejected);
        Arc::new(Static { forward_reserved: context.forward_reserved, ..table })
    }
}

/// Table sizes to try, as multiples of the number of addresses.
const SIZES: [u32; 4] = [2, 4, 8, 16];
/// Number of seeds to try for each size.
const SEEDS: u64 = 4;

/// A static bridge: frames to known addresses go to their port, frames to group addresses to all ports;
/// others are dropped. An address has the same port in every VLAN.
#[derive(Debug)]
pub struct Static {
    table: Table,
    forward_reserved: bool,
}

impl Static {
    fn of(table: Table) -> Static {
        Static { table, forward_reserved: false }
    }

    /// Builds the table; returns the addresses that did not fit with any size and seed.
    pub fn new(entries: &[(Mac, PortId)], ports: usize, seed: u64) -> (Static, Vec<Mac>) {
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let mut best: Option<(Static, Vec<Mac>)> = None;
        for (size, number) in SIZES.iter().flat_map(|size| (0..SEEDS).map(move |number| (size, number))) {
            let seed = seed.wrapping_add(2 * number);
            let table = Table::new(count.saturating_mul(*size), ports, 0, 0, seed);
            let rejected = entries.iter().filter(|(mac, port)| !table.add_static(*mac, *port));
            let rejected: Vec<Mac> = rejected.map(|(mac, _)| *mac).collect();
            if best.as_ref().is_none_or(|(_, least)| rejected.len() < least.len()) {
                best = Some((Static::of(table), rejected));
            }
            if best.as_ref().is_some_and(|(_, rejected)| rejected.is_empty()) {
                break;
            }
        }
        best.unwrap_or_else(|| (Static::of(Table::new(0, ports, 0, 0, seed)), Vec::new()))
    }
}

impl Lookup for Static {
    fn lookup(&self, burst: &Burst<'_>, _from: PortId, _now: u64, verdicts: &mut Verdicts) -> u32 {
        for (index, verdict) in verdicts.iter_mut().enumerate().take(burst.len()) {
            let destination = Mac::destination(burst.head(index));
            *verdict = match self.table.find(destination.into(), 0) {
                Some(port) => port,
                None if destination.is_reserved() && !self.forward_reserved => RESERVED,
                None if destination.is_group() => FLOOD,
                None => NOWHERE,
            };
        }
        0
    }

    fn remove_port(&self, port: PortId) {
        self.table.remove_port(port, true);
    }

    fn entries(&self, _now: u64) -> Vec<Entry> {
        self.table.entries(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_frame::{BURST, Offload, Storage};
    use ringway_mem::Span;

    #[test]
    fn all_configured_addresses_fit() {
        for count in [0, 1, 100, 20_000_u32] {
            let mac = |n: u32| Mac::new([2, 0, 0, 0, (n >> 8) as u8, n as u8]);
            let entries: Vec<_> = (0..count).map(|n| (mac(n), (n % 7) as PortId)).collect();
            let (table, rejected) = Static::new(&entries, 8, 1);
            assert_eq!((table.entries(0).len(), rejected.len()), (entries.len(), 0));
        }
    }

    #[test]
    fn frames_between_neighbours_are_not_forwarded_unless_asked() {
        let group = |last: u8| {
            let mut frame = [0; 60];
            frame[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, last]);
            frame
        };
        for (forward_reserved, expected) in [(false, RESERVED), (true, FLOOD)] {
            let lookup = Static { forward_reserved, ..Static::new(&[], 8, 1).0 };
            let mut storage = Storage::default();
            let mut burst = Burst::begin(&mut storage);
            let frames = [group(0), group(1), group(0xf), group(0x10)];
            for frame in &frames {
                burst.push(Offload::default(), Span::of(frame)).unwrap();
            }
            let mut verdicts = [0; BURST];
            lookup.lookup(&burst, 1, 0, &mut verdicts);
            assert_eq!(verdicts[..4], [expected, expected, expected, FLOOD]);
        }
    }
}
