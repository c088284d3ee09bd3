//! Changes of flows, groups and meters: one by one, or as a bundle that is whole or not at all.

use crate::action::Action;
use crate::classifier::TooManyMasks;
use crate::flow::{Flow, FlowFilter, FlowMod, has_any};
use crate::group::{GROUPS, Group};
use crate::meter::{METERS, Meter, MeterMod};
use crate::pipeline::{Pipeline, Published};
use crate::text::FlowError;
use crate::{Ports, TABLES};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Most flows of a switch. Attack: a client of the API that adds flows until there is no memory.
pub const FLOWS: usize = 1 << 20;

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a flow, in place of the one with the same table, priority and match.
    Add(FlowMod),
    /// Gives other actions to the flows that are meant, and the cookie if it is not 0. None may be meant.
    Modify(Box<(FlowMod, FlowFilter)>),
    /// Removes the flows that are meant.
    Delete(FlowFilter),
    /// Adds a group.
    AddGroup(Group),
    /// Changes a group.
    ModifyGroup(Group),
    /// Removes a group, or all, with the flows that use it.
    DeleteGroup(Option<u32>),
    /// Adds a meter.
    AddMeter(MeterMod),
    /// Changes a meter.
    ModifyMeter(MeterMod),
    /// Removes a meter, or all, with the flows that use it.
    DeleteMeter(Option<u32>),
}

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TablesError {
    /// There are too many flows.
    #[error("a switch has at most {FLOWS} flows")]
    TooManyFlows,
    /// There are too many masks.
    #[error(transparent)]
    TooManyMasks(#[from] TooManyMasks),
    /// There are too many groups.
    #[error("a switch has at most {GROUPS} groups")]
    TooManyGroups,
    /// There are too many meters.
    #[error("a switch has at most {METERS} meters")]
    TooManyMeters,
    /// An action or a change names a group that is not there.
    #[error("there is no group {0}")]
    NoGroup(u32),
    /// A group that is added is there already.
    #[error("group {0} is there already; change it, or delete it first")]
    HasGroup(u32),
    /// An action or a change names a meter that is not there.
    #[error("there is no meter {0}")]
    NoMeter(u32),
    /// A meter that is added is there already.
    #[error("meter {0} is there already; change it, or delete it first")]
    HasMeter(u32),
    /// A changed flow would go on in its own table or in an earlier one.
    #[error("goto_table:{to} does not go on in a later table than {from}")]
    Backwards {
        /// The flow's table.
        from: u8,
        /// The next one.
        to: u8,
    },
}

/// The flows, groups and meters that a file describes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Its flows.
    pub flows: Vec<FlowMod>,
    /// Its groups.
    pub groups: Vec<Group>,
    /// Its meters.
    pub meters: Vec<MeterMod>,
}

/// Where a file is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, {error}")]
pub struct FileError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub error: FlowError,
}

impl Rules {
    /// Reads a file: each line is a flow, a group (it begins with `group_id=`) or a meter (`meter=`); `#` begins a
    /// comment.
    ///
    /// # Errors
    /// A line is wrong, or two lines are the same flow, group or meter.
    pub fn read(text: &str, ports: &dyn Ports) -> Result<Rules, FileError> {
        let mut rules = Rules::default();
        let (mut flows, mut groups, mut meters) = (HashSet::new(), HashSet::new(), HashSet::new());
        for (number, whole) in text.lines().enumerate() {
            let line = whole.split('#').next().unwrap_or_default().trim_end();
            let start = line.trim_start();
            let wrong = |error: FlowError| FileError { line: number + 1, error };
            let is_new = if start.is_empty() {
                continue;
            } else if start.starts_with("group_id=") {
                rules.groups.push(Group::read(line, ports).map_err(wrong)?);
                rules.groups.last().is_some_and(|group| groups.insert(group.id))
            } else if start.starts_with("meter=") {
                rules.meters.push(MeterMod::read(line).map_err(wrong)?);
                rules.meters.last().is_some_and(|meter| meters.insert(meter.id))
            } else {
                let flow = FlowMod::read(line, ports).map_err(wrong)?;
                let is_new = flows.insert((flow.table, flow.priority, flow.of));
                rules.flows.push(flow);
                is_new
            };
            if !is_new {
                let column = 1 + line.chars().count() - start.chars().count();
                return Err(wrong(FlowError::new(column, "a line above is the same flow, group or meter")));
            }
        }
        Ok(rules)
    }

    /// As it is read again.
    pub fn show(&self, ports: &dyn Ports) -> String {
        let meters = self.meters.iter().map(MeterMod::show);
        let groups = self.groups.iter().map(|group| group.show(ports));
        let flows = self.flows.iter().map(|flow| flow.show(ports));
        meters.chain(groups).chain(flows).map(|line| line + "\n").collect()
    }
}

/// What has to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// What is there, and is not wanted.
    pub removed: Rules,
    /// What is wanted, and is not there.
    pub added: Rules,
}

impl Difference {
    /// Whether nothing has to change.
    pub fn is_empty(&self) -> bool {
        self.removed == Rules::default() && self.added == Rules::default()
    }

    /// A line for each, which begins with `-` or `+`, as `ovs-ofctl diff-flows` shows them.
    pub fn show(&self, ports: &dyn Ports) -> String {
        let lines = |rules: &Rules, sign: char| -> String {
            rules.show(ports).lines().map(|line| format!("{sign}{line}\n")).collect()
        };
        lines(&self.removed, '-') + &lines(&self.added, '+')
    }
}

/// The flows, groups and meters of a switch, as they are changed.
#[derive(Debug)]
pub struct Tables {
    current: Arc<Pipeline>,
    published: Arc<Published>,
    /// Former snapshots that workers may still have. They are freed here, not by a worker.
    retired: Vec<Arc<Pipeline>>,
}

impl Tables {
    /// Tables without flows. `seed`: a random number that no peer knows.
    pub fn new(seed: u64) -> Tables {
        let current = Arc::new(Pipeline::new(seed));
        let published = Arc::new(Published::new(current.clone()));
        Tables { current, published, retired: Vec::new() }
    }

    /// Where workers find the current snapshot.
    pub fn published(&self) -> Arc<Published> {
        self.published.clone()
    }

    /// The current snapshot.
    pub fn current(&self) -> &Arc<Pipeline> {
        &self.current
    }

    /// Makes changes at `now`, in nanoseconds: workers see all of them at once, or none. Returns how many flows were
    /// added, changed or removed.
    ///
    /// # Errors
    /// A change is refused; its number, and why.
    pub fn apply(&mut self, changes: &[Change], now: u64) -> Result<usize, (usize, TablesError)> {
        let mut next = Pipeline::clone(&self.current);
        let mut count = 0;
        for (number, change) in changes.iter().enumerate() {
            count += apply(&mut next, change, now).map_err(|error| (number, error))?;
        }
        self.publish(next);
        Ok(count)
    }

    fn publish(&mut self, mut next: Pipeline) {
        next.renew();
        self.current = Arc::new(next);
        let former = self.published.publish(self.current.clone());
        self.retired.push(former);
        self.collect();
    }

    /// Frees former snapshots that no worker has any more.
    pub fn collect(&mut self) {
        self.retired.retain(|former| Arc::strong_count(former) > 1);
    }

    /// The flows that are meant, by table, priority and match.
    pub fn select(&self, filter: &FlowFilter) -> Vec<Arc<Flow>> {
        let mut flows: Vec<_> = self.current.flows().filter(|flow| filter.has(&flow.flow)).cloned().collect();
        flows.sort_by_key(|own| order(&own.flow));
        flows
    }

    /// Everything, as a file describes it.
    pub fn rules(&self) -> Rules {
        Rules {
            flows: self.select(&FlowFilter::default()).iter().map(|flow| flow.flow.clone()).collect(),
            groups: self.current.groups().values().map(|group| Group::clone(group)).collect(),
            meters: self.current.meters().values().map(|meter| meter.meter).collect(),
        }
    }

    /// What has to change so that these rules are there, and no others.
    pub fn difference(&self, wanted: &Rules) -> Difference {
        let own = self.rules();
        let id = |flow: &FlowMod| (flow.table, flow.priority, flow.of);
        let mut difference = Difference {
            removed: Rules {
                flows: missing(&own.flows, &wanted.flows, id),
                groups: missing(&own.groups, &wanted.groups, |group| group.id),
                meters: missing(&own.meters, &wanted.meters, |meter| meter.id),
            },
            added: Rules {
                flows: missing(&wanted.flows, &own.flows, id),
                groups: missing(&wanted.groups, &own.groups, |group| group.id),
                meters: missing(&wanted.meters, &own.meters, |meter| meter.id),
            },
        };
        difference.added.flows.sort_by_key(order);
        difference
    }

    /// Makes these rules those that are there, at once. Flows that stay as they are keep what was counted of them.
    /// Returns what has changed.
    ///
    /// # Errors
    /// A rule is refused.
    pub fn replace(&mut self, wanted: &Rules, now: u64) -> Result<Difference, TablesError> {
        let difference = self.difference(wanted);
        let Difference { removed, added } = &difference;
        let mut next = Pipeline::clone(&self.current);
        removed.flows.iter().for_each(|flow| next.remove(flow));
        let mut put = |change: Change| apply(&mut next, &change, now).map(|_| ());
        // Flows that stay may use groups and meters that are changed: these are replaced where they are.
        for meter in &added.meters {
            let is_there = removed.meters.iter().any(|former| former.id == meter.id);
            put(if is_there { Change::ModifyMeter(*meter) } else { Change::AddMeter(*meter) })?;
        }
        // Buckets may name groups that the file has behind them.
        let groups = Self::in_order(&added.groups);
        for group in groups {
            let is_there = removed.groups.iter().any(|former| former.id == group.id);
            put(match is_there {
                true => Change::ModifyGroup(group.clone()),
                false => Change::AddGroup(group.clone()),
            })?;
        }
        added.flows.iter().try_for_each(|flow| put(Change::Add(flow.clone())))?;
        for group in &removed.groups {
            if !wanted.groups.iter().any(|own| own.id == group.id) {
                put(Change::DeleteGroup(Some(group.id)))?;
            }
        }
        for meter in &removed.meters {
            if !wanted.meters.iter().any(|own| own.id == meter.id) {
                put(Change::DeleteMeter(Some(meter.id)))?;
            }
        }
        if !difference.is_empty() {
            self.publish(next);
        }
        Ok(difference)
    }

    /// Groups such that those whose buckets name others come behind these. Those that name each other are left out of
    /// this order, and come last.
    fn in_order(groups: &[Group]) -> Vec<&Group> {
        let numbers: HashMap<u32, usize> = groups.iter().enumerate().map(|(at, own)| (own.id, at)).collect();
        // The groups that name each one, and how many each one names.
        let (mut named_by, mut names) = (vec![Vec::new(); groups.len()], vec![0_usize; groups.len()]);
        for (at, group) in groups.iter().enumerate() {
            let mut others = HashSet::new();
            group.buckets.iter().for_each(|bucket| named(&bucket.actions, &mut others));
            for other in others.iter().filter_map(|id| numbers.get(id)) {
                named_by[*other].push(at);
                names[at] += 1;
            }
        }
        let mut ordered: Vec<usize> = (0..groups.len()).filter(|at| names[*at] == 0).collect();
        let mut next = 0;
        while let Some(at) = ordered.get(next).copied() {
            next += 1;
            for other in &named_by[at] {
                names[*other] -= 1;
                if names[*other] == 0 {
                    ordered.push(*other);
                }
            }
        }
        let rest = (0..groups.len()).filter(|at| names[*at] > 0);
        ordered.into_iter().chain(rest).filter_map(|at| groups.get(at)).collect()
    }

    /// Removes the flows whose time has ended; returns them.
    pub fn expire(&mut self, now: u64) -> Vec<Arc<Flow>> {
        let expired: Vec<_> = self.current.flows().filter(|flow| flow.is_expired(now)).cloned().collect();
        if !expired.is_empty() {
            let mut next = Pipeline::clone(&self.current);
            expired.iter().for_each(|flow| next.remove(&flow.flow));
            self.publish(next);
        }
        expired
    }
}

/// Adds the numbers of the groups that actions name.
fn named(actions: &[Action], groups: &mut HashSet<u32>) {
    for action in actions {
        match action {
            Action::Group(id) => {
                groups.insert(*id);
            }
            Action::Clone(inner) => named(inner, groups),
            _ => {}
        }
    }
}

/// The rules of `all` that `others` does not have as they are.
fn missing<T: Clone + PartialEq, I: Eq + std::hash::Hash>(
    all: &[T],
    others: &[T],
    id: impl Fn(&T) -> I,
) -> Vec<T> {
    let others: HashMap<I, &T> = others.iter().map(|other| (id(other), other)).collect();
    all.iter().filter(|own| others.get(&id(own)) != Some(own)).cloned().collect()
}

/// By table, priority and match.
fn order(flow: &FlowMod) -> (u8, std::cmp::Reverse<u16>, crate::Key, crate::Key) {
    (flow.table, std::cmp::Reverse(flow.priority), flow.of.mask, flow.of.key)
}

fn apply(next: &mut Pipeline, change: &Change, now: u64) -> Result<usize, TablesError> {
    match change {
        Change::Add(flow) => {
            check(next, &flow.actions)?;
            if next.len() >= FLOWS && next.same(flow).is_none() {
                return Err(TablesError::TooManyFlows);
            }
            next.insert(Arc::new(Flow::new(flow.clone(), now)))?;
            Ok(1)
        }
        Change::Modify(meant) => {
            let (flow, filter) = &**meant;
            check(next, &flow.actions)?;
            modify(next, flow, filter, now)
        }
        Change::Delete(filter) => Ok(delete(next, |flow| filter.has(flow))),
        Change::AddGroup(group) => {
            if next.groups().contains_key(&group.id) {
                return Err(TablesError::HasGroup(group.id));
            }
            if next.groups().len() >= GROUPS {
                return Err(TablesError::TooManyGroups);
            }
            put_group(next, group)
        }
        Change::ModifyGroup(group) => match next.groups().contains_key(&group.id) {
            true => put_group(next, group),
            false => Err(TablesError::NoGroup(group.id)),
        },
        Change::DeleteGroup(id) => {
            let is_meant = |other: u32| id.is_none_or(|id| id == other);
            next.groups_mut().retain(|id, _| !is_meant(*id));
            Ok(delete(next, |flow| {
                has_any(&flow.actions, &|action| matches!(action, Action::Group(id) if is_meant(*id)))
            }))
        }
        Change::AddMeter(meter) => {
            if next.meters().contains_key(&meter.id) {
                return Err(TablesError::HasMeter(meter.id));
            }
            if next.meters().len() >= METERS {
                return Err(TablesError::TooManyMeters);
            }
            next.meters_mut().insert(meter.id, Arc::new(Meter::new(*meter)));
            Ok(0)
        }
        Change::ModifyMeter(meter) => match next.meters_mut().get_mut(&meter.id) {
            None => Err(TablesError::NoMeter(meter.id)),
            Some(own) => {
                *own = Arc::new(Meter::new(*meter));
                Ok(0)
            }
        },
        Change::DeleteMeter(id) => {
            let is_meant = |other: u32| id.is_none_or(|id| id == other);
            next.meters_mut().retain(|id, _| !is_meant(*id));
            Ok(delete(next, |flow| {
                has_any(&flow.actions, &|action| matches!(action, Action::Meter(id) if is_meant(*id)))
            }))
        }
    }
}

fn put_group(next: &mut Pipeline, group: &Group) -> Result<usize, TablesError> {
    for bucket in &group.buckets {
        check(next, &bucket.actions)?;
    }
    next.groups_mut().insert(group.id, Arc::new(group.clone()));
    Ok(0)
}

/// Whether the groups and meters that actions name are there.
fn check(next: &Pipeline, actions: &[Action]) -> Result<(), TablesError> {
    for action in actions {
        match action {
            Action::Group(id) if next.group(*id).is_none() => return Err(TablesError::NoGroup(*id)),
            Action::Meter(id) if next.meter(*id).is_none() => return Err(TablesError::NoMeter(*id)),
            Action::Clone(inner) => check(next, inner)?,
            _ => {}
        }
    }
    Ok(())
}

fn modify(next: &mut Pipeline, new: &FlowMod, filter: &FlowFilter, now: u64) -> Result<usize, TablesError> {
    let meant: Vec<_> = next.flows().filter(|own| filter.has(&own.flow)).cloned().collect();
    for own in &meant {
        if let Some(Action::Goto(to)) = new.actions.last()
            && *to <= own.flow.table
        {
            return Err(TablesError::Backwards { from: own.flow.table, to: *to });
        }
        let mut flow = FlowMod { actions: new.actions.clone(), ..own.flow.clone() };
        if new.cookie != 0 && filter.cookie.1 == 0 {
            flow.cookie = new.cookie;
        }
        let counters = match new.reset_counts {
            true => Flow::new(flow.clone(), now).counters,
            false => own.counters.clone(),
        };
        next.insert(Arc::new(Flow { flow, counters, created: own.created }))?;
    }
    Ok(meant.len())
}

fn delete(next: &mut Pipeline, is_meant: impl Fn(&FlowMod) -> bool) -> usize {
    let meant: Vec<_> = next.flows().filter(|own| is_meant(&own.flow)).cloned().collect();
    meant.iter().for_each(|own| next.remove(&own.flow));
    meant.len()
}

const _: () = assert!(TABLES == u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Numbers, PRIORITY};
    use std::sync::atomic::Ordering::Relaxed;

    fn rules(text: &str) -> Rules {
        Rules::read(text, &Numbers).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn tables(text: &str) -> Tables {
        let mut tables = Tables::new(7);
        tables.replace(&rules(text), 0).unwrap();
        tables
    }

    fn add(text: &str) -> Change {
        Change::Add(FlowMod::read(text, &Numbers).unwrap())
    }

    fn delete(text: &str) -> Change {
        Change::Delete(FlowFilter::read(text, false, &Numbers).unwrap())
    }

    fn modify(text: &str) -> Change {
        Change::Modify(Box::new(FlowMod::read_mod(text, &Numbers).unwrap()))
    }

    #[test]
    fn a_bundle_is_whole_or_not_at_all() {
        let mut own = tables("arp,actions=output:1");
        let before = own.rules();
        let bundle = [add("tcp,actions=output:2"), delete("arp"), add("udp,actions=group:9")];
        assert_eq!(own.apply(&bundle, 0), Err((2, TablesError::NoGroup(9))));
        assert_eq!(own.rules(), before);
        let version = own.current().version();
        assert_eq!(own.apply(&bundle[..2], 0), Ok(2));
        assert_eq!(own.rules(), rules("tcp,actions=output:2"));
        assert_ne!(own.current().version(), version);
    }

    #[test]
    fn changes_keep_what_was_counted() {
        let mut own =
            tables("cookie=0x5,tcp,tp_dst=80,actions=output:1\ncookie=0x6,tcp,tp_dst=81,actions=output:1");
        own.current().flows().for_each(|flow| flow.counters.add(3, 180, 9));
        assert_eq!(own.apply(&[modify("cookie=0x5/0xff,tcp,actions=output:3")], 0), Ok(1));
        assert_eq!(own.apply(&[modify("reset_counts,tcp,tp_dst=81,actions=drop")], 0), Ok(1));
        assert_eq!(own.apply(&[modify("udp,actions=drop")], 0), Ok(0), "nothing is meant");
        let dump: Vec<_> =
            own.select(&FlowFilter::default()).iter().map(|flow| flow.show(&Numbers, 0)).collect();
        let expected = [
            "cookie=0x5, duration=0.000s, table=0, n_packets=3, n_bytes=180, tcp,tp_dst=80 actions=output:3",
            "cookie=0x6, duration=0.000s, table=0, n_packets=0, n_bytes=0, tcp,tp_dst=81 actions=drop",
        ];
        assert_eq!(dump, expected);
        assert_eq!(own.apply(&[modify("table=0,actions=goto_table:1")], 0), Ok(2));
    }

    #[test]
    fn replacing_changes_what_differs_only() {
        let mut own = tables(
            "tcp,actions=output:1\nudp,actions=output:1\nmeter=1,bands=type=drop,rate=5\narp,\
             actions=meter:1,output:1",
        );
        own.current().flows().for_each(|flow| flow.counters.add(1, 60, 9));
        let wanted = rules(
            "udp,actions=output:2\ntcp,actions=output:1\ngroup_id=2,type=all,bucket=group:1\ngroup_id=1,\
             type=all,bucket=output:4\nicmp,actions=group:2",
        );
        let found = own.replace(&wanted, 5).unwrap().show(&Numbers);
        let expected = "\
            -meter=1,kbps,bands=type=drop,rate=5\n\
            -cookie=0x0,table=0,arp actions=meter:1,output:1\n\
            -cookie=0x0,table=0,udp actions=output:1\n\
            +group_id=2,type=all,bucket=bucket_id:0,actions=group:1\n\
            +group_id=1,type=all,bucket=bucket_id:0,actions=output:4\n\
            +cookie=0x0,table=0,icmp actions=group:2\n\
            +cookie=0x0,table=0,udp actions=output:2\n";
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&found), sorted(expected));
        let counted = |text: &str| {
            let flow = FlowMod::read(text, &Numbers).unwrap();
            own.current().same(&flow).map(|flow| flow.counters.frames.load(Relaxed))
        };
        assert_eq!(counted("tcp,actions=drop"), Some(1), "it stays");
        assert_eq!(counted("udp,actions=drop"), Some(0), "it is another one");
        assert!(own.difference(&wanted).is_empty());
        let version = own.current().version();
        assert!(own.replace(&wanted, 6).unwrap().is_empty());
        assert_eq!(own.current().version(), version, "workers see no change");
        assert_eq!(own.replace(&rules("actions=meter:8,output:1"), 6), Err(TablesError::NoMeter(8)));
        assert!(own.difference(&wanted).is_empty());
    }

    #[test]
    fn groups_are_added_behind_those_that_they_name() {
        let own = tables(
            "group_id=1,type=all,bucket=group:2,bucket=group:3\n\
             group_id=2,type=all,bucket=clone(group:3)\n\
             group_id=3,type=all,bucket=output:1",
        );
        assert_eq!(own.current().groups().len(), 3);
        let around = rules("group_id=1,type=all,bucket=group:2\ngroup_id=2,type=all,bucket=group:1");
        assert_eq!(Tables::new(7).replace(&around, 0), Err(TablesError::NoGroup(2)));
    }

    #[test]
    fn what_uses_a_group_or_a_meter_goes_with_it() {
        let mut own = tables(
            "group_id=1,type=all,bucket=output:1\nmeter=1,bands=type=drop,rate=5\ntcp,\
             actions=clone(group:1)\nudp,actions=meter:1,output:1\narp,actions=output:1",
        );
        let group = Group::read("group_id=1,type=all", &Numbers).unwrap();
        assert_eq!(own.apply(&[Change::AddGroup(group.clone())], 0), Err((0, TablesError::HasGroup(1))));
        assert_eq!(own.apply(&[Change::ModifyGroup(group)], 0), Ok(0));
        let meter = MeterMod::read("meter=2,bands=type=drop,rate=5").unwrap();
        assert_eq!(own.apply(&[Change::ModifyMeter(meter)], 0), Err((0, TablesError::NoMeter(2))));
        assert_eq!(own.apply(&[Change::DeleteGroup(Some(1)), Change::DeleteMeter(None)], 0), Ok(2));
        assert_eq!(own.rules(), rules("arp,actions=output:1"));
    }

    #[test]
    fn flows_whose_time_has_ended_are_removed() {
        let mut own = tables(
            "idle_timeout=3,tcp,actions=output:1\nhard_timeout=5,udp,actions=output:1\narp,actions=output:1",
        );
        let second = 1_000_000_000;
        assert!(own.expire(2 * second).is_empty());
        assert_eq!(own.expire(3 * second).len(), 1);
        assert_eq!(own.expire(5 * second).len(), 1);
        assert_eq!(own.rules(), rules("arp,actions=output:1"));
    }

    #[test]
    fn snapshots_that_workers_have_are_kept() {
        let mut own = tables("actions=drop");
        let held = own.published().current();
        own.apply(&[add("arp,actions=drop")], 0).unwrap();
        assert_eq!(own.retired.len(), 1);
        drop(held);
        own.apply(&[add("tcp,actions=drop")], 0).unwrap();
        assert!(own.retired.is_empty());
    }

    #[test]
    fn a_file_has_comments_and_errors_with_their_place() {
        let file = "# all\n\n  meter=1,bands=type=drop,rate=5\n tcp actions=meter:1,output:1 # \
        web\ngroup_id=4,type=all\n";
        let found = rules(file);
        assert_eq!((found.flows.len(), found.groups.len(), found.meters.len()), (1, 1, 1));
        assert_eq!(found.flows[0].priority, PRIORITY);
        let refused = |text: &str| Rules::read(text, &Numbers).unwrap_err().to_string();
        assert!(
            refused("arp,actions=drop\n  foo,actions=drop")
                .starts_with("line 2, column 3: unknown word `foo`")
        );
        assert!(
            refused("arp,actions=drop\narp actions=output:1").starts_with("line 2, column 1: a line above")
        );
    }
}
