use super::router::{Class, Router, RouterElement};
use crate::config::{Budget, Scope, expand, split_arguments};
use crate::elaborate::{Choice, choose};
use crate::parse::Dialect;
use crate::tree::{Body, CompoundId, Formal, Tree};
use crate::{Diagnostics, Landmark, Limits, Port};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

/// Expands the compounds of a configuration, in the order of Click's tools.
pub(super) fn flatten(
    router: &mut Router,
    tree: &Tree,
    expand_variables: bool,
    limits: &Limits,
    diagnostics: &mut Diagnostics,
) {
    let mut flattener = Flattener::new(router, tree, limits, diagnostics);
    let mut scope = Scope::new(None);
    for (name, value) in flattener.router.defines.clone() {
        // An unexpanded variable is its own value, so that the default of `${name-default}` is not used.
        let value =
            if expand_variables { expand(&value, &scope, &flattener.budget) } else { format!("${name}") };
        scope.define(name, value);
    }
    let scope = Rc::new(scope);
    for place in 0..flattener.router.places() {
        if flattener.router.element(place).is_live() {
            flattener.expand_in_place(place, &scope);
        }
    }
    router.remove_tunnels(limits, diagnostics);
    router.remove_dead();
    if expand_variables {
        router.defines.clear();
    }
}

/// Adds a flat compound, such as a pattern's replacement, in place of an element called `name`.
pub(super) fn expand_router(
    router: &mut Router,
    compound: &Router,
    name: &str,
    landmark: Landmark,
    limits: &Limits,
    diagnostics: &mut Diagnostics,
) {
    let tree = Tree {
        types: Vec::new(),
        classes: BTreeMap::new(),
        compounds: Vec::new(),
        requirements: Vec::new(),
        end: landmark.clone(),
    };
    let mut flattener = Flattener::new(router, &tree, limits, diagnostics);
    flattener.add_tunnels(name, &landmark);
    flattener.expand_into(compound, &format!("{name}/"), &Rc::new(Scope::new(None)), 0);
}

/// Adds all elements of a flat configuration with a prefix, which ends in a slash.
pub(super) fn include(
    router: &mut Router,
    part: &Router,
    prefix: &str,
    limits: &Limits,
    diagnostics: &mut Diagnostics,
) {
    let landmark = Landmark::new("", 0);
    let tree = Tree {
        types: Vec::new(),
        classes: BTreeMap::new(),
        compounds: Vec::new(),
        requirements: Vec::new(),
        end: landmark,
    };
    let mut flattener = Flattener::new(router, &tree, limits, diagnostics);
    flattener.expand_into(part, prefix, &Rc::new(Scope::new(None)), 0);
}

struct Flattener<'a> {
    router: &'a mut Router,
    tree: &'a Tree,
    /// Compounds used so far, not expanded.
    compounds: BTreeMap<CompoundId, Rc<Router>>,
    limits: &'a Limits,
    diagnostics: &'a mut Diagnostics,
    budget: Budget,
    stopped: bool,
}

impl<'a> Flattener<'a> {
    fn new(
        router: &'a mut Router,
        tree: &'a Tree,
        limits: &'a Limits,
        diagnostics: &'a mut Diagnostics,
    ) -> Self {
        let budget = Budget::new(limits.expansion);
        Self { router, tree, compounds: BTreeMap::new(), limits, diagnostics, budget, stopped: false }
    }

    fn stop(&mut self, text: &str) {
        if !self.stopped {
            self.diagnostics.error(self.tree.end.clone(), text);
        }
        self.stopped = true;
    }

    fn expand_text(&mut self, text: &str, scope: &Rc<Scope>) -> String {
        let text = expand(text, &**scope, &self.budget);
        if self.budget.exceeded() {
            self.stop("configuration expands to too much text");
        }
        text
    }

    /// Expands an element at file scope.
    fn expand_in_place(&mut self, place: usize, scope: &Rc<Scope>) {
        if self.stopped {
            return;
        }
        let element = self.router.element(place).clone();
        let text = self.expand_text(&element.configuration, scope);
        match &element.class {
            Some(Class::Compound(_)) => match self.choose(&element, used(self.router, place), &text) {
                Choice::None => self.router.kill(place),
                Choice::Class(class) => {
                    let class = Router::class_of(self.tree, class);
                    let element = self.router.element_mut(place);
                    element.class = Some(class);
                    element.configuration = text;
                }
                Choice::Compound(id, arguments) => {
                    self.router.element_mut(place).class = Some(Class::Tunnel);
                    self.expand_compound(&element, id, &arguments, "", scope, 0);
                }
            },
            Some(Class::Named(_)) => self.router.element_mut(place).configuration = text,
            _ => {}
        }
    }

    fn choose(&mut self, element: &RouterElement, ports: (usize, usize), text: &str) -> Choice {
        let Some(Class::Compound(class)) = element.class else { return Choice::None };
        let Body::Compound(first) = self.tree.types[class].body else { return Choice::Class(class) };
        let Tree { types, compounds, .. } = self.tree;
        let arguments = split_arguments(text);
        choose(
            Dialect::Tools,
            types,
            compounds,
            first,
            ports,
            arguments,
            &element.landmark,
            &self.budget,
            self.diagnostics,
        )
    }

    /// Adds an element of a compound, or the element's expansion; returns the index.
    fn expand_element(
        &mut self,
        compound: &Router,
        place: usize,
        prefix: &str,
        scope: &Rc<Scope>,
        depth: usize,
    ) -> Option<usize> {
        let element = compound.element(place);
        let name = format!("{prefix}{}", element.name);
        self.budget.spend(name.len());
        let landmark = element.landmark.clone();
        let class = match &element.class {
            None => return None,
            Some(Class::Tunnel) => {
                if let Some(other) = element.leads_to {
                    let other = format!("{prefix}{}", compound.element(other).name);
                    self.add_tunnel(&name, &other, &landmark);
                }
                return Some(self.router.get(&name, Class::Tunnel, "", landmark));
            }
            Some(class) => class.clone(),
        };
        let text = self.expand_text(&element.configuration, scope);
        let class = match class {
            Class::Compound(_) => match self.choose(element, used(compound, place), &text) {
                Choice::None => return None,
                Choice::Class(class) => Router::class_of(self.tree, class),
                Choice::Compound(id, arguments) => {
                    self.expand_compound(element, id, &arguments, prefix, scope, depth);
                    return self.router.find(&name);
                }
            },
            class => class,
        };
        if let Some(old) = self.router.find(&name) {
            let old = self.router.element(old).landmark.clone();
            self.redeclared("element", &name, &landmark, old);
        }
        Some(self.router.get(&name, class, &text, landmark))
    }

    fn redeclared(&mut self, what: &str, name: &str, landmark: &Landmark, old: Landmark) {
        self.diagnostics.error(landmark.clone(), format!("redeclaration of {what} '{name}'"));
        self.diagnostics.error(old, format!("'{name}' previously declared here"));
    }

    fn expand_compound(
        &mut self,
        element: &RouterElement,
        id: CompoundId,
        arguments: &[String],
        prefix: &str,
        scope: &Rc<Scope>,
        depth: usize,
    ) {
        // Attack: a long chain of compounds that each use the previous one.
        if depth >= self.limits.expansion_depth {
            return self.stop("compound elements nested too deeply");
        }
        let tree = self.tree;
        let router =
            self.compounds.entry(id).or_insert_with(|| Rc::new(Router::of_compound(tree, id))).clone();
        let declared = &self.tree.compounds[id];
        let mut inner = Scope::new(scope.above(declared.depth));
        let given = |place: usize| arguments.get(place).map_or("", String::as_str);
        for (place, Formal { name, .. }) in declared.formals.iter().enumerate() {
            inner.define(name.as_str(), given(place));
        }
        for (name, value) in &declared.defines {
            let value = expand(value, &**scope, &self.budget);
            inner.define(name.as_str(), value);
        }
        let name = format!("{prefix}{}", element.name);
        self.add_tunnels(&name, &element.landmark);
        self.expand_into(&router, &format!("{name}/"), &Rc::new(inner), depth + 1);
    }

    fn add_tunnels(&mut self, name: &str, landmark: &Landmark) {
        self.add_tunnel(name, &format!("{name}/input"), landmark);
        self.add_tunnel(&format!("{name}/output"), name, landmark);
    }

    fn add_tunnel(&mut self, input: &str, output: &str, landmark: &Landmark) {
        let places = [input, output].map(|name| self.router.get(name, Class::Tunnel, "", landmark.clone()));
        let mut fresh = true;
        for (name, place) in [(input, places[0]), (output, places[1])] {
            if !self.router.element(place).is_tunnel() {
                let old = self.router.element(place).landmark.clone();
                self.redeclared("element", name, landmark, old);
                fresh = false;
            }
        }
        if self.router.element(places[0]).leads_to.is_some() {
            let old = self.router.element(places[0]).landmark.clone();
            self.redeclared("connection tunnel input", input, landmark, old);
            fresh = false;
        }
        if self.router.element(places[1]).comes_from.is_some() {
            let old = self.router.element(places[1]).landmark.clone();
            self.redeclared("connection tunnel output", output, landmark, old);
            fresh = false;
        }
        if fresh {
            self.router.join(places[0], places[1]);
        }
    }

    /// Adds all elements of a compound with a prefix.
    fn expand_into(&mut self, compound: &Router, prefix: &str, scope: &Rc<Scope>, depth: usize) {
        let links = compound.connections();
        // Attack: nested compounds, which multiply elements, names and connections at each level.
        if self.router.places() + compound.places() > self.limits.elements
            || self.router.connections_made() + links.len() > self.limits.connections
        {
            self.stop("configuration expands to too many elements or connections");
        }
        if self.stopped {
            return;
        }
        let places: Vec<Option<usize>> = (0..compound.places())
            .map(|place| self.expand_element(compound, place, prefix, scope, depth))
            .collect();
        for connection in links.into_iter().filter_map(|id| compound.connection(id)) {
            let port = |port: Port| places[port.element].map(|element| Port { element, port: port.port });
            if let (Some(from), Some(to)) = (port(connection.from), port(connection.to)) {
                self.router.connect(from, to, connection.landmark.clone());
            }
        }
        self.router.requirements.extend(compound.requirements.iter().cloned());
        for member in &compound.archive {
            if self.router.archive.iter().any(|other| other.name == member.name) {
                let text = format!("expansion confict: two archive elements named '{}'", member.name);
                self.diagnostics.error(None, text);
            } else {
                self.router.archive.push(member.clone());
            }
        }
    }
}

/// Numbers of inputs and outputs of an element.
fn used(router: &Router, place: usize) -> (usize, usize) {
    (router.ports(place, false), router.ports(place, true))
}
