//! Validation of the graph before configuring: the checks of the language, and that pulls terminate.
use super::{Info, PortInfo, Router};
use crate::ElementId;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use ringway_click_lang::check::{self, ClassProperties, Classes, PortMode};
use ringway_click_lang::{Element, Limits};

/// Attack: a pull through a million elements, which would overflow the stack. Largest number of elements in a
/// pull.
const DEEPEST_PULL: usize = 500;

/// The classes of the elements, by index.
struct Known<'a>(&'a Router);

impl Classes for Known<'_> {
    fn properties(&self, element: &Element) -> Option<ClassProperties<'_>> {
        let class = self.0.class(self.0.names.find(&element.name, "")?);
        Some(ClassProperties {
            ports: class.ports,
            processing: class.processing,
            flow: class.flow,
            flags: class.flags,
        })
    }
}

impl Router {
    /// Runs all checks. Returns whether they passed.
    pub(super) fn check_graph(&mut self) -> bool {
        let report = self.report.clone();
        let diagnostics = &mut report.borrow_mut().diagnostics;
        let Some(ports) = check::check(&self.graph, &Known(self), &Limits::default(), diagnostics) else {
            return false;
        };
        let port =
            |kind: &PortMode| PortInfo { pull: kind.pull, agnostic: kind.agnostic, peer: None, next: None };
        for (info, ports) in self.infos.iter_mut().zip(&ports) {
            info.inputs = ports.inputs.iter().map(port).collect();
            info.outputs = ports.outputs.iter().map(port).collect();
        }
        self.connect();
        self.mark_completing();
        let too_far = self.pulled_too_far();
        if let Some((id, text)) = &too_far {
            diagnostics.error(self.landmark(*id).clone(), text.clone());
        }
        too_far.is_none()
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
        for id in self.ids() {
            for port in 0..self.info(id).outputs.len() {
                let found = self.pushed_to(id, port);
                if let Some(output) = self.info_mut(id).outputs.get_mut(port).filter(|port| !port.pull) {
                    output.next = found;
                }
            }
        }
        let first = |info: &Info| info.outputs.first().and_then(|port| port.next);
        self.firsts = self.infos.iter().map(first).collect();
    }

    /// The element that packets pushed from an output reach, skipping elements that do nothing to them.
    fn pushed_to(&self, id: ElementId, port: usize) -> Option<(ElementId, usize)> {
        let peer = |id: ElementId, port: usize| self.info(id).outputs.get(port)?.peer;
        let direct = peer(id, port)?;
        let mut found = direct;
        // Attack: such elements connected in a loop.
        for _ in 0..self.infos.len() {
            match peer(found.0, 0).filter(|_| self.class(found.0).passed) {
                Some(behind) => found = behind,
                None => return Some(found),
            }
        }
        Some(direct)
    }

    /// Finds a pull that loops, or passes too many elements. Relays are skipped, as in pulls.
    fn pulled_too_far(&self) -> Option<(ElementId, String)> {
        let mut depth: Vec<usize> = vec![0; self.infos.len()];
        for _ in 0..=DEEPEST_PULL {
            let mut deeper = false;
            for (element, info) in self.infos.iter().enumerate() {
                if !info.outputs.iter().any(|port| port.pull) {
                    continue;
                }
                let inputs = 0..info.inputs.len();
                let above = inputs.filter_map(|port| self.puller_of(ElementId(element as u32), port));
                let above = above.map(|(id, _)| depth[id.index()] + 1).max();
                if let Some(above) = above.filter(|above| *above > depth[element]) {
                    depth[element] = above;
                    deeper = true;
                }
            }
            if !deeper {
                return None;
            }
        }
        let id = self.ids().max_by_key(|id| depth[id.index()])?;
        let name = self.declaration(id);
        let text = "is pulled in a circle or through over";
        Some((id, format!("'{name}' {text} {DEEPEST_PULL} elements; put a Queue between")))
    }
}
