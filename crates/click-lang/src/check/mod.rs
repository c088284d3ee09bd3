//! What a flat graph must satisfy: port numbers, push and pull, each port used as it may be.
mod code;
mod connections;
mod spread;

use crate::{Connection, Diagnostics, Element, Graph, Limits, Port};
use alloc::format;
use alloc::vec::Vec;
pub use code::{Flow, PortCount};

/// What a class says of itself, in Click's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts<'a> {
    /// Port count, such as `1/1-2`.
    pub ports: &'a str,
    /// Processing, such as `h/l`.
    pub processing: &'a str,
    /// Flow from inputs to outputs, such as `x/x`.
    pub flow: &'a str,
    /// Flags for tools, such as `S1`: a source of packets; empty if there is nothing to say.
    pub flags: &'a str,
}

impl Facts<'_> {
    /// The number after a flag's letter: 1 without a number, `None` without the flag.
    pub fn flag(&self, letter: char) -> Option<u32> {
        let after = &self.flags[self.flags.find(letter)? + letter.len_utf8()..];
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        Some(after[..digits].parse().unwrap_or(1))
    }
}

/// Where facts about classes come from.
pub trait Classes {
    /// The facts about an element's class; `None` if they are not known, which allows any ports.
    fn facts(&self, element: &Element) -> Option<Facts<'_>>;
}

/// Whether frames are pushed through a port or pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processing {
    /// The element before the port hands frames on.
    Push,
    /// The element after the port asks for frames.
    Pull,
    /// As the ports it is connected with.
    Agnostic,
}

/// A port after its processing is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortKind {
    /// Whether it pulls. Agnostic ports without neighbours that decide push.
    pub pull: bool,
    /// Whether its class leaves it open.
    pub agnostic: bool,
}

/// The ports of an element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElementPorts {
    /// Its inputs.
    pub inputs: Vec<PortKind>,
    /// Its outputs.
    pub outputs: Vec<PortKind>,
}

/// Checks a graph and settles its processing, as Click's drivers do before they configure elements.
///
/// On success, the ports of each element. Else the errors, with Click's texts, are in `diagnostics`: of the first
/// kind found, namely ports that don't exist, then push meeting pull, then ports used twice or not at all.
pub fn check(
    graph: &Graph,
    classes: &dyn Classes,
    limits: &Limits,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<ElementPorts>> {
    let before = diagnostics.errors();
    let ends = graph.connections.iter().flat_map(|connection| [connection.to, connection.from]);
    for port in ends.filter(|port| port.element >= graph.elements.len() || port.port >= limits.ports) {
        diagnostics
            .error(None, format!("bad element number '{}' or port number '{}'", port.element, port.port));
    }
    if diagnostics.errors() > before {
        return None;
    }
    let counts = port_counts(graph, classes, diagnostics);
    connections::in_range(graph, &counts, diagnostics);
    if diagnostics.errors() > before {
        return None;
    }
    let ports = spread::Spread::new(graph, classes, &counts).settle(limits, diagnostics);
    if diagnostics.errors() > before {
        return None;
    }
    connections::complete(graph, &ports, diagnostics);
    (diagnostics.errors() == before).then_some(ports)
}

/// How many inputs and outputs each element has.
fn port_counts(graph: &Graph, classes: &dyn Classes, diagnostics: &mut Diagnostics) -> Vec<(usize, usize)> {
    let mut counts = graph.ports_used();
    for (element, count) in graph.elements.iter().zip(&mut counts) {
        let Some(facts) = classes.facts(element) else { continue };
        match PortCount::parse(facts.ports) {
            Some(code) => *count = code.fit(count.0, count.1),
            None => diagnostics
                .error(element.landmark.clone(), format!("{}: bad port count", declaration(element))),
        }
    }
    counts
}

/// `name :: Class`, as errors name an element.
fn declaration(element: &Element) -> alloc::string::String {
    format!("{} :: {}", element.name, element.class)
}

/// One end of a connection.
fn end(connection: &Connection, output: bool) -> Port {
    if output { connection.from } else { connection.to }
}
