//! The changes that turn one fabric into another.

use crate::file::Fabric;
use crate::kinds::{self, PortControl};
use ringway_spec::{Function, Guest, Port, Switch, To};
use std::collections::HashSet;

/// One change to the running fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Stops a guest.
    RemoveGuest(String),
    /// Stops a function.
    RemoveFunction(String),
    /// Removes a port.
    RemovePort(String),
    /// Removes a switch.
    RemoveSwitch(String),
    /// Adds a switch.
    AddSwitch(Switch),
    /// Adds a port.
    AddPort(Port),
    /// Moves a port to another worker; its peer stays attached.
    MovePort(Port),
    /// Changes settings of a port that its peer need not know; the peer stays attached.
    SetPort(Port),
    /// Replaces a function's configuration.
    SwapFunction(Function),
    /// Adds a guest, and starts it if its `start` is set.
    AddGuest(Guest),
    /// Adds a function, and starts it if its `start` is set.
    AddFunction(Function),
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Change::RemoveGuest(name) => write!(f, "remove guest {name}"),
            Change::RemoveFunction(name) => write!(f, "remove function {name}"),
            Change::RemovePort(name) => write!(f, "remove port {name}"),
            Change::RemoveSwitch(name) => write!(f, "remove switch {name}"),
            Change::AddSwitch(switch) => write!(f, "add switch {}", switch.name),
            Change::AddPort(port) => write!(f, "add port {} ({})", port.name, port.kind.name()),
            Change::MovePort(port) => {
                write!(f, "move port {} to {}", port.name, port.worker.as_deref().unwrap_or("any worker"))
            }
            Change::SetPort(port) => write!(f, "change port {}", port.name),
            Change::SwapFunction(function) => write!(f, "change function {}", function.name),
            Change::AddGuest(guest) => write!(f, "add guest {}", guest.name),
            Change::AddFunction(function) => write!(f, "add function {}", function.name),
        }
    }
}

/// The first setting that differs in `to` and can't change while the fabric is up.
pub fn fixed(from: &Fabric, to: &Fabric) -> Option<&'static str> {
    if from.workers != to.workers {
        Some("its workers")
    } else if from.name != to.name {
        Some("its name")
    } else if from.run != to.run {
        Some("its run directory")
    } else if from.huge_pages != to.huge_pages {
        Some("its huge pages")
    } else {
        None
    }
}

/// The changes that turn one fabric into the other; equal parts are left alone. A port that differs only in
/// its worker is moved, and one that differs only in what its kind can change is changed. A port that differs
/// otherwise, or belongs to another guest, is removed and added again; so are all ports of a switch that
/// differs, and the guests and functions of such ports. A function that differs only in its configuration
/// keeps running, with the new one. `more`: kinds of port besides the project's.
pub fn between(from: &Fabric, to: &Fabric, more: &'static [&'static dyn PortControl]) -> Vec<Change> {
    let kept_switches: HashSet<&str> = from
        .switches
        .iter()
        .filter(|switch| to.switches.contains(switch))
        .map(|switch| &*switch.name)
        .collect();
    let keeps = |port: &&Port| {
        let on = match &port.to {
            Some(To::Switch(switch)) => kept_switches.contains(&**switch),
            Some(To::Patch(_)) | None => true,
        };
        on && to.ports.iter().any(|other| in_place(port, other, more).is_some())
            && user(from, &port.name) == user(to, &port.name)
    };
    let kept_ports: HashSet<&str> = from.ports.iter().filter(keeps).map(|port| &*port.name).collect();
    let kept_guests: HashSet<&str> = from
        .guests
        .iter()
        .filter(|guest| {
            guest.ports.iter().all(|port| kept_ports.contains(&**port)) && to.guests.contains(guest)
        })
        .map(|guest| &*guest.name)
        .collect();
    let has_ports = |function: &&Function| function.ports.iter().all(|port| kept_ports.contains(&**port));
    let stays = |function: &&Function| {
        let same = |other: &&Function| {
            let own = Function { configuration: other.configuration.clone(), ..(*function).clone() };
            own == **other
        };
        has_ports(function) && to.functions.iter().any(|other| same(&other))
    };
    let kept_functions: HashSet<&str> =
        from.functions.iter().filter(stays).map(|function| &*function.name).collect();
    let mut changes = Vec::new();
    let gone = |name: &String, kept: &HashSet<&str>| (!kept.contains(&**name)).then(|| name.clone());
    changes.extend(from.guests.iter().filter_map(|g| gone(&g.name, &kept_guests)).map(Change::RemoveGuest));
    for port in to.ports.iter().filter(|port| kept_ports.contains(&*port.name)) {
        changes.extend(from.port(&port.name).and_then(|own| in_place(own, port, more)).unwrap_or_default());
    }
    let functions = from.functions.iter().filter_map(|f| gone(&f.name, &kept_functions));
    changes.extend(functions.map(Change::RemoveFunction));
    changes.extend(from.ports.iter().filter_map(|p| gone(&p.name, &kept_ports)).map(Change::RemovePort));
    changes
        .extend(from.switches.iter().filter_map(|s| gone(&s.name, &kept_switches)).map(Change::RemoveSwitch));
    let new = |name: &str, kept: &HashSet<&str>| !kept.contains(name);
    changes
        .extend(to.switches.iter().filter(|s| new(&s.name, &kept_switches)).cloned().map(Change::AddSwitch));
    changes.extend(to.ports.iter().filter(|p| new(&p.name, &kept_ports)).cloned().map(Change::AddPort));
    let swapped = |f: &&Function| {
        kept_functions.contains(&*f.name) && from.function(&f.name).is_some_and(|own| own != *f)
    };
    changes.extend(to.functions.iter().filter(swapped).cloned().map(Change::SwapFunction));
    changes.extend(to.guests.iter().filter(|g| new(&g.name, &kept_guests)).cloned().map(Change::AddGuest));
    let functions = to.functions.iter().filter(|f| new(&f.name, &kept_functions));
    changes.extend(functions.cloned().map(Change::AddFunction));
    changes
}

/// The changes that turn a port into another while its peer stays; `None` if there are none.
fn in_place(from: &Port, to: &Port, more: &'static [&'static dyn PortControl]) -> Option<Vec<Change>> {
    let moved = Port { worker: to.worker.clone(), ..from.clone() };
    let mut changes = Vec::new();
    if moved != *from {
        changes.push(Change::MovePort(moved.clone()));
    }
    if moved != *to {
        kinds::find(from.kind.name(), more).filter(|kind| kind.changes(&moved, to))?;
        changes.push(Change::SetPort(to.clone()));
    }
    Some(changes)
}

/// The guest of a port, and the guest's configured user, who owns the port's socket.
fn user<'a>(fabric: &'a Fabric, port: &str) -> Option<(&'a str, Option<&'a str>)> {
    let guest = fabric.guests.iter().find(|guest| guest.ports.iter().any(|own| own == port))?;
    Some((&guest.name, guest.user.as_deref()))
}

/// Applies a change to the description of a fabric.
pub fn apply(fabric: &mut Fabric, change: &Change) {
    match change.clone() {
        Change::RemoveGuest(name) => fabric.guests.retain(|guest| guest.name != name),
        Change::RemovePort(name) => fabric.ports.retain(|port| port.name != name),
        Change::RemoveSwitch(name) => fabric.switches.retain(|switch| switch.name != name),
        Change::AddSwitch(switch) => fabric.switches.push(switch),
        Change::AddPort(port) => fabric.ports.push(port),
        Change::MovePort(port) | Change::SetPort(port) => {
            if let Some(own) = fabric.ports.iter_mut().find(|own| own.name == port.name) {
                *own = port;
            }
        }
        Change::AddGuest(guest) => fabric.guests.push(guest),
        Change::RemoveFunction(name) => fabric.functions.retain(|function| function.name != name),
        Change::AddFunction(function) => fabric.functions.push(function),
        Change::SwapFunction(function) => {
            if let Some(own) = fabric.functions.iter_mut().find(|own| own.name == function.name) {
                *own = function;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Host, read};

    fn fabric(text: &str) -> Fabric {
        read("f", text, &Host { cores: vec![0], base: None, run: None, find: None, kinds: &[] }).unwrap()
    }

    fn words(from: &str, to: &str) -> Vec<String> {
        let (mut from, to) = (fabric(from), fabric(to));
        let changes = between(&from, &to, &[]);
        changes.iter().for_each(|change| apply(&mut from, change));
        assert_eq!(between(&from, &to, &[]), [], "no further change is needed");
        changes.iter().map(ToString::to_string).collect()
    }

    const TWO: &str = "[switch.s]\n[port.a]\nkind='vhost-user'\nsocket='a'\nswitch='s'\n\
                       [port.b]\nkind='null'\nswitch='s'\n[guest.g]\nkind='uml'\nport='a'\n";

    #[test]
    fn equal_files_need_no_changes() {
        assert!(words(TWO, TWO).is_empty());
    }

    #[test]
    fn a_changed_port_restarts_only_its_guest() {
        let changed = TWO.replace("socket='a'", "socket='c'");
        let expected = ["remove guest g", "remove port a", "add port a (vhost-user)", "add guest g"];
        assert_eq!(words(TWO, &changed), expected);
    }

    #[test]
    fn a_port_assigned_to_another_worker_is_moved_and_keeps_its_guest() {
        let two = format!("{TWO}[worker.v]\n[worker.w]\n");
        let one = two.replace("[worker.w]", "[worker.w]\nports=['a']");
        assert_eq!(words(&two, &one), ["move port a to w"]);
        assert_eq!(words(&one, &two), ["move port a to any worker"]);
    }

    #[test]
    fn changed_techniques_keep_the_peer_and_its_guest() {
        let card = |techniques: &str| {
            format!(
                "[switch.s]\n[port.c]\nkind='e1000'\nsocket='c'\nmac='02:00:00:00:00:01'\nswitch='s'\n\
                     techniques={{{techniques}}}\n[worker.v]\n[worker.w]\n"
            )
        };
        assert_eq!(words(&card(""), &card("moderate='50us'")), ["change port c"]);
        assert_eq!(words(&card(""), &card("").replace("mac=", "carrier=false\nmac=")), ["change port c"]);
        assert_eq!(words(TWO, &TWO.replace("socket='a'", "socket='a'\ncarrier=false")), ["change port a"]);
        let moved = card("csb=true").replace("[worker.w]", "[worker.w]\nports=['c']");
        assert_eq!(words(&card(""), &moved), ["move port c to w", "change port c"]);
        let other = card("csb=true").replace("socket='c'", "socket='d'");
        assert_eq!(words(&card(""), &other), ["remove port c", "add port c (e1000)"]);
    }

    #[test]
    fn a_changed_link_keeps_its_frames() {
        let link = |keys: &str| {
            format!(
                "[port.a]\nkind='null'\n[port.b]\nkind='null'\n[link.wan]\nports=['a','b']\n{keys}\n\
                 [worker.v]\n[worker.w]\n"
            )
        };
        let (one, other) = (link("delay='50ms'"), link("delay='50ms'\n[link.wan.from.b]\nloss='1%'"));
        assert_eq!(words(&one, &other), ["change port wan/b"]);
        assert_eq!(words(&one, &link("delay='60ms'")), ["change port wan/a", "change port wan/b"]);
        let moved = one.replace("[worker.w]", "[worker.w]\nports=['wan/a']");
        assert_eq!(words(&one, &moved), ["move port wan/a to w"]);
    }

    #[test]
    fn a_port_assigned_to_another_guest_is_recreated() {
        let renamed = words(TWO, &TWO.replace("[guest.g]", "[guest.h]"));
        assert_eq!(renamed, ["remove guest g", "remove port a", "add port a (vhost-user)", "add guest h"]);
        let user = words(TWO, &format!("{TWO}user='someone'\n"));
        assert_eq!(user, ["remove guest g", "remove port a", "add port a (vhost-user)", "add guest g"]);
    }

    #[test]
    fn a_function_whose_configuration_changes_is_not_restarted() {
        let one = "[switch.s]\n[port.r]\nkind='ring'\nsocket='r'\nswitch='s'\n\
                   [function.f]\nport='r'\nclick='FromPort(r) -> ToPort(r);'\n";
        assert_eq!(words(one, &one.replace("->", "-> Null ->")), ["change function f"]);
        assert_eq!(words(one, &format!("{one}memory='64MB'\n")), ["remove function f", "add function f"]);
        let moved = ["remove function f", "remove port r", "add port r (ring)", "add function f"];
        assert_eq!(words(one, &one.replace("socket='r'", "socket='q'")), moved);
    }

    #[test]
    fn a_changed_switch_recreates_its_ports() {
        let changed = TWO.replace("[switch.s]", "[switch.s]\nageing='1s'\n[switch.t]");
        let changes = words(TWO, &changed);
        assert_eq!(changes[..4], ["remove guest g", "remove port a", "remove port b", "remove switch s"]);
        assert_eq!(changes[4..6], ["add switch s", "add switch t"]);
    }
}
