//! `click-align`: adds Align elements where packets lack the required alignment, removes unnecessary ones,
//! and records the resulting alignments in an AlignmentInfo.
use super::aligner::Aligner;
use super::alignment::Alignment;
use super::router::{Class, Router};
use crate::check::{Classes, Flow};
use crate::{Diagnostics, Element, Landmark, Port};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The file name in the landmarks of added elements.
const FILE: &str = "<click-align>";

/// Classes that read AlignmentInfo.
const ALIGNMENT_INFO_CLASSES: &[&str] = &[
    "CheckIPHeader",
    "CheckIPHeader2",
    "Classifier",
    "DynamicUDPIPEncap",
    "ICMPIPEncap",
    "ICMPPingEncap",
    "IPInputCombo",
    "IPsecESPEncap",
    "UDPIP6Encap",
    "UDPIPEncap",
];

/// Alignments at all ports of a configuration.
struct Alignments {
    aligners: Vec<Aligner>,
    flows: Vec<Flow>,
    inputs: Vec<Vec<Alignment>>,
    outputs: Vec<Vec<Alignment>>,
}

impl Alignments {
    fn new(router: &Router, classes: &dyn Classes) -> Self {
        let places = 0..router.places();
        let ports = |output| {
            places.clone().map(|place| alloc::vec![Alignment::Empty; router.ports(place, output)]).collect()
        };
        let aligner = |place| Aligner::of(router.element(place)).unwrap_or(Aligner::Default);
        Self {
            aligners: places.clone().map(aligner).collect(),
            flows: places.clone().map(|place| flow(router, place, classes)).collect(),
            inputs: ports(false),
            outputs: ports(true),
        }
    }

    /// The actual alignments, propagated from sources.
    fn have(router: &Router, classes: &dyn Classes) -> Self {
        let mut all = Self::new(router, classes);
        // Bounded, in case the alignments don't converge.
        for _ in 0..=64 * router.places() {
            for place in 0..router.places() {
                all.aligners[place].have(&all.inputs[place], &mut all.outputs[place], &all.flows[place]);
            }
            let mut inputs = cleared(&all.inputs);
            for connection in router.connections().into_iter().filter_map(|id| router.connection(id)) {
                let input = &mut inputs[connection.to.element][connection.to.port];
                *input = input.or(all.outputs[connection.from.element][connection.from.port]);
            }
            if core::mem::replace(&mut all.inputs, inputs) == all.inputs {
                break;
            }
        }
        all
    }

    /// The required alignments, propagated backwards from sinks.
    fn want(router: &Router, classes: &dyn Classes) -> Self {
        let mut all = Self::new(router, classes);
        for _ in 0..=64 * router.places() {
            for place in 0..router.places() {
                all.aligners[place].want(&mut all.inputs[place], &all.outputs[place], &all.flows[place]);
            }
            let mut outputs = cleared(&all.outputs);
            for connection in router.connections().into_iter().filter_map(|id| router.connection(id)) {
                let output = &mut outputs[connection.from.element][connection.from.port];
                *output = output.and(all.inputs[connection.to.element][connection.to.port]);
            }
            if core::mem::replace(&mut all.outputs, outputs) == all.outputs {
                break;
            }
        }
        all
    }
}

fn cleared(ports: &[Vec<Alignment>]) -> Vec<Vec<Alignment>> {
    ports.iter().map(|ports| alloc::vec![Alignment::Empty; ports.len()]).collect()
}

fn flow(router: &Router, place: usize, classes: &dyn Classes) -> Flow {
    let element = router.element(place);
    let element = Element {
        name: element.name.clone(),
        class: element.class_name().into(),
        configuration: element.configuration.clone(),
        landmark: element.landmark.clone(),
    };
    Flow::parse(classes.properties(&element).map_or("x/x", |properties| properties.flow))
}

/// Aligns a configuration.
pub fn align(router: &mut Router, classes: &dyn Classes, diagnostics: &mut Diagnostics) {
    check_configurations(router, diagnostics);
    let originals = router.places();
    let mut number = originals + 1;
    while router.find(&format!("Align@click_align@{number}")).is_some() {
        number += 1;
    }
    let wanted = Alignments::want(router, classes).inputs;
    add_aligns(router, originals, &mut number, classes, |_, place, port| wanted[place][port]);
    remove_pairs(router);
    add_aligns(router, originals, &mut number, classes, |have, place, port| {
        let mut inputs = have.inputs[place].clone();
        have.aligners[place].adjust(&mut inputs);
        inputs[port]
    });
    remove_needless(router, classes);
    remove_unused(router);
    add_alignment_info(router, number, classes);
    let added = router.live_places().into_iter().filter(|&place| is_align(router, place));
    match added.filter(|&place| &*router.element(place).landmark.file == FILE).count() {
        0 => {}
        1 => diagnostics.warning(None, "added 1 Align element"),
        many => diagnostics.warning(None, format!("added {many} Align elements")),
    }
}

fn check_configurations(router: &Router, diagnostics: &mut Diagnostics) {
    for place in router.live_places() {
        let element = router.element(place);
        if Aligner::of(element).is_none() {
            let text = format!("can't tell the alignment of '{}'", element.declaration());
            diagnostics.error(element.landmark.clone(), text);
        }
    }
}

fn is_align(router: &Router, place: usize) -> bool {
    router.element(place).is("Align")
}

/// Adds an Align before each input of the original elements with insufficient alignment.
fn add_aligns(
    router: &mut Router,
    originals: usize,
    number: &mut usize,
    classes: &dyn Classes,
    wanted: impl Fn(&Alignments, usize, usize) -> Alignment,
) {
    let have = Alignments::have(router, classes);
    for place in 0..originals {
        for port in 0..have.inputs[place].len() {
            let want = wanted(&have, place, port);
            if have.inputs[place][port].implies(want) || want == Alignment::Bad {
                continue;
            }
            let (modulus, offset) = want.numbers();
            let (name, text) = (format!("Align@click_align@{number}"), format!("{modulus}, {offset}"));
            let landmark = Landmark::new(FILE, 0);
            let align = router.get(&name, Class::Named("Align".into()), &text, landmark.clone());
            router.insert_before(Port { element: align, port: 0 }, Port { element: place, port }, landmark);
            *number += 1;
        }
    }
}

/// Bypasses an Align that is followed by another one, unless its alignment implies the other's.
fn remove_pairs(router: &mut Router) {
    for id in router.connections() {
        let Some(connection) = router.connection(id).cloned() else { continue };
        let (from, to) = (connection.from, connection.to);
        if !is_align(router, from.element) || !is_align(router, to.element) || from.port + to.port > 0 {
            continue;
        }
        let of =
            |place| Alignment::parse(&router.element(place).configuration, false).unwrap_or(Alignment::Bad);
        let (above, below) = (of(from.element), of(to.element));
        let (into_first, out_of_first) = (router.at_port(from, false), router.at_port(from, true));
        let into_second = router.at_port(to, false);
        if above.implies(below) {
            continue;
        }
        if let ([only], [source]) = (&into_second[..], &into_first[..]) {
            if let Some(source) = router.connection(*source).map(|it| it.from) {
                router.move_end(*only, true, source);
            }
        } else if let [only] = out_of_first[..] {
            for id in into_first {
                router.move_end(id, false, to);
            }
            router.disconnect(only);
        }
    }
}

/// Bypasses each Align whose packets are already aligned.
fn remove_needless(router: &mut Router, classes: &dyn Classes) {
    loop {
        let have = Alignments::have(router, classes);
        let mut changed = false;
        let mut next = 0;
        // New connections are processed, too.
        while next < router.connections_made() {
            let id = next;
            next += 1;
            let Some(connection) = router.connection(id).cloned() else { continue };
            let (from, to) = (connection.from, connection.to);
            let given = have.outputs[from.element].get(from.port).copied();
            let kept = have.outputs[to.element].first().copied();
            let (Some(given), Some(kept)) = (given, kept) else { continue };
            if !is_align(router, to.element) || !given.implies(kept) {
                continue;
            }
            changed = true;
            for port in router.neighbours(to, true) {
                router.connect(from, port, connection.landmark.clone());
            }
            router.disconnect(id);
        }
        if !changed {
            return;
        }
        router.remove_duplicates();
    }
}

fn remove_unused(router: &mut Router) {
    for place in router.of_class("AlignmentInfo") {
        router.kill(place);
    }
    loop {
        let unused: Vec<usize> = router
            .of_class("Align")
            .into_iter()
            .filter(|&place| router.ports(place, false) == 0 || router.ports(place, true) == 0)
            .collect();
        if unused.is_empty() {
            break;
        }
        unused.into_iter().for_each(|place| router.kill(place));
    }
    router.remove_dead();
}

/// Adds the AlignmentInfo.
fn add_alignment_info(router: &mut Router, number: usize, classes: &dyn Classes) {
    let have = Alignments::have(router, classes);
    let mut items = Vec::new();
    for place in router.live_places() {
        let element = router.element(place);
        if !have.inputs[place].is_empty() && ALIGNMENT_INFO_CLASSES.contains(&element.class_name()) {
            let numbers = have.inputs[place].iter().map(|alignment| alignment.numbers());
            let numbers: Vec<String> =
                numbers.map(|(modulus, offset)| format!("  {modulus} {offset}")).collect();
            items.push(format!("{}{}", element.name, numbers.concat()));
        }
    }
    if !items.is_empty() {
        let name = format!("AlignmentInfo@click_align@{number}");
        let class = Class::Named("AlignmentInfo".into());
        router.get(&name, class, &items.join(",\n  "), Landmark::new(FILE, 0));
    }
}
