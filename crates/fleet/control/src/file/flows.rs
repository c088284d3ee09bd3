//! Rules of switches with flow tables: they are read from their files, checked, and brought into one form, so that those
//! of two descriptions can be compared.

use super::function::within;
use super::{Complaint, Fabric, Outside};
use ringway_flow::{FileError, Ports, Rules, Tables, TablesError};
use ringway_spec::file::Diagnostics;
use ringway_spec::{Kind, Port, Switch, To};
use ringway_switch::PortNumbers;
use ringway_switch::flows::{LOOKUP, Settings};
use std::io::ErrorKind;
use std::path::Path;

/// The settings of a switch's flow tables, if it has some.
pub fn settings(switch: &Switch) -> Option<Settings> {
    (switch.lookup.name() == LOOKUP.name).then(|| switch.lookup.settings().unwrap_or_default())
}

/// Whether two switches differ in the rules of their flow tables, or in the numbers of ports, at most.
pub fn differ_in_rules_only(one: &Switch, other: &Switch) -> bool {
    let have_tables = [one, other].iter().all(|switch| switch.lookup.name() == LOOKUP.name);
    one == other || have_tables && Switch { lookup: one.lookup.clone(), ..other.clone() } == *one
}

/// The names of a switch's ports.
pub fn ports_of<'f>(fabric: &'f Fabric, switch: &'f str) -> impl Iterator<Item = &'f str> {
    let is_on = move |port: &&Port| matches!(&port.to, Some(To::Switch(own)) if own == switch);
    fabric.ports.iter().filter(is_on).map(|port| &*port.name)
}

/// Why rules are wrong.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// A line is.
    #[error(transparent)]
    Line(#[from] FileError),
    /// They contradict each other, or are too many.
    #[error(transparent)]
    Tables(#[from] TablesError),
}

/// Rules as a fabric's description has them: checked, in the order of tables, priorities and matches.
///
/// # Errors
/// They are wrong.
pub fn canonical(text: &str, ports: &dyn Ports) -> Result<String, RulesError> {
    let mut tables = Tables::new(0);
    tables.replace(&Rules::read(text, ports)?, 0)?;
    Ok(tables.rules().show(ports))
}

/// Whether rules of a switch name a port of it: they can't be read without.
pub fn name_port(switch: &Switch, port: &str, fabric: &Fabric) -> bool {
    let all_but = |but: &str| {
        let names = ports_of(fabric, &switch.name).filter(|name| *name != but);
        PortNumbers(names.zip((1..=PortNumbers::LAST).rev()).map(|(name, n)| (name.into(), n)).collect())
    };
    let Some(Settings { rules, .. }) = settings(switch) else { return false };
    Rules::read(&rules, &all_but("")).is_ok() && Rules::read(&rules, &all_but(port)).is_err()
}

/// Reads and checks the rules of the switches that are described in `text`: from the one of this number on. Without
/// `outside`, files of rules are not read.
pub fn read(
    fabric: &mut Fabric,
    first: usize,
    (text, outside): (&str, Option<&Outside<'_>>),
    diagnostics: &Diagnostics,
) {
    for at in first..fabric.switches.len() {
        let name = fabric.switches[at].name.clone();
        let Some(mut settings) = settings(&fabric.switches[at]) else { continue };
        let key = if settings.file.is_some() { "flows" } else { "rules" };
        let key = format!("switch.{name}.{key}");
        let path = settings.file.as_ref().map(Path::new);
        if let Some(path) = path {
            let Some(outside) = outside else { continue };
            match (outside.read)(&outside.folder.join(path)) {
                Ok(bytes) => settings.rules = String::from_utf8_lossy(&bytes).into_owned(),
                Err(error) => {
                    let what = format!("{}: {error}", path.display());
                    let fix = match error.kind() {
                        ErrorKind::NotFound => "it is relative to the folder of this file",
                        _ => "name a file of flows, groups and meters, one a line",
                    };
                    diagnostics.error(&diagnostics.of(&key), what, fix);
                    continue;
                }
            }
        }
        // Numbers that no one writes, so that numbers in the text stay numbers.
        let names = ports_of(fabric, &name).zip((1..=PortNumbers::LAST).rev());
        let ports = PortNumbers(names.map(|(name, number)| (name.into(), number)).collect());
        match canonical(&settings.rules, &ports.names()) {
            Ok(rules) => settings.rules = rules,
            Err(wrong) => {
                let file = path.zip(outside).map(|(path, outside)| outside.folder.join(path));
                report(&wrong, (&settings.rules, text), file.as_deref(), (&key, diagnostics));
            }
        }
        fabric.switches[at].lookup = Kind::new(LOOKUP.name, &settings);
    }
}

/// Reports what is wrong in rules, where it is: in their file, or in the string at `key`.
fn report(
    wrong: &RulesError,
    (rules, text): (&str, &str),
    file: Option<&Path>,
    (key, diagnostics): (&str, &Diagnostics),
) {
    let at = diagnostics.of(key);
    let (line, column, what) = match wrong {
        RulesError::Line(FileError { line, error }) => (*line, error.column, error.what.clone()),
        RulesError::Tables(error) => (1, 1, error.to_string()),
    };
    if let Some(file) = file {
        return diagnostics.error_in((file.display().to_string(), line, column), &at, what);
    }
    let complaint = Complaint { file: String::new(), line, column, what };
    match within(text, &at, rules, &complaint) {
        Some(place) => diagnostics.error(&(place..place), complaint.what, ""),
        // The string has escapes, so that its positions are not those of the file.
        None => diagnostics.error(&at, format!("line {line}, column {column}: {}", complaint.what), ""),
    }
}

/// Reports ports that restrict their frames, and snooping, on switches with flow tables, which decide instead.
pub fn check(fabric: &Fabric, diagnostics: &Diagnostics) {
    let fix = "write it as flows, or use another lookup";
    for switch in fabric.switches.iter().filter(|switch| switch.lookup.name() == LOOKUP.name) {
        let name = &switch.name;
        if switch.snooping.is_some() {
            let what = format!("switch {name} has flow tables, which do not snoop");
            diagnostics.error(&diagnostics.of(&format!("switch.{name}.multicast-snooping")), what, fix);
        }
        for port in ports_of(fabric, name).filter_map(|port| fabric.port(port)) {
            let keys = super::policy::restrictions(&port.policy);
            if let Some(key) = keys.first() {
                let at = diagnostics.of(&format!("port.{}.{key}", port.name));
                let what = format!("port {} has `{key}`, and flow tables of switch {name} decide", port.name);
                diagnostics.error(&at, what, fix);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Host, read as read_file};

    fn host() -> Host {
        Host { cores: vec![0], base: None, run: None, find: None, kinds: &[] }
    }

    fn wrong(text: &str) -> String {
        read_file("f", text, &host()).unwrap_err().to_string()
    }

    const PORTS: &str = "[port.a]\nkind='null'\nswitch='s'\n[port.b]\nkind='null'\nswitch='s'\n";

    #[test]
    fn rules_are_brought_into_one_form() {
        let rules = |text: &str| {
            let fabric =
                read_file("f", &format!("[switch.s]\nlookup='flow'\nrules='''{text}'''\n{PORTS}"), &host());
            settings(&fabric.unwrap().switches[0]).unwrap().rules
        };
        let one = rules("# comment\npriority=1,actions=b\n in_port=a , actions=output:2\n");
        assert_eq!(one, rules("in_port=a,actions=2\npriority=1,actions=output:b"));
        assert_eq!(
            one,
            "cookie=0x0,table=0,in_port=a actions=output:2\ncookie=0x0,table=0,priority=1 actions=output:b\n"
        );
        assert_eq!(rules("# nothing"), "");
    }

    #[test]
    fn a_port_that_flows_name_can_t_be_removed() {
        let text = format!("[switch.s]\nlookup='flow'\nrules='in_port=b,actions=drop'\n{PORTS}");
        let fabric = read_file("f", &text, &host()).unwrap();
        assert!(crate::file::without_port("a", &fabric).is_ok());
        let refused = crate::file::without_port("b", &fabric).unwrap_err().to_string();
        assert!(refused.starts_with("flows of switch s name port b"), "{refused}");
    }

    #[test]
    fn errors_have_their_place_in_the_file() {
        let text = format!(
            "[switch.s]\nlookup='flow'\nrules='''\nip,actions=drop\nip,foo=1,actions=drop\n'''\n{PORTS}"
        );
        let message = wrong(&text);
        assert!(message.starts_with("f:5:4: "), "{message}");
        assert!(wrong(&text.replace("foo=1", "in_port=c")).contains("f:5:12: "));
        let twice = format!("[switch.s]\nlookup='flow'\nrules='actions=drop'\nflows='x'\n{PORTS}");
        assert!(wrong(&twice).contains("keep one"));
        let tagged = format!("[switch.s]\nlookup='flow'\n{PORTS}tag=5\n");
        assert!(wrong(&tagged).contains("port b has `tag`, and flow tables of switch s decide"));
        let snoops = format!("[switch.s]\nlookup='flow'\nmulticast-snooping=true\n{PORTS}");
        assert!(wrong(&snoops).contains("do not snoop"));
        let other = format!("[switch.s]\nrules='actions=drop'\n{PORTS}");
        assert!(wrong(&other).contains("only lookup = \"flow\" has it"));
    }
}
