//! Changes of flows, groups and meters: one by one, or as a bundle that is whole or not at all.

use crate::action::{Action, lack_of_all};
use crate::classifier::TooManyMasks;
use crate::flow::{Flow, FlowFilter, FlowMod, has_any};
use crate::group::{GROUPS, Group};
use crate::meter::{METERS, Meter, MeterMod};
use crate::pipeline::{Pipeline, Published};
use crate::rules::Rules;
use crate::{Ports, TABLES};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Most flows of a switch. Attack: a client of the API that adds flows until there is no memory.
pub const FLOWS: usize = 1 << 20;
/// Most actions of a switch, those of its groups counted. Attack: as of [`FLOWS`], by flows and groups that have as
/// many actions as they may.
pub const ALL_ACTIONS: usize = 1 << 22;

/// Most bytes of the text of a switch's rules, if every port that they name has the longest name. Attack: as of
/// [`FLOWS`], by rules that no message has room for, so that they are lost when a process is started again.
pub const ALL_TEXT: usize = 32 << 20;

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a flow, in place of the one with the same table, priority and match, whose counters it keeps.
    Add(FlowMod),
    /// Gives other actions to the flows that are meant, and the cookie if it is not 0. None may be meant.
    Modify(Box<(FlowMod, FlowFilter)>),
    /// Removes the flows that are meant.
    Delete(FlowFilter),
    /// Adds a group.
    AddGroup(Group),
    /// Changes a group.
    ModifyGroup(Group),
    /// Removes a group, or all, with the flows that use it. A group that others use is not removed.
    DeleteGroup(Option<u32>),
    /// Adds a meter.
    AddMeter(MeterMod),
    /// Changes a meter, which keeps its counters.
    ModifyMeter(MeterMod),
    /// Removes a meter, or all, with the flows that use it. A meter that groups use is not removed.
    DeleteMeter(Option<u32>),
}

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TablesError {
    /// There are too many flows.
    #[error("a switch has at most {FLOWS} flows")]
    TooManyFlows,
    /// There are too many actions.
    #[error("the flows and groups of a switch have at most {ALL_ACTIONS} actions")]
    TooManyActions,
    /// Their text is too long.
    #[error("the rules of a switch have at most {} MiB of text, with names of 64 letters", ALL_TEXT >> 20)]
    TooLong,
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
    /// A group that is to be removed is used by another one.
    #[error("group {id} is used by group {by}; change or delete that first")]
    GroupIsUsed {
        /// The group.
        id: u32,
        /// The one that uses it.
        by: u32,
    },
    /// A meter that is to be removed is used by a group.
    #[error("the meter is used by group {by}; change or delete that first")]
    MeterIsUsed {
        /// The group.
        by: u32,
    },
    /// A group's buckets lead back to it.
    #[error("the buckets of group {0} lead back to it")]
    InCircle(u32),
    /// A changed flow would go on in its own table or in an earlier one.
    #[error("goto_table:{to} does not go on in a later table than {from}")]
    Backwards {
        /// The flow's table.
        from: u8,
        /// The next one.
        to: u8,
    },
    /// A changed flow would have actions for which its match is too wide.
    #[error("{what} of the flow with priority {priority} in table {table}")]
    Lacks {
        /// What the match lacks.
        what: String,
        /// The flow's priority.
        priority: u16,
        /// Its table.
        table: u8,
    },
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
    /// The flows whose time may end, and some that are not there any more.
    timed: Vec<Arc<Flow>>,
    /// Most actions and bytes of text: [`ALL_ACTIONS`] and [`ALL_TEXT`].
    most: (usize, usize),
}

impl Tables {
    /// Tables without flows. `seed`: a random number that no peer knows.
    pub fn new(seed: u64) -> Tables {
        let current = Arc::new(Pipeline::new(seed));
        let published = Arc::new(Published::new(current.clone()));
        Tables { current, published, retired: Vec::new(), timed: Vec::new(), most: (ALL_ACTIONS, ALL_TEXT) }
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
        let (mut count, mut is_changed) = (0, false);
        for (number, change) in changes.iter().enumerate() {
            let (flows, is_change) = apply(&mut next, change, now).map_err(|error| (number, error))?;
            (count, is_changed) = (count + flows, is_changed || is_change);
            self.check_size(&next).map_err(|error| (number, error))?;
        }
        // Otherwise workers' caches would be forgotten for nothing.
        if is_changed {
            self.publish(next);
        }
        Ok(count)
    }

    fn publish(&mut self, mut next: Pipeline) {
        next.renew();
        self.timed.append(&mut next.new_timed);
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
        let mut flows = self.current.meant(filter);
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
        self.rules().difference(wanted)
    }

    /// Makes these rules those that are there, at once. What stays keeps what was counted of it, and so do flows that
    /// get other actions and meters that get another rate. Returns what has changed.
    ///
    /// # Errors
    /// A rule is refused; then nothing has changed.
    pub fn replace(&mut self, wanted: &Rules, now: u64) -> Result<Difference, TablesError> {
        let difference = self.difference(wanted);
        if difference.is_empty() {
            return Ok(difference);
        }
        wanted.check()?;
        let Difference { removed, added } = &difference;
        let id = |flow: &FlowMod| (flow.table, flow.priority, flow.of);
        let stay: HashSet<_> = wanted.flows.iter().map(id).collect();
        let mut next = Pipeline::clone(&self.current);
        // What goes makes room for what comes.
        removed.flows.iter().filter(|flow| !stay.contains(&id(flow))).for_each(|flow| next.remove(flow));
        let groups: HashSet<u32> = wanted.groups.iter().map(|group| group.id).collect();
        let meters: HashSet<u32> = wanted.meters.iter().map(|meter| meter.id).collect();
        next.retain_groups(|id| groups.contains(&id));
        next.meters_mut().retain(|id, _| meters.contains(id));
        added.meters.iter().for_each(|meter| put_meter(&mut next, meter, now));
        added.groups.iter().for_each(|group| next.put_group(Arc::new(group.clone())));
        added.flows.iter().try_for_each(|flow| add(&mut next, flow, now).map(|_| ()))?;
        self.check_size(&next)?;
        self.publish(next);
        Ok(difference)
    }

    fn check_size(&self, next: &Pipeline) -> Result<(), TablesError> {
        match (next.actions() > self.most.0, next.text() > self.most.1) {
            (true, _) => Err(TablesError::TooManyActions),
            (_, true) => Err(TablesError::TooLong),
            _ => Ok(()),
        }
    }

    /// Takes back what has changed since there was this snapshot.
    pub fn restore(&mut self, former: Arc<Pipeline>) {
        if former.version() != self.current.version() {
            self.publish(Pipeline::clone(&former));
            self.timed = self.current.flows().filter(|flow| flow.flow.is_timed()).cloned().collect();
        }
    }

    /// Adds what another process had counted of flows, as [`Flow::show`] shows it, to the same flows. Other lines are
    /// left out.
    pub fn restore_counts(&self, dump: &str, ports: &dyn Ports) {
        for line in dump.lines() {
            let count = |name: &str| {
                let (_, rest) = line.split_once(name)?;
                rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse::<u64>().ok()
            };
            let (Some(frames), Some(bytes)) = (count(" n_packets="), count(" n_bytes=")) else { continue };
            let Ok(flow) = FlowMod::read(line, ports) else { continue };
            if let Some(own) = self.current.same(&flow) {
                own.counters.frames.fetch_add(frames, Relaxed);
                own.counters.bytes.fetch_add(bytes, Relaxed);
            }
        }
    }

    /// Removes the flows whose time has ended; returns them.
    pub fn expire(&mut self, now: u64) -> Vec<Arc<Flow>> {
        let current = self.current.clone();
        let is_there = |flow: &Arc<Flow>| current.same(&flow.flow).is_some_and(|own| Arc::ptr_eq(own, flow));
        // A flow whose actions are changed often is there once for each change.
        if self.timed.len() > 2 * current.timed() {
            self.timed.retain(is_there);
        }
        let is_over = |flow: &&Arc<Flow>| flow.is_expired(now) && is_there(flow);
        let expired: Vec<_> = self.timed.iter().filter(is_over).cloned().collect();
        drop(current);
        if !expired.is_empty() {
            let mut next = Pipeline::clone(&self.current);
            expired.iter().for_each(|flow| next.remove(&flow.flow));
            self.publish(next);
        }
        expired
    }
}

impl Rules {
    /// What has to change so that other rules are there, and no others.
    pub fn difference(&self, wanted: &Rules) -> Difference {
        let id = |flow: &FlowMod| (flow.table, flow.priority, flow.of);
        let mut difference = Difference {
            removed: Rules {
                flows: missing(&self.flows, &wanted.flows, id),
                groups: missing(&self.groups, &wanted.groups, |group| group.id),
                meters: missing(&self.meters, &wanted.meters, |meter| meter.id),
            },
            added: Rules {
                flows: missing(&wanted.flows, &self.flows, id),
                groups: missing(&wanted.groups, &self.groups, |group| group.id),
                meters: missing(&wanted.meters, &self.meters, |meter| meter.id),
            },
        };
        difference.added.flows.sort_by_key(order);
        difference
    }

    /// Whether what they name is there, and they are not too many.
    fn check(&self) -> Result<(), TablesError> {
        let groups: BTreeMap<u32, &Group> = self.groups.iter().map(|group| (group.id, group)).collect();
        let meters: HashSet<u32> = self.meters.iter().map(|meter| meter.id).collect();
        if groups.len() > GROUPS {
            return Err(TablesError::TooManyGroups);
        }
        if meters.len() > METERS {
            return Err(TablesError::TooManyMeters);
        }
        let has: (Has<'_>, Has<'_>) = (&|id| groups.contains_key(&id), &|id| meters.contains(&id));
        self.flows.iter().try_for_each(|flow| check(has, &flow.actions))?;
        for group in groups.values() {
            group.buckets.iter().try_for_each(|bucket| check(has, &bucket.actions))?;
        }
        match in_circle(&groups) {
            Some(id) => Err(TablesError::InCircle(id)),
            None => Ok(()),
        }
    }
}

/// A group that others lead back to, if there is one.
fn in_circle(groups: &BTreeMap<u32, &Group>) -> Option<u32> {
    // The groups that name each one, and how many each one names that is not known to end.
    let (mut named_by, mut names) = (BTreeMap::<u32, Vec<u32>>::new(), BTreeMap::<u32, usize>::new());
    for group in groups.values() {
        let others = named(group);
        names.insert(group.id, others.len());
        others.into_iter().for_each(|other| named_by.entry(other).or_default().push(group.id));
    }
    let mut ends: Vec<u32> = names.iter().filter(|(_, count)| **count == 0).map(|(id, _)| *id).collect();
    while let Some(id) = ends.pop() {
        names.remove(&id);
        for other in named_by.remove(&id).unwrap_or_default() {
            if let Some(count) = names.get_mut(&other) {
                *count -= 1;
                if *count == 0 {
                    ends.push(other);
                }
            }
        }
    }
    names.into_keys().next()
}

/// The groups that a group's buckets name.
fn named(group: &Group) -> HashSet<u32> {
    let mut found = HashSet::new();
    group.buckets.iter().for_each(|bucket| named_by_actions(&bucket.actions, &mut found));
    found
}

fn named_by_actions(actions: &[Action], groups: &mut HashSet<u32>) {
    for action in actions {
        match action {
            Action::Group(id) => {
                groups.insert(*id);
            }
            Action::Clone(inner) => named_by_actions(inner, groups),
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

/// Makes a change; returns how many flows it changes, and whether it changes anything.
fn apply(next: &mut Pipeline, change: &Change, now: u64) -> Result<(usize, bool), TablesError> {
    let (count, is_change) = match change {
        Change::Add(flow) => {
            check_in(next, &flow.actions)?;
            (add(next, flow, now)?, true)
        }
        Change::Modify(meant) => {
            let (flow, filter) = &**meant;
            check_in(next, &flow.actions)?;
            let count = modify(next, flow, filter, now)?;
            (count, count > 0)
        }
        Change::Delete(filter) => {
            let count = delete(next, |flow| filter.has(flow));
            (count, count > 0)
        }
        Change::AddGroup(group) | Change::ModifyGroup(group) => {
            let is_there = next.groups().contains_key(&group.id);
            match (matches!(change, Change::AddGroup(_)), is_there) {
                (true, true) => return Err(TablesError::HasGroup(group.id)),
                (false, false) => return Err(TablesError::NoGroup(group.id)),
                (true, false) if next.groups().len() >= GROUPS => return Err(TablesError::TooManyGroups),
                _ => {}
            }
            put_group(next, group)?;
            (0, true)
        }
        Change::DeleteGroup(id) => delete_group(next, *id)?,
        Change::AddMeter(meter) | Change::ModifyMeter(meter) => {
            let is_there = next.meters().contains_key(&meter.id);
            match (matches!(change, Change::AddMeter(_)), is_there) {
                (true, true) => return Err(TablesError::HasMeter(meter.id)),
                (false, false) => return Err(TablesError::NoMeter(meter.id)),
                (true, false) if next.meters().len() >= METERS => return Err(TablesError::TooManyMeters),
                _ => {}
            }
            put_meter(next, meter, now);
            (0, true)
        }
        Change::DeleteMeter(id) => delete_meter(next, *id)?,
    };
    Ok((count, is_change))
}

/// Adds a flow. One that it replaces is the same flow with other actions: what was counted stays, unless it says
/// otherwise.
fn add(next: &mut Pipeline, flow: &FlowMod, now: u64) -> Result<usize, TablesError> {
    let former = next.same(flow);
    if former.is_none() && next.len() >= FLOWS {
        return Err(TablesError::TooManyFlows);
    }
    let mut new = Flow::new(flow.clone(), now);
    if let Some(former) = former.filter(|_| !flow.reset_counts) {
        new.counters = former.counters.clone();
    }
    next.insert(Arc::new(new))?;
    Ok(1)
}

fn put_meter(next: &mut Pipeline, meter: &MeterMod, now: u64) {
    let meters = next.meters_mut();
    let new = meters.get(&meter.id).map_or_else(|| Meter::new(*meter), |former| former.changed(*meter, now));
    meters.insert(meter.id, Arc::new(new));
}

fn put_group(next: &mut Pipeline, group: &Group) -> Result<(), TablesError> {
    for bucket in &group.buckets {
        check_in(next, &bucket.actions)?;
    }
    // Attack: groups in a circle, through which frames have no end.
    let (mut seen, mut ahead) = (HashSet::new(), Vec::from_iter(named(group)));
    while let Some(id) = ahead.pop() {
        if id == group.id {
            return Err(TablesError::InCircle(id));
        }
        if seen.insert(id) {
            ahead.extend(next.group(id).map(named).unwrap_or_default());
        }
    }
    next.put_group(Arc::new(group.clone()));
    Ok(())
}

/// Removes a group, or all, with the flows that use it. Other groups have to be changed before.
fn delete_group(next: &mut Pipeline, id: Option<u32>) -> Result<(usize, bool), TablesError> {
    let is_meant = |other: u32| id.is_none_or(|id| id == other);
    for group in next.groups().values().filter(|group| !is_meant(group.id)) {
        if let Some(id) = id.filter(|id| named(group).contains(id)) {
            return Err(TablesError::GroupIsUsed { id, by: group.id });
        }
    }
    let before = next.groups().len();
    next.retain_groups(|id| !is_meant(id));
    let is_change = next.groups().len() != before;
    let uses = |action: &Action| matches!(action, Action::Group(id) if is_meant(*id));
    Ok((delete(next, |flow| has_any(&flow.actions, &uses)), is_change))
}

/// As [`delete_group`], of a meter.
fn delete_meter(next: &mut Pipeline, id: Option<u32>) -> Result<(usize, bool), TablesError> {
    let is_meant = |other: u32| id.is_none_or(|id| id == other);
    let uses = |action: &Action| matches!(action, Action::Meter(id) if is_meant(*id));
    for group in next.groups().values() {
        if group.buckets.iter().any(|bucket| has_any(&bucket.actions, &uses)) {
            return Err(TablesError::MeterIsUsed { by: group.id });
        }
    }
    let before = next.meters().len();
    next.meters_mut().retain(|id, _| !is_meant(*id));
    let is_change = next.meters().len() != before;
    Ok((delete(next, |flow| has_any(&flow.actions, &uses)), is_change))
}

/// Whether there is a group, or a meter, of this number.
type Has<'h> = &'h dyn Fn(u32) -> bool;

fn check_in(next: &Pipeline, actions: &[Action]) -> Result<(), TablesError> {
    check((&|id| next.group(id).is_some(), &|id| next.meter(id).is_some()), actions)
}

/// Whether the groups and meters that actions name are there.
fn check((group, meter): (Has<'_>, Has<'_>), actions: &[Action]) -> Result<(), TablesError> {
    for action in actions {
        match action {
            Action::Group(id) if !group(*id) => return Err(TablesError::NoGroup(*id)),
            Action::Meter(id) if !meter(*id) => return Err(TablesError::NoMeter(*id)),
            Action::Clone(inner) => check((group, meter), inner)?,
            _ => {}
        }
    }
    Ok(())
}

fn modify(next: &mut Pipeline, new: &FlowMod, filter: &FlowFilter, now: u64) -> Result<usize, TablesError> {
    let meant = next.meant(filter);
    for own in &meant {
        if let Some(Action::Goto(to)) = new.actions.last()
            && *to <= own.flow.table
        {
            return Err(TablesError::Backwards { from: own.flow.table, to: *to });
        }
        // The filter's match says more than the flow's, or something else: a later fragment of TCP has no ports.
        if let Some(what) = lack_of_all(&new.actions, &own.flow.of) {
            let FlowMod { priority, table, .. } = own.flow;
            return Err(TablesError::Lacks { what, priority, table });
        }
        let mut flow = FlowMod { actions: new.actions.clone(), ..own.flow.clone() };
        if new.cookie != 0 && filter.cookie.1 == 0 {
            flow.cookie = new.cookie;
        }
        next.insert(Arc::new(own.changed(flow, now, new.reset_counts)))?;
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
mod tests;
