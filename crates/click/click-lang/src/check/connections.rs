use super::{ElementPorts, declaration, end};
use crate::{Diagnostics, Graph, Port};
use alloc::format;
use alloc::vec::Vec;

/// Reports connections at ports that their elements don't have.
pub(super) fn in_range(graph: &Graph, counts: &[(usize, usize)], diagnostics: &mut Diagnostics) {
    let count = |port: Port, output: bool| {
        counts.get(port.element).map_or(0, |&(inputs, outputs)| if output { outputs } else { inputs })
    };
    // Click's order: a bad connection is replaced by the last one.
    let mut order: Vec<usize> = (0..graph.connections.len()).collect();
    let mut at = 0;
    while let Some(&number) = order.get(at) {
        let mut bad = false;
        for output in [false, true] {
            let port = end(&graph.connections[number], output);
            if port.port >= count(port, output) {
                bad = true;
                let side = if output { "output" } else { "input" };
                report(graph, port, diagnostics, |name| format!("'{name}' has no {side} {}", port.port));
            }
        }
        if bad {
            order.swap_remove(at);
        } else {
            at += 1;
        }
    }
}

/// Reports push outputs and pull inputs that are used twice, and unused ports.
pub(super) fn complete(graph: &Graph, ports: &[ElementPorts], diagnostics: &mut Diagnostics) {
    for output in [false, true] {
        let mut used: Vec<Port> =
            graph.connections.iter().map(|connection| end(connection, output)).collect();
        used.sort_unstable();
        for pair in used.windows(2).filter(|pair| pair[0] == pair[1]) {
            let port = pair[0];
            if is_exclusive(ports, port, output) {
                let kind = if output { "push output" } else { "pull input" };
                let text = |name: &str| format!("illegal reuse of '{name}' {kind} {}", port.port);
                report(graph, port, diagnostics, |name| text(&name));
            }
        }
    }
    for output in [false, true] {
        let mut used: Vec<Port> =
            graph.connections.iter().map(|connection| end(connection, output)).collect();
        used.sort_unstable();
        for (element, ports) in ports.iter().enumerate() {
            let (side, count) =
                if output { ("output", ports.outputs.len()) } else { ("input", ports.inputs.len()) };
            for port in
                (0..count).map(|port| Port { element, port }).filter(|port| used.binary_search(port).is_err())
            {
                report(graph, port, diagnostics, |name| format!("'{name}' {side} {} unused", port.port));
            }
        }
    }
}

/// Whether a port is a push output or a pull input, which can have only one connection.
fn is_exclusive(ports: &[ElementPorts], port: Port, output: bool) -> bool {
    let kinds = ports.get(port.element).map(|ports| if output { &ports.outputs } else { &ports.inputs });
    kinds.and_then(|kinds| kinds.get(port.port)).is_some_and(|kind| kind.pull != output)
}

fn report(
    graph: &Graph,
    port: Port,
    diagnostics: &mut Diagnostics,
    text: impl FnOnce(alloc::string::String) -> alloc::string::String,
) {
    if let Some(element) = graph.elements.get(port.element) {
        diagnostics.error(element.landmark.clone(), text(declaration(element)));
    }
}
