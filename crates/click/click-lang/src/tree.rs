use crate::Landmark;
use crate::parse::Dialect;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

pub(crate) type TypeId = usize;
pub(crate) type CompoundId = usize;

/// The type of tunnels: `input`, `output`, and the nodes of a group or expanded compound.
pub(crate) const TUNNEL: TypeId = 0;
/// The type of elements of unknown class.
pub(crate) const ERROR: TypeId = 1;
/// The compound of the file.
pub(crate) const ROOT: CompoundId = 0;
/// Indices of the pseudoelements in a compound.
pub(crate) const INPUT: usize = 0;
pub(crate) const OUTPUT: usize = 1;

/// An element class, under one name.
#[derive(Clone, Debug)]
pub(crate) struct Type {
    pub name: String,
    pub body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Tunnel,
    Error,
    /// A class of the environment, by its original name.
    Class(Rc<str>),
    Compound(CompoundId),
}

/// Result of parsing: the compounds, of which the file is the first, and the types.
#[derive(Debug)]
pub(crate) struct Tree {
    pub types: Vec<Type>,
    /// Classes that the file declares, by name.
    pub classes: BTreeMap<String, TypeId>,
    pub compounds: Vec<Compound>,
    pub requirements: Vec<crate::Requirement>,
    /// The end of the text, which Click reports as the position of errors found after parsing.
    pub end: Landmark,
}

/// A compound element class, or the file.
#[derive(Debug)]
pub(crate) struct Compound {
    pub name: String,
    /// The name in errors about the compound's ports.
    pub printable: String,
    pub landmark: Landmark,
    /// Nesting depth of the scope; 0 for the file.
    pub depth: usize,
    /// The type to try if this compound does not fit.
    pub overload: Option<TypeId>,
    pub formals: Vec<Formal>,
    pub defines: Vec<(String, String)>,
    /// Names of formals and defines. Their values mean nothing: a set would be another B-tree, and code for it.
    variables: BTreeMap<String, usize>,
    /// Keywords of formals, likewise.
    keywords: BTreeMap<String, usize>,
    pub inputs: usize,
    pub outputs: usize,
    pub nodes: Vec<Node>,
    pub names: BTreeMap<String, usize>,
    /// For names that are taken, the next number to try.
    free: BTreeMap<String, usize>,
    pub links: Vec<Link>,
    pub requirements: Vec<crate::Requirement>,
}

#[derive(Clone, Debug)]
pub(crate) struct Formal {
    pub name: String,
    /// Empty if positional.
    pub keyword: String,
}

/// An element of a compound.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub name: String,
    pub class: TypeId,
    pub configuration: String,
    pub landmark: Landmark,
    /// Port numbers in use, inputs and outputs.
    pub ports: [BTreeSet<usize>; 2],
}

impl Node {
    /// One more than the highest port number in use.
    pub fn count(&self, output: bool) -> usize {
        self.ports[usize::from(output)].last().map_or(0, |last| last + 1)
    }

    /// Whether the name must still be made unique.
    pub fn is_anonymous(&self) -> bool {
        self.name.starts_with(';')
    }
}

/// A connection in a compound, by node indices.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub from: (usize, usize),
    pub to: (usize, usize),
    pub landmark: Landmark,
}

impl Compound {
    pub fn new(name: &str, landmark: Landmark, depth: usize) -> Self {
        Self {
            name: name.into(),
            printable: if name.is_empty() { "<anonymous>".into() } else { name.into() },
            landmark,
            depth,
            overload: None,
            formals: Vec::new(),
            defines: Vec::new(),
            variables: BTreeMap::new(),
            keywords: BTreeMap::new(),
            inputs: 0,
            outputs: 0,
            nodes: Vec::new(),
            names: BTreeMap::new(),
            free: BTreeMap::new(),
            links: Vec::new(),
            requirements: Vec::new(),
        }
    }

    /// Adds a node. A name that is in use continues to refer to the older node.
    pub fn add(&mut self, name: &str, class: TypeId, configuration: &str, landmark: Landmark) -> usize {
        let place = self.nodes.len();
        self.names.entry(name.into()).or_insert(place);
        self.nodes.push(Node {
            name: name.into(),
            class,
            configuration: configuration.into(),
            landmark,
            ports: Default::default(),
        });
        place
    }

    pub fn connect(&mut self, from: (usize, usize), to: (usize, usize), landmark: Landmark) {
        self.nodes[from.0].ports[1].insert(from.1);
        self.nodes[to.0].ports[0].insert(to.1);
        self.links.push(Link { from, to, landmark });
    }

    /// Adds a formal. Returns whether the name is new, and whether the keyword is new.
    pub fn add_formal(&mut self, name: &str, keyword: &str) -> (bool, bool) {
        if self.variables.insert(name.into(), 0).is_some() {
            return (false, true);
        }
        self.formals.push(Formal { name: name.into(), keyword: keyword.into() });
        (true, keyword.is_empty() || self.keywords.insert(keyword.into(), 0).is_none())
    }

    /// Adds a variable. Returns whether the name is new.
    pub fn define(&mut self, name: &str, value: &str) -> bool {
        let new = self.variables.insert(name.into(), 0).is_none();
        if new {
            self.defines.push((name.into(), value.into()));
        }
        new
    }

    /// Names an anonymous node, with its number or the next free one.
    pub fn name_node(&mut self, place: usize) {
        let wanted = self.nodes[place].name[1..].to_string();
        let name = self.free_name(&wanted);
        self.names.insert(name.clone(), place);
        self.nodes[place].name = name;
    }

    fn free_name(&mut self, wanted: &str) -> String {
        let (prefix, number) = wanted.rsplit_once('@').unwrap_or((wanted, ""));
        let digits = number.len() - number.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let mut number: usize = number[..digits].parse().unwrap_or(0);
        let mut name = wanted.to_string();
        let mut taken = Vec::new();
        while self.names.contains_key(&name) {
            number = self.free.get(&name).copied().unwrap_or(number + 1);
            taken.push(core::mem::replace(&mut name, format!("{prefix}@{number}")));
        }
        // Attack: many taken names, and many anonymous elements that each try all of them.
        self.free.extend(taken.into_iter().map(|name| (name, number)));
        name
    }

    pub fn name_all(&mut self) {
        for place in 0..self.nodes.len() {
            if self.nodes[place].is_anonymous() {
                self.name_node(place);
            }
        }
    }

    /// An overload's signature: formals and numbers of ports. As in Click, the values of `define` are listed,
    /// too, and the formals not for tools.
    pub fn signature(&self, dialect: Dialect) -> String {
        let mut out = if self.name.is_empty() { "<anonymous>".to_string() } else { self.name.clone() };
        let mut formals: Vec<&str> = Vec::new();
        if dialect == Dialect::Router {
            formals.extend(self.formals.iter().map(Formal::shown));
        }
        formals.extend(self.defines.iter().map(|(_, value)| value.as_str()));
        if !formals.is_empty() {
            out.push_str(&format!("({})", formals.join(", ")));
        }
        out.push_str(&format!("[{}]", ports(self.inputs, self.outputs)));
        out
    }

    /// The keywords of the formals, for [`crate::config::assign_arguments`].
    pub fn keywords(&self) -> Vec<&str> {
        self.formals.iter().map(|formal| formal.keyword.as_str()).collect()
    }
}

impl Formal {
    fn shown(&self) -> &str {
        match self.keyword.as_str() {
            "" => "<arg>",
            crate::config::REST => "...",
            keyword => keyword,
        }
    }
}

fn ports(inputs: usize, outputs: usize) -> String {
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    format!("{inputs} input{}, {outputs} output{}", plural(inputs), plural(outputs))
}

/// The signature of a use of a compound: numbers of arguments and ports.
pub(crate) fn use_signature(name: &str, arguments: usize, inputs: usize, outputs: usize) -> String {
    let name = if name.is_empty() { "<anonymous>" } else { name };
    let arguments = match arguments {
        0 => String::new(),
        1 => "1 argument, ".into(),
        more => format!("{more} arguments, "),
    };
    format!("{name}[{arguments}{}]", ports(inputs, outputs))
}
