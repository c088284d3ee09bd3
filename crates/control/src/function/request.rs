//! Functions requested at run time.
//!
//! The client is trusted, as the fabric file is; the configuration is not. It is therefore only checked in the
//! function's own process, which is confined: a configuration may name files, and elements may take memory and time
//! when they are configured.

use crate::api::NewFunction;
use crate::file::{BURSTS, Fabric, Host, MEMORY, memory_range};
use ringway_spec::file::{either, units};
use ringway_spec::{Configuration, Function, Isolation, names};

/// Functions that a fabric may have when one more is requested. Attack: requests without end.
pub const MOST: usize = 4096;

/// Errors of the name and the ports of a function that would be added.
pub fn check_new(name: &str, ports: &[String], fabric: &Fabric) -> Vec<String> {
    let mut wrong = Vec::new();
    check_count(fabric, &mut wrong);
    check_name(name, fabric, &mut wrong);
    check_ports(ports, fabric, &mut wrong);
    wrong
}

fn check_count(fabric: &Fabric, wrong: &mut Vec<String>) {
    let count = fabric.functions.len();
    if count >= MOST {
        wrong.push(format!(
            "there are {count} functions, of {MOST} at most; remove one with `ringway function destroy NAME`"
        ));
    }
}

fn check_name(name: &str, fabric: &Fabric, wrong: &mut Vec<String>) {
    if let Err((what, fix)) = names::name(name) {
        wrong.push(format!("{what}; {fix}"));
    } else if fabric.function(name).is_some() || fabric.guest(name).is_some() {
        wrong.push(format!("there is a function or guest {name} already"));
    }
}

/// The function, if it can be added to `fabric`.
///
/// # Errors
/// All errors except those of the configuration.
pub fn check(new: NewFunction, fabric: &Fabric, host: &Host) -> Result<Function, Vec<String>> {
    let NewFunction { name, configuration, isolation, ports, devices, parameters, memory, core, burst } = new;
    let isolation = isolation.unwrap_or(Isolation::default().name().into());
    let known = Isolation::ALL.iter().find(|(name, _)| *name == isolation);
    let function = Function {
        name,
        configuration: Configuration { file: None, text: configuration },
        program: None,
        isolation: known.map(|(_, isolation)| *isolation).unwrap_or_default(),
        fallback: false,
        snapshots: true,
        parameters: parameters.into_iter().collect(),
        ports,
        chained: false,
        devices: devices.into_iter().collect(),
        memory: memory.unwrap_or(MEMORY),
        core,
        burst: burst.unwrap_or(*BURSTS.end() as u32),
        start: true,
        first_frame: false,
        idle: 0,
        instance: None,
    };
    let mut wrong = check_function(&function, fabric, host);
    if known.is_none() {
        let list = either(Isolation::ALL.iter().map(|(name, _)| *name));
        wrong.push(format!("there is no isolation \"{}\"; use {list}", isolation.escape_debug()));
    }
    if function.configuration.text.trim().is_empty() {
        wrong.push("the configuration is empty; write one in Click's language".into());
    }
    if wrong.is_empty() { Ok(function) } else { Err(wrong) }
}

/// All errors of a function that would be added at run time, except those of its configuration: one that is created,
/// and one that arrives from another fabric.
pub fn check_function(function: &Function, fabric: &Fabric, host: &Host) -> Vec<String> {
    let mut wrong = check_new(&function.name, &function.ports, fabric);
    let ports = &function.ports;
    for (device, _) in function.devices.iter().filter(|(_, port)| !ports.contains(port)) {
        let list = either(ports.iter().map(|port| &**port));
        wrong.push(format!("device {} is none of the function's ports; use {list}", device.escape_debug()));
    }
    for (what, fix) in function.parameters.iter().filter_map(|(name, _)| names::parameter(name).err()) {
        wrong.push(format!("{what}; {fix}"));
    }
    let (memory, burst) = (function.memory, u64::from(function.burst));
    let range = memory_range(function.isolation);
    if !range.contains(&memory) {
        let [memory, least, most] = [memory, *range.start(), *range.end()].map(units::show_size);
        wrong.push(format!("the memory is {memory}; use a value from {least} to {most}"));
    }
    if !BURSTS.contains(&burst) {
        wrong.push(format!("a burst of {burst}; use a value from {} to {}", BURSTS.start(), BURSTS.end()));
    }
    if let Some(core) = function.core.filter(|core| !host.cores.contains(core)) {
        wrong.push(format!("there is no core {core} that we may run on; leave it out"));
    }
    if function.core.is_some() && function.isolation == Isolation::Worker {
        wrong.push("a function with isolation \"worker\" has its worker's core; leave the core out".into());
    }
    wrong
}

/// Checks that each port is a ring that nothing else of the fabric uses.
fn check_ports(ports: &[String], fabric: &Fabric, wrong: &mut Vec<String>) {
    let most = usize::from(u8::MAX);
    if ports.is_empty() || ports.len() > most {
        wrong.push(format!("a function has 1 to {most} ports, not {}", ports.len()));
    }
    for (index, port) in ports.iter().take(most).enumerate() {
        let shown = port.escape_debug();
        let guest = fabric.guests.iter().find(|guest| guest.ports.contains(port));
        let function = fabric.functions.iter().find(|function| function.fabric_ports().contains(port));
        let owner = guest.map(|guest| &guest.name).or(function.map(|function| &function.name));
        match fabric.port(port) {
            None => wrong.push(format!("there is no port \"{shown}\"; see `ringway ps`")),
            Some(found) if found.kind.name() != "ring" => {
                wrong.push(format!("port {shown} is of kind {}; use a port of kind ring", found.kind.name()));
            }
            Some(_) if ports[..index].contains(port) => wrong.push(format!("port {shown} is named twice")),
            Some(_) => wrong.extend(owner.map(|owner| format!("port {shown} is {owner}'s already"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::read;

    const FABRIC: &str = "[switch.s]\n[port.a]\nkind='ring'\nsocket='a'\nswitch='s'\n\
        [port.b]\nkind='ring'\nsocket='b'\nswitch='s'\n[port.n]\nkind='null'\nswitch='s'\n\
        [function.own]\nclick='Idle;'\nport='b'\n";

    fn messages(change: impl FnOnce(&mut NewFunction)) -> String {
        let host = Host { cores: vec![0], base: None, run: None, find: None, kinds: &[] };
        let fabric = read("f", FABRIC, &host).unwrap();
        let (name, configuration, ports) = ("new".into(), "Idle;".into(), vec!["a".into()]);
        let mut new = NewFunction { name, configuration, ports, ..NewFunction::default() };
        change(&mut new);
        check(new, &fabric, &host).map_or_else(|wrong| wrong.join("\n"), |function| function.name)
    }

    #[test]
    fn a_request_may_only_use_free_ring_ports() {
        assert_eq!(messages(|_| ()), "new");
        let ports = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(messages(|new| new.ports = ports(&["a", "b"])), "port b is own's already");
        assert_eq!(messages(|new| new.ports = ports(&["a", "a"])), "port a is named twice");
        assert_eq!(messages(|new| new.ports = ports(&["x"])), "there is no port \"x\"; see `ringway ps`");
        assert_eq!(
            messages(|new| new.ports = ports(&["n"])),
            "port n is of kind null; use a port of kind ring"
        );
        assert_eq!(messages(|new| new.ports = ports(&[])), "a function has 1 to 255 ports, not 0");
    }

    #[test]
    fn a_fabric_has_so_many_functions_at_most() {
        let host = Host { cores: vec![0], base: None, run: None, find: None, kinds: &[] };
        let mut fabric = read("f", FABRIC, &host).unwrap();
        let own = fabric.functions[0].clone();
        fabric.functions = vec![own; MOST - 1];
        assert_eq!(check_new("new", &["a".into()], &fabric), [""; 0]);
        fabric.functions.push(fabric.functions[0].clone());
        let wrong = check_new("new", &["a".into()], &fabric);
        assert!(wrong.len() == 1 && wrong[0].starts_with("there are 4096 functions"), "{wrong:?}");
    }

    #[test]
    fn every_value_of_a_request_is_checked() {
        assert!(
            messages(|new| new.name = "../x".into()).starts_with("\"../x\" can't be a name; use letters")
        );
        assert_eq!(messages(|new| new.name = "own".into()), "there is a function or guest own already");
        let all = messages(|new| {
            new.memory = Some(1);
            new.burst = Some(65);
            new.core = Some(9);
            new.isolation = Some("none".into());
            new.parameters.insert("a b".into(), String::new());
            new.devices.insert("eth0".into(), "b".into());
        });
        assert_eq!(all.lines().count(), 6, "{all}");
        for (memory, burst) in [(0, 64), (1 << 60, 64), (64 << 20, 0)] {
            let wrong = messages(|new| (new.memory, new.burst) = (Some(memory), Some(burst)));
            assert!(wrong.contains("; use a value from "), "{memory} {burst}: {wrong}");
        }
        let memory = |isolation: &str, memory| {
            messages(|new| (new.isolation, new.memory) = (Some(isolation.into()), Some(memory)))
        };
        assert_eq!(memory("vm", 16 << 20), "the memory is 16MB; use a value from 32MB to 2000MB");
        assert_eq!(memory("vm", 4 << 30), "the memory is 4GB; use a value from 32MB to 2000MB");
        assert_eq!(memory("process", 1 << 20), "the memory is 1MB; use a value from 32MB to 1024GB");
        assert!(messages(|new| new.configuration = " \n".into()).starts_with("the configuration is empty"));
    }
}
