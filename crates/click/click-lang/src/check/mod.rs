//! Validation of a flat graph: port numbers, push and pull, and the number of connections per port.
mod code;
mod connections;
mod spread;

use crate::{Connection, Diagnostics, Element, Graph, Limits, Port};
use alloc::format;
use alloc::vec::Vec;
pub use code::{Flow, PortCount};

/// Properties of a class, in Click's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassProperties<'a> {
    /// Port count, such as `1/1-2`.
    pub ports: &'a str,
    /// Processing, such as `h/l`.
    pub processing: &'a str,
    /// Flow from inputs to outputs, such as `x/x`.
    pub flow: &'a str,
    /// Flags for tools, such as `S1` for a source of packets; may be empty.
    pub flags: &'a str,
}

impl ClassProperties<'_> {
    /// The number after a flag's letter: 1 if there is no number, `None` if the flag is missing.
    pub fn flag(&self, letter: char) -> Option<u32> {
        let after = &self.flags[self.flags.find(letter)? + letter.len_utf8()..];
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        Some(after[..digits].parse().unwrap_or(1))
    }
}

/// The known classes and their properties.
pub trait Classes {
    /// The properties of an element's class; `None` if unknown, which permits any ports.
    fn properties(&self, element: &Element) -> Option<ClassProperties<'_>>;
}

/// Whether packets are pushed or pulled through a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processing {
    /// The upstream element pushes packets.
    Push,
    /// The downstream element pulls packets.
    Pull,
    /// Determined by the connected ports.
    Agnostic,
}

/// A port's processing, as determined by [`check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMode {
    /// Whether the port is pull. Undetermined agnostic ports are push.
    pub pull: bool,
    /// Whether the class declares the port as agnostic.
    pub agnostic: bool,
}

/// The ports of an element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElementPorts {
    /// The inputs.
    pub inputs: Vec<PortMode>,
    /// The outputs.
    pub outputs: Vec<PortMode>,
}

/// Checks a graph and determines its processing, as Click's drivers do before configuring elements.
///
/// Returns the ports of each element. On failure, `diagnostics` has the errors, with Click's texts, of the
/// first failed check: port numbers, then push connected to pull, then reused and unused ports.
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
    let ports = spread::Spread::new(graph, classes, &counts).resolve(limits, diagnostics);
    if diagnostics.errors() > before {
        return None;
    }
    connections::complete(graph, &ports, diagnostics);
    (diagnostics.errors() == before).then_some(ports)
}

/// The number of inputs and outputs of each element.
fn port_counts(graph: &Graph, classes: &dyn Classes, diagnostics: &mut Diagnostics) -> Vec<(usize, usize)> {
    let mut counts = graph.ports_used();
    for (element, count) in graph.elements.iter().zip(&mut counts) {
        let Some(properties) = classes.properties(element) else { continue };
        match PortCount::parse(properties.ports) {
            Some(code) => *count = code.fit(count.0, count.1),
            None => diagnostics
                .error(element.landmark.clone(), format!("{}: bad port count", declaration(element))),
        }
    }
    counts
}

/// `name :: Class`, for errors.
fn declaration(element: &Element) -> alloc::string::String {
    format!("{} :: {}", element.name, element.class)
}

/// One end of a connection.
fn end(connection: &Connection, output: bool) -> Port {
    if output { connection.from } else { connection.to }
}
