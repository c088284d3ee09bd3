//! The changes that turn one fabric into another.

use crate::file::{Fabric, OpenAccess, flows};
use crate::kinds::{self, PortControl};
use ringway_spec::{Chain, ExecProgram, Function, Guest, Host, Kind, Port, Switch, To};
use ringway_switch::flows::Settings;
use std::collections::HashSet;

/// New partners of ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Join {
    /// Ports, and the port that each is joined to.
    pub ports: Vec<(String, String)>,
    /// Functions that must run before.
    pub awaited: Vec<String>,
    /// Ports at the ends of the chains that change: their frames wait.
    pub held: Vec<String>,
    /// Ports of the functions of these chains, which must be empty before.
    pub drained: Vec<String>,
    /// What changes, in words.
    words: Vec<String>,
}

/// One change to the running fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Ends a program.
    RemoveProgram(String),
    /// Stops a guest.
    RemoveGuest(String),
    /// Stops a function.
    RemoveFunction(String),
    /// Removes a port.
    RemovePort(String),
    /// Removes a host, and ends its programs.
    RemoveHost(String),
    /// Removes a switch.
    RemoveSwitch(String),
    /// Adds a switch.
    AddSwitch(Switch),
    /// Makes the rules of this switch's flow tables those of the running one.
    SetFlows(Switch),
    /// Changes who may open ports on a switch; with none, nobody may.
    SetOpening(String, Option<OpenAccess>),
    /// Adds a host, without programs.
    AddHost(String),
    /// Adds a port.
    AddPort(Port),
    /// Moves a port to another worker; its peer stays attached.
    MovePort(Port),
    /// Changes settings of a port that its peer need not know; the peer stays attached.
    SetPort(Port),
    /// Joins ports of patches and chains to others, all at once; their peers stay attached.
    Join(Join),
    /// Replaces a function's configuration.
    SwapFunction(Function),
    /// Adds a guest, and starts it if its `start` is set.
    AddGuest(Guest),
    /// Starts a guest, unless it runs.
    StartGuest(Guest),
    /// Adds a function, and starts it if its `start` is set.
    AddFunction(Function),
    /// Ends the programs of a host, and starts these.
    RunPrograms(Host),
    /// Adds a program, and starts it if its `start` is set.
    AddProgram(ExecProgram),
}

impl Change {
    /// The object that changes; empty if there are several.
    pub fn name(&self) -> &str {
        match self {
            Change::RemoveProgram(name)
            | Change::RemoveGuest(name)
            | Change::RemoveFunction(name)
            | Change::RemovePort(name)
            | Change::RemoveHost(name)
            | Change::RemoveSwitch(name)
            | Change::AddHost(name)
            | Change::SetOpening(name, _) => name,
            Change::AddSwitch(switch) | Change::SetFlows(switch) => &switch.name,
            Change::AddPort(port) | Change::MovePort(port) | Change::SetPort(port) => &port.name,
            Change::Join(_) => "",
            Change::SwapFunction(function) | Change::AddFunction(function) => &function.name,
            Change::AddGuest(guest) | Change::StartGuest(guest) => &guest.name,
            Change::RunPrograms(host) => &host.name,
            Change::AddProgram(program) => &program.name,
        }
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Change::RemoveProgram(name) => write!(f, "remove program {name}"),
            Change::AddProgram(program) => write!(f, "add program {}", program.name),
            Change::RemoveGuest(name) => write!(f, "remove guest {name}"),
            Change::RemoveFunction(name) => write!(f, "remove function {name}"),
            Change::RemovePort(name) => write!(f, "remove port {name}"),
            Change::RemoveSwitch(name) => write!(f, "remove switch {name}"),
            Change::RemoveHost(name) => write!(f, "remove host {name}"),
            Change::AddSwitch(switch) => write!(f, "add switch {}", switch.name),
            Change::SetFlows(switch) => write!(f, "change flows of switch {}", switch.name),
            Change::SetOpening(name, Some(_)) => write!(f, "let programs open ports on switch {name}"),
            Change::SetOpening(name, None) => write!(f, "let no program open ports on switch {name}"),
            Change::AddHost(name) => write!(f, "add host {name}"),
            Change::AddPort(port) => write!(f, "add port {} ({})", port.name, port.kind.name()),
            Change::MovePort(port) => {
                write!(f, "move port {} to {}", port.name, port.worker.as_deref().unwrap_or("any worker"))
            }
            Change::SetPort(port) => write!(f, "change port {}", port.name),
            Change::Join(join) => f.write_str(&join.words.join(", ")),
            Change::SwapFunction(function) => write!(f, "change function {}", function.name),
            Change::AddGuest(guest) => write!(f, "add guest {}", guest.name),
            Change::StartGuest(guest) => write!(f, "start guest {}", guest.name),
            Change::AddFunction(function) => write!(f, "add function {}", function.name),
            Change::RunPrograms(host) => write!(f, "run the programs of host {}", host.name),
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
    } else if from.metrics != to.metrics {
        Some("the address of its metrics")
    } else if from.api != to.api {
        Some("how its API is served by TCP")
    } else if from.audit != to.audit {
        Some("the file of its audit log")
    } else {
        None
    }
}

/// The changes that turn one fabric into the other; equal parts are left alone. A port that differs only in
/// its worker is moved, one that differs only in what its kind can change is changed, and one that another port
/// is patched to, directly or by a chain, is joined to that. A port that differs otherwise, or belongs to another
/// guest, is removed and added again; so are all ports of a switch that differs, and the guests and functions of
/// such ports. A function that differs only in its configuration keeps running, with the new one. Functions that
/// are new in a chain are added before ports are joined, and others are removed afterwards. `more`: kinds of port
/// besides the project's.
pub fn between(from: &Fabric, to: &Fabric, more: &'static [&'static dyn PortControl]) -> Vec<Change> {
    let kept_switches: HashSet<&str> = from
        .switches
        .iter()
        .filter(|switch| to.switches.iter().any(|other| flows::differ_in_rules_only(switch, other)))
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
    let kept_guests = kept_guests(from, to, &kept_ports);
    let has_ports =
        |function: &&Function| function.fabric_ports().iter().all(|port| kept_ports.contains(&**port));
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
    changes
        .extend(programs_but(&from.programs, to, &kept_ports).map(|p| Change::RemoveProgram(p.name.clone())));
    changes.extend(from.guests.iter().filter_map(|g| gone(&g.name, &kept_guests)).map(Change::RemoveGuest));
    for port in to.ports.iter().filter(|port| kept_ports.contains(&*port.name)) {
        changes.extend(from.port(&port.name).and_then(|own| in_place(own, port, more)).unwrap_or_default());
    }
    let (before, early) = joining(from, to, &kept_ports);
    changes.extend(before);
    let is_early = |name: &str| early.contains(&name);
    let is_early_port = |name: &str| name.split_once('.').is_some_and(|(function, _)| is_early(function));
    let functions = from.functions.iter().filter_map(|f| gone(&f.name, &kept_functions));
    changes.extend(functions.map(Change::RemoveFunction));
    changes.extend(from.ports.iter().filter_map(|p| gone(&p.name, &kept_ports)).map(Change::RemovePort));
    changes
        .extend(from.switches.iter().filter_map(|s| gone(&s.name, &kept_switches)).map(Change::RemoveSwitch));
    changes.extend(hosts(from, to).into_iter().chain(openings(from, to)));
    let new = |name: &str, kept: &HashSet<&str>| !kept.contains(name);
    changes
        .extend(to.switches.iter().filter(|s| new(&s.name, &kept_switches)).cloned().map(Change::AddSwitch));
    let ports = to.ports.iter().filter(|p| new(&p.name, &kept_ports) && !is_early_port(&p.name));
    changes.extend(ports.cloned().map(Change::AddPort));
    // Once the ports that they name have their numbers.
    let changed = |s: &&Switch| kept_switches.contains(&*s.name) && has_other_rules(from, (s, to));
    changes.extend(to.switches.iter().filter(changed).cloned().map(Change::SetFlows));
    let swapped = |f: &&Function| {
        kept_functions.contains(&*f.name) && from.function(&f.name).is_some_and(|own| is_swapped(own, f))
    };
    changes.extend(to.functions.iter().filter(swapped).cloned().map(Change::SwapFunction));
    changes.extend(to.guests.iter().filter(|g| new(&g.name, &kept_guests)).cloned().map(Change::AddGuest));
    let starts = |guest: &&Guest| kept_guests.contains(&*guest.name) && is_to_start(guest, from);
    changes.extend(to.guests.iter().filter(starts).cloned().map(Change::StartGuest));
    let functions = to.functions.iter().filter(|f| new(&f.name, &kept_functions) && !is_early(&f.name));
    changes.extend(functions.cloned().map(Change::AddFunction));
    // After their interfaces.
    changes.extend(to.hosts.iter().filter(|host| programs(from, host)).cloned().map(Change::RunPrograms));
    changes.extend(programs_but(&to.programs, from, &kept_ports).cloned().map(Change::AddProgram));
    changes
}

/// The guests that stay: those with the same settings and ports. One that runs goes on, whether or not it would start
/// with the fabric.
fn kept_guests<'f>(from: &'f Fabric, to: &Fabric, kept_ports: &HashSet<&str>) -> HashSet<&'f str> {
    let stays = |guest: &&Guest| {
        let has_same = |other: &Guest| Guest { start: guest.start, ..other.clone() } == **guest;
        guest.ports.iter().all(|port| kept_ports.contains(&**port)) && to.guests.iter().any(has_same)
    };
    from.guests.iter().filter(stays).map(|guest| &*guest.name).collect()
}

/// Whether a guest starts with the fabric that did not in `from`.
fn is_to_start(guest: &Guest, from: &Fabric) -> bool {
    guest.start && from.guest(&guest.name).is_some_and(|own| !own.start)
}

/// Whether a switch that otherwise stays gets other rules.
fn has_other_rules(from: &Fabric, (switch, to): (&Switch, &Fabric)) -> bool {
    let own = from.switches.iter().find(|own| own.name == switch.name);
    own.is_some_and(|own| !flows::have_same_rules(own, (switch, to)))
}

/// Whether a function that otherwise stays gets another configuration. Where a text comes from is for people only.
fn is_swapped(from: &Function, to: &Function) -> bool {
    let (from, to) = (&from.configuration, &to.configuration);
    (&from.file, &from.text) != (&to.file, &to.text)
}

/// The programs that the other fabric has not, or whose ports change.
fn programs_but<'p>(
    programs: &'p [ExecProgram],
    other: &Fabric,
    kept_ports: &HashSet<&str>,
) -> impl Iterator<Item = &'p ExecProgram> {
    let stays = |p: &&ExecProgram| kept_ports.contains(&*p.port) && other.programs.contains(p);
    programs.iter().filter(move |program| !stays(program))
}

/// The changes that remove hosts whose ports are gone, and add hosts for new ports.
fn hosts(from: &Fabric, to: &Fabric) -> Vec<Change> {
    let gone = from.hosts.iter().filter(|host| to.host(&host.name).is_none());
    let new = to.hosts.iter().filter(|host| from.host(&host.name).is_none());
    let gone = gone.map(|host| Change::RemoveHost(host.name.clone()));
    gone.chain(new.map(|host| Change::AddHost(host.name.clone()))).collect()
}

/// The changes of who may open ports on switches.
fn openings(from: &Fabric, to: &Fabric) -> Vec<Change> {
    let closed = from.openings.keys().filter(|name| !to.openings.contains_key(*name));
    let closed = closed.map(|name| Change::SetOpening(name.clone(), None));
    let opened = to.openings.iter().filter(|(name, open)| from.openings.get(*name) != Some(open));
    closed.chain(opened.map(|(name, open)| Change::SetOpening(name.clone(), Some(open.clone())))).collect()
}

/// Whether a host has other programs than in `from`.
fn programs(from: &Fabric, host: &Host) -> bool {
    from.host(&host.name).map_or(&[][..], |host| &host.programs) != &*host.programs
}

/// The changes that turn a port into another while its peer stays; `None` if there are none.
fn in_place(from: &Port, to: &Port, more: &'static [&'static dyn PortControl]) -> Option<Vec<Change>> {
    // A port that is only joined to another one is that later: see `joining`.
    let to = Port { to: if is_joined(from, to) { from.to.clone() } else { to.to.clone() }, ..to.clone() };
    let moved = Port { worker: to.worker.clone(), ..from.clone() };
    let mut changes = Vec::new();
    if moved != *from {
        changes.push(Change::MovePort(moved.clone()));
    }
    // The peer has nothing to do with the policy.
    let with_policy = Port { policy: to.policy.clone(), ..moved.clone() };
    if moved != to {
        let changes_kind = with_policy != to;
        let kind = kinds::find(from.kind.name(), more);
        kind.filter(|kind| !changes_kind || kind.changes(&with_policy, &to))?;
        changes.push(Change::SetPort(to));
    }
    Some(changes)
}

/// Whether a port of a patch is joined to another port.
fn is_joined(from: &Port, to: &Port) -> bool {
    from.to != to.to && [from, to].iter().all(|port| matches!(port.to, Some(To::Patch(_))))
}

/// The changes that join kept ports to others, and the names of the functions that they add before, with their ports:
/// those that are new in chains.
fn joining<'t>(from: &Fabric, to: &'t Fabric, kept: &HashSet<&str>) -> (Vec<Change>, Vec<&'t str>) {
    let mut join = Join::default();
    for port in to.ports.iter().filter(|port| kept.contains(&*port.name)) {
        if let (Some(own), Some(To::Patch(partner))) = (from.port(&port.name), &port.to)
            && is_joined(own, port)
        {
            join.ports.push((port.name.clone(), partner.clone()));
        }
    }
    if join.ports.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let is_new = |function: &&Function| function.chained && from.function(&function.name).is_none();
    let functions: Vec<&'t Function> = to.functions.iter().filter(is_new).collect();
    let ports: Vec<String> = functions.iter().flat_map(|function| function.fabric_ports()).collect();
    let mut changes: Vec<Change> =
        to.ports.iter().filter(|port| ports.contains(&port.name)).cloned().map(Change::AddPort).collect();
    changes.extend(functions.iter().map(|function| Change::AddFunction((*function).clone())));
    let started = functions.iter().filter(|function| function.start && !function.first_frame);
    join.awaited = started.map(|function| function.name.clone()).collect();
    for chain in &from.chains {
        let functions = chain.functions.iter().flat_map(|name| from.members(name));
        let inner: Vec<String> = functions.flat_map(Function::fabric_ports).collect();
        if join.ports.iter().any(|(port, _)| chain.ports.contains(port) || inner.contains(port)) {
            join.held.extend(chain.ports.iter().filter(|port| kept.contains(&***port)).cloned());
            join.drained.extend(inner);
        }
    }
    join.words = words(&join, from, to);
    changes.push(Change::Join(join));
    (changes, functions.into_iter().map(|function| &*function.name).collect())
}

/// The chains that change, and joined ports that are in none.
fn words(join: &Join, from: &Fabric, to: &Fabric) -> Vec<String> {
    let differs = |chain: &&Chain| !from.chains.contains(chain);
    let shown = |chain: &Chain| format!("change chain {} to {}", chain.name, chain.functions.join(" "));
    let mut words: Vec<String> = to.chains.iter().filter(differs).map(shown).collect();
    let is_end = |port: &String| from.chains.iter().chain(&to.chains).any(|chain| chain.ports.contains(port));
    // Names of other ports have no dot.
    let is_inner = |port: &String| port.contains('.');
    let patched = join.ports.iter().filter(|(port, _)| !is_end(port) && !is_inner(port));
    words.extend(patched.map(|(port, partner)| format!("join port {port} to {partner}")));
    let gone = |chain: &&Chain| !to.chains.iter().any(|other| other.name == chain.name);
    words.extend(from.chains.iter().filter(gone).map(|chain| format!("remove chain {}", chain.name)));
    words
}

/// The guest of a port, and the guest's configured user, who owns the port's socket.
fn user<'a>(fabric: &'a Fabric, port: &str) -> Option<(&'a str, Option<&'a str>)> {
    let guest = fabric.guests.iter().find(|guest| guest.ports.iter().any(|own| own == port))?;
    Some((&guest.name, guest.user.as_deref()))
}

/// Applies a change to the description of a fabric.
pub fn apply(fabric: &mut Fabric, change: &Change) {
    match change.clone() {
        Change::RemoveProgram(name) => fabric.programs.retain(|program| program.name != name),
        Change::AddProgram(program) => fabric.programs.push(program),
        Change::RemoveGuest(name) => fabric.guests.retain(|guest| guest.name != name),
        Change::RemovePort(name) => fabric.ports.retain(|port| port.name != name),
        Change::RemoveSwitch(name) => fabric.switches.retain(|switch| switch.name != name),
        Change::AddSwitch(switch) => fabric.switches.push(switch),
        Change::SetFlows(switch) => {
            if let Some(own) = fabric.switches.iter_mut().find(|own| own.name == switch.name) {
                let ports = flows::settings(own).unwrap_or_default().ports;
                let settings = flows::settings(&switch).unwrap_or_default();
                let settings = Settings { ports, ..settings };
                own.lookup = Kind::new(switch.lookup.name(), &settings);
            }
        }
        Change::SetOpening(name, Some(open)) => drop(fabric.openings.insert(name, open)),
        Change::SetOpening(name, None) => drop(fabric.openings.remove(&name)),
        Change::AddPort(port) => fabric.ports.push(port),
        Change::MovePort(port) | Change::SetPort(port) => {
            if let Some(own) = fabric.ports.iter_mut().find(|own| own.name == port.name) {
                *own = port;
            }
        }
        Change::Join(join) => {
            for (name, partner) in join.ports {
                for port in fabric.ports.iter_mut().filter(|port| port.name == name) {
                    port.to = Some(To::Patch(partner.clone()));
                }
            }
        }
        Change::RemoveHost(name) => fabric.hosts.retain(|host| host.name != name),
        Change::AddHost(name) => fabric.hosts.push(Host { name, programs: Vec::new() }),
        Change::RunPrograms(host) => {
            if let Some(own) = fabric.hosts.iter_mut().find(|own| own.name == host.name) {
                *own = host;
            }
        }
        Change::AddGuest(guest) => fabric.guests.push(guest),
        Change::StartGuest(guest) => {
            if let Some(own) = fabric.guests.iter_mut().find(|own| own.name == guest.name) {
                own.start = true;
            }
        }
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
    use crate::file::{Host as Machine, read};

    fn fabric(text: &str) -> Fabric {
        read("f", text, &Machine { cores: vec![0], ..Machine::default() }).unwrap()
    }

    fn words(from: &str, to: &str) -> Vec<String> {
        let (mut from, to) = (fabric(from), fabric(to));
        let changes = between(&from, &to, &[]);
        changes.iter().for_each(|change| apply(&mut from, change));
        assert_eq!(between(&from, &to, &[]), [], "no further change is needed");
        changes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn other_rules_change_flows_and_no_port() {
        let flows = |rules: &str| {
            format!("[switch.s]\nlookup='flow'\nrules='{rules}'\n[port.b]\nkind='null'\nswitch='s'\n")
        };
        let (one, other) = (flows("actions=output:b"), flows("actions=drop"));
        assert_eq!(words(&one, &other), ["change flows of switch s"]);
        assert!(words(&one, &flows(" actions=b")).is_empty());
        let more = other.clone() + "[port.c]\nkind='null'\nswitch='s'\n";
        assert_eq!(words(&one, &more), ["add port c (null)", "change flows of switch s"]);
        assert_eq!(
            words(&one, &one.replace("lookup='flow'", "lookup='learning'").replace("rules=", "#"))[0],
            "remove port b"
        );
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
    fn a_guest_of_which_only_the_start_changes_stays() {
        let off = TWO.replace("port='a'\n", "port='a'\nstart=false\n");
        assert_eq!(words(&off, TWO), ["start guest g"]);
        assert!(words(TWO, &off).is_empty());
        let more = off.replace("start=false", "start=false\naddress='10.0.0.1/24'");
        assert_eq!(words(TWO, &more), ["remove guest g", "add guest g"]);
    }

    #[test]
    fn who_may_open_ports_changes_without_the_switch_and_its_ports() {
        let open = TWO.replace("[switch.s]", "[switch.s]\nopen='0660'");
        let more = open.replace("'0660'", "'0666'");
        assert_eq!(words(TWO, &open), ["let programs open ports on switch s"]);
        assert_eq!(words(&open, &more), ["let programs open ports on switch s"]);
        assert_eq!(words(&open, TWO), ["let no program open ports on switch s"]);
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
    fn a_changed_policy_keeps_the_peer_and_its_guest() {
        let tagged = TWO.replace("socket='a'", "socket='a'\ntag=10");
        let more = tagged.replace("kind='null'", "kind='null'\nisolated=true\ntrunks=[10,'12-14']");
        assert_eq!(words(TWO, &tagged), ["change port a"]);
        assert_eq!(words(&tagged, &more), ["change port b"]);
        assert_eq!(words(&more, TWO), ["change port a", "change port b"]);
        let other = tagged.replace("socket='a'", "socket='a'\ncarrier=false");
        assert_eq!(words(TWO, &other), ["change port a"], "with its kind's own key");
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
    fn a_host_s_namespace_is_there_before_its_ports_and_after_them() {
        let one = "[switch.s]\n[host.h]\nswitch='s'\nlink={delay='5ms'}\nrun=['sleep 9']\n";
        let none = "[switch.s]\n";
        let ports = ["h", "h/h", "h/s"];
        let kinds = ["tap", "link", "link"];
        let added = ports.iter().zip(kinds).map(|(port, kind)| format!("add port {port} ({kind})"));
        let added: Vec<String> = ["add host h".to_string()].into_iter().chain(added).collect();
        let expected = [&added[..], &["run the programs of host h".to_string()]].concat();
        assert_eq!(words(none, one), expected);
        let removed = ports.map(|port| format!("remove port {port}"));
        assert_eq!(words(one, none), [&removed[..], &["remove host h".to_string()]].concat());
        assert_eq!(words(one, &one.replace("sleep 9", "sleep 8")), ["run the programs of host h"]);
        assert_eq!(words(one, &one.replace("5ms", "6ms")), ["change port h/h", "change port h/s"]);
        let direct = words(one, &one.replace("link={delay='5ms'}\n", ""));
        let expected = ["remove port h", "remove port h/h", "remove port h/s", "add port h (tap)"];
        assert_eq!(direct, expected, "the programs go on");
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

    /// A chain between two null ports; functions are wires.
    fn chain(functions: &[&str], more: &str) -> String {
        let mut text = format!(
            "[port.a]\nkind='null'\n[port.b]\nkind='null'\n[worker.w]\n[worker.v]\nports=['a']\n\
             [chain.c]\nports=['a','b']\nfunctions={functions:?}\n"
        );
        for name in functions.iter().chain(&more.split_whitespace().collect::<Vec<_>>()) {
            text += &format!(
                "[function.{name}]\nports=['l','r']\nisolation='worker'\n\
                 click='FromPort(l) -> ToPort(r); FromPort(r) -> ToPort(l);'\n"
            );
        }
        text
    }

    #[test]
    fn ports_of_a_chain_are_joined_in_a_row_on_one_worker() {
        let fabric = fabric(&chain(&["f", "g"], ""));
        let to = |name: &str| fabric.port(name).unwrap().to.clone();
        let patched = |name: &str| Some(To::Patch(name.into()));
        assert_eq!([to("a"), to("f.l")], [patched("f.l"), patched("a")]);
        assert_eq!([to("f.r"), to("g.l")], [patched("g.l"), patched("f.r")]);
        assert_eq!([to("g.r"), to("b")], [patched("b"), patched("g.r")]);
        let inner = fabric.ports.iter().filter(|port| port.name.contains('.'));
        assert!(inner.clone().all(|port| port.worker.as_deref() == Some("v") && port.socket.is_none()));
        assert_eq!(inner.count(), 4);
    }

    #[test]
    fn a_chain_is_extended_before_functions_are_removed() {
        let (one, other) = (chain(&["f", "g"], ""), chain(&["f", "h", "g"], ""));
        let expected =
            ["add port h.l (ring)", "add port h.r (ring)", "add function h", "change chain c to f h g"];
        assert_eq!(words(&one, &other), expected);
        let back = words(&other, &one);
        let removed = ["change chain c to f g", "remove function h", "remove port h.l", "remove port h.r"];
        assert_eq!(back, removed);
        assert_eq!(words(&one, &chain(&["g", "f"], "")), ["change chain c to g f"]);
        let (from, to) = (fabric(&one), fabric(&other));
        let leaves = between(&to, &from, &[]);
        let Some(Change::Join(join)) = leaves.first() else { unreachable!("{leaves:?}") };
        assert!(join.drained.contains(&"h.l".into()), "frames leave it before it is removed");
        let changes = between(&from, &to, &[]);
        let Some(Change::Join(join)) = changes.last() else { unreachable!("{changes:?}") };
        assert_eq!(
            (&*join.awaited, &*join.held),
            (&["h".to_string()][..], &["a".to_string(), "b".into()][..])
        );
        assert_eq!(join.drained, ["f.l", "f.r", "g.l", "g.r"]);
        assert_eq!(join.ports, [("f.r".to_string(), "h.l".to_string()), ("g.l".into(), "h.r".into())]);
    }

    #[test]
    fn a_replaced_function_goes_last() {
        let changes = words(&chain(&["f", "g"], ""), &chain(&["h", "g"], ""));
        let (joined, removed) = ("change chain c to h g", "remove function f");
        let at = |what: &str| changes.iter().position(|change| change == what).unwrap();
        assert!(at("add function h") < at(joined) && at(joined) < at(removed), "{changes:?}");
    }

    #[test]
    fn a_changed_patch_keeps_its_ports() {
        let patch = |ports: &str| {
            let null = |name: &str| format!("[port.{name}]\nkind='null'\n");
            format!("{}[patch.p]\nports=[{ports}]\n", ["a", "b", "c", "d"].map(null).concat())
        };
        let (one, other) =
            (patch("'a','b']\n[patch.q]\nports=['c','d'"), patch("'a','c']\n[patch.q]\nports=['b','d'"));
        let joined = "join port a to c, join port b to d, join port c to a, join port d to b";
        assert_eq!(words(&one, &other), [joined]);
    }

    #[test]
    fn a_changed_switch_recreates_its_ports() {
        let changed = TWO.replace("[switch.s]", "[switch.s]\nageing='1s'\n[switch.t]");
        let changes = words(TWO, &changed);
        assert_eq!(changes[..4], ["remove guest g", "remove port a", "remove port b", "remove switch s"]);
        assert_eq!(changes[4..6], ["add switch s", "add switch t"]);
    }
}
