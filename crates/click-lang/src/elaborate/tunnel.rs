use super::Elaborator;
use crate::tree::{Compound, Link, TUNNEL};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

/// A node and a port number.
type NodePort = (usize, usize);

/// A port of a tunnel: the neighbours of its two ends are connected with each other.
#[derive(Debug)]
struct End {
    place: NodePort,
    output: bool,
    other: usize,
    /// The ports connected to this end; after expansion, those of real elements.
    ports: Vec<NodePort>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Fresh,
    Expanding,
    Expanded,
}

/// All tunnels. Each begins with port 0; other ports are added when first used.
#[derive(Debug, Default)]
pub(super) struct Tunnels {
    ends: Vec<End>,
    index: BTreeMap<(usize, bool, usize), usize>,
}

impl Tunnels {
    /// The tunnels of the file's own groups: three nodes each.
    pub fn new(root: &Compound) -> Self {
        let mut tunnels = Self::default();
        let mut node = 0;
        while node < root.nodes.len() {
            if root.nodes[node].class == TUNNEL && node + 2 < root.nodes.len() {
                tunnels.add([node, node + 1, node + 2]);
                node += 2;
            }
            node += 1;
        }
        tunnels
    }

    /// Creates the tunnel of a node and its inner `input` and `output`; false if it exists.
    pub fn add(&mut self, [outer, input, output]: [usize; 3]) -> bool {
        if self.index.contains_key(&(outer, false, 0)) {
            return false;
        }
        self.pair(((outer, 0), false), ((input, 0), true));
        self.pair(((output, 0), false), ((outer, 0), true));
        true
    }

    fn pair(&mut self, one: (NodePort, bool), two: (NodePort, bool)) -> usize {
        let first = self.ends.len();
        for ((place, output), other) in [(one, first + 1), (two, first)] {
            self.index.insert((place.0, output, place.1), self.ends.len());
            self.ends.push(End { place, output, other, ports: Vec::new(), state: State::Fresh });
        }
        first
    }

    /// The end at a port, created like that of port 0 if needed.
    fn find(&mut self, place: NodePort, output: bool) -> Option<usize> {
        if let Some(&end) = self.index.get(&(place.0, output, place.1)) {
            return Some(end);
        }
        let model = *self.index.get(&(place.0, output, 0))?;
        let other = self.ends[self.ends[model].other].place.0;
        Some(self.pair((place, output), ((other, place.1), !output)))
    }
}

/// An end being expanded.
struct Frame {
    end: usize,
    connected: Vec<NodePort>,
    next: usize,
    found: BTreeSet<NodePort>,
}

impl Elaborator<'_> {
    fn is_tunnel(&self, place: NodePort) -> bool {
        self.flat.nodes[place.0].class == TUNNEL
    }

    /// Adds the connections that lead through tunnels.
    pub(super) fn connect_through_tunnels(&mut self) {
        let links = self.flat.links.clone();
        for link in &links {
            for (here, there, output) in [(link.to, link.from, false), (link.from, link.to, true)] {
                let end = if self.is_tunnel(here) { self.tunnels.find(here, output) } else { None };
                if let Some(end) = end {
                    let other = self.tunnels.ends[end].other;
                    self.tunnels.ends[other].ports.push(there);
                }
            }
        }
        for link in &links {
            if !self.stopped && (self.is_tunnel(link.from) || self.is_tunnel(link.to)) {
                self.connect_ends(link);
            }
        }
    }

    fn connect_ends(&mut self, link: &Link) {
        let from = self.real_ports(link.from, true);
        let to = self.real_ports(link.to, false);
        // Attack: many outputs connected to a compound that leads to many inputs.
        let product = from.len().saturating_mul(to.len());
        if self.flat.links.len().saturating_add(product) > self.limits.connections.saturating_mul(2) {
            return self.stop("configuration expands to too many elements or connections".into());
        }
        for &output in &from {
            for &input in &to {
                self.flat.links.push(Link { from: output, to: input, landmark: link.landmark.clone() });
            }
        }
    }

    /// The ports of real elements behind a port.
    fn real_ports(&mut self, place: NodePort, output: bool) -> Vec<NodePort> {
        if !self.is_tunnel(place) {
            return alloc::vec![place];
        }
        match self.tunnels.find(place, output) {
            Some(end) => {
                self.expand_end(end);
                self.tunnels.ends[end].ports.clone()
            }
            None => {
                self.misused(place, output);
                Vec::new()
            }
        }
    }

    fn misused(&mut self, place: NodePort, output: bool) {
        if self.tunnels.find(place, !output).is_some() {
            let node = &self.flat.nodes[place.0];
            let side = if output { "output" } else { "input" };
            self.diagnostics.error(node.landmark.clone(), format!("'{}' used as {side}", node.name));
        }
    }

    /// Replaces the ports at an end by those of real elements. A loop of tunnels has none.
    fn expand_end(&mut self, end: usize) {
        // Iterative. Attack: a long chain of compounds that only pass packets through.
        let mut stack: Vec<Frame> = Vec::new();
        if self.tunnels.ends[end].state == State::Fresh {
            stack.push(self.open(end));
        }
        while let Some(frame) = stack.last_mut() {
            let output = self.tunnels.ends[frame.end].output;
            let Some(&place) = frame.connected.get(frame.next) else {
                let done = &mut self.tunnels.ends[frame.end];
                done.ports = frame.found.iter().copied().collect();
                done.state = State::Expanded;
                // Attack: a wide bundle through a long chain, stored at each of its ends.
                if !self.budget.spend(16 * done.ports.len()) {
                    self.stop("configuration expands to too many elements or connections".into());
                    return;
                }
                stack.pop();
                continue;
            };
            if self.flat.nodes[place.0].class != TUNNEL {
                frame.found.insert(place);
                frame.next += 1;
                continue;
            }
            let Some(next) = self.tunnels.find(place, output) else {
                frame.next += 1;
                self.misused(place, output);
                continue;
            };
            match self.tunnels.ends[next].state {
                State::Fresh => {
                    let frame = self.open(next);
                    stack.push(frame);
                }
                State::Expanding => frame.next += 1,
                State::Expanded => {
                    frame.found.extend(self.tunnels.ends[next].ports.iter().copied());
                    frame.next += 1;
                }
            }
        }
    }

    fn open(&mut self, end: usize) -> Frame {
        self.tunnels.ends[end].state = State::Expanding;
        let connected = core::mem::take(&mut self.tunnels.ends[end].ports);
        if connected.is_empty() {
            self.unused(end);
        }
        Frame { end, connected, next: 0, found: BTreeSet::new() }
    }

    /// Reports an end without connections on the other side.
    fn unused(&mut self, end: usize) {
        let here = &self.tunnels.ends[end];
        let other = &self.tunnels.ends[here.other];
        let output = here.output;
        let (input_end, output_end) =
            if output { (other.place, here.place) } else { (here.place, other.place) };
        let (into, out) = (&self.flat.nodes[input_end.0], &self.flat.nodes[output_end.0]);
        let (landmark, text) = if format!("{}/input", into.name) == out.name {
            let (name, port) = (&into.name, input_end.1);
            let text = if output {
                format!("'{name}' input {port} unused")
            } else {
                format!("'{name}' has no input {port}")
            };
            (&into.landmark, text)
        } else if into.name == format!("{}/output", out.name) {
            let (name, port) = (&out.name, output_end.1);
            let text = if output {
                format!("'{name}' has no output {port}")
            } else {
                format!("'{name}' output {port} unused")
            };
            (&out.landmark, text)
        } else {
            let side = if output { "output" } else { "input" };
            let text = format!("tunnel '{} -> {}' {side} {} unused", into.name, out.name, here.place.1);
            (&self.flat.nodes[other.place.0].landmark, text)
        };
        self.diagnostics.error(landmark.clone(), text);
    }
}
