//! `click-combine` and `click-uncombine`: combine several configurations, connected at their devices, into
//! one.
use super::flatten::include;
use super::router::{Class, Router};
use crate::config::{join_arguments, split_arguments, split_words};
use crate::{Diagnostics, Landmark, Limits, Port};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The class of the element that connects configurations.
const LINK: &str = "RouterLink";
/// The archive member that lists the components.
const MAP: &str = "componentmap";

/// A configuration to be combined.
#[derive(Clone, Debug)]
pub struct Component {
    /// The name, which becomes a prefix of the elements' names.
    pub name: String,
    /// The flat configuration.
    pub router: Router,
}

/// A link from a device of one component to a device of another, by component and element index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ends {
    from: (usize, usize),
    to: (usize, usize),
}

/// Combines components by links such as `A.eth1=B.eth0`.
pub fn combine(
    components: &[Component],
    links: &[String],
    limits: &Limits,
    diagnostics: &mut Diagnostics,
) -> Option<Router> {
    let before = diagnostics.errors();
    let ends: Vec<Ends> =
        links.iter().filter_map(|link| Ends::parse(link, components, diagnostics)).collect();
    let groups = group(&ends, components, diagnostics);
    if diagnostics.errors() > before {
        return None;
    }
    let mut combined = Router::new();
    for component in components {
        include(&mut combined, &component.router, &format!("{}/", component.name), limits, diagnostics);
    }
    if diagnostics.errors() > before {
        return None;
    }
    for place in combined.of_class(LINK) {
        prefix_nested_link(&mut combined, place);
    }
    if ends.is_empty() {
        diagnostics.warning(None, "no links between routers");
    }
    for (number, group) in groups.iter().enumerate() {
        join(&mut combined, components, group, number + 1);
    }
    combined.remove_tunnels(limits, diagnostics);
    combined.archive.retain(|member| member.name != MAP);
    combined.archive.push(component_map(components));
    Some(combined)
}

impl Ends {
    fn parse(text: &str, components: &[Component], diagnostics: &mut Diagnostics) -> Option<Self> {
        let words = split_words(&text.replace('.', " . ").replace('=', " = "));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let [name1, ".", device1, "=", name2, ".", device2] = words[..] else {
            diagnostics.error(
                None,
                match text.trim() {
                    "" => "empty link definition".into(),
                    _ => format!("bad link definition '{text}'"),
                },
            );
            return None;
        };
        let mut component = |name: &str| {
            let found = components.iter().rposition(|component| component.name == name);
            if found.is_none() {
                diagnostics.error(None, format!("no router named '{name}'"));
            }
            found
        };
        let (first, second) = (component(name1), component(name2));
        let (first, second) = (first?, second?);
        let sources = ["FromDevice", "PollDevice"];
        let from = find_device(&components[first], device1, &["ToDevice"], diagnostics);
        let to = find_device(&components[second], device2, &sources, diagnostics);
        let (from, to) = (from?, to?);
        expect_class(&components[first], from, device1, &["ToDevice"], diagnostics);
        expect_class(&components[second], to, device2, &sources, diagnostics);
        Some(Self { from: (first, from), to: (second, to) })
    }
}

/// The element called `name`, or else the only element of these classes for device `name`.
fn find_device(
    component: &Component,
    name: &str,
    classes: &[&str],
    diagnostics: &mut Diagnostics,
) -> Option<usize> {
    let (router, owner) = (&component.router, &component.name);
    if let Some(place) = router.find(name) {
        return Some(place);
    }
    let device = split_arguments(name).into_iter().next().unwrap_or_default();
    let is_for = |place: &usize| {
        let element = router.element(*place);
        classes.iter().any(|class| element.is(class))
            && split_arguments(&element.configuration).first() == Some(&device)
    };
    let found: Vec<usize> = router.live_places().into_iter().filter(is_for).collect();
    if let [only] = found[..] {
        return Some(only);
    }
    if found.len() > 1 {
        let kinds: Vec<String> = classes.iter().map(|class| format!("'{class}({device})'")).collect();
        let kinds = kinds.join(" or ");
        diagnostics.error(None, format!("more than one {kinds} element in router '{owner}'"));
    }
    diagnostics.error(None, format!("router '{owner}' has no element or device named '{name}'"));
    None
}

fn expect_class(
    component: &Component,
    place: usize,
    name: &str,
    classes: &[&str],
    diagnostics: &mut Diagnostics,
) {
    let element = component.router.element(place);
    if !classes.iter().any(|class| element.is(class)) {
        let owner = &component.name;
        diagnostics.warning(None, format!("router '{owner}' element '{name}' has unexpected class"));
        let expected = classes.join(" or ");
        diagnostics.note(None, format!("  expected {expected}, got {}", element.class_name()));
    }
}

/// Groups links that share an end.
fn group(ends: &[Ends], components: &[Component], diagnostics: &mut Diagnostics) -> Vec<Vec<Ends>> {
    for (number, one) in ends.iter().enumerate() {
        if ends[..number].iter().any(|other| one.from == other.to || other.from == one.to) {
            let component = &components[one.from.0];
            let element = &component.router.element(one.from.1).name;
            let text = format!(
                "router '{}' element '{element}' used as both source and destination",
                component.name
            );
            diagnostics.error(None, text);
        }
    }
    let mut ids: Vec<usize> = (0..ends.len()).collect();
    let mut done = false;
    while !done {
        done = true;
        for one in 1..ends.len() {
            for other in 0..one {
                let shared = ends[one].from == ends[other].from || ends[one].to == ends[other].to;
                if shared && ids[one] != ids[other] {
                    ids[one] = ids[other];
                    done = false;
                }
            }
        }
    }
    let mut order = Vec::new();
    for id in &ids {
        if !order.contains(id) {
            order.push(*id);
        }
    }
    let of =
        |id: usize| ends.iter().zip(&ids).filter(|(_, other)| **other == id).map(|(ends, _)| *ends).collect();
    order.into_iter().map(of).collect()
}

/// Replaces the devices that a group of links connects by a RouterLink.
fn join(combined: &mut Router, components: &[Component], group: &[Ends], number: usize) {
    let distinct = |ends: Vec<(usize, usize)>| {
        let mut seen = Vec::new();
        for end in ends {
            if !seen.contains(&end) {
                seen.push(end);
            }
        }
        seen
    };
    let from = distinct(group.iter().map(|ends| ends.from).collect());
    let to = distinct(group.iter().map(|ends| ends.to).collect());
    let mut words = Vec::new();
    let mut places = Vec::new();
    for &(component, place) in from.iter().chain(&to) {
        let (owner, element) = (&components[component].name, components[component].router.element(place));
        words.push(format!("{owner} {} {}", element.name, element.class_name()));
        words.push(element.configuration.clone());
        places.push(combined.find(&format!("{owner}/{}", element.name)));
    }
    let landmark = Landmark::new("<click-combine>", 0);
    let class = Class::Named(LINK.into());
    let link = combined.get(&format!("link{number}"), class, &join_arguments(&words), landmark.clone());
    for (number, place) in places.into_iter().enumerate() {
        let Some(place) = place else { continue };
        let device = Port { element: place, port: 0 };
        match number.checked_sub(from.len()) {
            None => combined.insert_before(Port { element: link, port: number }, device, landmark.clone()),
            Some(port) => combined.insert_after(Port { element: link, port }, device, landmark.clone()),
        }
        combined.free(place);
    }
}

/// Prefixes the names in a RouterLink of a component that was itself combined.
fn prefix_nested_link(combined: &mut Router, place: usize) {
    let element = combined.element_mut(place);
    let Some((prefix, _)) = element.name.split_once('/') else { return };
    let mut words = split_arguments(&element.configuration);
    for word in words.iter_mut().step_by(2) {
        *word = format!("{prefix}/{word}");
    }
    element.configuration = join_arguments(&words);
}

fn component_map(components: &[Component]) -> crate::archive::Member {
    let mut text = String::new();
    for Component { name, router } in components {
        text.push_str(&format!("{name}\n"));
        for inner in map_names(router).unwrap_or_default() {
            text.push_str(&format!("{name}/{inner}\n"));
        }
    }
    crate::archive::Member { name: MAP.into(), mode: 0o600, data: text.into_bytes(), ..Default::default() }
}

/// The components of a combined configuration; `None` if it is not one.
fn map_names(router: &Router) -> Option<Vec<String>> {
    let member = router.archive.iter().find(|member| member.name == MAP)?;
    Some(split_words(&String::from_utf8_lossy(&member.data)))
}

/// Extracts a component, `NAME` or `NAME/INNER`, from a combined configuration. `file` is for errors.
pub fn uncombine(
    router: &mut Router,
    component: &str,
    file: &str,
    limits: &Limits,
    diagnostics: &mut Diagnostics,
) {
    if map_names(router).is_none() {
        let text = format!("{file}: not created by 'click-combine' (no '{MAP}')");
        return diagnostics.error(None, text);
    }
    let mut outer = String::new();
    for part in component.split('/') {
        let names = map_names(router).unwrap_or_default();
        if !names.iter().any(|name| name == part) {
            return diagnostics.error(None, format!("{file}: no '{outer}{part}' component"));
        }
        extract(router, part, &names, limits, diagnostics);
        outer.push_str(&format!("{part}/"));
    }
}

fn extract(
    router: &mut Router,
    component: &str,
    names: &[String],
    limits: &Limits,
    diagnostics: &mut Diagnostics,
) {
    let prefix = format!("{component}/");
    let ends = replace_links(router, component, diagnostics);
    let live = reached(router, &prefix, &ends);
    for place in router.live_places() {
        if !live[place] {
            router.kill(place);
        }
    }
    router.free_dead();
    for place in router.live_places() {
        let name = router.element(place).name.clone();
        if let Some(inner) = name.strip_prefix(&prefix).filter(|inner| router.find(inner).is_none()) {
            router.rename(place, inner);
        }
    }
    for place in router.of_class(LINK) {
        let element = router.element_mut(place);
        let mut words = split_arguments(&element.configuration);
        for word in words.iter_mut().step_by(2) {
            *word = word.strip_prefix(&prefix).unwrap_or(word).to_string();
        }
        element.configuration = join_arguments(&words);
    }
    router.remove_tunnels(limits, diagnostics);
    router.remove_dead();
    let inner: String =
        names.iter().filter_map(|name| name.strip_prefix(&prefix)).map(|name| format!("{name}\n")).collect();
    router.archive.retain(|member| member.name != MAP || !inner.is_empty());
    for member in router.archive.iter_mut().filter(|member| member.name == MAP) {
        member.data = inner.clone().into_bytes();
    }
}

/// Replaces RouterLinks by the component's devices; returns the indices of these devices and of inner
/// RouterLinks.
fn replace_links(router: &mut Router, component: &str, diagnostics: &mut Diagnostics) -> Vec<usize> {
    let mut ends = Vec::new();
    for link in router.of_class(LINK) {
        let words = split_arguments(&router.element(link).configuration);
        let (inputs, outputs) = (router.ports(link, false), router.ports(link, true));
        let clauses: Vec<Vec<String>> = words.iter().step_by(2).map(|word| split_words(word)).collect();
        let strange = words.len() != 2 * (inputs + outputs) || inputs == 0 || outputs == 0;
        if strange || clauses.iter().any(|clause| clause.len() != 3) {
            let name = &router.element(link).name;
            diagnostics.error(None, format!("RouterLink '{name}' has strange configuration"));
            continue;
        }
        let below = format!("{component}/");
        if !clauses.iter().any(|clause| clause[0] == component) {
            if clauses.iter().any(|clause| clause[0].starts_with(&below)) {
                ends.push(link);
            }
            continue;
        }
        for (number, clause) in clauses.iter().enumerate().filter(|(_, clause)| clause[0] == component) {
            let landmark = Landmark::new("<click-uncombine>", 0);
            let class = Class::Named(clause[2].as_str().into());
            let place = router.get(&clause[1], class, &words[2 * number + 1], landmark.clone());
            let device = Port { element: place, port: 0 };
            match number.checked_sub(inputs) {
                None => router.insert_before(device, Port { element: link, port: number }, landmark),
                Some(port) => router.insert_after(device, Port { element: link, port }, landmark),
            }
            ends.push(place);
        }
        router.free(link);
    }
    ends
}

/// The elements of a component: its ends, elements with its prefix, and all elements connected to them.
fn reached(router: &Router, prefix: &str, ends: &[usize]) -> Vec<bool> {
    let mut live = alloc::vec![false; router.places()];
    let named = |place: &usize| router.element(*place).name.starts_with(prefix);
    let mut open: Vec<usize> =
        router.live_places().into_iter().filter(named).chain(ends.iter().copied()).collect();
    while let Some(place) = open.pop() {
        if core::mem::replace(&mut live[place], true) {
            continue;
        }
        for output in [false, true] {
            let ids = router.at_element(place, output).into_iter();
            open.extend(
                ids.filter_map(|id| router.connection(id))
                    .map(|it| if output { it.to.element } else { it.from.element }),
            );
        }
    }
    live
}
