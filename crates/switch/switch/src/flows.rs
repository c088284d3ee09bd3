//! Flow tables: `lookup = "flow"`. What becomes of a frame is decided by `ringway-flow`, whose ports are numbers; here
//! are the numbers of a switch's ports, and the learning of addresses for `normal`.
//!
//! [`FlowTables`] is the side of whoever changes flows, and stays while ports come and go. [`FlowLookup`] is what
//! workers see: as a [`Lookup`] it forwards nothing, since a frame may have several copies with changed headers.

use crate::{
    Entry, FrameVlans, Lookup, LookupContext, LookupFactory, LookupKind, Mac, NOWHERE, PortId, Station,
    Verdicts, learning,
};
use ringway_flow::{Arrival, Numbers, Ports, Published, Rules, Tables};
use ringway_frame::{Burst, Offload};
use ringway_spec::Kind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

/// `lookup = "flow"`.
pub const LOOKUP: LookupKind = LookupKind {
    name: "flow",
    open: |kind| {
        let Settings { rules, ports, .. } = kind.settings()?;
        let normal = (learning::LOOKUP.open)(&Kind::new(learning::LOOKUP.name, &NORMAL))?;
        // Attack: as of `Tables::new`.
        let seed = RandomState::new().build_hasher().finish();
        Ok(Box::new(FlowTables { tables: Tables::new(seed), ports, normal, rules: Some(rules), revision: 0 }))
    },
};

/// How addresses are learned for `normal`: as by default.
const NORMAL: learning::Settings = learning::Settings { ageing: 300, entries: 4096, refuse_moves: false };

/// Settings in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Flows, groups and meters, one a line.
    pub rules: String,
    /// The file that they were read from, if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The numbers of ports, by name.
    #[serde(default, skip_serializing_if = "PortNumbers::is_empty")]
    pub ports: PortNumbers,
}

/// The numbers that flows have for ports, by name. A port that is gone keeps its number, and so does one that comes
/// again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PortNumbers(pub BTreeMap<String, u16>);

impl PortNumbers {
    /// The greatest number of a port, as in OpenFlow.
    pub const LAST: u16 = 0xfeff;

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names by number, for many lines.
    pub fn names(&self) -> PortNames<'_> {
        PortNames { ports: self, names: self.0.iter().map(|(name, number)| (*number, &**name)).collect() }
    }

    /// Gives ports without a number the least free ones; whether there were such ports.
    pub fn assign<'n>(&mut self, names: impl Iterator<Item = &'n str>) -> bool {
        let new: Vec<&str> = names.filter(|name| !self.0.contains_key(*name)).collect();
        if new.is_empty() {
            return false;
        }
        let mut used = vec![false; usize::from(Self::LAST) + 1];
        self.0.values().for_each(|number| used[usize::from((*number).min(Self::LAST))] = true);
        let mut free = (1..=Self::LAST).filter(|number| !used[usize::from(*number)]);
        for name in new {
            // There are fewer ports than numbers; without a number a port is not named.
            let Some(number) = free.next() else { return true };
            self.0.insert(name.into(), number);
        }
        true
    }
}

/// The numbers of ports, and their names by number.
#[derive(Clone, Debug)]
pub struct PortNames<'n> {
    ports: &'n PortNumbers,
    names: BTreeMap<u16, &'n str>,
}

impl PortNames<'_> {
    /// Only the names of these ports: others are shown by their numbers.
    #[must_use]
    pub fn only(mut self, is_meant: impl Fn(&str) -> bool) -> Self {
        self.names.retain(|_, name| is_meant(name));
        self
    }
}

impl Ports for PortNames<'_> {
    fn number(&self, word: &str) -> Option<u16> {
        self.ports.number(word)
    }

    fn name(&self, number: u16) -> Option<String> {
        self.names.get(&number).map(ToString::to_string)
    }
}

impl Ports for PortNumbers {
    fn number(&self, word: &str) -> Option<u16> {
        self.0.get(word).copied().or_else(|| Numbers.number(word))
    }

    fn name(&self, number: u16) -> Option<String> {
        self.0.iter().find(|(_, own)| **own == number).map(|(name, _)| name.clone())
    }
}

/// A switch's tables, as they are changed.
pub struct FlowTables {
    tables: Tables,
    ports: PortNumbers,
    normal: Box<dyn LookupFactory>,
    /// Rules that are not in the tables yet.
    rules: Option<String>,
    revision: u64,
}

impl FlowTables {
    /// Adds the flows of the settings at `now`, in nanoseconds, once.
    ///
    /// # Errors
    /// They are wrong, as text.
    pub fn begin(&mut self, now: u64) -> Result<(), String> {
        match self.rules.take() {
            Some(rules) => self.replace(&rules, now),
            None => Ok(()),
        }
    }

    /// The tables.
    pub fn tables(&mut self) -> &mut Tables {
        &mut self.tables
    }

    /// The numbers of ports. Whoever changes them makes the lookup again.
    pub fn ports(&self) -> &PortNumbers {
        &self.ports
    }

    /// Sets the numbers of ports; whether they differ.
    pub fn set_ports(&mut self, ports: PortNumbers) -> bool {
        let differs = self.ports != ports;
        self.ports = ports;
        differs
    }

    /// Number of the changes so far.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Notes a change.
    pub fn changed(&mut self) {
        self.revision += 1;
    }

    /// Makes the rules of a text, one a line, those that are there.
    ///
    /// # Errors
    /// They are wrong, as text.
    pub fn replace(&mut self, rules: &str, now: u64) -> Result<(), String> {
        let rules = Rules::read(rules, &self.ports).map_err(|error| error.to_string())?;
        self.tables.replace(&rules, now).map_err(|error| error.to_string())?;
        self.changed();
        Ok(())
    }

    /// Adds what another process had counted of flows, from their lines.
    pub fn restore_counts(&self, dump: &str) {
        self.tables.restore_counts(dump, &self.ports.names());
    }
}

impl LookupFactory for FlowTables {
    fn make(&mut self, context: &LookupContext<'_>) -> Arc<dyn Lookup> {
        let mut lookup = FlowLookup {
            published: self.tables.published(),
            numbers: Vec::new(),
            ids: Vec::new(),
            count: 0,
            normal: self.normal.make(context),
        };
        for (name, number) in &self.ports.0 {
            if let Some(id) = (context.port)(name) {
                set(&mut lookup.numbers, usize::from(id), *number, 0);
                set(&mut lookup.ids, usize::from(*number), id, NOWHERE);
                lookup.count = lookup.count.saturating_add(1);
            }
        }
        Arc::new(lookup)
    }

    fn flows(&mut self) -> Option<&mut FlowTables> {
        Some(self)
    }
}

fn set(list: &mut Vec<u16>, at: usize, value: u16, none: u16) {
    if list.len() <= at {
        list.resize(at + 1, none);
    }
    list[at] = value;
}

/// A switch's tables, as workers see them.
#[derive(Clone)]
pub struct FlowLookup {
    published: Arc<Published>,
    /// The number of each port; 0: it has none.
    numbers: Vec<u16>,
    /// The port of each number.
    ids: Vec<PortId>,
    /// Number of ports.
    count: u16,
    normal: Arc<dyn Lookup>,
}

impl FlowLookup {
    /// Where the current snapshot of the tables is.
    #[inline]
    pub fn published(&self) -> &Arc<Published> {
        &self.published
    }

    /// The port of a number, if it is there.
    #[inline]
    pub fn port(&self, number: u16) -> Option<PortId> {
        self.ids.get(usize::from(number)).copied().filter(|id| *id != NOWHERE)
    }

    /// The arrival of a frame of `len` bytes from a port.
    #[inline]
    pub fn arrival(&self, from: PortId, len: u32, offload: &Offload) -> Arrival {
        let pending =
            offload.needs_checksum().then(|| offload.csum_start.saturating_add(offload.csum_offset));
        Arrival {
            in_port: self.numbers.get(usize::from(from)).copied().unwrap_or(0),
            ports: self.count,
            len,
            pending,
        }
    }

    /// The same tables, with another forwarding of frames whose flow says `normal`.
    pub(crate) fn with_normal(&self, make: impl FnOnce(Arc<dyn Lookup>) -> Arc<dyn Lookup>) -> FlowLookup {
        FlowLookup { normal: make(self.normal.clone()), ..self.clone() }
    }

    /// What forwards frames whose flow says `normal`.
    #[inline]
    pub fn normal(&self) -> &dyn Lookup {
        &*self.normal
    }
}

impl Lookup for FlowLookup {
    fn lookup(&self, burst: &Burst<'_>, _from: PortId, _now: u64, verdicts: &mut Verdicts) -> u32 {
        verdicts[..burst.len()].fill(NOWHERE);
        0
    }

    fn lookup_in(
        &self,
        burst: &Burst<'_>,
        at: (PortId, u64),
        _vlans: &FrameVlans<'_>,
        verdicts: &mut Verdicts,
    ) -> u32 {
        self.lookup(burst, at.0, at.1, verdicts)
    }

    fn knows(&self, station: Station, port: PortId) -> bool {
        self.normal.knows(station, port)
    }

    fn remove_port(&self, port: PortId) {
        self.normal.remove_port(port);
    }

    fn forget_port(&self, port: PortId) {
        self.normal.forget_port(port);
    }

    fn forget(&self, mac: Mac) {
        self.normal.forget(mac);
    }

    fn changes(&self) -> u64 {
        self.normal.changes()
    }

    fn restore(&self, mac: Mac, vlan: u16, port: PortId, now: u64) {
        self.normal.restore(mac, vlan, port, now);
    }

    fn entries(&self, now: u64) -> Vec<Entry> {
        self.normal.entries(now)
    }

    fn flows(&self) -> Option<&FlowLookup> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FLOOD, Flooding, FlowHash};
    use ringway_frame::{BURST, Storage};
    use ringway_mem::Span;

    fn ports(list: &[(&str, u16)]) -> PortNumbers {
        PortNumbers(list.iter().map(|(name, number)| (name.to_string(), *number)).collect())
    }

    #[test]
    fn ports_keep_their_numbers_and_new_ones_get_the_least_free_ones() {
        let mut own = ports(&[("b", 2), ("gone", 4)]);
        assert!(own.assign(["a", "b", "c", "d"].into_iter()));
        assert_eq!(own, ports(&[("a", 1), ("b", 2), ("c", 3), ("d", 5), ("gone", 4)]));
        assert!(!own.assign(["gone", "a"].into_iter()));
        assert_eq!((own.number("gone"), own.number("7"), own.number("e")), (Some(4), Some(7), None));
        assert_eq!((own.name(5), own.name(6)), (Some("d".into()), None));
    }

    #[test]
    fn frames_for_guests_that_arrive_are_flooded_by_normal() {
        let settings = Settings { rules: "actions=normal\n".into(), ports: ports(&[("a", 1)]), file: None };
        let mut factory = (LOOKUP.open)(&Kind::new("flow", &settings)).unwrap();
        factory.flows().unwrap().begin(5).unwrap();
        let inner = factory.make(&LookupContext {
            port: &|name: &str| (name == "a").then_some(7),
            ports: 16,
            hash: FlowHash::new(1),
            forward_reserved: false,
            seed: 3,
            rejected: &|_| {},
        });
        let lookup = Flooding::over(inner.clone(), vec![Mac::new([2, 0, 0, 0, 0, 8])]);
        let sent = |lookup: &dyn Lookup, to: u8, from: u8, port: PortId| {
            let mut frame = [0; 60];
            frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from]);
            let mut storage = Storage::default();
            let mut burst = Burst::begin(&mut storage);
            burst.push(Offload::default(), Span::of(&frame)).unwrap();
            let mut verdicts = [NOWHERE; BURST];
            lookup.flows().unwrap().normal().lookup(&burst, port, 0, &mut verdicts);
            verdicts[0]
        };
        assert_eq!(sent(&*lookup, 4, 8, 1), FLOOD);
        assert_eq!(sent(&*inner, 8, 4, 2), 1, "it is known");
        assert_eq!(sent(&*lookup, 8, 4, 2), FLOOD, "and may be at its new port");
        assert_eq!(sent(&*lookup, 4, 8, 1), 2);
        let (own, former) = (lookup.flows().unwrap(), inner.flows().unwrap());
        assert!(Arc::ptr_eq(own.published(), former.published()));
        assert_eq!((own.port(1), own.arrival(7, 60, &Offload::default()).in_port), (Some(7), 1));
    }

    #[test]
    fn tables_stay_when_ports_come_and_go() {
        let settings = Settings {
            rules: "in_port=a,actions=output:b\n".into(),
            ports: ports(&[("a", 1), ("b", 2)]),
            file: None,
        };
        let mut factory = (LOOKUP.open)(&Kind::new("flow", &settings)).unwrap();
        let flows = factory.flows().unwrap();
        flows.begin(5).unwrap();
        assert_eq!((flows.tables().current().len(), flows.revision()), (1, 1));
        let rejected = |_| {};
        let make = |factory: &mut dyn LookupFactory, ids: &[(&str, PortId)]| {
            let port = |name: &str| ids.iter().find(|(own, _)| *own == name).map(|(_, id)| *id);
            factory.make(&LookupContext {
                port: &port,
                ports: 16,
                hash: FlowHash::new(1),
                forward_reserved: false,
                seed: 3,
                rejected: &rejected,
            })
        };
        let lookup = make(&mut *factory, &[("a", 9), ("b", 3)]);
        let seen = lookup.flows().unwrap();
        assert_eq!((seen.port(1), seen.port(2), seen.port(3)), (Some(9), Some(3), None));
        let number = |from| seen.arrival(from, 60, &Offload::default()).in_port;
        assert_eq!((number(3), number(4)), (2, 0));
        let lookup = make(&mut *factory, &[("a", 4)]);
        let seen = lookup.flows().unwrap();
        assert_eq!((seen.port(1), seen.port(2), seen.published().current().len()), (Some(4), None, 1));
        assert!(
            factory
                .flows()
                .unwrap()
                .replace("foo=1,actions=drop", 6)
                .unwrap_err()
                .contains("line 1, column 1")
        );
        assert_eq!(factory.flows().unwrap().tables().current().len(), 1);
    }
}
