//! Converts a flat graph to text in the language.
use crate::config::quote;
use crate::{Connection, Graph, Landmark, Port};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The layouts of Click's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// As printed by handlers and `click -o`.
    Driver,
    /// As printed by the tools: with `# line` directives, so that errors refer to an element's origin.
    Tools,
}

impl Graph {
    /// The text that `click -o` and the handlers `flatconfig` and `config` print.
    pub fn unparse(&self) -> String {
        let mut out = String::new();
        self.requirements(&mut out);
        self.declarations(Layout::Driver, &mut out);
        if !self.elements.is_empty() {
            out.push('\n');
        }
        self.chains(&mut out);
        out
    }

    /// The text that Click's tools print.
    pub fn unparse_for_tools(&self) -> String {
        let mut out = String::new();
        self.requirements(&mut out);
        self.definitions(&mut out);
        self.declarations(Layout::Tools, &mut out);
        if !self.connections.is_empty() {
            let line = out.matches('\n').count() + 2;
            out.push_str(&format!("# {line} \"\"\n"));
        }
        self.chains(&mut out);
        out
    }

    fn requirements(&self, out: &mut String) {
        if self.requirements.is_empty() {
            return;
        }
        let items: Vec<String> = self
            .requirements
            .iter()
            .map(|requirement| match &requirement.value[..] {
                "" => requirement.kind.clone(),
                value => format!("{} {}", requirement.kind, quote(value.as_bytes())),
            })
            .collect();
        out.push_str(&format!("require({});\n\n", items.join(", ")));
    }

    fn definitions(&self, out: &mut String) {
        if !self.defines.is_empty() {
            let items: Vec<String> =
                self.defines.iter().map(|(name, value)| format!("${name} {value}")).collect();
            out.push_str(&format!("define({});\n\n", items.join(", ")));
        }
    }

    fn declarations(&self, layout: Layout, out: &mut String) {
        for element in &self.elements {
            if layout == Layout::Tools {
                line_directive(&element.landmark, out);
            }
            out.push_str(&format!("{} :: {}", element.name, element.class));
            if !element.configuration.is_empty() {
                out.push_str(&format!("({})", element.configuration));
            }
            out.push_str(";\n");
        }
    }

    /// Connections as chains of maximal length.
    fn chains(&self, out: &mut String) {
        let next = self.successors();
        let mut starts = alloc::vec![true; self.connections.len()];
        for &follower in next.iter().flatten() {
            starts[follower] = false;
        }
        let mut used = alloc::vec![false; self.connections.len()];
        // The remaining connections are cycles, which are cut anywhere.
        let heads = (0..starts.len()).filter(|&head| starts[head]).chain(0..starts.len());
        for head in heads {
            if !used[head] {
                self.chain(head, &next, &mut used, out);
            }
        }
    }

    fn chain(&self, head: usize, next: &[Option<usize>], used: &mut [bool], out: &mut String) {
        let from = self.connections[head].from;
        out.push_str(self.name(from));
        if from.port > 0 {
            out.push_str(&format!(" [{}]", from.port));
        }
        let mut at = Some(head);
        while let Some(link) = at.filter(|&link| !used[link]) {
            out.push_str(if link == head { " -> " } else { "\n    -> " });
            let to = self.connections[link].to;
            if to.port > 0 {
                out.push_str(&format!("[{}] ", to.port));
            }
            out.push_str(self.name(to));
            used[link] = true;
            at = next[link];
        }
        out.push_str(";\n");
    }

    fn name(&self, port: Port) -> &str {
        self.elements.get(port.element).map_or("", |element| &element.name)
    }

    /// For each connection to an input 0, the next one from output 0 in the chain: the first one that leads
    /// to an input 0, or else the last one.
    fn successors(&self) -> Vec<Option<usize>> {
        let mut from: BTreeMap<Port, Vec<usize>> = BTreeMap::new();
        for (number, connection) in self.connections.iter().enumerate() {
            from.entry(connection.from).or_default().push(number);
        }
        let straight = |&&number: &&usize| self.connections[number].to.port == 0;
        let best: BTreeMap<Port, usize> = from
            .iter()
            .filter_map(|(port, numbers)| Some((*port, *numbers.iter().find(straight).or(numbers.last())?)))
            .collect();
        let successor = |(number, connection): (usize, &Connection)| {
            let to = Some(connection.to).filter(|to| to.port == 0)?;
            let found = *best.get(&to)?;
            if found != number {
                return Some(found);
            }
            let others = || from[&to].iter().filter(|&&other| other != number);
            others().find(straight).or(others().next_back()).copied()
        };
        self.connections.iter().enumerate().map(successor).collect()
    }
}

/// Appends `# 3 "file"`, the position of the following element.
fn line_directive(landmark: &Landmark, out: &mut String) {
    let text = format!("{landmark}");
    let (file, line) = text.rsplit_once(':').unwrap_or((&text, "0"));
    out.push_str(&format!("# {line} \"{file}\"\n"));
}

#[cfg(test)]
mod tests {
    use crate::{Anything, Source};

    fn unparsed(text: &str) -> alloc::string::String {
        Source::new(text, "f").read(&mut Anything).graph.unparse()
    }

    #[test]
    fn chains_and_cycles() {
        let text = unparsed("a :: A(1, 2); b, c :: B; a -> b -> [1] c; c [1] -> b; a [2] -> a; c -> c");
        assert_eq!(
            text,
            "a :: A(1, 2);\nb :: B;\nc :: B;\n\n\
             a [2] -> a\n    -> b\n    -> [1] c;\nc [1] -> b;\nc -> c;\n"
        );
    }

    #[test]
    fn requirements_first() {
        assert_eq!(
            unparsed("require(compact_config, foo); Idle;"),
            "require(compact_config, package \"foo\");\n\nIdle@1 :: Idle;\n\n"
        );
    }
}
