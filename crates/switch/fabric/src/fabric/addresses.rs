//! What switches have learned, kept outside this process, so that another `data` process knows it from its first frame
//! on.
//!
//! Workers have no part in it, nor has the thread that serves sessions: a thread of its own reads a table that has
//! changed, every half second at most, and then keeps a record for each port of the switch. An address that was learned
//! since then is learned again from the next frame of its station; until then frames for it are flooded.
//!
//! The records of one reading, a generation, count together or not at all ([`committed`]): otherwise a station that
//! moved could stand at two ports if this process ended in between. They are written beside those of the generation
//! before, and count from the record behind them on. So if this process ends before it has kept anything, the next one
//! still finds what the one before kept. Another program's records, if they are written otherwise, don't count.

use super::{Fabric, FabricError, Record, SwitchRecord};
use crate::proto::{GroupEntry, TableEntry};
use ringway_port::{PeerRecords, State};
use ringway_spec::{MacAddress, To};
use ringway_switch::snooping::Membership;
use ringway_switch::{Entry, Lookup, Mac, PortId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Addresses of a port that are kept. Attack: a guest that sends from many addresses, for whose records others would
/// pay.
const ADDRESSES: usize = 1024;
/// Bytes of an address and its VLAN.
const ENTRY: usize = 6 + 2;
/// A table is read again after so many times the time that reading it took, at the earliest. Attack: addresses that
/// change all the time in a table of millions.
const REST: u64 = 100;

/// The key of the record that says which generation counts. The others' keys are below it.
const COMMIT: u32 = 2 * SIDE;
/// Keys of the records of a generation; the next one has the others.
const SIDE: u32 = 1 << 16;

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
    written: Written,
}

/// The records that are kept of a table.
#[derive(Clone, Copy, Default)]
struct Written {
    generation: u32,
    /// Number of records with the keys of even and odd generations.
    counts: [u32; 2],
}

/// A table that has changed.
struct ChangedTable {
    switch: String,
    lookup: Arc<dyn Lookup>,
    ports: BTreeMap<PortId, String>,
    written: Written,
}

/// Tables that have changed, to be read and kept without the fabric's lock.
#[derive(Default)]
pub struct ChangedTables {
    tables: Vec<ChangedTable>,
    keeper: Option<Arc<dyn PeerRecords>>,
}

/// A table that was read and kept.
pub struct ReadTable {
    switch: String,
    /// How long it may rest.
    rest: u64,
    written: Written,
}

impl ChangedTables {
    /// Keeps what they have now. `clock` gives the time in nanoseconds.
    pub fn keep(self, clock: impl Fn() -> u64) -> Vec<ReadTable> {
        let ChangedTables { tables, keeper } = self;
        let Some(keeper) = keeper else { return Vec::new() };
        let read = |table: ChangedTable| {
            let ChangedTable { switch, lookup, ports, mut written } = table;
            let begun = clock();
            let mut found: BTreeMap<PortId, Vec<Entry>> = BTreeMap::new();
            // A static address is the file's.
            for entry in lookup.entries(begun).into_iter().filter(|entry| entry.age.is_some()) {
                let kept = found.entry(entry.port).or_default();
                if ports.contains_key(&entry.port) && kept.len() < ADDRESSES {
                    kept.push(entry);
                }
            }
            found.retain(|_, kept| !kept.is_empty());
            let found = found.iter().map(|(port, entries)| (&*ports[port], &**entries));
            written.write(found, |key, bytes| {
                keeper.keep(&slot(&switch), key, bytes.map(|bytes| (bytes, &[][..])));
            });
            let took = clock().saturating_sub(begun);
            ReadTable { switch, rest: took.saturating_mul(REST), written }
        };
        tables.into_iter().map(read).collect()
    }
}

impl Written {
    /// Writes the next generation: addresses of ports by their names.
    fn write<'p>(
        &mut self,
        found: impl Iterator<Item = (&'p str, &'p [Entry])>,
        mut keep: impl FnMut(u32, Option<&[u8]>),
    ) {
        self.generation = self.generation.wrapping_add(1);
        let (side, mut count) = (self.generation % 2, 0);
        for (port, entries) in found {
            keep(side * SIDE + count, Some(&encode(self.generation, port, entries)));
            count += 1;
        }
        let commit = [self.generation.to_le_bytes(), count.to_le_bytes()].concat();
        keep(COMMIT, Some(&commit));
        let before = std::mem::replace(&mut self.counts[side as usize], count);
        (count..before).for_each(|gone| keep(side * SIDE + gone, None));
    }
}

/// A record: the generation, the length of the port's name, the name, and addresses with their VLANs.
fn encode(generation: u32, port: &str, entries: &[Entry]) -> Vec<u8> {
    let mut bytes = generation.to_le_bytes().to_vec();
    bytes.extend_from_slice(&(port.len() as u16).to_le_bytes());
    bytes.extend_from_slice(port.as_bytes());
    for entry in entries {
        bytes.extend_from_slice(&entry.mac.bytes());
        bytes.extend_from_slice(&entry.vlan.to_le_bytes());
    }
    bytes
}

/// What a record says.
struct Decoded<'r> {
    generation: u32,
    port: &'r str,
    entries: Vec<(Mac, u16)>,
}

/// Decodes a record; `None` if it is not one. Attack: a record that a `data` process wrote which was taken over. It can
/// say no more than frames of these ports can: which addresses are there.
fn decode(bytes: &[u8]) -> Option<Decoded<'_>> {
    let (generation, rest) = bytes.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    let (port, rest) = rest.split_at_checked(u16::from_le_bytes(*len).into())?;
    let (entries, []) = rest.as_chunks::<ENTRY>() else { return None };
    let entry = |bytes: &[u8; ENTRY]| {
        let [mac @ .., low, high] = *bytes;
        (Mac::new(mac), u16::from_le_bytes([low, high]))
    };
    let entries = entries.iter().take(ADDRESSES).map(entry).collect();
    Some(Decoded {
        generation: u32::from_le_bytes(*generation),
        port: std::str::from_utf8(port).ok()?,
        entries,
    })
}

/// Of the records that are kept of a switch, with their keys, those of the last generation that was kept as a whole.
pub fn committed(records: Vec<(u32, Vec<u8>)>) -> Vec<Vec<u8>> {
    let commit = records.iter().find(|(key, _)| *key == COMMIT);
    let Some(([generation, count], [])) = commit.map(|(_, bytes)| bytes.as_chunks::<4>()) else {
        return Vec::new();
    };
    let (generation, count) = (u32::from_le_bytes(*generation), u32::from_le_bytes(*count).min(SIDE));
    let first = generation % 2 * SIDE;
    let counts = |(key, bytes): &(u32, Vec<u8>)| {
        (first..first + count).contains(key)
            && decode(bytes).is_some_and(|record| record.generation == generation)
    };
    records.into_iter().filter(counts).map(|(_, bytes)| bytes).collect()
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

    /// Whether there is a table that has changed since it was kept, and may be read now.
    pub fn has_changed_tables(&self) -> bool {
        let now = self.clock.now();
        self.switches.values().any(|record| {
            let changes = record.made.as_ref().map(|made| made.lookup.changes());
            changes.is_some_and(|changes| changes != record.kept.changes) && now >= record.kept.due
        })
    }

    /// The tables that have changed since they were kept: of those that may be read now, or all.
    pub fn changed_tables(&mut self, all: bool) -> ChangedTables {
        let now = self.clock.now();
        let mut tables = Vec::new();
        for (name, record) in &mut self.switches {
            let Some(made) = &record.made else { continue };
            let changes = made.lookup.changes();
            if changes == record.kept.changes || now < record.kept.due && !all {
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
                written: record.kept.written,
            });
        }
        ChangedTables { tables, keeper: self.keeper.clone() }
    }

    /// Ends what [`Fabric::changed_tables`] began.
    pub fn kept_tables(&mut self, read: Vec<ReadTable>) {
        let now = self.clock.now();
        for ReadTable { switch, rest, written } in read {
            if let Some(record) = self.switches.get_mut(&switch) {
                (record.kept.due, record.kept.written) = (now.saturating_add(rest), written);
            }
        }
    }

    /// Learns what a former process kept of a port of a switch. Frames for a port without a peer are flooded all the
    /// same: the station may be elsewhere by now.
    ///
    /// # Errors
    /// It is no such record, or the switch is unknown.
    pub fn restore_table(&mut self, switch: &str, bytes: &[u8]) -> Result<(), FabricError> {
        let record = self.switches.get_mut(switch);
        let record = record.ok_or_else(|| FabricError::Unknown("switch", switch.into()))?;
        let decoded = decode(bytes).ok_or(FabricError::Limit("a record has whole addresses"))?;
        let Decoded { generation, port: name, entries } = decoded;
        // Its records stay until the next generation is kept beside them.
        record.kept.written.generation = generation;
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

    fn entry(last: u8, vlan: u16) -> Entry {
        Entry { mac: Mac::new([2, 0, 0, 0, 0, last]), vlan, port: 3, age: Some(1) }
    }

    #[test]
    fn records_round_trip_and_others_are_none() {
        let bytes = encode(7, "left", &[entry(1, 0), entry(2, 100)]);
        let Decoded { generation, port, entries } = decode(&bytes).unwrap();
        assert_eq!((generation, port), (7, "left"));
        assert_eq!((entries.len(), entries[1]), (2, (entry(2, 100).mac, 100)));
        for len in (0..bytes.len()).filter(|len| ![10, 18].contains(len)) {
            assert!(decode(&bytes[..len]).is_none(), "{len}");
        }
        assert!(decode(&[0, 0, 0, 0, 1, 0, 0xff]).is_none(), "the name is not UTF-8");
        let many = vec![entry(1, 0); ADDRESSES + 5];
        assert_eq!(decode(&encode(1, "p", &many)).unwrap().entries.len(), ADDRESSES);
    }

    /// The ports of each station, by what the records say that count.
    fn places(records: &BTreeMap<u32, Vec<u8>>) -> Vec<(u8, String)> {
        let records = records.iter().map(|(key, bytes)| (*key, bytes.clone())).collect();
        let each = |bytes: Vec<u8>| {
            let Decoded { port, entries, .. } = decode(&bytes).unwrap();
            let port = port.to_string();
            entries.into_iter().map(move |(mac, _)| (mac.bytes()[5], port.clone())).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = committed(records).into_iter().flat_map(each).collect();
        all.sort();
        all
    }

    /// Writes tables one after the other, by a process each that ends before it keeps record number `end`.
    fn crashes(tables: &[&[(u8, &str)]], end: usize) {
        let (mut records, mut last) = (BTreeMap::new(), Vec::new());
        for table in tables {
            // A new process knows the generation of the records that count.
            let mut written = Written::default();
            let counts = committed(records.clone().into_iter().collect());
            written.generation = counts.first().map_or(0, |bytes| decode(bytes).unwrap().generation);
            let mut found: BTreeMap<&str, Vec<Entry>> = BTreeMap::new();
            table.iter().for_each(|(last, port)| found.entry(port).or_default().push(entry(*last, 0)));
            let mut kept = 0;
            written.write(found.iter().map(|(port, entries)| (*port, &**entries)), |key, bytes| {
                kept += 1;
                match bytes {
                    _ if kept > end => {}
                    Some(bytes) => _ = records.insert(key, bytes.to_vec()),
                    None => _ = records.remove(&key),
                }
            });
            let whole: Vec<_> = table.iter().map(|(last, port)| (*last, port.to_string())).collect();
            if places(&records) == whole {
                last = whole;
            }
            assert_eq!(places(&records), last, "ends before record {end}");
        }
    }

    #[test]
    fn a_station_never_stands_at_two_ports_wherever_the_process_ends_and_nothing_that_was_kept_is_lost() {
        let tables: [&[(u8, &str)]; 6] = [
            &[(1, "a"), (2, "b"), (3, "c")],
            &[(1, "b"), (2, "a"), (3, "c")],
            &[],
            &[(1, "c")],
            &[(1, "a"), (2, "a"), (3, "b")],
            &[(3, "b")],
        ];
        for end in 0..8 {
            crashes(&tables, end);
        }
    }

    #[test]
    fn a_table_that_is_kept_again_and_again_has_two_generations_of_records() {
        let (mut records, mut written) = (BTreeMap::new(), Written::default());
        for round in 0..20_u8 {
            let ports: Vec<String> = (0..=round % 7).map(|port| format!("p{port}")).collect();
            let entries = [entry(round, 0)];
            written.write(ports.iter().map(|port| (&**port, &entries[..])), |key, bytes| match bytes {
                Some(bytes) => _ = records.insert(key, bytes.to_vec()),
                None => _ = records.remove(&key),
            });
            assert_eq!(places(&records).len(), ports.len());
            assert!(
                records.len() <= 2 * 7 + 1
                    && records.len() <= written.counts.iter().sum::<u32>() as usize + 1
            );
        }
        assert_eq!(committed(vec![(COMMIT, vec![1; 7])]), Vec::<Vec<u8>>::new(), "not a commit");
        assert_eq!(committed(vec![(COMMIT, vec![0xff; 8])]), Vec::<Vec<u8>>::new());
    }
}
