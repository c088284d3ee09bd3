//! Files of flows, groups and meters.

use crate::action::{Action, count_all};
use crate::flow::{FlowMod, has_any};
use crate::group::{GROUPS, Group};
use crate::meter::{METERS, MeterMod};
use crate::tables::{ALL_ACTIONS, FLOWS, TablesError};
use crate::text::FlowError;
use crate::{Key, MASKS, Ports};
use std::collections::{HashMap, HashSet};

/// Most bytes of a file. Attack: a client of the API that sends a file without end.
pub const LONGEST_FILE: usize = 256 << 20;

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
        if text.len() > LONGEST_FILE {
            let error = FlowError::new(1, format!("a file has more than {LONGEST_FILE} bytes"));
            return Err(FileError { line: 1, error });
        }
        let mut actions = 0;
        let (mut flows, mut groups, mut meters) = (HashSet::new(), HashSet::new(), HashSet::new());
        for (number, whole) in text.lines().enumerate() {
            let line = whole.split('#').next().unwrap_or_default().trim_end();
            let start = line.trim_start();
            let wrong = |error: FlowError| FileError { line: number + 1, error };
            let is_new = if start.is_empty() {
                continue;
            } else if start.starts_with("group_id=") {
                let group = Group::read(line, ports).map_err(wrong)?;
                actions += group.buckets.iter().map(|bucket| count_all(&bucket.actions)).sum::<usize>();
                rules.groups.push(group);
                rules.groups.last().is_some_and(|group| groups.insert(group.id))
            } else if start.starts_with("meter=") {
                rules.meters.push(MeterMod::read(line).map_err(wrong)?);
                rules.meters.last().is_some_and(|meter| meters.insert(meter.id))
            } else {
                let flow = FlowMod::read(line, ports).map_err(wrong)?;
                actions += count_all(&flow.actions);
                let is_new = flows.insert((flow.table, flow.priority, flow.of));
                rules.flows.push(flow);
                is_new
            };
            let counts = [
                (rules.flows.len(), FLOWS, "flows"),
                (rules.groups.len(), GROUPS, "groups"),
                (rules.meters.len(), METERS, "meters"),
                (actions, ALL_ACTIONS, "actions"),
            ];
            if let Some((_, most, name)) = counts.iter().find(|(count, most, _)| count > most) {
                return Err(wrong(FlowError::new(1, format!("a switch has at most {most} {name}"))));
            }
            if !is_new {
                let column = 1 + line.chars().count() - start.chars().count();
                return Err(wrong(FlowError::new(column, "a line above is the same flow, group or meter")));
            }
        }
        Ok(rules)
    }

    /// The line of a text in which what an error names is first; the first one if the error is about all of them.
    pub fn line_of(text: &str, error: &TablesError, ports: &dyn Ports) -> usize {
        let uses = |actions: &[Action]| match error {
            TablesError::NoGroup(id) => has_any(actions, &|action| *action == Action::Group(*id)),
            TablesError::NoMeter(id) => has_any(actions, &|action| *action == Action::Meter(*id)),
            _ => false,
        };
        let mut masks = HashMap::<u8, HashSet<Key>>::new();
        let mut is_wrong = |line: &str| {
            if line.starts_with("group_id=") {
                let Ok(group) = Group::read(line, ports) else { return false };
                return matches!(error, TablesError::InCircle(id) if *id == group.id)
                    || group.buckets.iter().any(|bucket| uses(&bucket.actions));
            }
            let Ok(flow) = FlowMod::read(line, ports) else { return false };
            let own = masks.entry(flow.table).or_default();
            own.insert(flow.of.mask);
            uses(&flow.actions) || matches!(error, TablesError::TooManyMasks(_)) && own.len() > MASKS
        };
        let mut lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        1 + lines.position(&mut is_wrong).unwrap_or(0)
    }

    /// As it is read again.
    pub fn show(&self, ports: &dyn Ports) -> String {
        let meters = self.meters.iter().map(MeterMod::show);
        let groups = self.groups.iter().map(|group| group.show(ports));
        let flows = self.flows.iter().map(|flow| flow.show(ports));
        meters.chain(groups).chain(flows).map(|line| line + "\n").collect()
    }
}
