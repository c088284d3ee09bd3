//! Elaborates the tree into a flat graph, in the order of Click's drivers.
mod overload;
mod tunnel;

use crate::config::{Budget, Scope, expand, split_arguments};
use crate::parse::Dialect;
use crate::tree::{Body, Compound, CompoundId, ERROR, ROOT, TUNNEL, Tree, Type, TypeId};
use crate::{Connection, Diagnostics, Element, Graph, Landmark, Limits, Port};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
pub(crate) use overload::{Choice, choose};
use tunnel::Tunnels;

/// Expands compounds and variables, and replaces connections at compounds and groups by connections of their
/// elements.
pub(crate) fn elaborate(
    tree: Tree,
    variables: &[(String, String)],
    limits: &Limits,
    diagnostics: &mut Diagnostics,
) -> Graph {
    let Tree { types, classes, mut compounds, requirements, end } = tree;
    let root = core::mem::replace(&mut compounds[ROOT], Compound::new("", end.clone(), 0));
    let mut scope = Scope::new(None);
    for (name, value) in root.defines.iter().chain(variables) {
        scope.define(name.as_str(), value.as_str());
    }
    let mut elaborator = Elaborator {
        types,
        classes,
        compounds: Rc::new(compounds),
        tunnels: Tunnels::new(&root),
        flat: root,
        end,
        limits,
        diagnostics,
        budget: Budget::new(limits.expansion),
        stopped: false,
    };
    elaborator.expand_all(Rc::new(scope));
    let mut graph = elaborator.graph();
    graph.requirements = requirements;
    graph
}

struct Elaborator<'a> {
    types: Vec<Type>,
    classes: BTreeMap<String, TypeId>,
    compounds: Rc<Vec<Compound>>,
    tunnels: Tunnels,
    /// The file's compound, into which others are expanded.
    flat: Compound,
    end: Landmark,
    limits: &'a Limits,
    diagnostics: &'a mut Diagnostics,
    budget: Budget,
    stopped: bool,
}

impl Elaborator<'_> {
    fn expand_all(&mut self, scope: Rc<Scope>) {
        for node in 0..self.flat.nodes.len() {
            self.expand(node, &scope, 0);
        }
    }

    /// Reports an error and stops the expansion.
    fn stop(&mut self, text: String) {
        if !self.stopped {
            let end = self.end.clone();
            self.diagnostics.error(end, text);
        }
        self.stopped = true;
    }

    fn expand_text(&mut self, text: &str, scope: &Rc<Scope>) -> String {
        let text = expand(text, &**scope, &self.budget);
        if self.budget.exceeded() {
            self.stop(format!(
                "configuration expands to too much text (at most {} bytes)",
                self.limits.expansion
            ));
        }
        text
    }

    /// Names an anonymous node, expands the node's configuration, and replaces a compound by its contents.
    fn expand(&mut self, node: usize, scope: &Rc<Scope>, depth: usize) {
        if self.stopped {
            return;
        }
        if self.flat.nodes[node].is_anonymous() {
            self.flat.name_node(node);
        }
        let class = self.flat.nodes[node].class;
        if class == TUNNEL {
            return;
        }
        let text = core::mem::take(&mut self.flat.nodes[node].configuration);
        let text = self.expand_text(&text, scope);
        let arguments = match self.types[class].body {
            Body::Compound(_) => split_arguments(&text),
            _ => Vec::new(),
        };
        self.flat.nodes[node].configuration = text;
        let Body::Compound(first) = self.types[class].body else { return };
        let ports = (self.flat.nodes[node].count(false), self.flat.nodes[node].count(true));
        let end = self.end.clone();
        let budget = &self.budget;
        let (types, compounds, router) = (&self.types, &self.compounds, Dialect::Router);
        match choose(router, types, compounds, first, ports, arguments, &end, budget, self.diagnostics) {
            Choice::None => self.flat.nodes[node].class = ERROR,
            Choice::Class(class) => self.flat.nodes[node].class = class,
            Choice::Compound(id, arguments) => self.expand_compound(node, id, arguments, scope, depth),
        }
    }

    fn expand_compound(
        &mut self,
        node: usize,
        id: CompoundId,
        arguments: Vec<String>,
        scope: &Rc<Scope>,
        depth: usize,
    ) {
        // Attack: a long chain of compounds that each use the previous one.
        if depth >= self.limits.expansion_depth {
            return self.stop("compound elements nested too deeply".into());
        }
        let compounds = self.compounds.clone();
        let compound = &compounds[id];
        let mut inner = Scope::new(scope.above(compound.depth));
        for (formal, value) in compound.formals.iter().zip(arguments) {
            inner.define(formal.name.as_str(), value);
        }
        for (name, value) in &compound.defines {
            let value = expand(value, &inner, &self.budget);
            inner.define(name.as_str(), value);
        }
        self.expand_into(node, compound, &Rc::new(inner), depth);
    }

    fn expand_into(&mut self, node: usize, compound: &Compound, scope: &Rc<Scope>, depth: usize) {
        let name = self.flat.nodes[node].name.clone();
        // Attack: nested compounds, which multiply elements, names and connections at each level.
        let names = compound.nodes.iter().map(|inner| inner.name.len() + name.len() + 1).sum();
        if self.flat.nodes.len() + compound.nodes.len() > self.limits.elements
            || self.flat.links.len() + compound.links.len() > self.limits.connections
            || !self.budget.spend(names)
        {
            return self.stop("configuration expands to too many elements or connections".into());
        }
        self.flat.nodes[node].class = TUNNEL;
        let ends = self.add_tunnels(&name);
        let mut places: Vec<Option<usize>> = alloc::vec![Some(ends[1]), Some(ends[2])];
        while places.len() < compound.nodes.len() {
            self.expand_node(node, &name, compound, scope, &mut places);
        }
        for link in &compound.links {
            if let (Some(from), Some(to)) = (places[link.from.0], places[link.to.0]) {
                self.flat.connect((from, link.from.1), (to, link.to.1), link.landmark.clone());
            }
        }
        for place in places.into_iter().skip(2).flatten() {
            self.expand(place, scope, depth + 1);
        }
    }

    /// Expands the compound's next node, or the three nodes of a group.
    fn expand_node(
        &mut self,
        node: usize,
        prefix: &str,
        compound: &Compound,
        scope: &Rc<Scope>,
        places: &mut Vec<Option<usize>>,
    ) {
        let inner = &compound.nodes[places.len()];
        let name = format!("{prefix}/{}", inner.name);
        if let Some(&old) = self.flat.names.get(&name) {
            self.redeclared("element", &name, self.flat.nodes[node].landmark.clone(), old);
            places.push(None);
            return;
        }
        if self.classes.contains_key(&name) {
            let landmark = self.flat.nodes[node].landmark.clone();
            self.diagnostics.error(landmark, format!("'{name}' is an element class"));
        }
        if inner.class == TUNNEL {
            places.extend(self.add_tunnels(&name).map(Some));
        } else {
            let text = self.expand_text(&inner.configuration, scope);
            places.push(Some(self.flat.add(&name, inner.class, &text, inner.landmark.clone())));
        }
    }

    fn redeclared(&mut self, what: &str, name: &str, landmark: Landmark, old: usize) {
        self.diagnostics.error(landmark, format!("redeclaration of {what} '{name}'"));
        let before = self.flat.nodes[old].landmark.clone();
        self.diagnostics.error(before, format!("'{name}' previously declared here"));
    }

    /// Adds, or finds, the nodes of a compound or group and of its inner `input` and `output`.
    fn add_tunnels(&mut self, name: &str) -> [usize; 3] {
        let mut fresh = true;
        let nodes = ["", "/input", "/output"].map(|part| {
            let name = format!("{name}{part}");
            let end = self.end.clone();
            let Some(&old) = self.flat.names.get(&name) else {
                return self.flat.add(&name, TUNNEL, "", end);
            };
            if self.flat.nodes[old].class != TUNNEL {
                self.redeclared("element", &name, end, old);
                fresh = false;
            }
            old
        });
        if fresh && !self.tunnels.add(nodes) {
            let end = self.end.clone();
            self.redeclared("connection tunnel", name, end, nodes[0]);
        }
        nodes
    }

    fn graph(mut self) -> Graph {
        let mut graph = Graph::default();
        let mut places: Vec<Option<usize>> = Vec::with_capacity(self.flat.nodes.len());
        for node in &mut self.flat.nodes {
            let class = match &self.types[node.class].body {
                Body::Tunnel => None,
                Body::Class(name) => Some(String::from(&**name)),
                Body::Error | Body::Compound(_) => Some("Error".into()),
            };
            places.push(class.as_ref().map(|_| graph.elements.len()));
            if let Some(class) = class {
                let name = node.name.clone();
                let (configuration, landmark) =
                    (core::mem::take(&mut node.configuration), node.landmark.clone());
                graph.elements.push(Element { name, class, configuration, landmark });
            }
        }
        if !self.stopped {
            self.connect_through_tunnels();
        }
        let port = |(node, port): (usize, usize)| places[node].map(|element| Port { element, port });
        graph.connections = core::mem::take(&mut self.flat.links)
            .into_iter()
            .filter_map(|link| {
                Some(Connection { from: port(link.from)?, to: port(link.to)?, landmark: link.landmark })
            })
            .collect();
        graph.connections.sort_by_key(|connection| (connection.to, connection.from));
        graph.connections.dedup_by_key(|connection| (connection.to, connection.from));
        graph
    }
}
