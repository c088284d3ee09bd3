//! `click-undead`: removes elements that no packet reaches, whose packets reach no sink, or that do nothing.
use super::router::{ConnectionId, Router};
use crate::check::{ClassProperties, Classes, Flow};
use crate::config::{integer, join_arguments, split_arguments, uncomment};
use crate::{Diagnostics, Element, Landmark, Port};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The file name in the landmarks of added elements.
const FILE: &str = "<click-undead>";
const IDLE: &str = "Idle";

/// Removes dead elements. Returns `false`, with a warning, if all elements are dead.
pub fn undead(router: &mut Router, classes: &dyn Classes, diagnostics: &mut Diagnostics) -> bool {
    let count = |place| (router.ports(place, false), router.ports(place, true));
    let mut counts: BTreeMap<String, (usize, usize)> = router
        .live_places()
        .into_iter()
        .map(|place| (router.element(place).name.clone(), count(place)))
        .collect();
    for (class, output) in [("StaticSwitch", true), ("StaticPullSwitch", false)] {
        for place in router.of_class(class) {
            remove_switch(router, place, output, diagnostics);
        }
    }
    for place in router.of_class("Null") {
        remove_null(router, place, diagnostics);
    }
    router.remove_dead();
    let live = Liveness::new(router, classes).live();
    if live.is_empty() && router.places() > 0 {
        diagnostics.warning(None, "no live elements in configuration");
        return false;
    }
    for place in router.live_places() {
        if !live.contains(&place) {
            router.kill(place);
        }
    }
    let schedulers = [("RoundRobinSched", false), ("PrioSched", false), ("StrideSched", true)];
    loop {
        let mut changed = false;
        for (class, by_argument) in schedulers {
            changed |= remove_scheduler_ports(router, class, by_argument, &mut counts, diagnostics);
        }
        for (class, pulls) in [("Tee", false), ("PullTee", true)] {
            changed |= remove_tee_ports(router, class, pulls, &mut counts, diagnostics);
        }
        if !changed {
            break;
        }
    }
    fill_blank_ports(router, &counts);
    router.remove_dead();
    true
}

fn odd_connections(router: &Router, place: usize, side: &str) -> String {
    format!("odd connections {side} '{}'", router.element(place).declaration())
}

/// The flags of Click's classes whose ports don't show it: 1 for sources, 2 for sinks, 3 for both.
fn known_flag(class: &str) -> Option<u32> {
    Some(match class {
        "Idle"
        | "RoundRobinSched"
        | "PrioSched"
        | "StrideSched"
        | "DRRSched"
        | "TimeSortedSched"
        | "SimplePrioSched"
        | "SimpleRoundRobinSched" => 0,
        "InfiniteSource" => 1,
        "ToDevice" | "ToHost" | "ToDump" | "ToIPSummaryDump" | "ToSimDevice" => 2,
        "Socket" | "RawSocket" | "KernelTun" | "RouterLink" => 3,
        _ => return None,
    })
}

/// The first connection of each input, or output.
fn by_port(router: &Router, place: usize, output: bool) -> Vec<Option<ConnectionId>> {
    (0..router.ports(place, output))
        .map(|port| router.at_port(Port { element: place, port }, output).first().copied())
        .collect()
}

fn only(router: &Router, port: Port, output: bool) -> Option<ConnectionId> {
    match router.at_port(port, output)[..] {
        [only] => Some(only),
        _ => None,
    }
}

/// Bypasses a static switch; its other ports are connected to an Idle.
fn remove_switch(router: &mut Router, place: usize, output: bool, diagnostics: &mut Diagnostics) {
    let element = router.element(place);
    let (landmark, text) = (element.landmark.clone(), uncomment(&element.configuration));
    let chosen = integer(&text);
    if chosen.is_none() {
        let text = format!("{}: bad configuration 'StaticSwitch({text})'", element.name);
        diagnostics.error(landmark.clone(), text);
    }
    let branches = by_port(router, place, output);
    let single = |port: usize| only(router, Port { element: place, port }, output).is_some();
    if !(0..branches.len()).all(single) {
        diagnostics.error(landmark, odd_connections(router, place, if output { "from" } else { "to" }));
    }
    let chosen = chosen.and_then(|chosen| usize::try_from(chosen).ok()).filter(|&port| port < branches.len());
    let target_port =
        chosen.and_then(|port| router.neighbours(Port { element: place, port }, output).first().copied());
    let idle = router.add_anonymous(IDLE, "", Landmark::new(FILE, 0));
    let mut used = [0, 0];
    let mut idle_port = |side: bool| {
        let port = used[usize::from(side)];
        used[usize::from(side)] += 1;
        Port { element: idle, port }
    };
    let target = match target_port {
        Some(port) => port,
        None => idle_port(!output),
    };
    for id in router.at_port(Port { element: place, port: 0 }, !output) {
        router.move_end(id, !output, target);
    }
    for (port, branch) in branches.into_iter().enumerate() {
        if let Some(id) = branch.filter(|_| Some(port) != chosen) {
            let idle = idle_port(output);
            router.move_end(id, output, idle);
        }
    }
    router.kill(place);
}

fn remove_null(router: &mut Router, place: usize, diagnostics: &mut Diagnostics) {
    let port = Port { element: place, port: 0 };
    if router.ports(place, false) != 1 || router.ports(place, true) != 1 {
        let landmark = router.element(place).landmark.clone();
        return diagnostics.warning(landmark, odd_connections(router, place, "to"));
    }
    let before = only(router, port, false).and_then(|id| router.connection(id)).map(|it| it.from);
    let after = only(router, port, true).and_then(|id| router.connection(id)).map(|it| it.to);
    match (before, after) {
        (Some(before), _) => move_connections(router, port, true, before),
        (None, Some(after)) => move_connections(router, port, false, after),
        (None, None) => {
            let landmark = router.element(place).landmark.clone();
            diagnostics.warning(landmark, odd_connections(router, place, "to"));
        }
    }
    router.kill(place);
}

/// Moves all connections of a port to another port.
fn move_connections(router: &mut Router, from: Port, output: bool, to: Port) {
    for id in router.at_port(from, output) {
        router.move_end(id, output, to);
    }
}

/// Determines which elements are live.
struct Liveness<'a> {
    router: &'a Router,
    classes: &'a dyn Classes,
    places: Vec<usize>,
}

impl<'a> Liveness<'a> {
    fn new(router: &'a Router, classes: &'a dyn Classes) -> Self {
        Self { router, classes, places: router.live_places() }
    }

    fn properties(&self, place: usize) -> Option<ClassProperties<'a>> {
        let element = self.router.element(place);
        let (name, class) = (element.name.clone(), element.class_name().into());
        let configuration = element.configuration.clone();
        self.classes.properties(&Element { name, class, configuration, landmark: element.landmark.clone() })
    }

    /// Elements that are reachable from a source and reach a sink, and elements that are always live.
    fn live(&self) -> BTreeSet<usize> {
        let (mut sources, mut sinks) = (BTreeSet::new(), BTreeSet::new());
        for &place in &self.places {
            // Without a flag, an element without inputs is a source, and one without outputs a sink.
            let guess = || {
                u32::from(self.router.ports(place, false) == 0)
                    | u32::from(self.router.ports(place, true) == 0) << 1
            };
            let flag =
                self.properties(place).and_then(|properties| properties.flag('S')).filter(|flag| *flag <= 3);
            let flag =
                flag.or_else(|| known_flag(self.router.element(place).class_name())).unwrap_or_else(guess);
            if flag & 1 > 0 {
                sources.insert(place);
            }
            if flag & 2 > 0 {
                sinks.insert(place);
            }
        }
        let from_sources = self.reached(&sources, true);
        let to_sinks = self.reached(&sinks, false);
        let alive = |place: &usize| {
            let idle = self.router.element(*place).is(IDLE);
            let both = (sources.contains(place) || (!idle && from_sources.contains(place)))
                && (sinks.contains(place) || (!idle && to_sinks.contains(place)));
            both || self.is_always_live(*place)
        };
        self.places.iter().copied().filter(alive).collect()
    }

    fn is_always_live(&self, place: usize) -> bool {
        match self.properties(place).and_then(|properties| properties.flag('L')) {
            Some(0) => false,
            Some(1) => true,
            _ => self.router.ports(place, false) == 0 && self.router.ports(place, true) == 0,
        }
    }

    /// The flow through an element. With the flag `L2`, every input affects every output.
    fn flow(&self, place: usize) -> Flow {
        let properties = self.properties(place);
        let answers = properties.and_then(|properties| properties.flag('L')) == Some(2);
        match properties.map(|properties| properties.flow) {
            Some(flow) if !answers && !self.router.element(place).is("ARPQuerier") => Flow::parse(flow),
            _ => Flow::parse("x/x"),
        }
    }

    /// Elements reachable from `ends` by connections and by the flow inside elements; or, unless `forward`,
    /// elements that reach `ends`.
    fn reached(&self, ends: &BTreeSet<usize>, forward: bool) -> BTreeSet<usize> {
        let mut open: Vec<Port> = Vec::new();
        for &place in ends {
            for id in self.router.at_element(place, forward) {
                open.extend(self.router.connection(id).map(|it| if forward { it.to } else { it.from }));
            }
        }
        let mut flows: BTreeMap<usize, Flow> = BTreeMap::new();
        let mut seen: BTreeSet<Port> = BTreeSet::new();
        while let Some(port) = open.pop() {
            if !seen.insert(port) {
                continue;
            }
            let place = port.element;
            let flow = flows.entry(place).or_insert_with(|| self.flow(place));
            for other in 0..self.router.ports(place, forward) {
                let (input, output) = if forward { (port.port, other) } else { (other, port.port) };
                if flow.joins(input, output) {
                    open.extend(self.router.neighbours(Port { element: place, port: other }, forward));
                }
            }
        }
        seen.into_iter().map(|port| port.element).collect()
    }
}

/// Removes a scheduler's dead inputs, and bypasses the scheduler if one input is left.
fn remove_scheduler_ports(
    router: &mut Router,
    class: &str,
    by_argument: bool,
    counts: &mut BTreeMap<String, (usize, usize)>,
    diagnostics: &mut Diagnostics,
) -> bool {
    let mut changed = false;
    for place in router.of_class(class) {
        if router.ports(place, true) != 1 {
            let landmark = router.element(place).landmark.clone();
            diagnostics.warning(landmark, odd_connections(router, place, "to"));
            continue;
        }
        let inputs = by_port(router, place, false);
        let mut arguments = split_arguments(&router.element(place).configuration);
        if by_argument && arguments.len() != inputs.len() {
            continue;
        }
        let dead = |id: &Option<ConnectionId>| {
            let connection = id.and_then(|id| router.connection(id));
            connection.is_none_or(|it| router.element(it.from.element).is(IDLE))
        };
        let dead: Vec<bool> = inputs.iter().map(dead).collect();
        let kept = keep_ports(router, place, false, &inputs, &dead);
        if by_argument {
            let mut dead = dead.iter();
            arguments.retain(|_| dead.next() == Some(&false));
            router.element_mut(place).configuration = join_arguments(&arguments);
        }
        let single = if let [only] = kept[..] { router.connection(only).map(|it| it.from) } else { None };
        if let Some(from) = single {
            move_connections(router, Port { element: place, port: 0 }, true, from);
            router.kill(place);
            changed = true;
        }
        counts.entry(router.element(place).name.clone()).or_default().0 = kept.len();
    }
    changed
}

/// Removes dead inputs, or outputs, and renumbers the others; returns the remaining connections.
fn keep_ports(
    router: &mut Router,
    place: usize,
    output: bool,
    ports: &[Option<ConnectionId>],
    dead: &[bool],
) -> Vec<ConnectionId> {
    let mut kept = Vec::new();
    for (number, (id, dead)) in ports.iter().zip(dead).enumerate() {
        match (id, dead) {
            (Some(id), true) => router.disconnect(*id),
            (Some(id), false) => {
                if number != kept.len() {
                    router.move_end(*id, output, Port { element: place, port: kept.len() });
                }
                kept.push(*id);
            }
            (None, _) => {}
        }
    }
    kept
}

/// Removes a tee's dead outputs, and bypasses the tee if one output is left.
fn remove_tee_ports(
    router: &mut Router,
    class: &str,
    pulls: bool,
    counts: &mut BTreeMap<String, (usize, usize)>,
    diagnostics: &mut Diagnostics,
) -> bool {
    let mut changed = false;
    for place in router.of_class(class) {
        if router.ports(place, false) != 1 {
            let landmark = router.element(place).landmark.clone();
            diagnostics.warning(landmark, odd_connections(router, place, "to"));
            continue;
        }
        let outputs = by_port(router, place, true);
        let dead: Vec<bool> = outputs
            .iter()
            .enumerate()
            .map(|(port, id)| {
                let connection = id.and_then(|id| router.connection(id));
                let to_idle = connection.is_none_or(|it| router.element(it.to.element).is(IDLE));
                to_idle && !(pulls && port == 0)
            })
            .collect();
        let kept = keep_ports(router, place, true, &outputs, &dead);
        if let [only] = kept[..] {
            let input = Port { element: place, port: 0 };
            let source = router.neighbours(input, false).first().copied();
            match (pulls, source, router.connection(only).map(|it| it.to)) {
                (true, Some(source), _) => move_connections(router, input, true, source),
                (false, _, Some(to)) => move_connections(router, input, false, to),
                _ => continue,
            }
            router.kill(place);
            changed = true;
        }
        counts.entry(router.element(place).name.clone()).or_default().1 = kept.len();
        router.element_mut(place).configuration = format!("{}", kept.len());
    }
    changed
}

/// Connects ports that lost their connections to an Idle.
fn fill_blank_ports(router: &mut Router, counts: &BTreeMap<String, (usize, usize)>) {
    let idle = router.add_anonymous(IDLE, "", Landmark::new(FILE, 0));
    let mut used = [0, 0];
    for place in router.live_places() {
        let counted = counts.get(&router.element(place).name).copied();
        for output in [false, true] {
            let now = router.ports(place, output);
            let count = counted.map_or(now, |(inputs, outputs)| if output { outputs } else { inputs });
            for port in (0..count).map(|port| Port { element: place, port }) {
                if !router.at_port(port, output).is_empty() {
                    continue;
                }
                let end = Port { element: idle, port: used[usize::from(output)] };
                used[usize::from(output)] += 1;
                let landmark = Landmark::new(FILE, 0);
                if output { router.connect(port, end, landmark) } else { router.connect(end, port, landmark) }
            }
        }
    }
    if used == [0, 0] {
        router.kill(idle);
    }
}
