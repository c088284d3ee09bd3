use super::{Parser, Within};
use crate::Landmark;
use crate::lexer::Token;
use crate::tree::{CompoundId, ROOT, TUNNEL};
use alloc::format;

impl Parser<'_> {
    /// Parses `( ... )` after the parenthesis; returns the group's numbers of inputs and outputs.
    pub(super) fn group(&mut self, name: &str) -> [usize; 2] {
        let start = self.reader.landmark();
        let inner = ["", "/input", "/output"].map(|part| {
            let name = format!("{name}{part}");
            self.add_node(&name, TUNNEL, "", start.clone())
        });
        let compound = self.compound();
        let input = compound.names.insert("input".into(), inner[1]);
        let output = compound.names.insert("output".into(), inner[2]);
        let ends_output = core::mem::replace(&mut self.last_connection_ends_output, true);
        self.depth += 1;
        self.groups += 1;
        if self.depth >= self.limits.depth {
            self.error("maximum element group nesting depth exceeded");
        } else {
            let end = self.statements(Within::Group);
            if end == Token::End && self.is_tool() {
                self.expect(Token::Char(')'), false);
            }
        }
        self.groups -= 1;
        self.depth -= 1;
        self.last_connection_ends_output = ends_output;

        let landmark = if self.is_tool() { start } else { self.reader.landmark() };
        let current = self.current;
        let counts = [(inner[1], false), (inner[2], true)].map(|(node, output)| {
            self.check_pseudoelement(current, node, output, "<anonymous group>", &landmark)
        });
        let names = &mut self.compound().names;
        for (name, before) in [("input", input), ("output", output)] {
            match before {
                Some(node) => names.insert(name.into(), node),
                None => names.remove(name),
            };
        }
        counts
    }

    /// Checks that `input` or `output` is used only on its inner side, and at every port up to the last one.
    /// Returns the number of ports.
    pub(super) fn check_pseudoelement(
        &mut self,
        compound: CompoundId,
        node: usize,
        output: bool,
        printable: &str,
        landmark: &Landmark,
    ) -> usize {
        let sides = if output { ["output", "input"] } else { ["input", "output"] };
        let node = &self.compounds[compound].nodes[node];
        if node.count(output) > 0 {
            let text = format!("'{printable}' pseudoelement '{}' may only be used as {}", sides[0], sides[1]);
            self.diagnostics.error(landmark.clone(), text);
        }
        let count = node.count(!output);
        let used = &node.ports[usize::from(!output)];
        // Attack: groups that use only the highest port number, so that all lower ones are missing.
        let missing = (0..count).filter(|port| !used.contains(port)).take(100);
        for port in missing {
            self.diagnostics.error(landmark.clone(), format!("'{printable}' {} {port} missing", sides[0]));
        }
        count
    }

    /// Checks both pseudoelements of a compound, sets its numbers of ports, and names anonymous elements.
    pub(super) fn finish_compound(&mut self, id: CompoundId) {
        debug_assert_ne!(id, ROOT);
        let (printable, landmark) =
            (self.compounds[id].printable.clone(), self.compounds[id].landmark.clone());
        let inputs = self.check_pseudoelement(id, crate::tree::INPUT, false, &printable, &landmark);
        let outputs = self.check_pseudoelement(id, crate::tree::OUTPUT, true, &printable, &landmark);
        let compound = &mut self.compounds[id];
        (compound.inputs, compound.outputs) = (inputs, outputs);
        compound.name_all();
    }
}
