//! `click-xform`: replaces patterns of elements by other elements.
use super::flatten::expand_router;
use super::router::Router;
use super::{Loaded, flatten};
use crate::config::{join_arguments, split_arguments};
use crate::tree::Body;
use crate::{Diagnostics, Landmark, Limits, Port};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Maximum number of steps of all searches; far more than real patterns need. Attack: patterns that match in
/// exponentially many ways.
const STEPS: usize = 1 << 30;

/// A pattern and its replacement: `elementclass X {..}` and `elementclass X_Replacement {..}`.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The pattern's class name; new elements are named after it.
    pub name: String,
    /// The pattern. An argument that is a variable matches any text, but the same text at each occurrence.
    pub pattern: Router,
    /// The replacement.
    pub replacement: Router,
}

impl Loaded {
    /// The patterns that a file declares.
    pub fn patterns(&self, diagnostics: &mut Diagnostics) -> Vec<Pattern> {
        let compound = |name: &str| match self.tree.types[*self.tree.classes.get(name)?].body {
            Body::Compound(id) => Some(id),
            _ => None,
        };
        let mut names: Vec<_> = self.tree.classes.iter().map(|(name, class)| (class, name)).collect();
        names.sort();
        let mut flat = |id| {
            let mut router = Router::of_compound(&self.tree, id);
            flatten::flatten(&mut router, &self.tree, false, &self.limits, diagnostics);
            router
        };
        names
            .into_iter()
            .filter_map(|(_, name)| {
                let base = name.strip_suffix("_Replacement").filter(|base| !base.is_empty())?;
                let (pattern, replacement) = (compound(base)?, compound(name)?);
                Some(Pattern { name: base.into(), pattern: flat(pattern), replacement: flat(replacement) })
            })
            .collect()
    }
}

/// Replaces matches, each by the first pattern that matches, until no pattern matches.
pub fn transform(router: &mut Router, patterns: &[Pattern], limits: &Limits, diagnostics: &mut Diagnostics) {
    for place in 0..router.places() {
        router.element_mut(place).flags = 0;
    }
    let mut capacity = router.places().next_power_of_two();
    let mut numbers = BTreeMap::new();
    let (mut replaced, mut steps) = (0, STEPS);
    'again: loop {
        // Attack: patterns that undo each other.
        if replaced > limits.elements {
            diagnostics.error(None, "patterns match without end");
            return;
        }
        for (number, pattern) in patterns.iter().enumerate() {
            let Some(found) =
                (Search { pattern: &pattern.pattern, router, mark: number + 1 }).run(&mut steps)
            else {
                continue;
            };
            let prefix = unused_prefix(router, &pattern.name, &mut numbers);
            found.replace(router, pattern, number + 1, &prefix, limits, diagnostics);
            replaced += 1;
            if router.places() > capacity || router.places() >= router.live() + 500 {
                router.remove_dead();
                capacity = router.places().next_power_of_two();
            }
            continue 'again;
        }
        break;
    }
    if steps == 0 {
        diagnostics.error(None, "the search for patterns takes too long");
    }
    if replaced > 0 {
        router.remove_dead();
    }
}

/// `NAME@N` with the lowest number, from 1, such that no element has this prefix.
fn unused_prefix(router: &Router, name: &str, numbers: &mut BTreeMap<String, usize>) -> String {
    let number = numbers.entry(name.into()).or_insert(1);
    loop {
        let prefix = format!("{name}@{number}");
        *number += 1;
        let below = format!("{prefix}/");
        if !router.live_places().into_iter().any(|place| router.element(place).name.starts_with(&below)) {
            return prefix;
        }
    }
}

/// A search for a pattern.
struct Search<'a> {
    pattern: &'a Router,
    router: &'a Router,
    /// Marks elements inserted by this pattern.
    mark: usize,
}

/// A match of a pattern.
struct Match {
    /// For each element of the pattern, the index of the matching element; none for `input` and `output`.
    places: Vec<Option<usize>>,
    /// Values of variables, by names with `$`.
    variables: BTreeMap<String, String>,
    /// Outside ports, each with the pattern's input that it is connected to.
    into: Vec<(Port, usize)>,
    /// The pattern's outputs, each with an outside port that it is connected to.
    out: Vec<(usize, Port)>,
}

impl Search<'_> {
    /// The first match, in the order of Click's tool: by the indices of the elements that match the pattern's
    /// first element, then the second, and so on.
    fn run(&self, steps: &mut usize) -> Option<Match> {
        let order: Vec<usize> =
            (0..self.pattern.places()).filter(|&place| !self.pattern.element(place).is_tunnel()).collect();
        let mut places = alloc::vec![None; self.pattern.places()];
        let mut tried: Vec<usize> = alloc::vec![0; order.len()];
        let mut at = 0;
        loop {
            if at == order.len() {
                if let Some(found) = self.check(&places) {
                    return Some(found);
                }
                at = at.checked_sub(1)?;
                continue;
            }
            let element = order[at];
            places[element] = None;
            let next = (tried[at]..self.router.places()).find(|&place| {
                *steps = steps.saturating_sub(1);
                *steps > 0 && self.fits(&places, element, place)
            });
            match next {
                Some(place) => {
                    places[element] = Some(place);
                    tried[at] = place + 1;
                    at += 1;
                    if let Some(tried) = tried.get_mut(at) {
                        *tried = 0;
                    }
                }
                None => at = at.checked_sub(1)?,
            }
        }
    }

    /// Whether an element can match a pattern's element, given the matches so far.
    fn fits(&self, places: &[Option<usize>], element: usize, place: usize) -> bool {
        let (wanted, candidate) = (self.pattern.element(element), self.router.element(place));
        if !candidate.is_live() || wanted.class != candidate.class || places.contains(&Some(place)) {
            return false;
        }
        [false, true].into_iter().all(|output| {
            self.pattern
                .at_element(element, output)
                .into_iter()
                .filter_map(|id| self.pattern.connection(id))
                .all(|it| {
                    let other = if output { it.to.element } else { it.from.element };
                    let port = |port: Port| {
                        let element =
                            if port.element == element { Some(place) } else { places[port.element] };
                        element.map(|element| Port { element, port: port.port })
                    };
                    match (other == element || places[other].is_some(), port(it.from), port(it.to)) {
                        (true, Some(from), Some(to)) => self.router.has_connection(from, to),
                        _ => true,
                    }
                })
        })
    }

    fn check(&self, places: &[Option<usize>]) -> Option<Match> {
        let mut variables = BTreeMap::new();
        let pairs = || places.iter().enumerate().filter_map(|(element, place)| Some((element, (*place)?)));
        for (element, place) in pairs() {
            let (wanted, found) = (self.pattern.element(element), self.router.element(place));
            if !same_configuration(&wanted.configuration, &found.configuration, &mut variables) {
                return None;
            }
        }
        if pairs().all(|(_, place)| self.router.element(place).flags == self.mark) {
            return None;
        }
        let back: BTreeMap<usize, usize> = pairs().map(|(element, place)| (place, element)).collect();
        let mut found = Match { places: places.into(), variables, into: Vec::new(), out: Vec::new() };
        self.check_borders(&back, &mut found)?;
        let (input, output) = (self.pattern.find("input"), self.pattern.find("output"));
        let covered =
            self.pattern.connections().into_iter().filter_map(|id| self.pattern.connection(id)).all(|it| {
                (Some(it.from.element) != input || found.into.iter().any(|(_, port)| *port == it.from.port))
                    && (Some(it.to.element) != output
                        || found.out.iter().any(|(port, _)| *port == it.to.port))
            });
        covered.then_some(found)
    }

    /// Checks that connections between matching elements are the pattern's, and finds the pattern's inputs
    /// and outputs for all others.
    fn check_borders(&self, back: &BTreeMap<usize, usize>, found: &mut Match) -> Option<()> {
        let touching = |&place: &usize| {
            let mut ids = self.router.at_element(place, false);
            ids.extend(self.router.at_element(place, true));
            ids
        };
        let mut ids: Vec<usize> = back.keys().flat_map(touching).collect();
        ids.sort_unstable();
        ids.dedup();
        for connection in ids.into_iter().filter_map(|id| self.router.connection(id)) {
            let (from, to) = (connection.from, connection.to);
            let inner =
                |port: Port| back.get(&port.element).map(|&element| Port { element, port: port.port });
            match (inner(from), inner(to)) {
                (Some(from), Some(to)) => self.pattern.has_connection(from, to).then_some(())?,
                (None, Some(inside)) => {
                    let port = self.tunnel_for(inside, from, false, &found.places)?;
                    found.into.push((from, port));
                }
                (Some(inside), None) => {
                    let port = self.tunnel_for(inside, to, true, &found.places)?;
                    found.out.push((port, to));
                }
                (None, None) => {}
            }
        }
        Some(())
    }

    /// The lowest port of the pattern's `input` (or `output`) that is connected to `inside`, and to no other
    /// ports than those that `outside` is also connected to.
    fn tunnel_for(
        &self,
        inside: Port,
        outside: Port,
        output: bool,
        places: &[Option<usize>],
    ) -> Option<usize> {
        let tunnel = self.pattern.find(if output { "output" } else { "input" })?;
        let neighbours = self.router.neighbours(outside, !output);
        let leads = |port: &Port| {
            self.pattern.neighbours(*port, !output).into_iter().all(|port| {
                let place = places[port.element];
                place.is_some_and(|element| neighbours.contains(&Port { element, port: port.port }))
            })
        };
        let candidates = self.pattern.neighbours(inside, output).into_iter();
        candidates.filter(|port| port.element == tunnel).filter(leads).map(|port| port.port).min()
    }
}

/// Whether a configuration matches a pattern's; `variables` receives the values.
fn same_configuration(pattern: &str, configuration: &str, variables: &mut BTreeMap<String, String>) -> bool {
    let (wanted, found) = (split_arguments(pattern), split_arguments(configuration));
    if wanted.len() != found.len() {
        return false;
    }
    let mut new: BTreeMap<String, String> = BTreeMap::new();
    for (wanted, found) in wanted.into_iter().zip(found) {
        if wanted == found {
            continue;
        }
        let name = wanted.strip_prefix('$').unwrap_or_default();
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return false;
        }
        match variables.get(&wanted).or_else(|| new.get(&wanted)) {
            Some(value) if *value != found => return false,
            Some(_) => {}
            None => {
                new.insert(wanted, found);
            }
        }
    }
    variables.extend(new);
    true
}

impl Match {
    fn replace(
        self,
        router: &mut Router,
        pattern: &Pattern,
        mark: usize,
        prefix: &str,
        limits: &Limits,
        diagnostics: &mut Diagnostics,
    ) {
        let landmark = Landmark::new("", 0);
        let mut changed = Vec::new();
        let mut renames = Vec::new();
        for (element, place) in self.places.iter().enumerate() {
            let Some(place) = *place else { continue };
            changed.push(place);
            let replaced = format!("{prefix}/{}", pattern.pattern.element(element).name);
            renames.push((replaced, router.element(place).name.clone()));
            router.free(place);
        }
        router.collector = Some(changed);
        expand_router(router, &pattern.replacement, prefix, landmark.clone(), limits, diagnostics);
        for place in router.collector.take().unwrap_or_default() {
            let element = router.element_mut(place);
            element.flags = mark;
            let mut arguments = split_arguments(&element.configuration);
            let mut any = false;
            for argument in &mut arguments {
                if let Some(value) = self.variables.get(argument) {
                    argument.clone_from(value);
                    any = true;
                }
            }
            if any {
                element.configuration = join_arguments(&arguments);
            }
        }
        // An element of the replacement takes the name of the element that matched the pattern's element of
        // the same name.
        for (replaced, old) in renames {
            if let Some(place) = router.find(&replaced) {
                router.rename(place, &old);
            }
        }
        if let Some(tunnel) = router.find(prefix) {
            for (from, port) in self.into {
                router.connect(from, Port { element: tunnel, port }, landmark.clone());
            }
            for (port, to) in self.out {
                router.connect(Port { element: tunnel, port }, to, landmark.clone());
            }
        }
        router.remove_tunnels(limits, &mut Diagnostics::new(0));
    }
}
