use super::Elaborator;
use crate::tree::{Compound, Link, TUNNEL};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

/// A node and a port number.
type NodePort = (usize, usize);

/// One end of a tunnel's port. The neighbours of both ends are connected with each other.
#[derive(Debug)]
struct End {
    port: NodePort,
    output: bool,
    other: usize,
    /// The ports connected to the other end; after expansion, only ports of elements that are no tunnels.
    ports: Vec<NodePort>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Fresh,
    Expanding,
    Expanded,
}

/// A port as a key: inputs and outputs of a node differ.
fn key((node, port): NodePort, output: bool) -> NodePort {
    (2 * node + usize::from(output), port)
}

/// All tunnels. A tunnel begins with port 0; other ports are added when they are first used.
#[derive(Debug, Default)]
pub(super) struct Tunnels {
    ends: Vec<End>,
    /// Places in `ends`, by port.
    index: BTreeMap<NodePort, usize>,
}

impl Tunnels {
    /// The tunnels of the groups at file scope, which have three nodes each.
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

    /// Creates the tunnels between a node and its inner `input` and `output`. Returns `false` if they exist.
    pub fn add(&mut self, [outer, input, output]: [usize; 3]) -> bool {
        if self.index.contains_key(&key((outer, 0), false)) {
            return false;
        }
        self.pair(((outer, 0), false), ((input, 0), true));
        self.pair(((output, 0), false), ((outer, 0), true));
        true
    }

    fn pair(&mut self, one: (NodePort, bool), two: (NodePort, bool)) -> usize {
        let first = self.ends.len();
        for ((port, output), other) in [(one, first + 1), (two, first)] {
            self.index.insert(key(port, output), self.ends.len());
            self.ends.push(End { port, output, other, ports: Vec::new(), state: State::Fresh });
        }
        first
    }

    /// The end at a port. If needed, creates it like the end at port 0.
    fn find(&mut self, port: NodePort, output: bool) -> Option<usize> {
        if let Some(&end) = self.index.get(&key(port, output)) {
            return Some(end);
        }
        let model = *self.index.get(&key((port.0, 0), output))?;
        let other = self.ends[self.ends[model].other].port.0;
        Some(self.pair((port, output), ((other, port.1), !output)))
    }
}

/// An end being expanded.
struct Frame {
    end: usize,
    connected: Vec<NodePort>,
    next: usize,
    /// The keys of a map, since sets would be code of their own.
    found: BTreeMap<NodePort, usize>,
}

impl Elaborator<'_> {
    fn is_tunnel(&self, port: NodePort) -> bool {
        self.flat.nodes[port.0].class == TUNNEL
    }

    /// Adds the connections that lead through tunnels.
    pub(super) fn connect_through_tunnels(&mut self) {
        let links = self.flat.links.clone();
        for link in &links {
            for (port, neighbour, output) in [(link.to, link.from, false), (link.from, link.to, true)] {
                let end = if self.is_tunnel(port) { self.tunnels.find(port, output) } else { None };
                if let Some(end) = end {
                    let other = self.tunnels.ends[end].other;
                    self.tunnels.ends[other].ports.push(neighbour);
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
        let from = self.element_ports(link.from, true);
        let to = self.element_ports(link.to, false);
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

    /// The port itself, or the ports of elements that a tunnel's port leads to.
    fn element_ports(&mut self, port: NodePort, output: bool) -> Vec<NodePort> {
        if !self.is_tunnel(port) {
            return alloc::vec![port];
        }
        match self.tunnels.find(port, output) {
            Some(end) => {
                self.expand_end(end);
                self.tunnels.ends[end].ports.clone()
            }
            None => {
                self.report_misuse(port, output);
                Vec::new()
            }
        }
    }

    fn report_misuse(&mut self, port: NodePort, output: bool) {
        if self.tunnels.find(port, !output).is_some() {
            let node = &self.flat.nodes[port.0];
            let side = if output { "output" } else { "input" };
            self.diagnostics.error(node.landmark.clone(), format!("'{}' used as {side}", node.name));
        }
    }

    /// Replaces tunnels among an end's ports by the ports that they lead to; a loop of tunnels leads to none.
    fn expand_end(&mut self, end: usize) {
        // Attack: a long chain of compounds that only pass packets through; recursion would overflow the
        // stack.
        let mut stack: Vec<Frame> = Vec::new();
        if self.tunnels.ends[end].state == State::Fresh {
            stack.push(self.open(end));
        }
        while let Some(frame) = stack.last_mut() {
            let output = self.tunnels.ends[frame.end].output;
            let Some(&port) = frame.connected.get(frame.next) else {
                let done = &mut self.tunnels.ends[frame.end];
                done.ports = frame.found.keys().copied().collect();
                done.state = State::Expanded;
                // Attack: many connections through a long chain, stored at each end.
                if !self.budget.spend(16 * done.ports.len()) {
                    self.stop("configuration expands to too many elements or connections".into());
                    return;
                }
                stack.pop();
                continue;
            };
            if self.flat.nodes[port.0].class != TUNNEL {
                frame.found.insert(port, 0);
                frame.next += 1;
                continue;
            }
            let Some(next) = self.tunnels.find(port, output) else {
                frame.next += 1;
                self.report_misuse(port, output);
                continue;
            };
            match self.tunnels.ends[next].state {
                State::Fresh => {
                    let frame = self.open(next);
                    stack.push(frame);
                }
                State::Expanding => frame.next += 1,
                State::Expanded => {
                    frame.found.extend(self.tunnels.ends[next].ports.iter().map(|port| (*port, 0)));
                    frame.next += 1;
                }
            }
        }
    }

    fn open(&mut self, end: usize) -> Frame {
        self.tunnels.ends[end].state = State::Expanding;
        let connected = core::mem::take(&mut self.tunnels.ends[end].ports);
        if connected.is_empty() {
            self.report_unused(end);
        }
        Frame { end, connected, next: 0, found: BTreeMap::new() }
    }

    /// Reports an end whose other end has no connections.
    fn report_unused(&mut self, end: usize) {
        let end = &self.tunnels.ends[end];
        let other = &self.tunnels.ends[end.other];
        let output = end.output;
        let (input_end, output_end) = if output { (other.port, end.port) } else { (end.port, other.port) };
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
            let text = format!("tunnel '{} -> {}' {side} {} unused", into.name, out.name, end.port.1);
            (&self.flat.nodes[other.port.0].landmark, text)
        };
        self.diagnostics.error(landmark.clone(), text);
    }
}
