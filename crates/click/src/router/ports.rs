//! Checks of the graph before anything is configured: port numbers, push and pull, ports used twice or not at all.
use super::flow::{Processing, flows, port_counts, processing};
use super::{PortInfo, Router};
use crate::ElementId;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use ringway_click_lang::Connection;

/// How many elements a pull may go through. Attack: a chain of a million elements would overflow the stack.
const DEEPEST_PULL: usize = 500;

impl Router {
    /// All checks; each group only if those before found nothing. Says whether all is well.
    pub(super) fn check_graph(&mut self) -> bool {
        let checks = [
            Self::check_range,
            Self::resolve_processing,
            Self::check_reuse_and_unused,
            Self::connect,
            Self::check_pull_depth,
        ];
        checks.iter().all(|check| {
            let before = self.report.borrow().diagnostics.errors();
            check(self);
            self.report.borrow().diagnostics.errors() == before
        })
    }

    fn say(&self, id: ElementId, text: String) {
        self.report.borrow_mut().diagnostics.error(self.landmark(id).clone(), text);
    }

    fn check_range(&mut self) {
        let used = self.graph.ports_used();
        for (id, (inputs, outputs)) in self.ids().collect::<Vec<_>>().into_iter().zip(used) {
            let port = PortInfo { pull: false, agnostic: false, peer: None };
            let Some((inputs, outputs)) = port_counts(self.class(id).ports, inputs, outputs) else {
                self.say(id, format!("{}: bad port count", self.declaration(id)));
                continue;
            };
            let info = self.info_mut(id);
            info.inputs = vec![port.clone(); inputs];
            info.outputs = vec![port; outputs];
        }
        for Connection { from, to, .. } in &self.graph.connections {
            for (end, kind) in [(to, "input"), (from, "output")] {
                let id = ElementId(end.element as u32);
                let info = self.info(id);
                let count = if kind == "input" { info.inputs.len() } else { info.outputs.len() };
                if end.port >= count {
                    self.say(id, format!("'{}' has no {kind} {}", self.declaration(id), end.port));
                }
            }
        }
    }

    fn resolve_processing(&mut self) {
        let side = |router: &Self, output: bool| -> Vec<Vec<Processing>> {
            let count =
                |id| if output { router.info(id).outputs.len() } else { router.info(id).inputs.len() };
            let code = |id: ElementId| router.class(id).processing;
            router
                .ids()
                .map(|id| (0..count(id)).map(|port| processing(code(id), output, port)).collect())
                .collect()
        };
        let (mut inputs, mut outputs) = (side(self, false), side(self, true));
        let ends = |c: &Connection| (c.from.element, c.from.port, c.to.element, c.to.port);
        let mut edges: Vec<_> = self.graph.connections.iter().map(|c| (ends(c), false)).collect();
        for (element, ports) in inputs.iter().enumerate() {
            let flow = self.infos[element].class.flow;
            for (input, _) in ports.iter().enumerate().filter(|(_, p)| **p == Processing::Agnostic) {
                let through = |output: &usize| {
                    outputs[element][*output] == Processing::Agnostic && flows(flow, input, *output)
                };
                let reached: Vec<usize> = (0..outputs[element].len()).filter(through).collect();
                edges.extend(reached.into_iter().map(|output| ((element, output, element, input), true)));
            }
        }
        let open: Vec<Vec<bool>> = inputs
            .iter()
            .chain(&outputs)
            .map(|ports| ports.iter().map(|p| *p == Processing::Agnostic).collect())
            .collect();
        self.spread(&mut inputs, &mut outputs, edges);
        let count = inputs.len();
        for (element, info) in self.infos.iter_mut().enumerate() {
            for (port, own) in info.inputs.iter_mut().enumerate() {
                own.pull = inputs[element][port] == Processing::Pull;
                own.agnostic = open[element][port];
            }
            for (port, own) in info.outputs.iter_mut().enumerate() {
                own.pull = outputs[element][port] == Processing::Pull;
                own.agnostic = open[count + element][port];
            }
        }
    }

    /// Lets what is known of ports reach those that are open, until nothing changes. The second part of an edge says
    /// that it runs inside an element.
    fn spread(
        &self,
        inputs: &mut [Vec<Processing>],
        outputs: &mut [Vec<Processing>],
        mut edges: Vec<((usize, usize, usize, usize), bool)>,
    ) {
        let mut changed = true;
        while changed {
            changed = false;
            edges.retain(|((from, output, to, input), inside)| {
                let (here, there) = (outputs[*from][*output], inputs[*to][*input]);
                match (here, there) {
                    (Processing::Agnostic, Processing::Agnostic) => {}
                    (_, Processing::Agnostic) => {
                        inputs[*to][*input] = here;
                        changed = true;
                    }
                    (Processing::Agnostic, _) => {
                        outputs[*from][*output] = there;
                        changed = true;
                    }
                    _ if here == there => {}
                    _ => {
                        self.conflict((*from, *output, *to, *input), *inside, here == Processing::Push);
                        return false;
                    }
                }
                true
            });
        }
    }

    fn conflict(&self, (from, output, to, input): (usize, usize, usize, usize), inside: bool, push: bool) {
        let (left, right) = if push { ("push", "pull") } else { ("pull", "push") };
        let name = |element: usize| self.declaration(ElementId(element as u32));
        let (from, to) = (name(from), name(to));
        let text = if inside {
            format!("agnostic '{from}' in mixed context: {right} input {input}, {left} output {output}")
        } else {
            format!("'{from}' {left} output {output} connected to '{to}' {right} input {input}")
        };
        self.report.borrow_mut().diagnostics.error(None, text);
    }

    fn check_reuse_and_unused(&mut self) {
        for (output, kind, active) in [(false, "input", "pull input"), (true, "output", "push output")] {
            let mut uses: Vec<Vec<usize>> =
                self.infos.iter().map(|info| vec![0; side(info, output).len()]).collect();
            for connection in &self.graph.connections {
                let end = if output { connection.from } else { connection.to };
                uses[end.element][end.port] += 1;
            }
            for id in self.ids() {
                for (port, info) in side(self.info(id), output).iter().enumerate() {
                    let count = uses[id.index()][port];
                    if info.pull != output && count > 1 {
                        for _ in 1..count {
                            self.say(
                                id,
                                format!("illegal reuse of '{}' {active} {port}", self.declaration(id)),
                            );
                        }
                    }
                }
            }
            for id in self.ids() {
                for (port, _) in side(self.info(id), output).iter().enumerate() {
                    if uses[id.index()][port] == 0 {
                        self.say(id, format!("'{}' {kind} {port} unused", self.declaration(id)));
                    }
                }
            }
        }
    }

    fn connect(&mut self) {
        for connection in &self.graph.connections {
            let (from, to) = (connection.from, connection.to);
            let ends = (ElementId(from.element as u32), ElementId(to.element as u32));
            if let Some(output) =
                self.infos[from.element].outputs.get_mut(from.port).filter(|port| !port.pull)
            {
                output.peer = Some((ends.1, to.port));
            }
            if let Some(input) = self.infos[to.element].inputs.get_mut(to.port).filter(|port| port.pull) {
                input.peer = Some((ends.0, from.port));
            }
        }
    }

    /// A pull that goes round in circles or through too many elements could not end well.
    fn check_pull_depth(&mut self) {
        let mut depth: Vec<usize> = vec![0; self.infos.len()];
        for _ in 0..=DEEPEST_PULL {
            let mut deeper = false;
            for (element, info) in self.infos.iter().enumerate() {
                let above = info.inputs.iter().filter(|_| info.outputs.iter().any(|port| port.pull));
                let above = above.filter_map(|port| port.peer).map(|(id, _)| depth[id.index()] + 1).max();
                if let Some(above) = above.filter(|above| *above > depth[element]) {
                    depth[element] = above;
                    deeper = true;
                }
            }
            if !deeper {
                return;
            }
        }
        if let Some(id) = self.ids().max_by_key(|id| depth[id.index()]) {
            let name = self.declaration(id);
            self.say(id, pulled_too_far(&name));
        }
    }
}

fn side(info: &super::Info, output: bool) -> &[PortInfo] {
    if output { &info.outputs } else { &info.inputs }
}

fn pulled_too_far(name: &str) -> String {
    format!("'{name}' is pulled in a circle or through over {DEEPEST_PULL} elements; put a Queue between")
}
