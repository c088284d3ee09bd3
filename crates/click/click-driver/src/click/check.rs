//! Checking a function's configuration without running it.
use super::builder::{Builder, Reader, SOCKET};
use super::confined::Confined;
use super::host::Libraries;
use super::resident::{needs_system, resident_registry};
use super::{Machine, function_registry, own_classes};
use crate::elements::opens;
use crate::file::NO_FILES;
use crate::inherited::{self, Inherited};
use ringway_click::{Class, Clock, Console, PACKETS, Router};
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
    check_as(configuration, false)
}

/// [`check`] for a virtual machine, whose image has the project's elements only.
pub fn check_for_image(configuration: Configuration<'_>) -> Vec<Complaint> {
    check_as(configuration, true)
}

fn check_as(configuration: Configuration<'_>, in_image: bool) -> Vec<Complaint> {
    let Configuration { text, file, parameters, ports, devices, resident } = configuration;
    let builder = Builder {
        reader: Reader {
            registry: if resident { resident_registry() } else { function_registry() },
            variables: parameters.to_vec(),
            libraries: Libraries::None,
            sockets: Vec::new(),
        },
        uses: None,
        burst: PACKETS,
        console: Box::new(|| Box::new(Confined) as Box<dyn Console>),
        resident: None,
    };
    let (graph, mut diagnostics) = builder.reader.read(text, file);
    let Some(graph) = graph else { return complaints(&diagnostics) };
    let uses = Uses { ports: ports.to_vec(), devices: devices.to_vec() };
    uses.check(&graph, file, &mut diagnostics);
    check_system(&graph, resident, &mut diagnostics);
    if in_image {
        check_image(&graph, own_classes().classes, &mut diagnostics);
    }
    let mut complaints = complaints(&diagnostics);
    let known = inherited::set(Some(Inherited {
        ports: ports.to_vec(),
        devices: devices.to_vec(),
        ..Inherited::default()
    }));
    let options = builder.options(Clock::Real(Box::new(Machine::default())), String::new());
    complaints.extend(self::complaints(&Router::check(graph, &builder.reader.registry, options)));
    inherited::set(known);
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

/// Checks that no element of a function opens sockets or devices, and that none of a resident function needs an
/// operating system. Elements check their files themselves.
pub(super) fn check_system(graph: &Graph, resident: bool, diagnostics: &mut Diagnostics) {
    for element in &graph.elements {
        // The function's ControlSocket gets its connections from `control`.
        let is_own = element.name.starts_with(SOCKET) && element.class == "ControlSocket";
        let class = &element.class;
        let what = if resident && needs_system(class) {
            "needs an operating system"
        } else if !resident && opens(class) {
            "opens sockets or devices"
        } else {
            continue;
        };
        if !is_own {
            diagnostics.error(element.landmark.clone(), format!("{class} {what}; {NO_FILES}"));
        }
    }
}

/// Reports elements of classes that this program has besides the project's.
fn check_image(graph: &Graph, own: &[&'static Class], diagnostics: &mut Diagnostics) {
    for element in &graph.elements {
        let class = &element.class;
        if own.iter().any(|own| own.name == &**class) {
            let what = format!("{class} is not in the image of VMs, which has Ringway's own elements only");
            diagnostics.error(
                element.landmark.clone(),
                format!("{what}; use isolation = \"process\" or \"worker\", or give the program an image"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnostics(text: &str, ports: &[&str]) -> Vec<String> {
        wrong_in(text, ports, false)
    }

    fn wrong_in(text: &str, ports: &[&str], resident: bool) -> Vec<String> {
        let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
        let parameters = [("IN".to_string(), "a".to_string())];
        let devices = [("eth0".to_string(), "a".to_string()), ("0".to_string(), "b".to_string())];
        let configuration = Configuration {
            text,
            file: "f.click",
            parameters: &parameters,
            ports: &ports,
            devices: &devices,
            resident,
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
    fn a_program_s_own_classes_are_not_in_the_project_s_image() {
        let registry = function_registry();
        let own: Vec<&'static Class> = registry.iter().filter(|class| class.name == "Discard").collect();
        let configuration =
            Configuration { text: "", file: "f", parameters: &[], ports: &[], devices: &[], resident: true };
        assert_eq!(check_for_image(configuration), []);
        let reader = Reader {
            registry: function_registry(),
            variables: Vec::new(),
            libraries: Libraries::None,
            sockets: Vec::new(),
        };
        let (graph, mut diagnostics) = reader.read("FromPort(a)\n -> d :: Discard;", "f");
        check_image(&graph.unwrap(), &own, &mut diagnostics);
        let wrong = complaints(&diagnostics);
        assert_eq!((wrong[0].line, wrong.len()), (2, 1));
        assert!(wrong[0].what.starts_with("Discard is not in the image of VMs"), "{wrong:?}");
    }

    #[test]
    fn a_resident_function_uses_no_operating_system() {
        let text =
            "FromPort($IN) -> ToPort(b);\nc :: ControlSocket(TCP, 7);\nSocket(UDP, 1.2.3.4, 5) -> Discard;";
        let wrong = wrong_in(text, &["a", "b"], true);
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

    /// Every element that opens something, in the process of a function.
    #[test]
    fn a_function_opens_no_files_sockets_or_devices() {
        for element in [
            "ToDump(/tmp/x)",
            "ToIPSummaryDump(/tmp/x)",
            "IPPrint(OUTFILE /tmp/x) -> Discard",
            "ARPPrint(OUTFILE /tmp/x) -> Discard",
            "AggregateIPFlows(TRACEINFO /tmp/x) -> Discard",
            "IPFilter(file /tmp/x) -> Discard",
        ] {
            let text = format!("FromPort(a) -> ToPort(b);\nInfiniteSource -> c :: Counter\n  -> {element};");
            let wrong = diagnostics(&text, &["a", "b"]);
            assert!(wrong[0].starts_with("f.click:3:6: While configuring '"), "{wrong:?}");
            assert!(wrong[0].ends_with(&format!("/tmp/x: {NO_FILES}")) && wrong.len() == 1, "{wrong:?}");
        }
        for class in ["FromDump", "FromIPSummaryDump"] {
            let text = format!("FromPort(a) -> ToPort(b);\n{class}(/etc/passwd) -> Discard;");
            let wrong = diagnostics(&text, &["a", "b"]);
            let place = format!("f.click:2:1: While configuring '{class}@");
            assert!(wrong[0].starts_with(&place) && wrong[0].ends_with(NO_FILES), "{wrong:?}");
        }
        for (class, arguments) in [
            ("RawSocket", "UDP, 53"),
            ("McastSocket", "224.0.0.5, 7, 0.0.0.0"),
            ("ToHost", "tap0"),
            ("ToHostSniffers", "tap0"),
        ] {
            let text = format!("FromPort(a) -> ToPort(b);\nIdle -> {class}({arguments});");
            let wrong = diagnostics(&text, &["a", "b"]);
            let line = format!("f.click:2:9: {class} opens sockets or devices; {NO_FILES}");
            assert_eq!(wrong[0], line, "{wrong:?}");
        }
        for class in ["FromHost", "KernelTap", "KernelTun", "ChatterSocket", "ControlSocket"] {
            let text = format!("FromPort(a) -> ToPort(b);\n{class}(TCP, 7);");
            let wrong = diagnostics(&text, &["a", "b"]);
            let line = format!("f.click:2:1: {class} opens sockets or devices; {NO_FILES}");
            assert_eq!(wrong[0], line, "{wrong:?}");
        }
    }

    #[test]
    fn a_function_prints_and_reads_what_its_configuration_has() {
        let text = "FromPort(a) -> IPPrint(OUTFILE -) -> ToDump(-) -> ToIPSummaryDump(-) -> ToPort(b);
            FromIPSummaryDump(DATA \"1\", FIELDS ip_len) -> AggregateCounter -> Discard;";
        assert_eq!(diagnostics(text, &["a", "b"]), [] as [&str; 0]);
    }

    #[test]
    fn a_function_requires_no_library() {
        let path = std::env::temp_dir().join(format!("ringway-library-{}", std::process::id()));
        std::fs::write(&path, "root:secret;").unwrap();
        let text = format!("FromPort(a) -> ToPort(b);\nrequire(library \"{}\");", path.display());
        let wrong = diagnostics(&text, &["a", "b"]);
        std::fs::remove_file(&path).unwrap();
        assert!(wrong[0].starts_with("f.click:2:") && wrong[0].ends_with(NO_FILES), "{wrong:?}");
        assert!(!wrong[0].contains("secret"), "{wrong:?}");
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
