use crate::Landmark;
use alloc::string::String;
use alloc::vec::Vec;

/// A flat configuration: no compound elements, no variables of compounds, every element named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// Elements; a [`Port`] names one by its place here.
    pub elements: Vec<Element>,
    /// Connections, in Click's order.
    pub connections: Vec<Connection>,
    /// What `require` asked for, in order; libraries excepted, since they are read in.
    pub requirements: Vec<Requirement>,
    /// Variables that stay visible after flattening: the file's `define`s, name and value.
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
    /// Where it is declared.
    pub landmark: Landmark,
}

/// A port of an element; which side follows from where the port is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port {
    /// Place of the element in [`Graph::elements`].
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
    /// Where the connection is made.
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
    /// The place of the element called `name`.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.elements.iter().position(|element| element.name == name)
    }

    /// How many input and output ports of each element are in use: one more than the highest number.
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
