//! Addresses that are written in the file.

use crate::{Entry, FLOOD, Lookup, Mac, NOWHERE, PortId, Table, Verdicts};
use ringway_frame::Burst;

/// A bridge that learns nothing: known addresses go to their port, groups to all, others nowhere.
#[derive(Debug)]
pub struct Static {
    table: Table,
}

impl Static {
    /// Takes the addresses over; gives those back that found no room.
    pub fn new(entries: &[(Mac, PortId)], ports: usize, seed: u64) -> (Static, Vec<Mac>) {
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX).saturating_mul(2);
        let table = Table::new(count, ports, 0, 0, seed);
        let left =
            entries.iter().filter(|(mac, port)| !table.fix(*mac, *port)).map(|(mac, _)| *mac).collect();
        (Static { table }, left)
    }
}

impl Lookup for Static {
    fn lookup(&self, burst: &Burst<'_>, _from: PortId, _now: u64, verdicts: &mut Verdicts) {
        for (index, verdict) in verdicts.iter_mut().enumerate().take(burst.len()) {
            let destination = Mac::destination(burst.head(index));
            *verdict = match self.table.find(destination, 0) {
                Some(port) => port,
                None if destination.is_group() => FLOOD,
                None => NOWHERE,
            };
        }
    }

    fn forget(&self, port: PortId) {
        self.table.forget(port);
    }

    fn entries(&self, _now: u64) -> Vec<Entry> {
        self.table.entries(0)
    }
}
