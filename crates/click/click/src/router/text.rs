//! A router as text, for its handlers.
use super::{PortInfo, Router};
use crate::ElementId;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Write;
use ringway_click_lang::{Connection, config};

impl Router {
    /// The configuration's source; the flat one if the source is unknown.
    pub fn configuration(&self) -> String {
        let compact = self.graph.requirements.iter().any(|requirement| requirement.kind == "compact_config");
        if compact || self.source.is_empty() { self.flat_configuration() } else { self.source.clone() }
    }

    /// The configuration without compound elements.
    pub fn flat_configuration(&self) -> String {
        let mut out = String::new();
        let items = self.graph.requirements.iter().map(|requirement| match requirement.value.as_str() {
            "" => requirement.kind.clone(),
            value => format!("{} {}", requirement.kind, config::quote(value.as_bytes())),
        });
        let items: Vec<String> = items.collect();
        if !items.is_empty() {
            let _ = write!(out, "require({});\n\n", items.join(", "));
        }
        for info in &self.infos {
            let _ = match info.configuration.as_str() {
                "" => writeln!(out, "{} :: {};", info.name, info.class.name),
                text => writeln!(out, "{} :: {}({text});", info.name, info.class.name),
            };
        }
        if !self.infos.is_empty() {
            out.push('\n');
        }
        self.write_connections(&mut out);
        out
    }

    /// Writes connections as chains of maximal length.
    fn write_connections(&self, out: &mut String) {
        let all = &self.graph.connections;
        let mut next: Vec<Option<usize>> = vec![None; all.len()];
        let mut starts = vec![true; all.len()];
        for (index, connection) in all.iter().enumerate().filter(|(_, c)| c.to.port == 0) {
            let goes_on = |(other, c): &(usize, &Connection)| *other != index && c.from == connection.to;
            let mut following = all.iter().enumerate().filter(goes_on);
            let Some((mut found, mut last)) = following.next() else { continue };
            while last.to.port != 0 {
                let Some((other, c)) = following.next() else { break };
                (found, last) = (other, c);
            }
            next[index] = Some(found);
            starts[found] = false;
        }
        let mut used = vec![false; all.len()];
        loop {
            for first in (0..all.len()).filter(|index| starts[*index]) {
                if !used[first] {
                    self.write_chain(out, first, &next, &mut used);
                }
            }
            match used.iter().position(|used| !used) {
                Some(circle) => starts[circle] = true,
                None => return,
            }
        }
    }

    fn write_chain(&self, out: &mut String, first: usize, next: &[Option<usize>], used: &mut [bool]) {
        let all = &self.graph.connections;
        let from = all[first].from;
        out.push_str(&self.infos[from.element].name);
        if from.port > 0 {
            let _ = write!(out, " [{}]", from.port);
        }
        let mut at = Some(first);
        while let Some(index) = at.filter(|index| !used[*index]) {
            out.push_str(if index == first { " -> " } else { "\n    -> " });
            let to = all[index].to;
            if to.port > 0 {
                let _ = write!(out, "[{}] ", to.port);
            }
            out.push_str(&self.infos[to.element].name);
            used[index] = true;
            at = next[index];
        }
        out.push_str(";\n");
    }

    pub(super) fn requirements(&self) -> String {
        let lines = self.graph.requirements.iter();
        lines.map(|requirement| format!("{}\n{}\n", requirement.kind, requirement.value)).collect()
    }

    pub(super) fn list(&self) -> String {
        let mut out = format!("{}\n", self.infos.len());
        for info in &self.infos {
            out.push_str(&info.name);
            out.push('\n');
        }
        out
    }

    pub(super) fn active_ports(&self) -> String {
        let mut out = String::new();
        for info in &self.infos {
            for (port, _) in info.inputs.iter().enumerate().filter(|(_, port)| port.pull) {
                let _ = writeln!(out, "{}\ti{port}", info.name);
            }
            for (port, _) in info.outputs.iter().enumerate().filter(|(_, port)| !port.pull) {
                let _ = writeln!(out, "{}\to{port}", info.name);
            }
        }
        out
    }

    /// Inputs and outputs with their processing and their neighbours.
    pub(super) fn ports_text(&self, id: ElementId) -> String {
        let info = self.info(id);
        let mut out = String::new();
        self.write_ports(&mut out, id, &info.inputs, "input");
        self.write_ports(&mut out, id, &info.outputs, "output");
        out
    }

    fn write_ports(&self, out: &mut String, id: ElementId, ports: &[PortInfo], kind: &str) {
        let plural = if ports.len() == 1 { "" } else { "s" };
        let _ = writeln!(out, "{} {kind}{plural}", ports.len());
        for (number, port) in ports.iter().enumerate() {
            let processing = if port.pull { "pull" } else { "push" };
            let open = if port.agnostic { "~" } else { "" };
            let forward = kind == "output";
            let ends = self.other_ends((id, number), forward).into_iter().map(|(other, port)| {
                let name = self.name(other);
                if forward { format!("[{port}] {name}") } else { format!("{name} [{port}]") }
            });
            let ends: Vec<String> = ends.collect();
            let _ = writeln!(out, "{processing}{open}\t-\t{}", ends.join(", "));
        }
    }
}
