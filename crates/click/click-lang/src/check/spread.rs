use super::code::processing;
use super::{Classes, ElementPorts, Flow, PortMode, Processing, declaration};
use crate::{Diagnostics, Graph, Limits, Port};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

/// Propagates push and pull along connections and through agnostic elements.
pub(super) struct Spread<'a> {
    graph: &'a Graph,
    classes: &'a dyn Classes,
    /// Index of each element's first input, and of its first output.
    starts: [Vec<usize>; 2],
    /// Processing of inputs and outputs as declared by the classes, and as determined.
    declared: [Vec<Processing>; 2],
    resolved: [Vec<Processing>; 2],
    /// Connections, then links between agnostic outputs and inputs of an element.
    links: Vec<(Port, Port)>,
    /// The links at each port.
    at: [Vec<Vec<usize>>; 2],
}

const INPUT: usize = 0;
const OUTPUT: usize = 1;

impl<'a> Spread<'a> {
    pub fn new(graph: &'a Graph, classes: &'a dyn Classes, counts: &[(usize, usize)]) -> Self {
        let mut starts = [alloc::vec![0], alloc::vec![0]];
        let mut declared = [Vec::new(), Vec::new()];
        for (element, &(inputs, outputs)) in graph.elements.iter().zip(counts) {
            let code = classes.properties(element).map_or("a/a", |properties| properties.processing);
            declared[INPUT].extend(processing(code, false, inputs, Processing::Agnostic));
            let last = declared[INPUT].last().copied().filter(|_| inputs > 0).unwrap_or(Processing::Agnostic);
            declared[OUTPUT].extend(processing(code, true, outputs, last));
            starts[INPUT].push(declared[INPUT].len());
            starts[OUTPUT].push(declared[OUTPUT].len());
        }
        let links = graph.connections.iter().map(|connection| (connection.from, connection.to)).collect();
        let resolved = declared.clone();
        Self { graph, classes, starts, declared, resolved, links, at: [Vec::new(), Vec::new()] }
    }

    fn index(&self, side: usize, port: Port) -> usize {
        self.starts[side][port.element] + port.port
    }

    fn count(&self, side: usize, element: usize) -> usize {
        self.starts[side][element + 1] - self.starts[side][element]
    }

    /// Determines the processing of all ports. Errors are Click's, in Click's order.
    pub fn resolve(mut self, limits: &Limits, diagnostics: &mut Diagnostics) -> Vec<ElementPorts> {
        if self.link_agnostics(limits) {
            self.spread(diagnostics);
        } else {
            diagnostics.error(None, "too many agnostic ports");
        }
        (0..self.graph.elements.len())
            .map(|element| ElementPorts {
                inputs: self.modes(INPUT, element),
                outputs: self.modes(OUTPUT, element),
            })
            .collect()
    }

    /// Links agnostic inputs with the agnostic outputs that their packets reach.
    fn link_agnostics(&mut self, limits: &Limits) -> bool {
        for element in 0..self.graph.elements.len() {
            let agnostic = |side: usize| {
                let ports = self.starts[side][element]..self.starts[side][element + 1];
                let open = |port: &usize| {
                    self.declared[side][self.starts[side][element] + port] == Processing::Agnostic
                };
                (0..ports.len()).filter(open).collect::<Vec<usize>>()
            };
            let (inputs, outputs) = (agnostic(INPUT), agnostic(OUTPUT));
            if inputs.is_empty() || outputs.is_empty() {
                continue;
            }
            // Attack: an element with the largest number of agnostic inputs and outputs.
            if self.links.len() + inputs.len() * outputs.len() > limits.connections * 4 {
                return false;
            }
            let flow = self
                .classes
                .properties(&self.graph.elements[element])
                .map_or("x/x", |properties| properties.flow);
            let flow = Flow::parse(flow);
            for &input in &inputs {
                for &output in outputs.iter().filter(|&&output| flow.joins(input, output)) {
                    self.links.push((Port { element, port: output }, Port { element, port: input }));
                }
            }
        }
        true
    }

    /// Propagates along links in rounds until nothing changes. A round visits only links whose ports changed,
    /// in order, so that errors have the same order as if all links were visited.
    fn spread(&mut self, diagnostics: &mut Diagnostics) {
        self.at = [INPUT, OUTPUT].map(|side| alloc::vec![Vec::new(); self.resolved[side].len()]);
        for number in 0..self.links.len() {
            let (from, to) = self.links[number];
            let (output, input) = (self.index(OUTPUT, from), self.index(INPUT, to));
            self.at[OUTPUT][output].push(number);
            self.at[INPUT][input].push(number);
        }
        let mut round = BTreeSet::new();
        round.extend(0..self.links.len());
        let mut bad = alloc::vec![false; self.links.len()];
        while !round.is_empty() {
            let mut next_round = BTreeSet::new();
            while let Some(number) = round.pop_first() {
                if bad[number] {
                    continue;
                }
                let (from, to) = self.links[number];
                let (output, input) = (self.index(OUTPUT, from), self.index(INPUT, to));
                let changed = match (self.resolved[OUTPUT][output], self.resolved[INPUT][input]) {
                    (Processing::Agnostic, Processing::Agnostic) => None,
                    (known, Processing::Agnostic) => Some((INPUT, input, known)),
                    (Processing::Agnostic, known) => Some((OUTPUT, output, known)),
                    (one, other) => {
                        if one != other {
                            bad[number] = true;
                            self.report_conflict(number, one, diagnostics);
                        }
                        None
                    }
                };
                if let Some((side, index, known)) = changed {
                    self.resolved[side][index] = known;
                    for &link in &self.at[side][index] {
                        if link > number {
                            round.insert(link)
                        } else {
                            next_round.insert(link)
                        };
                    }
                }
            }
            round = next_round;
        }
    }

    fn report_conflict(&self, number: usize, from: Processing, diagnostics: &mut Diagnostics) {
        let (output, input) = self.links[number];
        let (one, other) = if from == Processing::Push { ("push", "pull") } else { ("pull", "push") };
        let (source, sink) = (&self.graph.elements[output.element], &self.graph.elements[input.element]);
        let (source_name, sink_name) = (declaration(source), declaration(sink));
        match self.graph.connections.get(number) {
            Some(connection) => diagnostics.error_at(
                connection.landmark.clone(),
                format!(
                    "'{source_name}' {one} output {} connected to '{sink_name}' {other} input {}",
                    output.port, input.port
                ),
            ),
            None => diagnostics.error_at(
                source.landmark.clone(),
                format!(
                    "agnostic '{source_name}' in mixed context: {other} input {}, {one} output {}",
                    input.port, output.port
                ),
            ),
        }
    }

    fn modes(&self, side: usize, element: usize) -> Vec<PortMode> {
        let mode = |index: usize| PortMode {
            pull: self.resolved[side][index] == Processing::Pull,
            agnostic: self.declared[side][index] == Processing::Agnostic,
        };
        let start = self.starts[side][element];
        (start..start + self.count(side, element)).map(mode).collect()
    }
}
