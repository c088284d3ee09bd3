//! Rules of switches with flow tables: they are read from their files, checked, and brought into one form, so that
//! those of two descriptions can be compared.

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

/// Whether rules of a switch are the same flows, groups and meters in two descriptions, of which the second one is
/// `fabric`'s. Ports have the numbers that they have where one of them runs.
pub fn have_same_rules(one: &Switch, (other, fabric): (&Switch, &Fabric)) -> bool {
    let (Some(one), Some(own)) = (settings(one), settings(other)) else {
        return one.lookup.name() == other.lookup.name();
    };
    if one.rules == own.rules {
        return true;
    }
    let mut ports = if one.ports.is_empty() { own.ports } else { one.ports };
    ports.assign(ports_of(fabric, &other.name));
    match (Rules::read(&one.rules, &ports), Rules::read(&own.rules, &ports)) {
        (Ok(one), Ok(other)) => one.difference(&other).is_empty(),
        _ => false,
    }
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
    let Some(Settings { rules, .. }) = settings(switch) else { return false };
    let all = || ports_of(fabric, &switch.name);
    Rules::read(&rules, &numbered(all())).is_ok()
        && Rules::read(&rules, &numbered(all().filter(|name| *name != port))).is_err()
}

/// Ports with numbers that no one writes, so that numbers in rules stay numbers.
fn numbered<'n>(names: impl Iterator<Item = &'n str>) -> PortNumbers {
    let numbers = (1..=PortNumbers::LAST).rev();
    PortNumbers(names.zip(numbers).map(|(name, number)| (name.into(), number)).collect())
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
        let ports = numbered(ports_of(fabric, &name));
        match canonical(&settings.rules, &ports.names()) {
            Ok(rules) => {
                warn_of_numbers(&rules, ports_of(fabric, &name), (&key, diagnostics));
                settings.rules = rules;
            }
            Err(wrong) => {
                let place = place(wrong, &settings.rules, &ports);
                let file = path.zip(outside).map(|(path, outside)| outside.folder.join(path));
                report(place, (&settings.rules, text), file.as_deref(), (&key, diagnostics));
            }
        }
        fabric.switches[at].lookup = Kind::new(LOOKUP.name, &settings);
    }
}

/// Warns of rules that are wrong with the numbers that ports get when the fabric comes up: a flow may be there by name
/// and by number. Where the switch runs, its ports may have other numbers.
fn warn_of_numbers<'n>(
    rules: &str,
    names: impl Iterator<Item = &'n str>,
    (key, diagnostics): (&str, &Diagnostics),
) {
    let is_number = |(at, word): (usize, &str)| {
        rules[at + word.len()..].starts_with(|first: char| first.is_ascii_digit())
    };
    if !rules.match_indices("in_port=").any(is_number) {
        return;
    }
    let mut ports = PortNumbers::default();
    ports.assign(names);
    if let Err(what) = check_rules(rules, &ports) {
        let (_, what) = what.split_once(": ").unwrap_or(("", &what));
        let what = format!("{key}: with the numbers that ports get when the fabric comes up: {what}");
        diagnostics.warn(&diagnostics.of(key), what);
    }
}

/// Where rules are wrong, and what is wrong there: a line and a column.
fn place(wrong: RulesError, rules: &str, ports: &PortNumbers) -> (usize, usize, String) {
    match wrong {
        RulesError::Line(FileError { line, error }) => (line, error.column, error.what),
        RulesError::Tables(error) => (Rules::line_of(rules, &error, ports), 1, error.to_string()),
    }
}

/// Checks rules with the numbers that ports will have.
///
/// # Errors
/// They are wrong, with the line.
pub fn check_rules(rules: &str, ports: &PortNumbers) -> Result<(), String> {
    let shown = |(line, column, what)| format!("line {line}, column {column}: {what}");
    canonical(rules, &ports.names()).map(drop).map_err(|wrong| shown(place(wrong, rules, ports)))
}

/// Reports what is wrong in rules, where it is: in their file, or in the string at `key`.
fn report(
    (line, column, what): (usize, usize, String),
    (rules, text): (&str, &str),
    file: Option<&Path>,
    (key, diagnostics): (&str, &Diagnostics),
) {
    let at = diagnostics.of(key);
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
        Host { cores: vec![0], ..Host::default() }
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
    fn rules_are_the_same_whatever_they_are_written_by() {
        let fabric = |rules: &str, ports: &str| {
            read_file("f", &format!("[switch.s]\nlookup='flow'\nrules='''{rules}'''\n{ports}"), &host())
                .unwrap()
        };
        // What runs has other numbers: a port between is gone.
        let numbers = [("a", 1), ("gone", 2), ("b", 3)].map(|(name, number)| (name.to_string(), number));
        let running = |rules: &str| {
            let ports = PortNumbers(numbers.iter().cloned().collect());
            let lookup = Kind::new(LOOKUP.name, &Settings { rules: rules.into(), file: None, ports });
            Switch { lookup, ..fabric("arp,actions=drop", PORTS).switches[0].clone() }
        };
        let own = running("in_port=a actions=output:b\nin_port=b actions=drop\nin_port=2 actions=drop\n");
        let same = |rules: &str, ports: &str| {
            let file = fabric(rules, ports);
            let other = &file.switches[0];
            let back = Fabric { switches: vec![own.clone()], ..fabric("arp,actions=drop", PORTS) };
            assert_eq!(
                have_same_rules(&own, (other, &file)),
                have_same_rules(other, (&own, &back)),
                "in both directions"
            );
            have_same_rules(&own, (other, &file))
        };
        assert!(same("in_port=b,actions=drop\nin_port=2,actions=drop\nin_port=a,actions=3", PORTS));
        assert!(same("in_port=3,actions=drop\nin_port=2,actions=drop\nin_port=1,actions=output:b", PORTS));
        assert!(!same("in_port=b,actions=drop\nin_port=2,actions=drop\nin_port=a,actions=2", PORTS));
        assert!(!same("in_port=b,actions=drop\nin_port=2,actions=drop", PORTS));
        let more = PORTS.to_string() + "[port.gone]\nkind='null'\nswitch='s'\n";
        let file =
            fabric("in_port=b,actions=drop\nin_port=gone,actions=drop\nin_port=a,actions=output:b", &more);
        assert!(have_same_rules(&own, (&file.switches[0], &file)), "it comes again with its number");
    }

    #[test]
    fn a_flow_by_name_and_by_number_is_one() {
        let twice = "rules='''\nin_port=a,actions=drop\nin_port=1,actions=output:b\n'''";
        let fabric =
            read_file("f", &format!("[switch.s]\nlookup='flow'\n{twice}\n{PORTS}"), &host()).unwrap();
        let warnings = fabric.warnings.join("\n");
        assert!(warnings.contains("a line above is the same flow"), "{warnings}");
        let mut ports = PortNumbers::default();
        ports.assign(["a", "b"].into_iter());
        let refused = check_rules("in_port=a,actions=drop\nin_port=1,actions=output:b", &ports).unwrap_err();
        assert!(refused.starts_with("line 2, column 1: a line above"), "{refused}");
        ports.0.insert("a".into(), 7);
        assert_eq!(check_rules("in_port=a,actions=drop\nin_port=1,actions=output:b", &ports), Ok(()));
    }

    #[test]
    fn a_wrong_group_or_meter_has_its_line() {
        let rules = "rules='''\narp,actions=drop\nip,actions=group:4\n'''";
        let message = wrong(&format!("[switch.s]\nlookup='flow'\n{rules}\n{PORTS}"));
        assert!(message.starts_with("f:5:1: ") && message.contains("no group 4"), "{message}");
        let ports = PortNumbers::default();
        assert_eq!(
            check_rules("\nactions=meter:3", &ports).unwrap_err(),
            "line 2, column 1: there is no meter 3"
        );
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
