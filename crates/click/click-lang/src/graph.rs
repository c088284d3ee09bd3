use crate::Landmark;
use alloc::string::String;
use alloc::vec::Vec;

/// A flat configuration: without compound elements and their variables, and with all elements named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// The elements; [`Port::element`] is an index into this list.
    pub elements: Vec<Element>,
    /// Connections, in Click's order.
    pub connections: Vec<Connection>,
    /// Requirements from `require`, in order, except for libraries, which are included in the graph.
    pub requirements: Vec<Requirement>,
    /// Variables of the file's `define`s, which stay visible after flattening: names and values.
    pub defines: Vec<(String, String)>,
}

/// An element of a flat configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// Full name, such as `in/Print@1`.
    pub name: String,
    /// Class name.
    pub class: String,
    /// Configuration string without its parentheses, not yet split or unquoted.
    pub configuration: String,
    /// The position of the declaration.
    pub landmark: Landmark,
}

/// A port of an element; the context determines whether it is an input or an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port {
    /// Index of the element in [`Graph::elements`].
    pub element: usize,
    /// Port number.
    pub port: usize,
}

/// A connection from an output port to an input port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The output.
    pub from: Port,
    /// The input.
    pub to: Port,
    /// The position of the connection.
    pub landmark: Landmark,
}

/// One item of a `require(...)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// `package` or `compact_config`.
    pub kind: String,
    /// The package; empty for `compact_config`.
    pub value: String,
}

impl Graph {
    /// The index of the element called `name`.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.elements.iter().position(|element| element.name == name)
    }

    /// The numbers of inputs and outputs of each element: one more than the highest port in use.
    pub fn ports_used(&self) -> Vec<(usize, usize)> {
        let mut used = alloc::vec![(0, 0); self.elements.len()];
        for Connection { from, to, .. } in &self.connections {
            if let Some((_, outputs)) = used.get_mut(from.element) {
                *outputs = (*outputs).max(from.port.saturating_add(1));
            }
            if let Some((inputs, _)) = used.get_mut(to.element) {
                *inputs = (*inputs).max(to.port.saturating_add(1));
            }
        }
        used
    }
}
