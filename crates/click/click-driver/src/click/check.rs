//! Checking a function's configuration without running it.
use super::builder::{Builder, Reader, SOCKET};
use super::resident::{needs_system, resident_registry};
use super::{Machine, Terminal, function_registry};
use crate::file::NO_FILES;
use crate::handed::{self, Handed};
use ringway_click::{Clock, Console, PACKETS, Router};
use ringway_click_lang::{Diagnostics, Graph, Severity};
use ringway_elements::platform::Uses;

/// A function's configuration.
#[derive(Clone, Copy, Debug)]
pub struct Configuration<'a> {
    /// Its text.
    pub text: &'a str,
    /// Name of the text in messages.
    pub file: &'a str,
    /// Parameters: names and values.
    pub parameters: &'a [(String, String)],
    /// Names of the function's ports.
    pub ports: &'a [String],
    /// Devices that the configuration names, and the port that each stands for.
    pub devices: &'a [(String, String)],
    /// Whether it runs in the process of the data path or in a VM, where elements have no operating system.
    pub resident: bool,
}

/// Something wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The file of the error: the configuration's, or a required one; empty if unknown.
    pub file: String,
    /// Line, from 1; 0 if unknown.
    pub line: usize,
    /// Column in bytes, from 1; 0 if unknown.
    pub column: usize,
    /// The error.
    pub what: String,
}

/// All errors in a configuration: parses it, and configures its elements, without side effects.
pub fn check(configuration: Configuration<'_>) -> Vec<Complaint> {
    let Configuration { text, file, parameters, ports, devices, resident } = configuration;
    let builder = Builder {
        reader: Reader {
            registry: if resident { resident_registry() } else { function_registry() },
            variables: parameters.to_vec(),
            path: None,
            sockets: Vec::new(),
        },
        uses: None,
        burst: PACKETS,
        console: Box::new(|| Box::new(Terminal) as Box<dyn Console>),
        resident: None,
    };
    let (graph, mut diagnostics) = builder.reader.read(text, file);
    let Some(graph) = graph else { return complaints(&diagnostics) };
    let uses = Uses { ports: ports.to_vec(), devices: devices.to_vec() };
    uses.check(&graph, file, &mut diagnostics);
    if resident {
        check_resident(&graph, &mut diagnostics);
    }
    let mut complaints = complaints(&diagnostics);
    let known =
        handed::hand(Some(Handed { ports: ports.to_vec(), devices: devices.to_vec(), ..Handed::default() }));
    let options = builder.options(Clock::Real(Box::new(Machine::default())), String::new());
    complaints.extend(self::complaints(&Router::check(graph, &builder.reader.registry, options)));
    handed::hand(known);
    complaints
}

pub(crate) fn complaints(diagnostics: &Diagnostics) -> Vec<Complaint> {
    let mut complaints: Vec<Complaint> = Vec::new();
    let (mut place, mut doing) = (None, "");
    for diagnostic in diagnostics {
        let text = diagnostic.text.trim();
        match diagnostic.severity {
            // "While configuring 'x :: X':", followed by the error without a position.
            Severity::Note if diagnostic.landmark.is_some() => {
                (place, doing) = (diagnostic.landmark.as_ref(), text);
            }
            Severity::Note | Severity::Warning => {}
            Severity::Error => {
                let (at, doing) = match &diagnostic.landmark {
                    Some(own) => (Some(own), ""),
                    None => (place, doing),
                };
                let mut what = if doing.is_empty() { text.to_string() } else { format!("{doing} {text}") };
                if let Some(hint) = &diagnostic.hint {
                    what = format!("{what}; {hint}");
                }
                complaints.push(Complaint {
                    file: at.map_or(String::new(), |at| at.file.to_string()),
                    line: at.map_or(0, |at| at.line as usize),
                    column: at.map_or(0, |at| at.column as usize),
                    what: what.replace('\n', " "),
                });
            }
        }
    }
    complaints
}

/// Checks that no element of a resident function needs an operating system.
pub(super) fn check_resident(graph: &Graph, diagnostics: &mut Diagnostics) {
    for element in &graph.elements {
        // The function's ControlSocket gets its connections from `control`.
        let is_own = element.name.starts_with(SOCKET) && element.class == "ControlSocket";
        if !is_own && needs_system(&element.class) {
            let what = format!("{} needs an operating system; {NO_FILES}", element.class);
            diagnostics.error(element.landmark.clone(), what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnostics(text: &str, ports: &[&str]) -> Vec<String> {
        let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
        let parameters = [("IN".to_string(), "a".to_string())];
        let devices = [("eth0".to_string(), "a".to_string()), ("0".to_string(), "b".to_string())];
        let configuration = Configuration {
            text,
            file: "f.click",
            parameters: &parameters,
            ports: &ports,
            devices: &devices,
            resident: text.contains("Socket"),
        };
        let line = |c: Complaint| format!("{}:{}:{}: {}", c.file, c.line, c.column, c.what);
        check(configuration).into_iter().map(line).collect()
    }

    #[test]
    fn configuration_errors_are_reported_at_their_position() {
        assert_eq!(diagnostics("FromPort($IN) -> ToPort(b);", &["a", "b"]), [] as [&str; 0]);
        let unknown = diagnostics("FromPort(a) -> Nonsense(1)\n -> ToPort(b);", &["a", "b"]);
        assert!(unknown[0].starts_with("f.click:1:16: ") && unknown[0].contains("Nonsense"), "{unknown:?}");
        let syntax = diagnostics("FromPort(a) -> \n -> ToPort(b);", &["a", "b"]);
        assert!(syntax[0].starts_with("f.click:2:"), "{syntax:?}");
        let argument = diagnostics("FromPort(a)\n -> c :: Queue(x) -> ToPort(b);", &["a", "b"]);
        assert!(argument[0].starts_with("f.click:2:5: While configuring 'c :: Queue': "), "{argument:?}");
    }

    #[test]
    fn a_resident_function_uses_no_operating_system() {
        let text =
            "FromPort($IN) -> ToPort(b);\nc :: ControlSocket(TCP, 7);\nSocket(UDP, 1.2.3.4, 5) -> Discard;";
        let wrong = diagnostics(text, &["a", "b"]);
        assert!(
            wrong[0]
                .starts_with("f.click:2:1: ControlSocket needs an operating system; no function opens files"),
            "{wrong:?}"
        );
        assert!(
            wrong[1].starts_with("f.click:3:1: Socket needs an operating system; no function opens files"),
            "{wrong:?}"
        );
        assert_eq!(wrong.len(), 2, "{wrong:?}");
    }

    #[test]
    fn devices_stand_for_ports() {
        let ports = ["a", "b"];
        let good = "FromDevice(eth0, PROMISC true) -> ToDPDKDevice(0, BLOCKING true);
            FromNetfront() -> q :: Queue -> ToDevice(DEVNAME eth0, BURST 8);";
        assert_eq!(diagnostics(good, &ports), [] as [&str; 0]);
        let unknown = diagnostics("FromDevice(eth7) -> ToPort(b);\nFromPort(a) -> Discard;", &ports);
        assert!(unknown[0].contains("no port stands for device 'eth7'; eth0, 0 are mapped"), "{unknown:?}");
        let twice = diagnostics("FromDevice(eth0) -> Discard;\nFromPort(a) -> ToPort(b);", &ports);
        assert_eq!(twice[0], "f.click:2:1: port 'a' has another FromPort already");
    }

    #[test]
    fn each_port_is_used_once_a_direction() {
        let twice = diagnostics("FromPort(a) -> ToPort(a);\nFromPort(a) -> Discard;", &["a", "c"]);
        assert_eq!(twice[0], "f.click:2:1: port 'a' has another FromPort already");
        assert_eq!(twice[1], "f.click:1:1: no FromPort or ToPort of port 'c'");
        let foreign = diagnostics("FromPort(a) -> ToPort(z);", &["a"]);
        assert!(foreign[0].contains("this function has no port 'z'; it has a"), "{foreign:?}");
    }
}
