//! A profile of a running configuration: packets and processor ticks of each element, packets of each connection.
//!
//! While there is no profile it costs nothing a packet: a profiled router's budget is 0, so that each burst takes
//! the path of a router whose budget is used up.
use super::{Router, Work};
use crate::sort;
use crate::{ElementId, HandlerCall, HandlerError, Pieces, Progress};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Write;
use ringway_click_lang::Connection;

/// Attack: elements that do nothing, connected in a loop. Most of them that a packet is followed through.
const PASSED: usize = 64;

/// The counts of an element.
#[derive(Clone, Debug, Default)]
struct Row {
    /// Packets that entered it; of a source, those that it emitted.
    packets: u64,
    /// Ticks in its own code.
    ticks: u64,
    /// Packets by output, of push outputs.
    pushed: Vec<u64>,
    /// Packets by input, of pull inputs.
    pulled: Vec<u64>,
}

/// Counts since the profile began.
pub(super) struct Profile {
    ticks: fn() -> u64,
    rows: Vec<Row>,
    /// The element that runs, and since when.
    running: Option<ElementId>,
    since: u64,
    /// The router's remaining budget.
    budget: u32,
    /// When it began, on the steady clock.
    began: u64,
}

impl Profile {
    /// Charges the ticks since the last call to the element that ran. Returns that element.
    fn switch(&mut self, to: Option<ElementId>) -> Option<ElementId> {
        let now = (self.ticks)();
        if let Some(row) = self.running.and_then(|id| self.rows.get_mut(id.index())) {
            row.ticks += now.saturating_sub(self.since);
        }
        self.since = now;
        core::mem::replace(&mut self.running, to)
    }
}

impl Router {
    /// Adds the handler `profile`; `ticks` reads the processor's clock.
    pub fn allow_profile(&mut self, ticks: fn() -> u64) {
        self.ticks = Some(ticks);
    }

    pub(super) fn is_profilable(&self) -> bool {
        self.ticks.is_some()
    }

    /// Begins a profile, or ends it.
    pub fn set_profile(&mut self, on: bool) {
        let left = self.profile.take().map_or(self.budget, |profile| profile.budget);
        if let Some(ticks) = self.ticks.filter(|_| on) {
            self.profile = Some(Box::new(self.new_profile(ticks)));
        }
        self.refill(left);
    }

    fn new_profile(&mut self, ticks: fn() -> u64) -> Profile {
        let row = |info: &super::Info| Row {
            pushed: vec![0; info.outputs.len()],
            pulled: vec![0; info.inputs.len()],
            ..Row::default()
        };
        let rows = self.infos.iter().map(row).collect();
        let began = self.clock.glance();
        Profile { ticks, rows, running: None, since: 0, budget: 0, began }
    }

    /// Sets how many bursts may still be passed on.
    pub(super) fn refill(&mut self, budget: u32) {
        self.budget = match &mut self.profile {
            Some(profile) => {
                profile.budget = budget;
                0
            }
            None => budget,
        };
    }

    /// Whether no more bursts may be passed on.
    pub(super) fn is_spent(&self) -> bool {
        self.profile.as_ref().map_or(self.budget, |profile| profile.budget) == 0
    }

    /// Passes a burst on if there is a profile. `Err` if the budget is used up.
    #[cold]
    pub(super) fn hand_profiled(&mut self, work: Work) -> Result<Option<Work>, Work> {
        match self.profile.as_mut().and_then(|profile| profile.budget.checked_sub(1)) {
            Some(budget) => {
                self.refill(budget);
                Ok(self.deliver::<true>(work))
            }
            None => Err(work),
        }
    }

    /// An element begins to run. Returns the one that ran, for [`Router::profile_leave`].
    pub(super) fn profile_enter(&mut self, id: ElementId, packets: usize) -> Option<ElementId> {
        let profile = self.profile.as_mut()?;
        let before = profile.switch(Some(id));
        if let Some(row) = profile.rows.get_mut(id.index()) {
            row.packets += packets as u64;
        }
        before
    }

    pub(super) fn profile_leave(&mut self, before: Option<ElementId>) {
        if let Some(profile) = &mut self.profile {
            profile.switch(before);
        }
    }

    /// Counts the packets that an element emitted since `base`, and those that it left for its first output.
    pub(super) fn profile_emitted(&mut self, id: ElementId, base: usize, left: usize) {
        let is_source = self.info(id).inputs.is_empty();
        let emitted = self.emitted.get(base..).unwrap_or_default();
        let counts = emitted.iter().map(|emission| (emission.port, emission.burst.len()));
        let Some(row) = self.profile.as_mut().and_then(|profile| profile.rows.get_mut(id.index())) else {
            return;
        };
        for (port, count) in counts.chain([(0, left)]) {
            if let Some(pushed) = row.pushed.get_mut(port) {
                *pushed += count as u64;
            }
            row.packets += if is_source { count as u64 } else { 0 };
        }
    }

    /// Counts packets that an element pulled from another one.
    pub(super) fn profile_pulled(&mut self, id: ElementId, port: usize, from: ElementId, packets: usize) {
        let is_source = self.info(from).inputs.is_empty();
        let Some(profile) = &mut self.profile else { return };
        if let Some(row) = profile.rows.get_mut(id.index()) {
            row.packets += packets as u64;
            row.pulled.get_mut(port).into_iter().for_each(|pulled| *pulled += packets as u64);
        }
        if let Some(row) = profile.rows.get_mut(from.index()).filter(|_| is_source) {
            row.packets += packets as u64;
        }
    }

    /// Packets on a connection. Elements that do nothing to packets are bypassed, and pass on what reaches them.
    fn carried(&self, profile: &Profile, connection: &Connection, depth: usize) -> u64 {
        let (from, to) = (connection.from, connection.to);
        let Some((source, target)) = self.infos.get(from.element).zip(self.infos.get(to.element)) else {
            return 0;
        };
        if depth == 0 {
            return 0;
        }
        let others = || self.graph.connections.iter();
        if source.outputs.get(from.port).is_some_and(|port| port.pull) {
            let relayed = target.class.relay.filter(|(_, input)| *input == to.port);
            let Some((output, _)) = relayed else {
                return profile.rows[to.element].pulled.get(to.port).copied().unwrap_or(0);
            };
            let mut onward = others().filter(|c| (c.from.element, c.from.port) == (to.element, output));
            return onward.next().map_or(0, |onward| self.carried(profile, onward, depth - 1));
        }
        if source.class.passed {
            let before = others().filter(|c| c.to.element == from.element);
            return before.map(|before| self.carried(profile, before, depth - 1)).sum();
        }
        profile.rows[from.element].pushed.get(from.port).copied().unwrap_or(0)
    }

    /// The profile as a table: packets, ticks a packet and share of each element that ran, the largest share first.
    pub fn profile_table(&self) -> String {
        let Some(profile) = &self.profile else { return String::new() };
        let total = profile.rows.iter().map(|row| row.ticks).sum::<u64>().max(1);
        let mut rows: Vec<(usize, &Row)> =
            profile.rows.iter().enumerate().filter(|(_, row)| row.ticks > 0).collect();
        sort::by_number(&mut rows, |(_, row)| !row.ticks);
        let name = |index: usize| format!("{} :: {}", self.infos[index].name, self.infos[index].class.name);
        let width = rows.iter().map(|(index, _)| name(*index).len()).max().unwrap_or(0).max("element".len());
        let mut table =
            format!("{:width$}  {:>12}  {:>12}  {:>6}\n", "element", "packets", "ticks/packet", "share");
        for (index, row) in rows {
            let each = match row.packets {
                0 => "-".into(),
                packets => format!("{:.1}", row.ticks as f64 / packets as f64),
            };
            let share = row.ticks as f64 * 100.0 / total as f64;
            let _ = writeln!(table, "{:width$}  {:>12}  {each:>12}  {share:>5.1}%", name(index), row.packets);
        }
        table
    }

    /// The graph with its counts, for programs: a line `profile NANOSECONDS` (0 without a profile), then a line
    /// `element NAME CLASS PACKETS TICKS` for each element, and a line `connection FROM OUTPUT INPUT TO PACKETS` for
    /// each connection, where elements are numbers.
    pub(super) fn graph_text(&mut self) -> String {
        let now = self.clock.glance();
        let profile = self.profile.as_deref();
        let passed = profile.map_or(0, |profile| now.saturating_sub(profile.began).max(1));
        let mut text = format!("profile {passed}\n");
        let empty = Row::default();
        // The driver's own elements are last, and unconnected.
        let own = |info: &super::Info| !info.name.starts_with("click_driver@@");
        for (index, info) in self.infos.iter().enumerate().take_while(|(_, info)| own(info)) {
            let row = profile.map_or(&empty, |profile| &profile.rows[index]);
            let _ = writeln!(text, "element {} {} {} {}", info.name, info.class.name, row.packets, row.ticks);
        }
        for connection in &self.graph.connections {
            let packets = profile.map_or(0, |profile| self.carried(profile, connection, PASSED));
            let (from, to) = (connection.from, connection.to);
            let ends = (from.element, from.port, to.port, to.element);
            let _ = writeln!(text, "connection {} {} {} {} {packets}", ends.0, ends.1, ends.2, ends.3);
        }
        text
    }
}

/// Writes the handler `profile`.
pub(super) fn write(
    router: &mut Router,
    call: &HandlerCall,
    _: &mut Pieces,
) -> Result<Progress, HandlerError> {
    let on = crate::arg::parse_bool(call.value.trim())
        .ok_or_else(|| HandlerError::failed("'profile' takes a boolean"))?;
    router.set_profile(on);
    Ok(Progress::Done)
}
