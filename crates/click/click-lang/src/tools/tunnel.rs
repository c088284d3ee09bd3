use super::router::Router;
use crate::{Diagnostics, Limits, Port};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

/// The tunnel inputs, or outputs, in order of discovery, with the elements' ports that they lead to.
struct Ends {
    output: bool,
    ports: Vec<Port>,
    index: BTreeMap<Port, usize>,
    found: Vec<Found>,
}

enum Found {
    Pending,
    Expanding,
    Ports(Vec<Port>),
}

impl Ends {
    fn new(output: bool) -> Self {
        Self { output, ports: Vec::new(), index: BTreeMap::new(), found: Vec::new() }
    }

    fn add(&mut self, port: Port) {
        if !self.index.contains_key(&port) {
            self.index.insert(port, self.ports.len());
            self.ports.push(port);
            self.found.push(Found::Pending);
        }
    }
}

/// An end being expanded.
struct Frame {
    end: usize,
    connected: Vec<Port>,
    next: usize,
    store: Vec<Port>,
    seen: BTreeSet<Port>,
}

impl Router {
    /// Replaces tunnels by direct connections. Tunnel elements without another end stay, such as `input` and
    /// `output` of a compound.
    pub fn remove_tunnels(&mut self, limits: &Limits, diagnostics: &mut Diagnostics) {
        let originals = self.connections();
        let (mut inputs, mut outputs) = (Ends::new(false), Ends::new(true));
        for connection in originals.iter().filter_map(|&id| self.connection(id)) {
            let (from, to) = (self.element(connection.from.element), self.element(connection.to.element));
            if from.is_tunnel() && from.comes_from.is_some() {
                outputs.add(connection.from);
            }
            if to.is_tunnel() && to.leads_to.is_some() {
                inputs.add(connection.to);
            }
        }
        let mut budget = limits.connections;
        for ends in [&mut inputs, &mut outputs] {
            for end in 0..ends.ports.len() {
                self.expand_end(ends, end, &mut budget, diagnostics);
            }
        }
        for id in originals {
            let Some(connection) = self.connection(id).cloned() else { continue };
            let to_tunnel = self.element(connection.to.element).is_tunnel();
            if !self.element(connection.from.element).is_tunnel() || to_tunnel {
                continue;
            }
            let Some(&end) = outputs.index.get(&connection.from) else { continue };
            let Found::Ports(ports) = &outputs.found[end] else { continue };
            // Attack: many outputs connected to a compound that leads to many inputs.
            let Some(left) = budget.checked_sub(ports.len()) else {
                diagnostics.error(None, "configuration expands to too many elements or connections");
                break;
            };
            budget = left;
            for &port in ports {
                self.connect(port, connection.to, connection.landmark.clone());
            }
        }
        for place in 0..self.places() {
            let element = self.element(place);
            if element.is_tunnel() && (element.leads_to.is_some() || element.comes_from.is_some()) {
                self.kill(place);
            }
        }
        self.remove_duplicates();
        self.free_dead();
    }

    /// Finds the ports that an end leads to. Attack: a long chain of compounds that only pass packets
    /// through; recursion would overflow the stack.
    fn expand_end(&self, ends: &mut Ends, end: usize, budget: &mut usize, diagnostics: &mut Diagnostics) {
        let mut stack = Vec::new();
        if matches!(ends.found[end], Found::Pending) {
            stack.push(self.open(ends, end, diagnostics));
        }
        while let Some(frame) = stack.last_mut() {
            let Some(&port) = frame.connected.get(frame.next) else {
                let store = core::mem::take(&mut frame.store);
                *budget = budget.saturating_sub(store.len() / 4);
                ends.found[frame.end] = Found::Ports(if *budget == 0 { Vec::new() } else { store });
                stack.pop();
                continue;
            };
            let through = ends.index.get(&port).copied().filter(|_| self.element(port.element).is_tunnel());
            let ports: &[Port] = match through.map(|end| (end, &ends.found[end])) {
                None => &[port],
                Some((_, Found::Ports(ports))) => ports,
                Some((_, Found::Expanding)) => &[],
                Some((end, Found::Pending)) => {
                    let frame = self.open(ends, end, diagnostics);
                    stack.push(frame);
                    continue;
                }
            };
            for &port in ports {
                if frame.seen.insert(port) {
                    frame.store.push(port);
                }
            }
            frame.next += 1;
        }
    }

    fn open(&self, ends: &mut Ends, end: usize, diagnostics: &mut Diagnostics) -> Frame {
        ends.found[end] = Found::Expanding;
        let port = ends.ports[end];
        let element = self.element(port.element);
        let other = if ends.output { element.comes_from } else { element.leads_to }.unwrap_or(port.element);
        let connected = self.neighbours(Port { element: other, port: port.port }, !ends.output);
        if connected.is_empty() {
            self.report_unused(port, other, ends.output, diagnostics);
        }
        Frame { end, connected, next: 0, store: Vec::new(), seen: BTreeSet::new() }
    }

    /// Reports an end whose other end has no connections.
    fn report_unused(&self, end: Port, other: usize, output: bool, diagnostics: &mut Diagnostics) {
        let (into, out) = if output { (other, end.element) } else { (end.element, other) };
        let (into, out, port) = (self.element(into), self.element(out), end.port);
        let (landmark, text) = if format!("{}/input", into.name) == out.name {
            let text = match output {
                true => format!("'{}' input {port} unused", into.name),
                false => format!("'{}' has no input {port}", into.name),
            };
            (&into.landmark, text)
        } else if into.name == format!("{}/output", out.name) {
            let text = match output {
                true => format!("'{}' has no output {port}", out.name),
                false => format!("'{}' output {port} unused", out.name),
            };
            (&out.landmark, text)
        } else {
            let side = if output { "input" } else { "output" };
            let text = format!("tunnel '{} -> {}' {side} {port} unused", into.name, out.name);
            (&self.element(other).landmark, text)
        };
        diagnostics.error(landmark.clone(), text);
    }
}
