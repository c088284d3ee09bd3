//! What switches have learned, kept outside this process, so that another `data` process knows it from its first frame
//! on.
//!
//! Workers have no part in it. The thread that serves sessions looks every half second whether a table has changed, and
//! then keeps a record for each port of the switch. An address that was learned since then is learned again from the
//! next frame of its station; until then frames for it are flooded.

use super::{Fabric, FabricError, Record, SwitchRecord};
use crate::proto::{GroupEntry, TableEntry};
use ringway_port::{PeerRecords, State};
use ringway_spec::{MacAddress, To};
use ringway_switch::snooping::Membership;
use ringway_switch::{Entry, Lookup, Mac, PortId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Addresses of a port that are kept. Attack: a guest that sends from many addresses, for whose records others would
/// pay.
const ADDRESSES: usize = 1024;
/// Bytes of an address and its VLAN.
const ENTRY: usize = 6 + 2;
/// A table is read again after so many times the time that reading it took, at the earliest. Attack: addresses that
/// change all the time in a table of millions.
const REST: u64 = 100;

/// The name under which a switch's addresses are kept. Ports have other names.
pub fn slot(switch: &str) -> String {
    format!("switch/{switch}")
}

/// What is kept of a switch.
#[derive(Default)]
pub(super) struct KeptTable {
    /// The table's number of changes when it was read last.
    changes: u64,
    /// When it may be read again.
    due: u64,
    /// Ports with a record.
    ports: BTreeSet<PortId>,
}

/// A table that has changed.
struct ChangedTable {
    switch: String,
    lookup: Arc<dyn Lookup>,
    ports: BTreeMap<PortId, String>,
    before: BTreeSet<PortId>,
}

/// Tables that have changed, to be read and kept without the fabric's lock.
#[derive(Default)]
pub struct ChangedTables {
    tables: Vec<ChangedTable>,
    keeper: Option<Arc<dyn PeerRecords>>,
}

/// How long each table may rest, and the ports that have records.
pub type ReadTables = Vec<(String, u64, BTreeSet<PortId>)>;

impl ChangedTables {
    /// Keeps what they have now. `clock` gives the time in nanoseconds.
    pub fn keep(self, clock: impl Fn() -> u64) -> ReadTables {
        let ChangedTables { tables, keeper } = self;
        let Some(keeper) = keeper else { return Vec::new() };
        let read = |table: ChangedTable| {
            let ChangedTable { switch, lookup, ports, before } = table;
            let begun = clock();
            let mut records: BTreeMap<PortId, Vec<Entry>> = BTreeMap::new();
            // A static address is the file's.
            for entry in lookup.entries(begun).into_iter().filter(|entry| entry.age.is_some()) {
                let kept = records.entry(entry.port).or_default();
                if ports.contains_key(&entry.port) && kept.len() < ADDRESSES {
                    kept.push(entry);
                }
            }
            records.retain(|_, kept| !kept.is_empty());
            let slot = slot(&switch);
            for (port, entries) in &records {
                let bytes = encode(&ports[port], entries);
                keeper.keep(&slot, u32::from(*port), Some((&bytes, &[])));
            }
            for gone in before.iter().filter(|port| !records.contains_key(port)) {
                keeper.keep(&slot, u32::from(*gone), None);
            }
            let took = clock().saturating_sub(begun);
            (switch, took.saturating_mul(REST), records.into_keys().collect())
        };
        tables.into_iter().map(read).collect()
    }
}

/// A record: the length of the port's name, the name, and addresses with their VLANs.
fn encode(port: &str, entries: &[Entry]) -> Vec<u8> {
    let mut bytes = (port.len() as u16).to_le_bytes().to_vec();
    bytes.extend_from_slice(port.as_bytes());
    for entry in entries {
        bytes.extend_from_slice(&entry.mac.bytes());
        bytes.extend_from_slice(&entry.vlan.to_le_bytes());
    }
    bytes
}

/// The port and the addresses of a record; `None` if it is not one. Attack: a record that a `data` process wrote which
/// was taken over. It can say no more than frames of these ports can: which addresses are there.
fn decode(bytes: &[u8]) -> Option<(&str, Vec<(Mac, u16)>)> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (port, rest) = rest.split_at_checked(u16::from_le_bytes(*len).into())?;
    let (entries, []) = rest.as_chunks::<ENTRY>() else { return None };
    let entry = |bytes: &[u8; ENTRY]| {
        let [mac @ .., low, high] = *bytes;
        (Mac::new(mac), u16::from_le_bytes([low, high]))
    };
    Some((std::str::from_utf8(port).ok()?, entries.iter().take(ADDRESSES).map(entry).collect()))
}

impl Fabric {
    /// The number of addresses that each switch knows.
    pub fn address_counts(&self) -> BTreeMap<String, u64> {
        let now = self.clock.now();
        let count = |record: &SwitchRecord| {
            record.made.as_ref().map_or(0, |made| made.lookup.entries(now).len() as u64)
        };
        self.switches.iter().map(|(name, record)| (name.clone(), count(record))).collect()
    }

    /// Addresses that a switch knows.
    pub fn table(&self, switch: &str) -> Result<Vec<TableEntry>, FabricError> {
        let record = self.switches.get(switch);
        let record = record.ok_or_else(|| FabricError::Unknown("switch", switch.into()))?;
        let lookup = record.made.as_ref().map(|made| made.lookup.clone());
        let entries = lookup.map_or_else(Vec::new, |lookup| lookup.entries(self.clock.now()));
        Ok(entries
            .into_iter()
            .map(|entry| TableEntry {
                mac: MacAddress(entry.mac.bytes()),
                vlan: entry.vlan,
                port: self.port_name(entry.port),
                age: entry.age,
            })
            .collect())
    }

    /// The members of groups that a switch knows, if it snoops.
    pub fn groups(&self, switch: &str) -> Result<Option<Vec<GroupEntry>>, FabricError> {
        let record = self.switches.get(switch);
        let record = record.ok_or_else(|| FabricError::Unknown("switch", switch.into()))?;
        let Some(snooping) = &record.snooping else { return Ok(None) };
        let entry = |Membership { vlan, group, port, left }| {
            let port = self.port_name(port);
            GroupEntry { vlan, group, port, left }
        };
        Ok(Some(snooping.memberships(self.clock.now()).into_iter().map(entry).collect()))
    }

    fn port_name(&self, id: PortId) -> String {
        let found = self.ports.iter().find(|(_, record)| record.id == id);
        found.map_or_else(|| format!("port {id}"), |(name, _)| name.clone())
    }

    /// The tables that have changed since they were kept, of those that may be read now.
    pub fn changed_tables(&mut self) -> ChangedTables {
        let now = self.clock.now();
        let mut tables = Vec::new();
        for (name, record) in &mut self.switches {
            let Some(made) = &record.made else { continue };
            let changes = made.lookup.changes();
            if changes == record.kept.changes || now < record.kept.due {
                continue;
            }
            // What changes while it is read is kept the next time.
            (record.kept.changes, record.kept.due) = (changes, u64::MAX);
            let on = |port: &&Record| matches!(&port.spec.to, Some(To::Switch(own)) if own == name);
            let ports =
                self.ports.values().filter(on).map(|port| (port.id, port.spec.name.clone())).collect();
            tables.push(ChangedTable {
                switch: name.clone(),
                lookup: made.lookup.clone(),
                ports,
                before: record.kept.ports.clone(),
            });
        }
        ChangedTables { tables, keeper: self.keeper.clone() }
    }

    /// Ends what [`Fabric::changed_tables`] began.
    pub fn kept_tables(&mut self, read: ReadTables) {
        let now = self.clock.now();
        for (switch, rest, ports) in read {
            if let Some(record) = self.switches.get_mut(&switch) {
                (record.kept.due, record.kept.ports) = (now.saturating_add(rest), ports);
            }
        }
    }

    /// Learns what a former process kept of a port of a switch. Frames for a port without a peer are flooded all the
    /// same: the station may be elsewhere by now.
    ///
    /// # Errors
    /// It is no such record, or the switch is unknown.
    pub fn restore_table(&mut self, switch: &str, bytes: &[u8]) -> Result<(), FabricError> {
        let record = self.switches.get(switch);
        let record = record.ok_or_else(|| FabricError::Unknown("switch", switch.into()))?;
        let (name, entries) = decode(bytes).ok_or(FabricError::Limit("a record has whole addresses"))?;
        let here = |port: &&Record| matches!(&port.spec.to, Some(To::Switch(own)) if own == switch);
        let is_up = |port: &&Record| port.peer.as_ref().is_some_and(|peer| peer.state().0 == State::Up);
        if let Some(port) = self.ports.get(name).filter(here).filter(is_up)
            && let Some(made) = &record.made
        {
            let now = self.clock.now();
            let may_send =
                |mac: &Mac, vlan: u16| port.policy.as_ref().is_none_or(|own| own.may_send(mac, vlan));
            let allowed = entries.into_iter().filter(|(mac, vlan)| may_send(mac, *vlan));
            allowed.for_each(|(mac, vlan)| made.lookup.restore(mac, vlan, port.id, now));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_others_are_none() {
        let entry =
            |last: u8, vlan| Entry { mac: Mac::new([2, 0, 0, 0, 0, last]), vlan, port: 3, age: Some(1) };
        let bytes = encode("left", &[entry(1, 0), entry(2, 100)]);
        let (port, entries) = decode(&bytes).unwrap();
        assert_eq!((port, entries.len(), entries[1]), ("left", 2, (entry(2, 100).mac, 100)));
        for len in (0..bytes.len()).filter(|len| ![6, 14].contains(len)) {
            assert!(decode(&bytes[..len]).is_none(), "{len}");
        }
        assert!(decode(&[1, 0, 0xff]).is_none(), "the name is not UTF-8");
        let many = vec![entry(1, 0); ADDRESSES + 5];
        assert_eq!(decode(&encode("p", &many)).unwrap().1.len(), ADDRESSES);
    }
}
