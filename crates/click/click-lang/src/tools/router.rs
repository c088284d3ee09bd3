use crate::archive::Member;
use crate::tree::{Body, CompoundId, TUNNEL, Tree, TypeId};
use crate::{Connection, Element, Graph, Landmark, Port, Requirement};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Class of an element in a [`Router`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// An end of a tunnel.
    Tunnel,
    /// An ordinary class, by name.
    Named(Rc<str>),
    /// A compound, during expansion.
    Compound(usize),
}

/// An element of a [`Router`].
#[derive(Clone, Debug)]
pub struct RouterElement {
    /// The name.
    pub name: String,
    /// The class; `None` if the element is dead.
    pub class: Option<Class>,
    /// The configuration string.
    pub configuration: String,
    /// The position in the text.
    pub landmark: Landmark,
    /// A mark for the tool's own use.
    pub flags: usize,
    /// The output of the tunnel of which this is the input.
    pub(super) leads_to: Option<usize>,
    /// The input of the tunnel of which this is the output.
    pub(super) comes_from: Option<usize>,
}

impl RouterElement {
    fn new(name: &str, class: Class, configuration: &str, landmark: Landmark) -> Self {
        Self {
            name: name.into(),
            class: Some(class),
            configuration: configuration.into(),
            landmark,
            flags: 0,
            leads_to: None,
            comes_from: None,
        }
    }

    /// Whether the element is not dead.
    pub fn is_live(&self) -> bool {
        self.class.is_some()
    }

    /// Whether the element is an end of a tunnel.
    pub fn is_tunnel(&self) -> bool {
        self.class == Some(Class::Tunnel)
    }

    /// Whether the element has this class.
    pub fn is(&self, class: &str) -> bool {
        matches!(&self.class, Some(Class::Named(name)) if **name == *class)
    }

    /// Name of the class.
    pub fn class_name(&self) -> &str {
        match &self.class {
            Some(Class::Named(name)) => name,
            _ => "<tunnel>",
        }
    }

    /// `name :: Class`, for errors.
    pub fn declaration(&self) -> String {
        format!("{} :: {}", self.name, self.class_name())
    }
}

/// A mutable configuration. Elements are identified by indices. The reuse of indices and the order of
/// connections equal those of Click's tools.
#[derive(Clone, Debug, Default)]
pub struct Router {
    elements: Vec<RouterElement>,
    names: BTreeMap<String, usize>,
    free: Vec<usize>,
    live: usize,
    links: Vec<Option<Link>>,
    /// Number of connections between two ports.
    pairs: BTreeMap<(Port, Port), usize>,
    /// The connections of each port in use of each element's inputs and outputs, in order of creation.
    touching: Vec<[Side; 2]>,
    time: usize,
    maybe_duplicates: bool,
    /// Indices of elements added since collecting began, if it did.
    pub(super) collector: Option<Vec<usize>>,
    /// Requirements from `require`.
    pub requirements: Vec<Requirement>,
    /// The file's variables.
    pub defines: Vec<(String, String)>,
    /// Other members of the configuration's archive.
    pub archive: Vec<Member>,
}

type Side = BTreeMap<usize, BTreeMap<usize, ConnectionId>>;

/// A connection, and its order among the connections of its input and of its output.
#[derive(Clone, Debug)]
struct Link {
    connection: Connection,
    since: [usize; 2],
}

/// Index of a connection in a [`Router`].
pub type ConnectionId = usize;

impl Router {
    /// An empty configuration.
    pub fn new() -> Self {
        Self::default()
    }

    /// A compound, whose own compounds are not expanded.
    pub(crate) fn of_compound(tree: &Tree, id: CompoundId) -> Self {
        let compound = &tree.compounds[id];
        let mut router = Self::new();
        for node in &compound.nodes {
            let class = Self::class_of(tree, node.class);
            router.add(RouterElement::new(&node.name, class, &node.configuration, node.landmark.clone()));
        }
        router.names = compound.names.iter().map(|(name, &place)| (name.clone(), place)).collect();
        let mut at = if id == crate::tree::ROOT { 0 } else { 2 };
        while at + 2 < compound.nodes.len() {
            if compound.nodes[at].class == TUNNEL {
                router.join(at, at + 1);
                router.join(at + 2, at);
                at += 2;
            }
            at += 1;
        }
        if id == crate::tree::ROOT {
            let anonymous: Vec<usize> = (0..router.elements.len())
                .filter(|&place| router.elements[place].name.starts_with(';'))
                .collect();
            for place in anonymous {
                router.assign_name(place);
            }
        }
        for link in &compound.links {
            let port = |(element, port)| Port { element, port };
            router.connect(port(link.from), port(link.to), link.landmark.clone());
        }
        router.requirements.clone_from(&compound.requirements);
        router.defines.clone_from(&compound.defines);
        router
    }

    pub(super) fn class_of(tree: &Tree, class: TypeId) -> Class {
        match &tree.types[class].body {
            Body::Tunnel => Class::Tunnel,
            Body::Error => Class::Named("Error".into()),
            Body::Class(name) => Class::Named(name.clone()),
            Body::Compound(_) => Class::Compound(class),
        }
    }

    /// The element with this index.
    pub fn element(&self, place: usize) -> &RouterElement {
        &self.elements[place]
    }

    /// The element with this index, mutable.
    pub fn element_mut(&mut self, place: usize) -> &mut RouterElement {
        &mut self.elements[place]
    }

    /// Number of indices, including dead elements.
    pub fn places(&self) -> usize {
        self.elements.len()
    }

    /// Number of elements that were not freed.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Indices of live elements.
    pub fn live_places(&self) -> Vec<usize> {
        (0..self.elements.len()).filter(|&place| self.elements[place].is_live()).collect()
    }

    /// Indices of live elements of a class.
    pub fn of_class(&self, class: &str) -> Vec<usize> {
        (0..self.elements.len()).filter(|&place| self.elements[place].is(class)).collect()
    }

    /// The index of the element called `name`.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// Defines or redefines a variable of the file.
    pub fn define(&mut self, name: &str, value: &str) {
        match self.defines.iter_mut().find(|(other, _)| other == name) {
            Some((_, old)) => *old = value.into(),
            None => self.defines.push((name.into(), value.into())),
        }
    }

    fn add(&mut self, element: RouterElement) -> usize {
        self.live += 1;
        let place = match self.free.pop() {
            Some(place) => {
                self.elements[place] = element;
                self.touching[place] = Default::default();
                place
            }
            None => {
                self.elements.push(element);
                self.touching.push(Default::default());
                self.elements.len() - 1
            }
        };
        if let Some(collector) = &mut self.collector {
            collector.push(place);
        }
        place
    }

    /// The index of the element called `name`, which is added if it does not exist.
    pub fn get(&mut self, name: &str, class: Class, configuration: &str, landmark: Landmark) -> usize {
        if let Some(place) = self.find(name) {
            return place;
        }
        let place = self.add(RouterElement::new(name, class, configuration, landmark));
        self.names.insert(name.into(), place);
        place
    }

    /// Adds an element whose name has the next free number.
    pub fn add_anonymous(&mut self, class: &str, configuration: &str, landmark: Landmark) -> usize {
        let name = format!(";{class}@{}", self.live + 1);
        let place = self.add(RouterElement::new(&name, Class::Named(class.into()), configuration, landmark));
        self.assign_name(place);
        place
    }

    fn assign_name(&mut self, place: usize) {
        let wanted = self.elements[place].name[1..].to_string();
        let mut name = wanted.clone();
        let (prefix, number) = wanted.rsplit_once('@').unwrap_or((&wanted, ""));
        let end = number.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(number.len());
        let mut number: u64 = number[..end].parse().unwrap_or(0);
        while self.names.contains_key(&name) {
            number += 1;
            name = format!("{prefix}@{number}");
        }
        self.rename(place, &name);
    }

    /// Renames an element.
    pub fn rename(&mut self, place: usize, name: &str) {
        if !self.elements[place].is_live() {
            return;
        }
        if self.find(&self.elements[place].name) == Some(place) {
            self.names.remove(&self.elements[place].name);
        }
        self.elements[place].name = name.into();
        self.names.insert(name.into(), place);
    }

    /// Makes two elements the input and output of a tunnel.
    pub(super) fn join(&mut self, input: usize, output: usize) {
        self.elements[input].leads_to = Some(output);
        self.elements[output].comes_from = Some(input);
    }

    /// Number of inputs, or outputs, of an element: one more than the highest port in use.
    pub fn ports(&self, place: usize, output: bool) -> usize {
        self.touching[place][usize::from(output)].last_key_value().map_or(0, |(port, _)| port + 1)
    }

    /// A connection; `None` if it was removed.
    pub fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.links.get(id)?.as_ref().map(|link| &link.connection)
    }

    /// All connections, oldest first.
    pub fn connections(&self) -> Vec<ConnectionId> {
        (0..self.links.len()).filter(|&id| self.links[id].is_some()).collect()
    }

    /// Number of connections ever created, which is also the next one's index.
    pub(super) fn connections_made(&self) -> usize {
        self.links.len()
    }

    fn end(connection: &Connection, output: bool) -> Port {
        if output { connection.from } else { connection.to }
    }

    /// Connects an output to an input; an existing connection is kept.
    pub fn connect(&mut self, from: Port, to: Port, landmark: Landmark) {
        if self.has_connection(from, to) {
            return;
        }
        let id = self.links.len();
        self.links.push(Some(Link { connection: Connection { from, to, landmark }, since: [0, 0] }));
        *self.pairs.entry((from, to)).or_default() += 1;
        self.attach(id, true);
        self.attach(id, false);
    }

    fn attach(&mut self, id: ConnectionId, output: bool) {
        let Some(link) = &mut self.links[id] else { return };
        let (port, side) = (Self::end(&link.connection, output), usize::from(output));
        link.since[side] = self.time;
        self.touching[port.element][side].entry(port.port).or_default().insert(self.time, id);
        self.time += 1;
    }

    fn detach(&mut self, id: ConnectionId, output: bool) {
        let Some(link) = &self.links[id] else { return };
        let (port, side) = (Self::end(&link.connection, output), usize::from(output));
        let ports = &mut self.touching[port.element][side];
        if let Some(ids) = ports.get_mut(&port.port) {
            ids.remove(&link.since[side]);
            if ids.is_empty() {
                ports.remove(&port.port);
            }
        }
    }

    fn forget_pair(&mut self, id: ConnectionId) {
        let Some(pair) = self.connection(id).map(|it| (it.from, it.to)) else { return };
        if let Some(count) = self.pairs.get_mut(&pair) {
            *count -= 1;
            if *count == 0 {
                self.pairs.remove(&pair);
            }
        }
    }

    /// Whether an output is connected to an input.
    pub fn has_connection(&self, from: Port, to: Port) -> bool {
        self.pairs.contains_key(&(from, to))
    }

    /// Connections at an element's outputs or inputs, newest first.
    pub fn at_element(&self, element: usize, output: bool) -> Vec<ConnectionId> {
        let ports = self.touching[element][usize::from(output)].values();
        let mut ids: Vec<(usize, ConnectionId)> = ports.flatten().map(|(&time, &id)| (time, id)).collect();
        ids.sort_unstable_by(|one, other| other.cmp(one));
        ids.into_iter().map(|(_, id)| id).collect()
    }

    /// Connections at a port, newest first.
    pub fn at_port(&self, port: Port, output: bool) -> Vec<ConnectionId> {
        let ids = self.touching[port.element][usize::from(output)].get(&port.port);
        ids.map_or_else(Vec::new, |ids| ids.values().rev().copied().collect())
    }

    /// The ports connected to a port, newest first.
    pub fn neighbours(&self, port: Port, output: bool) -> Vec<Port> {
        let other = |id| self.connection(id).map(|it| Self::end(it, !output));
        self.at_port(port, output).into_iter().filter_map(other).collect()
    }

    /// Removes a connection.
    pub fn disconnect(&mut self, id: ConnectionId) {
        self.detach(id, true);
        self.detach(id, false);
        self.forget_pair(id);
        self.links[id] = None;
    }

    /// Moves one end of a connection.
    pub fn move_end(&mut self, id: ConnectionId, output: bool, port: Port) {
        self.detach(id, output);
        self.forget_pair(id);
        let Some(Link { connection, .. }) = &mut self.links[id] else { return };
        if output {
            connection.from = port;
        } else {
            connection.to = port;
        }
        *self.pairs.entry((connection.from, connection.to)).or_default() += 1;
        self.attach(id, output);
        self.maybe_duplicates = true;
    }

    /// Inserts port `before` of an element before an input: connects the output to the input, whose other
    /// connections move to the element's input.
    pub fn insert_before(&mut self, before: Port, input: Port, landmark: Landmark) {
        self.connect(before, input, landmark);
        for id in self.at_port(input, false) {
            if self.connection(id).is_some_and(|it| it.from != before) {
                self.move_end(id, false, before);
            }
        }
    }

    /// Inserts port `after` of an element after an output, like [`Router::insert_before`].
    pub fn insert_after(&mut self, after: Port, output: Port, landmark: Landmark) {
        self.connect(output, after, landmark);
        for id in self.at_port(output, true) {
            if self.connection(id).is_some_and(|it| it.to != after) {
                self.move_end(id, true, after);
            }
        }
    }

    /// Marks an element as dead and removes its connections. Its index and name stay reserved until dead
    /// elements are freed or removed.
    pub fn kill(&mut self, place: usize) {
        if !self.elements[place].is_live() {
            return;
        }
        for output in [true, false] {
            for id in self.at_element(place, output) {
                self.disconnect(id);
            }
        }
        self.elements[place].class = None;
    }

    /// As [`Router::kill`], but also frees the element's index and name.
    pub fn free(&mut self, place: usize) {
        self.kill(place);
        self.release(place);
    }

    fn release(&mut self, place: usize) {
        if self.find(&self.elements[place].name) == Some(place) {
            self.names.remove(&self.elements[place].name);
        }
        self.free.push(place);
        self.live -= 1;
    }

    /// Frees the indices of dead elements.
    pub fn free_dead(&mut self) {
        let mut freed = alloc::vec![false; self.elements.len()];
        for &place in &self.free {
            freed[place] = true;
        }
        for (place, freed) in freed.into_iter().enumerate() {
            if !freed && !self.elements[place].is_live() {
                self.release(place);
            }
        }
    }

    /// Removes duplicate connections.
    pub fn remove_duplicates(&mut self) {
        if !core::mem::take(&mut self.maybe_duplicates) {
            return;
        }
        for place in 0..self.elements.len() {
            let mut seen = alloc::collections::BTreeSet::new();
            for id in self.at_element(place, true) {
                let key = self.connection(id).map(|it| (it.from.port, it.to));
                if !seen.insert(key) {
                    self.disconnect(id);
                }
            }
        }
    }

    /// Removes dead elements, which changes indices.
    pub fn remove_dead(&mut self) {
        if self.elements.iter().all(RouterElement::is_live) {
            return;
        }
        let mut places = Vec::with_capacity(self.elements.len());
        let mut next = 0;
        for element in &self.elements {
            places.push(element.is_live().then_some(next));
            next += usize::from(element.is_live());
        }
        for Link { connection, .. } in self.links.iter_mut().flatten() {
            for port in [&mut connection.from, &mut connection.to] {
                port.element = places[port.element].unwrap_or(port.element);
            }
        }
        for element in &mut self.elements {
            for other in [&mut element.leads_to, &mut element.comes_from] {
                *other = other.and_then(|place| places[place]);
            }
        }
        let connections = self.links.iter().flatten().map(|link| &link.connection);
        let mut pairs = BTreeMap::new();
        connections.for_each(|it| *pairs.entry((it.from, it.to)).or_default() += 1);
        self.pairs = pairs;
        let live: Vec<bool> = self.elements.iter().map(RouterElement::is_live).collect();
        let mut keep = live.iter();
        self.touching.retain(|_| keep.next() == Some(&true));
        self.elements.retain(RouterElement::is_live);
        self.names = core::mem::take(&mut self.names)
            .into_iter()
            .filter_map(|(name, place)| Some((name, places[place]?)))
            .collect();
        self.free.clear();
        self.live = self.elements.len();
    }

    /// The configuration as a graph, without tunnels: live elements in the order of their indices.
    pub fn graph(&self) -> Graph {
        let mut graph = Graph {
            requirements: self.requirements.clone(),
            defines: self.defines.clone(),
            ..Graph::default()
        };
        let mut places = Vec::with_capacity(self.elements.len());
        for element in &self.elements {
            let shown = element.is_live() && !element.is_tunnel();
            places.push(shown.then_some(graph.elements.len()));
            if shown {
                graph.elements.push(Element {
                    name: element.name.clone(),
                    class: element.class_name().into(),
                    configuration: element.configuration.clone(),
                    landmark: element.landmark.clone(),
                });
            }
        }
        let port = |port: Port| places[port.element].map(|element| Port { element, port: port.port });
        graph.connections = self
            .links
            .iter()
            .flatten()
            .map(|link| &link.connection)
            .filter_map(|it| {
                Some(Connection { from: port(it.from)?, to: port(it.to)?, landmark: it.landmark.clone() })
            })
            .collect();
        graph
    }
}
